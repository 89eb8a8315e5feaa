package worker_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"rejoin/protocol"
	"rejoin/tests/harness"
)

// Proves I-W1, I-B1, I-B3: the command event comes before its effect, its id
// takes effect once, and its outcome is recorded once.
func TestCommand(t *testing.T) {
	harness.Covers(t, "I-W1", "I-B1", "I-B3")
	h := newHost(t, hostConfig{})
	s := h.start("s", "jsonl", "echo")
	r := s.send("c1", ` { "t" : "a<b>\u2028" } `, nil)
	if r.Result == nil || r.Result.Duplicate || r.Result.Seq != 2 || r.Result.Status != "sent" || r.Result.CommandID != "c1" || r.Result.SessionID != "s" {
		t.Fatalf("send: %+v", r)
	}
	s.awaitChild(`{"t":"a<b>\u2028"}`)
	harness.Eventually(t, "outcome", func() bool { return s.outcome("c1").Outcome == protocol.OutcomeDone })
	if got := s.outcome("c1"); got.Seq != 2 {
		t.Errorf("status: %+v", got)
	}

	again := s.send("c1", `{"t":"a<b>\u2028"}`, nil)
	if again.Result == nil || !again.Result.Duplicate || again.Result.Seq != 2 {
		t.Errorf("repeat: %+v", again)
	}
	if other := s.send("c1", `{"t":"other"}`, nil); reasonOf(other) != protocol.ReasonConflict {
		t.Errorf("other payload: %+v", other)
	}
	s.stop(0)
	s.awaitEnd()
	var bodies []string
	for _, e := range s.events() {
		if e.CommandID == "c1" {
			bodies = append(bodies, string(e.Body))
		}
	}
	want := []string{
		`{"type":"command","commandId":"c1","client":{"name":"t","connection":1},"command":{"t":"a<b>\u2028"}}`,
		`{"type":"command_outcome","commandId":"c1","outcome":"done"}`,
	}
	if !slices.Equal(bodies, want) {
		t.Errorf("events of the command: %q", bodies)
	}
}

func TestRefusedCommands(t *testing.T) {
	h := newHost(t, hostConfig{})
	s := h.start("s", "jsonl", "echo")
	l := h.start("l", "lines", "echo")
	head, wrong, run := protocol.Seq(1), protocol.Seq(7), protocol.Run(1)
	idle, busy, turn := protocol.StatusIdle, protocol.StatusBusy, "x"
	epoch, other := s.record().Epoch, protocol.NewEpoch(time.Now())
	tests := []struct {
		name    string
		s       *sess
		command string
		expect  *protocol.Expect
		want    protocol.Reason
	}{
		{"head", s, `1`, &protocol.Expect{Head: &wrong}, protocol.ReasonConflict},
		{"status", s, `1`, &protocol.Expect{Status: &busy}, protocol.ReasonConflict},
		{"epoch", s, `1`, &protocol.Expect{Epoch: &other}, protocol.ReasonConflict},
		{"turn", s, `1`, &protocol.Expect{Turn: &turn}, protocol.ReasonUnsupported},
		{"two lines", l, `"a\nb"`, nil, protocol.ReasonInvalidParams},
		{"no string", l, `{"a":1}`, nil, protocol.ReasonInvalidParams},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if r := tt.s.send("refused", tt.command, tt.expect); reasonOf(r) != tt.want {
				t.Errorf("got %+v", r)
			}
			if got := tt.s.outcome("refused").Outcome; got != protocol.OutcomeUnknown {
				t.Errorf("a refused command is in the ledger: %s", got)
			}
		})
	}
	if r := s.send("met", `1`, &protocol.Expect{Head: &head, Run: &run, Status: &idle, Epoch: &epoch}); r.Result == nil {
		t.Errorf("expect that is met: %+v", r)
	}
	if r := l.send("text", `"a <b> \"c\""`, nil); r.Result == nil {
		t.Errorf("line: %+v", r)
	}
	l.awaitEvent("the text comes back", func(e protocol.Event) bool {
		return string(e.Body) == `{"type":"output","text":"a <b> \"c\""}`
	})
	ghost := &sess{h: h, key: protocol.Key{Workspace: "default", Session: "ghost"}}
	if r := ghost.send("c", `1`, nil); !r.NotOwner {
		t.Errorf("unknown session: %+v", r)
	}
}

