package worker

import (
	"bufio"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"rejoin/agent/jsonl"
	"rejoin/agent/lines"
	"rejoin/protocol"
	"rejoin/snapshot"
)

func reason(rs []protocol.WorkerReply) protocol.Reason {
	if len(rs) != 1 || rs[0].Error == nil {
		return ""
	}
	return rs[0].Error.Reason
}

// Proves I-W1: nothing reaches stdin, and nobody is answered, before the command
// event is durable.
func TestInputFollowsItsRecord(t *testing.T) {
	s, f, r := newFakeSession(t, jsonl.Adapter{})
	first := ask(s, "c1", `{"a": 1}`, nil)
	repeat := ask(s, "c1", `{"a":1}`, nil)
	if len(first()) != 0 || len(repeat()) != 0 || len(s.stdin.queue) != 0 {
		t.Fatal("answered or queued before the record is durable")
	}
	if st := s.ledger.Status("c1"); st.Outcome != protocol.OutcomeAdmitted || st.Seq != 2 {
		t.Errorf("ledger: %+v", st)
	}
	f.settle(nil)
	if got := first(); len(got) != 1 || got[0].Result == nil || got[0].Result.Seq != 2 || got[0].Result.Duplicate {
		t.Errorf("first: %+v", got)
	}
	if got := repeat(); len(got) != 1 || got[0].Result == nil || got[0].Result.Seq != 2 || !got[0].Result.Duplicate {
		t.Errorf("repeat: %+v", got)
	}
	done := inBackground(s.stdin.run)
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil || line != "{\"a\":1}\n" {
		t.Errorf("stdin: %q, %v", line, err)
	}
	s.stdin.close()
	<-done
	if s.stdin.lines != 0 || s.stdin.bytes != 0 {
		t.Errorf("room not given back: %d lines, %d bytes", s.stdin.lines, s.stdin.bytes)
	}
	if got := s.ledger.Status("c1").Outcome; got != protocol.OutcomeDone {
		t.Errorf("outcome: %s", got)
	}
}

func TestLostRecord(t *testing.T) {
	s, f, _ := newFakeSession(t, jsonl.Adapter{})
	first, repeat := ask(s, "c1", `1`, nil), ask(s, "c1", `1`, nil)
	f.settle(errTest)
	for _, got := range [][]protocol.WorkerReply{first(), repeat()} {
		if reason(got) != protocol.ReasonOutcomeUnknown || !got[0].Error.Retryable {
			t.Errorf("got %+v", got)
		}
	}
	if s.stdin.lines != 0 || len(s.stdin.queue) != 0 {
		t.Error("a command without a durable record holds room")
	}
}

// The order of checks: what is wrong first is told, and a refused command leaves
// no trace.
func TestOrderOfChecks(t *testing.T) {
	wrong := protocol.Seq(99)
	bad := &protocol.Expect{Head: &wrong}
	steps := []struct {
		name string
		undo func(*session, *fakeLog)
		want protocol.Reason
	}{
		{"no live child", func(s *session, _ *fakeLog) { s.phase = phaseLive }, protocol.ReasonSessionUnavailable},
		{"journal stalls", func(_ *session, f *fakeLog) { f.stalled = false }, protocol.ReasonJournalUnavailable},
		{"expect", func(*session, *fakeLog) { wrong = 2 }, protocol.ReasonConflict},
		{"stdin full", func(s *session, _ *fakeLog) { s.stdin.lines = 0 }, protocol.ReasonOverloaded},
		{"adapter", func(*session, *fakeLog) {}, protocol.ReasonInvalidParams},
	}
	s, f, _ := newFakeSession(t, lines.Adapter{})
	known := ask(s, "known", `"x"`, nil)
	f.settle(nil)
	if got := known(); len(got) != 1 || got[0].Result == nil {
		t.Fatalf("known: %+v", got)
	}
	s.stdin.queue = nil
	s.phase, f.stalled, s.stdin.lines = phaseStopping, true, protocol.StdinQueueLinesMax
	for _, step := range steps {
		t.Run(step.name, func(t *testing.T) {
			if got := ask(s, "c", `"a\nb"`, bad)(); reason(got) != step.want {
				t.Errorf("got %+v, want %s", got, step.want)
			}
			// A known id comes before all of them.
			if got := ask(s, "known", `"x"`, bad)(); len(got) != 1 || got[0].Result == nil || !got[0].Result.Duplicate {
				t.Errorf("known id: %+v", got)
			}
			if got := ask(s, "known", `"y"`, nil)(); reason(got) != protocol.ReasonConflict {
				t.Errorf("known id, other payload: %+v", got)
			}
			step.undo(s, f)
		})
	}
	if f.Head() != 2 || s.state.Seq != 2 {
		t.Errorf("head %d, state %d: a refused command left an event", f.Head(), s.state.Seq)
	}
}

