package worker_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"rejoin/protocol"
	"rejoin/tests/harness"
)

// fakePi takes pi's commands and tells every line it got. A prompt is answered
// only after "go"; "ask" asks a question, with a timeout in ms if there is one;
// an abort is not answered while a question is open; "die" ends it.
func fakePi([]string) int {
	signal.Ignore(syscall.SIGTERM)
	in := bufio.NewReader(os.Stdin)
	put := func(v any) {
		b, _ := json.Marshal(v)
		_, _ = os.Stdout.Write(append(b, '\n'))
	}
	type obj map[string]any
	var prompts, aborts []any
	open := map[string]bool{}
	answer := func(id any, kind string) { put(obj{"id": id, "type": "response", "command": kind, "success": true}) }
	settle := func() {
		if len(open) > 0 {
			return
		}
		for _, id := range aborts {
			put(obj{"type": "agent_settled", "aborted": true})
			answer(id, "abort")
		}
		aborts = nil
	}
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			put(obj{"type": "eof"})
			return 0
		}
		put(obj{"type": "got", "line": strings.TrimSpace(string(line))})
		var c struct {
			ID            any
			Type, Message string
			Timeout       int
		}
		if json.Unmarshal(line, &c) != nil {
			return 4
		}
		switch c.Type {
		case "get_state":
			put(obj{"id": c.ID, "type": "response", "command": "get_state", "success": true, "data": obj{
				"model": obj{"id": "m1", "provider": "mock"}, "thinkingLevel": "off", "sessionId": "sid", "sessionFile": "/sessions/1.jsonl",
			}})
		case "prompt":
			prompts = append(prompts, c.ID)
			put(obj{"type": "agent_start"})
		case "go":
			for _, id := range prompts {
				answer(id, "prompt")
			}
			prompts = nil
			answer(c.ID, "go")
		case "ask":
			q := obj{"type": "extension_ui_request", "id": c.Message, "method": "confirm", "title": "Sure?"}
			if c.Timeout > 0 {
				q["timeout"] = c.Timeout
			}
			open[c.Message] = true
			put(q)
			answer(c.ID, "ask")
		case "extension_ui_response":
			delete(open, fmt.Sprint(c.ID))
			settle()
		case "abort":
			aborts = append(aborts, c.ID)
			settle()
		case "die":
			return 9
		default:
			answer(c.ID, c.Type)
		}
	}
}

// got are the lines the child got so far, but those of get_state.
func (s *sess) got() []string {
	s.h.tb.Helper()
	var out []string
	for _, e := range s.events() {
		var b struct{ Type, Line string }
		if e.Source == protocol.SourceChild && json.Unmarshal(e.Body, &b) == nil && b.Type == "got" && !strings.Contains(b.Line, "get_state") {
			out = append(out, b.Line)
		}
	}
	return out
}