// Many senders at once: each line reaches the child whole, in the order of seq.
func TestCommandsFromManySenders(t *testing.T) {
	const senders, each = 4, 40
	h := newHost(t, hostConfig{})
	s := h.start("s", "jsonl", "echo")
	pad := strings.Repeat("p", 20000)
	var wg sync.WaitGroup
	for i := range senders {
		wg.Go(func() {
			for j := range each {
				id := fmt.Sprintf("c%d-%d", i, j)
				if r := s.send(id, fmt.Sprintf(`{"id":%q,"p":%q}`, id, pad), nil); r.Result == nil {
					t.Errorf("%s: %+v", id, r)
				}
			}
		})
	}
	wg.Wait()
	var sent, got []string
	harness.Eventually(t, "all lines come back", func() bool {
		sent, got = nil, nil
		for _, e := range s.events() {
			switch typeOf(e) {
			case protocol.TypeCommand:
				var b struct{ Command json.RawMessage }
				if err := json.Unmarshal(e.Body, &b); err != nil {
					t.Fatal(err)
				}
				sent = append(sent, string(b.Command))
			case "child":
				got = append(got, string(e.Body))
			}
		}
		return len(got) == senders*each
	})
	if !slices.Equal(sent, got) {
		t.Error("the child saw another order than the journal")
	}
}

// Proves I-W4: a child that does not read costs a bounded queue and no other
// session anything; at the bound commands are refused; what was not written is
// told so at the end.
func TestChildThatDoesNotRead(t *testing.T) {
	harness.Covers(t, "I-W4", "I-B3")
	h := newHost(t, hostConfig{})
	deaf := h.start("deaf", "jsonl", "deaf")
	other := h.start("other", "jsonl", "echo")
	deaf.awaitChild(`{"ready":true}`)
	pad := strings.Repeat("p", 900<<10)
	var ids []string
	for i := 0; ; i++ {
		id := fmt.Sprintf("c%d", i)
		r := deaf.send(id, fmt.Sprintf("%q", pad), nil)
		if r.Result == nil {
			if reasonOf(r) != protocol.ReasonOverloaded || !r.Error.Retryable {
				t.Fatalf("%s: %+v", id, r)
			}
			break
		}
		ids = append(ids, id)
	}
	if want := protocol.StdinQueueBytesMax / (len(pad) + 3); len(ids) != want {
		t.Errorf("%d commands were taken, want %d", len(ids), want)
	}
	if r := other.send("c", `{"a":1}`, nil); r.Result == nil {
		t.Errorf("other session: %+v", r)
	}
	other.awaitChild(`{"a":1}`)
	if r := deaf.stop(100 * time.Millisecond); r.Info == nil {
		t.Errorf("stop: %+v", r)
	}
	end := deaf.awaitEnd()
	if got := describe(end); got != "stopped null SIGTERM" {
		t.Errorf("end: %s", got)
	}
	outcomes := outcomesOf(t, deaf)
	for i, id := range ids {
		want := "failed"
		if i == 0 {
			want = "interrupted" // a pipe took the first 64 KiB of it
		}
		if got := outcomes[id]; !slices.Equal(got, []string{want}) {
			t.Errorf("%s: %v, want %s", id, got, want)
		}
	}
}

func outcomesOf(t *testing.T, s *sess) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for _, e := range s.events() {
		if typeOf(e) != protocol.TypeCommandOutcome {
			continue
		}
		var b protocol.CommandOutcome
		if err := json.Unmarshal(e.Body, &b); err != nil {
			t.Fatal(err)
		}
		out[b.CommandID] = append(out[b.CommandID], string(b.Outcome))
	}
	return out
}