// While a run starts nothing is known here of its commands: the log is to be asked.
func TestCommandWhileStarting(t *testing.T) {
	s, f, _ := newFakeSession(t, jsonl.Adapter{})
	s.phase = phaseStarting
	if got := ask(s, "c", `1`, nil)(); len(got) != 1 || !got[0].NotOwner || !got[0].Starting || got[0].Error != nil {
		t.Errorf("got %+v", got)
	}
	if f.Head() != 1 {
		t.Error("it left an event")
	}
}

func TestRepeatsAreBounded(t *testing.T) {
	s, f, _ := newFakeSession(t, jsonl.Adapter{})
	ask(s, "c", `1`, nil)
	for range protocol.RepeatsWaitingMax {
		if got := ask(s, "c", `1`, nil)(); len(got) != 0 {
			t.Fatalf("got %+v", got)
		}
	}
	if got := ask(s, "c", `1`, nil)(); reason(got) != protocol.ReasonOverloaded {
		t.Errorf("got %+v", got)
	}
	f.settle(nil)
}

// The body written by hand is the one that protocol.CommandEvent reads.
func TestCommandBody(t *testing.T) {
	client := protocol.CommandClient{Name: `we<b> "1"`, Connection: 7}
	tests := []struct {
		name        string
		in          protocol.CommandInput
		value, line string
		want        protocol.CommandEvent
	}{
		{
			"raw",
			protocol.CommandInput{ID: "c1", Client: client},
			`{"a":"<\u2028>"}`, `{"a":"<\u2028>"}`,
			protocol.CommandEvent{Type: "command", CommandID: "c1", Client: client, Command: protocol.RawJSON(`{"a":"<\u2028>"}`)},
		},
		{
			"text",
			protocol.CommandInput{ID: `c"2`, Client: client},
			`"é"`, "é",
			protocol.CommandEvent{Type: "command", CommandID: `c"2`, Client: client, Command: protocol.RawJSON(`"é"`), Line: "é"},
		},
		{
			"verb",
			protocol.CommandInput{ID: "c3", Verb: "prompt", Client: client},
			`{"text":"x"}`, "x",
			protocol.CommandEvent{Type: "command", CommandID: "c3", Client: client, Verb: "prompt", Params: protocol.RawJSON(`{"text":"x"}`), Line: "x"},
		},
		{
			"held",
			protocol.CommandInput{ID: "c4", Client: client},
			`{"id":1}`, `{"id":"rj:1:1"}`,
			protocol.CommandEvent{Type: "command", CommandID: "c4", Client: client, Command: protocol.RawJSON(`{"id":1}`), Line: `{"id":"rj:1:1"}`, Held: true},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			body := commandBody(&tt.in, []byte(tt.value), []byte(tt.line), tt.want.Held)
			if err := protocol.ValidateJSON(body); err != nil || !strings.HasPrefix(string(body), `{"type":"command"`) {
				t.Fatalf("body %s: %v", body, err)
			}
			var got protocol.CommandEvent
			if err := json.Unmarshal(body, &got); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

// Proves I-B3 for a run's end: the order, and which outcome a command gets.
func TestEndOfRun(t *testing.T) {
	s, f, _ := newFakeSession(t, jsonl.Adapter{})
	for _, id := range []string{"old", "partly", "queued", "late"} {
		ask(s, id, fmt.Sprintf("%q", id), nil)
	}
	s.inherited = map[string]bool{"old": true}
	s.stdin.partly["partly"] = true
	from := len(f.bodies)
	status := 3
	s.record(ending{why: endExited, code: &status, gone: true}, true)
	want := []string{
		`{"type":"error","error":"output truncated"}`,
		`{"type":"command_outcome","commandId":"old","outcome":"interrupted"}`,
		`{"type":"command_outcome","commandId":"partly","outcome":"interrupted","result":{"error":"written in part"}}`,
		`{"type":"command_outcome","commandId":"queued","outcome":"failed","result":{"error":"not written"}}`,
		`{"type":"command_outcome","commandId":"late","outcome":"failed","result":{"error":"not written"}}`,
		`{"type":"session_end","reason":"exited","exitCode":3,"signal":null}`,
	}
	if got := f.bodies[from:]; !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	s.wrote("late") // nothing of the run follows its end
	if len(f.bodies) != from+len(want) {
		t.Errorf("then %q", f.bodies[from+len(want):])
	}
	f.settle(nil)
}

func TestFencedRunWritesNothing(t *testing.T) {
	s, f, _ := newFakeSession(t, jsonl.Adapter{})
	ask(s, "c", `1`, nil)
	from := len(f.bodies)
	s.writerFailed(ErrNotOwner)
	s.record(ending{why: endFenced}, true)
	s.wrote("c")
	if len(f.bodies) != from {
		t.Errorf("events after the fence: %q", f.bodies[from:])
	}
	if got := ask(s, "d", `1`, nil)(); len(got) != 1 || !got[0].NotOwner {
		t.Errorf("command after the fence: %+v", got)
	}
	f.settle(errTest)
}

// The state that answers expect is never older than what was handed to the journal.
func TestExpectSeesWhatIsNotDurableYet(t *testing.T) {
	s, f, _ := newFakeSession(t, jsonl.Adapter{})
	one := protocol.Seq(1)
	ask(s, "c1", `1`, &protocol.Expect{Head: &one})
	if got := ask(s, "c2", `1`, &protocol.Expect{Head: &one})(); reason(got) != protocol.ReasonConflict || *got[0].Error.Head != 2 {
		t.Errorf("got %+v", got)
	}
	f.settle(nil)
}

func BenchmarkAdmit(b *testing.B) {
	s, f, _ := newFakeSession(b, jsonl.Adapter{})
	s.ledger = snapshot.NewLedger()
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		n++
		s.admit(&protocol.CommandInput{ID: fmt.Sprint("c", n), Command: protocol.RawJSON(`{"type":"prompt","message":"hello"}`)}, func(protocol.WorkerReply) {})
		f.settle(nil)
		f.bodies, f.sources = f.bodies[:0], f.sources[:0]
		s.stdin.queue, s.stdin.lines, s.stdin.bytes = nil, 0, 0
	}
}

// Between the death of a child and the record of it a command may be sent again
// where the policy brings the session back.
func TestCommandAfterTheChildsDeath(t *testing.T) {
	code := func(n int) *protocol.Exit { return &protocol.Exit{Code: &n, Reason: protocol.EndExited} }
	for name, tc := range map[string]struct {
		policy string
		stop   bool
		exit   *protocol.Exit
		again  bool
	}{
		"never":           {protocol.RestartNever, false, nil, false},
		"dying":           {protocol.RestartResume, false, nil, true},
		"failed":          {protocol.RestartResume, false, code(1), true},
		"done":            {protocol.RestartResume, false, code(0), false},
		"asked to stop":   {protocol.RestartResume, true, nil, false},
		"stopped, failed": {protocol.RestartResume, true, code(1), false},
	} {
		t.Run(name, func(t *testing.T) {
			s, _, _ := newFakeSession(t, jsonl.Adapter{})
			s.rec.Restart = tc.policy
			if tc.stop {
				s.requestStop(endStopped, protocol.GraceDefault)
			}
			s.mu.Lock()
			s.phase, s.exit = phaseEnded, tc.exit
			s.mu.Unlock()
			got := ask(s, "c1", `1`, nil)()
			if reason(got) != protocol.ReasonSessionUnavailable || got[0].Error.Retryable != tc.again {
				t.Errorf("got %+v", got)
			}
		})
	}
}