func (s *sess) awaitGot(want ...string) {
	s.h.tb.Helper()
	var got []string
	harness.Eventually(s.h.tb, fmt.Sprintf("the child has got %d lines", len(want)), func() bool {
		got = s.got()
		return len(got) >= len(want)
	})
	if !slices.Equal(got, want) {
		s.h.tb.Errorf("the child got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func (s *sess) verb(client, id, verb, params string) protocol.WorkerReply {
	s.h.tb.Helper()
	req := s.req(protocol.OpCommand)
	req.Command = &protocol.CommandInput{ID: id, Verb: verb, Params: protocol.RawJSON(params), Client: protocol.CommandClient{Name: client, Connection: 1}}
	return s.h.ask(req)
}

func (s *sess) must(r protocol.WorkerReply) {
	s.h.tb.Helper()
	if r.Result == nil {
		s.h.tb.Fatalf("refused: %+v", r.Error)
	}
}

func (s *sess) awaitOutcome(id string, want protocol.Outcome) {
	s.h.tb.Helper()
	harness.Eventually(s.h.tb, "the outcome of "+id, func() bool { return s.outcome(id).Outcome != protocol.OutcomeAdmitted })
	if got := s.outcome(id); got.Outcome != want {
		s.h.tb.Errorf("outcome of %s: %+v, want %s", id, got, want)
	}
}

// ask lets the child ask a question and waits for it.
func (s *sess) ask(name string) {
	s.h.tb.Helper()
	s.must(s.send("ask-"+name, fmt.Sprintf(`{"type":"ask","message":"%s"}`, name), nil))
	s.awaitOutcome("ask-"+name, protocol.OutcomeDone)
}

func TestPromptsReachPiOneByOne(t *testing.T) {
	h := newHost(t, hostConfig{})
	s := h.start("s", "pi", "pi")
	s.must(s.verb("a", "p1", "prompt", `{"text":"one"}`))
	s.must(s.verb("b", "p2", "prompt", `{"text":"two"}`))
	s.must(s.verb("b", "s1", "steer", `{"text":"left"}`))
	s.awaitOutcome("s1", protocol.OutcomeDone)
	s.must(s.send("g1", `{"type":"go","id":"x"}`, nil))
	s.awaitOutcome("p1", protocol.OutcomeDone)
	s.awaitGot(
		`{"id":"rj:1:2","type":"prompt","message":"one","streamingBehavior":"followUp"}`, `{"id":"rj:1:4","type":"steer","message":"left"}`, `{"type":"go","id":"rj:1:5"}`,
		`{"id":"rj:1:3","type":"prompt","message":"two","streamingBehavior":"followUp"}`,
	)
	s.awaitEvent("the client's own id comes back", func(e protocol.Event) bool {
		return e.CommandID == "g1" && strings.Contains(string(e.Body), `"id":"x"`)
	})
	if got := s.outcome("p2"); got.Outcome != protocol.OutcomeAdmitted {
		t.Errorf("p2: %+v", got)
	}
	released := s.awaitEvent("the release", func(e protocol.Event) bool { return typeOf(e) == protocol.TypeCommandReleased })
	if released.CommandID != "p2" {
		t.Errorf("released %s", released.CommandID)
	}
}

// Proves that the second of two clients may answer, in one record, and that this
// is known over a restart.
func TestAnsweredByTheSecondClient(t *testing.T) {
	h := newHost(t, hostConfig{})
	s := h.start("s", "pi", "pi")
	s.ask("q")
	r := s.verb("b", "r1", "respond", `{"interactionId":"1.q","outcome":"deny"}`)
	s.must(r)
	if late := s.send("r2", `{"type":"extension_ui_response","id":"q","confirmed":true}`, nil); reasonOf(late) != protocol.ReasonAlreadyResolved || late.Error.ResolvedBy != "b" {
		t.Errorf("late: %+v", late)
	}
	if again := s.verb("b", "r1", "respond", `{"interactionId":"1.q","outcome":"deny"}`); again.Result == nil || !again.Result.Duplicate {
		t.Errorf("again: %+v", again)
	}
	s.awaitOutcome("r1", protocol.OutcomeDone)
	s.awaitGot(`{"id":"rj:1:2","type":"ask","message":"q"}`, `{"type":"extension_ui_response","id":"q","confirmed":false}`)
	if n := s.recordOf(r.Result.Seq); n != s.recordOf(r.Result.Seq+1) {
		t.Error("answer and resolution are in two records")
	}
	if e := s.events()[r.Result.Seq]; typeOf(e) != protocol.TypeInteraction || e.CommandID != "r1" {
		t.Errorf("after the answer comes %s", e.Body)
	}
	s.stop(0)
	s.awaitEnd()

	rec := s.record()
	rec.Run, rec.Owner = 2, "w1"
	h.reg.put(rec)
	if _, r := h.launch(protocol.OpResume, rec); r.Info == nil {
		t.Fatalf("resume: %+v", r)
	}
	if late := s.verb("a", "r3", "respond", `{"interactionId":"1.q","outcome":"allow"}`); reasonOf(late) != protocol.ReasonAlreadyResolved ||
		late.Error.ResolvedBy != "b" || late.Error.Outcome != "deny" {
		t.Errorf("late, in the next run: %+v", late)
	}
	if r := s.verb("a", "r4", "respond", `{"interactionId":"2.q","outcome":"allow"}`); reasonOf(r) != protocol.ReasonInvalidParams {
		t.Errorf("never asked: %+v", r)
	}
}

// recordOf is the first seq of the record that holds an event.
func (s *sess) recordOf(seq protocol.Seq) protocol.Seq {
	s.h.tb.Helper()
	recs, err := s.h.node.Read(harness.Context(s.h.tb), s.log, seq-1, 1)
	if err != nil || len(recs) == 0 {
		s.h.tb.Fatalf("record of %d: %v", seq, err)
	}
	return recs[0].Base()
}

// pi answers no abort while a question is open.
func TestInterruptWithAnOpenQuestion(t *testing.T) {
	h := newHost(t, hostConfig{})
	s := h.start("s", "pi", "pi")
	s.ask("q")
	s.must(s.verb("a", "i1", "interrupt", `{}`))
	s.awaitOutcome("i1", protocol.OutcomeDone)
	s.awaitGot(`{"id":"rj:1:2","type":"ask","message":"q"}`, `{"id":"rj:1:3","type":"abort"}`, `{"type":"extension_ui_response","id":"q","cancelled":true}`)
}

func TestQuestionExpires(t *testing.T) {
	h := newHost(t, hostConfig{})
	s := h.start("s", "pi", "pi")
	s.must(s.send("a1", `{"type":"ask","message":"q","timeout":40}`, nil))
	e := s.awaitEvent("the question expires", func(e protocol.Event) bool { return typeOf(e) == protocol.TypeInteraction })
	if got := string(e.Body); got != `{"type":"interaction_resolved","interactionId":"1.q","resolvedBy":"rejoin","outcome":"expired"}` {
		t.Errorf("%s", got)
	}
}

// Proves I-B3 for an agent that dies with questions open and prompts held.
func TestPiDies(t *testing.T) {
	harness.Covers(t, "I-B3")
	h := newHost(t, hostConfig{})
	s := h.start("s", "pi", "pi")
	s.awaitOutcome("rj:1:1", protocol.OutcomeDone)
	s.ask("q")
	for i := range 3 {
		s.must(s.verb("a", fmt.Sprint("p", i), "prompt", `{"text":"x"}`))
	}
	s.must(s.send("d", `{"type":"die"}`, nil))
	if end := s.awaitEnd(); describe(end) != "exited 9 null" {
		t.Errorf("end: %s", describe(end))
	}
	events := s.events()
	from := slices.IndexFunc(events, func(e protocol.Event) bool { return e.CommandID == "p0" && typeOf(e) == protocol.TypeCommandOutcome })
	var got []string
	for _, e := range events[max(from, 0):] {
		got = append(got, string(e.Body))
	}
	want := []string{
		`{"type":"command_outcome","commandId":"p0","outcome":"interrupted"}`,
		`{"type":"command_outcome","commandId":"p1","outcome":"discarded"}`,
		`{"type":"command_outcome","commandId":"p2","outcome":"discarded"}`,
		`{"type":"command_outcome","commandId":"d","outcome":"interrupted"}`,
		`{"type":"interaction_resolved","interactionId":"1.q","resolvedBy":"rejoin","outcome":"interrupted"}`,
		`{"type":"session_end","reason":"exited","exitCode":9,"signal":null}`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("the run ends with\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// The ladder of a stop aborts and cancels open questions before stdin is closed.
func TestStopSpeaksFirst(t *testing.T) {
	h := newHost(t, hostConfig{})
	s := h.start("s", "pi", "pi")
	s.must(s.verb("a", "p1", "prompt", `{"text":"x"}`))
	s.ask("q")
	s.stop(5 * time.Second)
	if end := s.awaitEnd(); describe(end) != "stopped 0 null" {
		t.Errorf("end: %s", describe(end))
	}
	s.awaitGot(
		`{"id":"rj:1:2","type":"prompt","message":"x","streamingBehavior":"followUp"}`, `{"id":"rj:1:3","type":"ask","message":"q"}`,
		`{"id":"rj:1:4","type":"abort"}`, `{"type":"extension_ui_response","id":"q","cancelled":true}`,
	)
	for id, want := range map[string]string{"p1": "interrupted", "rj:1:4": "done", "rj:1:5": "done"} {
		found := ""
		for _, e := range s.events() {
			if e.CommandID == id && typeOf(e) == protocol.TypeCommandOutcome {
				found += string(e.Body)
			}
		}
		if want = fmt.Sprintf(`{"type":"command_outcome","commandId":"%s","outcome":"%s"}`, id, want); found != want {
			t.Errorf("outcome of %s: %s", id, found)
		}
	}
}