func TestClosedStdin(t *testing.T) {
	h := newHost(t, hostConfig{})
	s := h.start("s", "jsonl", "noinput")
	s.awaitChild(`{"ready":true}`)
	if r := s.send("c1", `1`, nil); r.Result == nil {
		t.Fatalf("send: %+v", r)
	}
	harness.Eventually(t, "the outcome is failed", func() bool { return s.outcome("c1").Outcome == protocol.OutcomeFailed })
	if r := s.send("c2", `1`, nil); reasonOf(r) != protocol.ReasonSessionUnavailable {
		t.Errorf("after EPIPE: %+v", r)
	}
	if r := s.send("c1", `1`, nil); r.Result == nil || !r.Result.Duplicate {
		t.Errorf("repeat after EPIPE: %+v", r)
	}
	s.stop(100 * time.Millisecond)
	s.awaitEnd()
}

func TestTitle(t *testing.T) {
	h := newHost(t, hostConfig{})
	s := h.start("s", "jsonl", "echo")
	req := s.req(protocol.OpTitle)
	req.Title = "a <title>"
	r := h.ask(req)
	if r.Info == nil || r.Info.Title != "a <title>" || s.record().Title != "a <title>" {
		t.Fatalf("title: %+v", r)
	}
	events := s.events()
	if got := string(events[len(events)-1].Body); got != `{"type":"session_title","title":"a <title>"}` {
		t.Errorf("event: %s", got)
	}
}

// Proves that a start that fails leaves no session, no event and no process.
func TestFailedStart(t *testing.T) {
	h := newHost(t, hostConfig{})
	text := filepath.Join(h.dir, "text")
	if err := os.WriteFile(text, []byte("no program"), 0o755); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		argv []string
		cwd  string
		want []string
	}{
		{"not in PATH", []string{"no-such-program"}, h.dir, []string{"failed to start no-such-program: ", os.Getenv("PATH")}},
		{"no such file", []string{"./nothing"}, h.dir, []string{"failed to start ./nothing: no such file or directory", filepath.Join(h.dir, "nothing")}},
		{"no such directory", []string{"sh"}, filepath.Join(h.dir, "gone"), []string{"failed to start sh: ", "working directory " + filepath.Join(h.dir, "gone")}},
		{"no program", []string{text}, h.dir, []string{"failed to start " + text + ": exec format error"}},
		{"a directory", []string{h.dir}, h.dir, []string{"failed to start " + h.dir + ": is a directory"}},
		{"no argv", nil, h.dir, []string{"argv is empty"}},
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rec := h.record(fmt.Sprintf("s%d", i), "jsonl", tt.argv)
			rec.Cwd = tt.cwd
			s, r := h.launch(protocol.OpStart, rec)
			if got := h.w.Stats().Failed; got != uint64(i+1) {
				t.Errorf("%d failed starts are counted after %d", got, i+1)
			}
			if reasonOf(r) != protocol.ReasonInvalidParams {
				t.Fatalf("start: %+v", r)
			}
			for _, part := range tt.want {
				if !strings.Contains(r.Error.Message, part) {
					t.Errorf("message %q lacks %q", r.Error.Message, part)
				}
			}
			if tail, err := h.node.Tail(harness.Context(t), s.log); err != nil || !tail.Empty {
				t.Errorf("log: %+v, %v", tail, err)
			}
			if r := h.ask(s.req(protocol.OpInfo)); !r.NotOwner {
				t.Errorf("info: %+v", r)
			}
		})
	}
	if got := harness.MarkedBy("REJOIN_INSTANCE", h.node.Instance()); len(got) != 0 {
		t.Errorf("processes are left: %v", got)
	}
}

func TestSessionsMax(t *testing.T) {
	h := newHost(t, hostConfig{sessionsMax: 1})
	s := h.start("s1", "jsonl", "echo")
	_, r := h.launch(protocol.OpStart, h.record("s2", "jsonl", harness.ChildArgv("echo")))
	if reasonOf(r) != protocol.ReasonOverloaded {
		t.Errorf("second: %+v", r)
	}
	_, again := h.launch(protocol.OpStart, s.record())
	if again.Info == nil || again.Info.PID == nil || *again.Info.PID != s.record().PID {
		t.Errorf("the same run again: %+v", again)
	}
	s.stop(0)
	s.awaitEnd()
	h.start("s3", "jsonl", "echo")
}
