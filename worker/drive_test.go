package worker

import (
	"bufio"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"rejoin/agent/pi"
	"rejoin/protocol"
)

// piWorld is a live session of pi without a child: the test is journal and child.
type piWorld struct {
	t    *testing.T
	s    *session
	f    *fakeLog
	from int // bodies seen so far
}

func newPi(t *testing.T) *piWorld {
	t.Helper()
	s, f, _ := newFakeSession(t, pi.Adapter{})
	return &piWorld{t: t, s: s, f: f, from: len(f.bodies)}
}

// hear lets the child print a line.
func (w *piWorld) hear(line string) {
	w.t.Helper()
	b := new(batch)
	b.add(protocol.SourceChild, []byte(line))
	o := &stdout{s: w.s, room: w.t.Context()}
	if !o.append(b) {
		w.t.Fatal("line is not taken")
	}
}

func (w *piWorld) verb(id, verb, params string) func() []protocol.WorkerReply {
	w.t.Helper()
	var got []protocol.WorkerReply
	w.s.admit(&protocol.CommandInput{ID: id, Verb: verb, Params: protocol.RawJSON(params), Client: protocol.CommandClient{Name: "ann"}},
		func(r protocol.WorkerReply) { got = append(got, r) })
	return func() []protocol.WorkerReply { return got }
}

// queued takes the lines that wait for the child.
func (w *piWorld) queued() []string {
	w.s.stdin.mu.Lock()
	defer w.s.stdin.mu.Unlock()
	var out []string
	for _, l := range w.s.stdin.queue {
		out = append(out, strings.TrimSuffix(string(l.data), "\n"))
	}
	w.s.stdin.queue = nil
	return out
}

// recorded is what was appended since the last call: types, with the id that matters.
func (w *piWorld) recorded() []string {
	w.t.Helper()
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	var out []string
	for i := w.from; i < len(w.f.bodies); i++ {
		var b struct {
			Type, CommandID, Outcome, InteractionID string
			Held                                    bool
		}
		if err := json.Unmarshal([]byte(w.f.bodies[i]), &b); err != nil {
			w.t.Fatal(err)
		}
		what := b.Type
		if w.f.sources[i] == protocol.SourceChild {
			what = "child " + what
		} else {
			if b.Held {
				what += " held"
			}
			what = strings.TrimSpace(strings.Join([]string{what, b.CommandID + b.InteractionID, b.Outcome}, " "))
		}
		out = append(out, what)
	}
	w.from = len(w.f.bodies)
	return out
}

func (w *piWorld) expect(want ...string) {
	w.t.Helper()
	if got := w.recorded(); !slices.Equal(got, want) {
		w.t.Errorf("recorded\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func (w *piWorld) stdin(want ...string) {
	w.t.Helper()
	if got := w.queued(); !slices.Equal(got, want) {
		w.t.Errorf("stdin\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

const piQuestion = `{"type":"extension_ui_request","id":"r1","method":"confirm","title":"Run it?"}`

// Proves I-W1 for held commands: their release is durable before their first byte.
func TestReleaseIsDurableFirst(t *testing.T) {
	w := newPi(t)
	one, two := w.verb("c1", "prompt", `{"text":"1"}`), w.verb("c2", "prompt", `{"text":"2"}`)
	w.f.settle(nil)
	if len(one()) != 1 || len(two()) != 1 {
		t.Fatal("not answered when durable")
	}
	w.stdin(`{"id":"rj:1:1","type":"prompt","message":"1","streamingBehavior":"followUp"}`)
	w.hear(`{"id":"rj:1:1","type":"response","command":"prompt","success":true,"data":{"disposition":"started"}}`)
	w.expect("command c1", "command held c2", "child response", "command_outcome c1 done", "command_released c2")
	w.stdin()
	w.f.settle(nil)
	w.stdin(`{"id":"rj:1:2","type":"prompt","message":"2","streamingBehavior":"followUp"}`)
	if st := w.s.ledger.Status("c1"); string(st.Result) != `{"disposition":"started"}` {
		t.Errorf("result %s", st.Result)
	}
}

// Proves that an answer and what it resolves are one record, and durable before
// the child gets it; a repeat is a duplicate, another answer is told who was first.
func TestAnswerIsOneRecord(t *testing.T) {
	w := newPi(t)
	w.hear(piQuestion)
	first := w.verb("c1", "respond", `{"interactionId":"1.r1","outcome":"allow"}`)
	if w.f.groups != 1 {
		t.Error("answer and resolution are not one group")
	}
	again := w.verb("c1", "respond", `{"interactionId":"1.r1","outcome":"allow"}`)
	other := w.verb("c2", "respond", `{"interactionId":"1.r1","outcome":"deny"}`)
	w.stdin()
	w.f.settle(nil)
	w.stdin(`{"type":"extension_ui_response","id":"r1","confirmed":true}`)
	if got := first(); len(got) != 1 || got[0].Result == nil || got[0].Result.Seq != 3 {
		t.Errorf("first: %+v", got)
	}
	if got := again(); len(got) != 1 || got[0].Result == nil || !got[0].Result.Duplicate {
		t.Errorf("again: %+v", got)
	}
	if got := other(); reason(got) != protocol.ReasonAlreadyResolved || got[0].Error.ResolvedBy != "ann" || got[0].Error.Outcome != "allow" {
		t.Errorf("other: %+v", got)
	}
	w.s.wrote("c1")
	w.expect("child extension_ui_request", "command c1", "interaction_resolved 1.r1 allow", "command_outcome c1 done")
}

// Proves I-B3 for an agent that answers: what each command's outcome is when the
// child dies, and that questions are closed before the end.
func TestEndOfAgentsRun(t *testing.T) {
	w := newPi(t)
	w.hear(piQuestion)
	for _, id := range []string{"sent", "held1", "held2"} {
		w.verb(id, "prompt", `{"text":"x"}`)
	}
	w.verb("queued", "steer", `{"text":"x"}`)
	w.f.settle(nil)
	w.s.wrote("sent")
	w.recorded()
	code := 9
	w.s.record(ending{why: endExited, code: &code, gone: true}, false)
	w.expect(
		"command_outcome sent interrupted", "command_outcome held1 discarded", "command_outcome held2 discarded",
		"command_outcome queued failed", "interaction_resolved 1.r1 interrupted", "session_end",
	)
	if got := w.verb("late", "respond", `{"interactionId":"1.r1","outcome":"allow"}`)(); reason(got) != protocol.ReasonSessionUnavailable {
		t.Errorf("late answer: %+v", got)
	}
	if r, ok := w.s.ledger.Resolved(func(id string) bool { return id == "1.r1" }); !ok || r.ResolvedBy != "rejoin" {
		t.Errorf("%+v", r)
	}
}

// After the first failed write nothing held is released any more, and no line of
// rejoin's own follows.
func TestBrokenStdin(t *testing.T) {
	w := newPi(t)
	w.verb("c1", "prompt", `{"text":"1"}`)
	w.verb("c2", "prompt", `{"text":"2"}`)
	w.f.settle(nil)
	w.s.stdin.cause = "stdin: gone"
	w.s.broke("c1", protocol.OutcomeFailed, nil)
	w.hear(`{"id":"rj:1:1","type":"response","command":"prompt","success":true}`)
	w.expect("command c1", "command held c2", "command_outcome c1 failed", "child response")
}

func TestExpectTurn(t *testing.T) {
	w := newPi(t)
	ask1 := func(turn string) []protocol.WorkerReply {
		return ask(w.s, "c"+turn, `{"type":"abort"}`, &protocol.Expect{Turn: &turn})()
	}
	if got := ask1("t2"); reason(got) != protocol.ReasonConflict {
		t.Errorf("no turn yet: %+v", got)
	}
	w.hear(`{"type":"agent_start"}`)
	if w.s.state.Turn == nil || w.s.state.Status != protocol.StatusBusy {
		t.Fatalf("state %+v", w.s.state)
	}
	if got := ask1("t1"); reason(got) != protocol.ReasonConflict {
		t.Errorf("another turn: %+v", got)
	}
	if got := ask1(w.s.state.Turn.ID); len(got) != 0 {
		t.Errorf("its turn: %+v", got)
	}
	w.f.settle(nil)
}

// The agent's own timeout closes its question; so late an answer finds it expired.
func TestExpiry(t *testing.T) {
	w := newPi(t)
	w.hear(strings.Replace(piQuestion, `"confirm"`, `"confirm","timeout":60000`, 1))
	w.hear(strings.Replace(piQuestion, `r1`, `r2`, 1))
	if left, ok := w.s.expire(); !ok || left <= 50*time.Second || left > time.Minute {
		t.Fatalf("next expiry in %v, %v", left, ok)
	}
	w.s.deadlines["1.r1"] = time.Now()
	if _, ok := w.s.expire(); ok {
		t.Error("another expiry is due")
	}
	w.expect("child extension_ui_request", "child extension_ui_request", "interaction_resolved 1.r1 expired")
	if got := w.verb("c1", "respond", `{"interactionId":"1.r1","outcome":"allow"}`)(); reason(got) != protocol.ReasonAlreadyResolved || got[0].Error.Outcome != "expired" {
		t.Errorf("%+v", got)
	}
	if len(w.s.state.Pending) != 1 || len(w.s.deadlines) != 0 {
		t.Errorf("pending %+v, deadlines %v", w.s.state.Pending, w.s.deadlines)
	}
}

// An answered question has no deadline any more.
func TestAnswerEndsDeadline(t *testing.T) {
	w := newPi(t)
	w.hear(strings.Replace(piQuestion, `"confirm"`, `"confirm","timeout":60000`, 1))
	w.verb("c1", "respond", `{"interactionId":"1.r1","outcome":"allow"}`)
	if len(w.s.deadlines) != 0 {
		t.Errorf("%v", w.s.deadlines)
	}
	w.f.settle(nil)
}

// The last words are left out when their record is not durable.
func TestLastWordsDoNotWaitForTheJournal(t *testing.T) {
	w := newPi(t)
	w.hear(`{"type":"agent_start"}`)
	w.hear(piQuestion)
	w.f.settle(nil)
	w.recorded()
	w.s.stops.ask(endStopped, time.Second)
	w.s.phase = phaseStopping
	gone := w.s.sayLast()
	if gone == nil {
		t.Fatal("no last words")
	}
	w.expect("command rj:1:1", "command rj:1:2", "interaction_resolved 1.r1 cancelled")
	w.stdin()
	w.f.settle(nil)
	w.stdin(`{"id":"rj:1:1","type":"abort"}`, `{"type":"extension_ui_response","id":"r1","cancelled":true}`)
	w.s.wrote("rj:1:1")
	select {
	case <-gone:
		t.Error("gone before the cancellation was written")
	default:
	}
	w.s.wrote("rj:1:2")
	<-gone

	w = newPi(t)
	w.hear(piQuestion)
	w.f.stalled = true
	w.s.phase = phaseStopping
	if w.s.sayLast() != nil {
		t.Error("a stalled journal is asked")
	}
	w.f.settle(nil)
}

// The line of an event is the child's with the client's id, and the envelope says
// whose answer it is.
func TestRecordedLine(t *testing.T) {
	w := newPi(t)
	ask(w.s, "c1", `{"id": 7, "type":"get_state"}`, nil)
	w.f.settle(nil)
	w.stdin(`{"id":"rj:1:1","type":"get_state"}`)
	w.hear(`{"id":"rj:1:1","type":"response","command":"get_state","success":true}`)
	if got := w.f.bodies[len(w.f.bodies)-2]; got != `{"id":7,"type":"response","command":"get_state","success":true}` {
		t.Errorf("recorded %s", got)
	}
	var body protocol.CommandEvent
	if err := json.NewDecoder(bufio.NewReader(strings.NewReader(w.f.bodies[len(w.f.bodies)-3]))).Decode(&body); err != nil {
		t.Fatal(err)
	}
	if string(body.Command) != `{"id":7,"type":"get_state"}` || body.Line != `{"id":"rj:1:1","type":"get_state"}` {
		t.Errorf("command %s, line %s", body.Command, body.Line)
	}
}
