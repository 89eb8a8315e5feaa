package worker_test

import (
	"bufio"
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"rejoin/journal"
	"rejoin/protocol"
	"rejoin/snapshot"
	"rejoin/tests/harness"
	"rejoin/worker"
)

// family is what stubborn and leaver print.
type family struct{ PID, Grandchild int }

func (s *sess) family() family {
	s.h.tb.Helper()
	var f family
	s.awaitEvent("the child names its grandchild", func(e protocol.Event) bool {
		return e.Source == protocol.SourceChild && json.Unmarshal(e.Body, &f) == nil && f.Grandchild != 0
	})
	return f
}

// Proves I-W3 for a stop: TERM is ignored, the grandchild has a session of its own.
func TestStopOfAStubbornFamily(t *testing.T) {
	harness.Covers(t, "I-W3")
	h := newHost(t, hostConfig{})
	s := h.start("s", "jsonl", "stubborn")
	f := s.family()
	if !harness.Living(f.PID) || !harness.Living(f.Grandchild) {
		t.Fatalf("not alive before the stop: %+v", f)
	}
	first := make(chan protocol.WorkerReply, 1)
	go func() {
		r, err := h.try(func() protocol.WorkerRequest { r := s.req(protocol.OpStop); r.GraceMs = 60000; return r }())
		if err != nil {
			t.Error(err)
		}
		first <- r
	}()
	wrong := protocol.Seq(0) // never met: while the child is live that is the refusal
	harness.Eventually(t, "commands are refused once the ladder has begun", func() bool {
		return reasonOf(s.send("late", `1`, &protocol.Expect{Head: &wrong})) == protocol.ReasonSessionUnavailable
	})
	// A second stop with a shorter grace shortens the ladder that both share.
	for _, r := range []protocol.WorkerReply{s.stop(400 * time.Millisecond), <-first} {
		if r.Info == nil || r.Info.Status != protocol.StatusEnded || r.Info.PID != nil {
			t.Errorf("stop: %+v", r)
		}
	}
	if harness.Living(f.PID) || harness.Living(f.Grandchild) {
		t.Errorf("alive after the stop: %+v", f)
	}
	if end := s.awaitEnd(); describe(end) != "stopped null SIGKILL" {
		t.Errorf("end: %s", describe(end))
	}
	if r := s.stop(0); !r.NotOwner {
		t.Errorf("stop again: %+v", r)
	}
}

func TestStopByEndOfInput(t *testing.T) {
	h := newHost(t, hostConfig{})
	// Not the test's own binary: under the race detector that takes a second to exit.
	s, r := h.launch(protocol.OpStart, h.record("s", "jsonl", []string{"cat"}))
	if r.Info == nil {
		t.Fatalf("start: %+v", r)
	}
	s.send("c", `1`, nil)
	s.awaitChild(`1`) // it reads: the end of input is what ends it, not TERM
	if r := s.stop(time.Minute); r.Info == nil {
		t.Fatalf("stop: %+v", r)
	}
	if end := s.awaitEnd(); describe(end) != "stopped 0 null" {
		t.Errorf("end: %s", describe(end))
	}
}

// Proves I-W3 for a leader that exits by itself, and that its end comes last
// though a descendant holds stdout.
func TestLeaderLeavesDescendants(t *testing.T) {
	harness.Covers(t, "I-W3", "I-W2")
	h := newHost(t, hostConfig{})
	s := h.start("s", "jsonl", "leaver")
	f := s.family()
	if end := s.awaitEnd(); describe(end) != "exited 7 null" {
		t.Errorf("end: %s", describe(end))
	}
	if harness.Living(f.Grandchild) {
		t.Error("grandchild is alive")
	}
	if got := types(s.events()); !slices.Equal(got, []string{"session_start", "child", "session_end"}) {
		t.Errorf("events: %v", got)
	}
}

// A descendant that hides (no mark, another session, its parent dead) may hold
// stdout: the run ends anyway and says that output was cut off.
func TestHiddenDescendantHoldsStdout(t *testing.T) {
	h := newHost(t, hostConfig{})
	// The hidden one is started by a middle process that exits at once, before the leader.
	s, r := h.launch(protocol.OpStart, h.record("s", "jsonl", []string{
		"sh", "-c", `env -i "$0" harness-child leaver hidden; exit 5`, os.Args[0],
	}))
	if r.Info == nil {
		t.Fatalf("start: %+v", r)
	}
	f := s.family()
	defer func() {
		if p, err := os.FindProcess(f.Grandchild); err == nil {
			_ = p.Kill()
		}
	}()
	if end := s.awaitEnd(); describe(end) != "exited 5 null" {
		t.Errorf("end: %s", describe(end))
	}
	events := s.events()
	if got := types(events); !slices.Equal(got, []string{"session_start", "child", "error", "session_end"}) {
		t.Fatalf("events: %v", got)
	}
	if got := string(events[2].Body); got != `{"type":"error","error":"output truncated"}` {
		t.Errorf("event: %s", got)
	}
}

// The server's end: policy never gives session_end, policy resume an interruption.
func TestServerStop(t *testing.T) {
	harness.Covers(t, "I-W3")
	h := newHost(t, hostConfig{})
	never := h.start("never", "jsonl", "stubborn")
	rec := h.record("resume", "jsonl", harness.ChildArgv("flood"))
	rec.Restart = protocol.RestartResume
	h.reg.put(rec)
	resume, r := h.launch(protocol.OpStart, rec)
	if r.Info == nil {
		t.Fatalf("start: %+v", r)
	}
	f := never.family()
	h.stop()
	if left := harness.MarkedBy("REJOIN_INSTANCE", h.node.Instance()); len(left) != 0 || harness.Living(f.Grandchild) {
		t.Errorf("processes are left: %v", left)
	}
	for _, tt := range []struct {
		s      *sess
		last   string
		status protocol.Status
	}{
		{never, `{"type":"session_end","reason":"stopped","exitCode":null,"signal":"SIGKILL"}`, protocol.StatusEnded},
		{resume, `{"type":"session_interrupted","reason":"server_stop"}`, protocol.StatusInterrupted},
	} {
		events := tt.s.events()
		if got := string(events[len(events)-1].Body); got != tt.last {
			t.Errorf("last event: %s", got)
		}
		if got := tt.s.record(); got.Status != tt.status || got.PID != 0 || got.Owner != "" || got.Head != protocol.Seq(len(events)) {
			t.Errorf("registry: %+v", got)
		}
	}
}

// A session that is to go on elsewhere is interrupted, so that the policy brings it
// back whatever becomes of who asked; somebody's stop overrules.
func TestStopForAMove(t *testing.T) {
	h := newHost(t, hostConfig{})
	start := func(id string, argv []string) *sess {
		rec := h.record(id, "jsonl", argv)
		rec.Restart = protocol.RestartResume
		h.reg.put(rec)
		s, r := h.launch(protocol.OpStart, rec)
		if r.Info == nil {
			t.Fatalf("start: %+v", r)
		}
		return s
	}
	moved := start("moved", harness.ChildArgv("echo"))
	req := moved.req(protocol.OpStop)
	req.Move = true
	if r := h.ask(req); r.Error != nil {
		t.Fatalf("stop: %+v", r)
	}
	events := moved.events()
	if got := string(events[len(events)-1].Body); got != `{"type":"session_interrupted","reason":"server_stop"}` {
		t.Errorf("last event: %s", got)
	}
	if got := moved.record(); got.Status != protocol.StatusInterrupted || got.PID != 0 || got.Owner != "" {
		t.Errorf("registry: %+v", got)
	}

	stopped := start("stopped", harness.ChildArgv("stubborn"))
	stopped.family()
	move := stopped.req(protocol.OpStop)
	move.Move, move.GraceMs = true, 60000
	over := make(chan struct{})
	go func() {
		defer close(over)
		_, _ = h.try(move)
	}()
	req = stopped.req(protocol.OpStop)
	req.GraceMs = 1000
	if r := h.ask(req); r.Error != nil {
		t.Fatalf("stop: %+v", r)
	}
	<-over
	events = stopped.events()
	if got := string(events[len(events)-1].Body); got != `{"type":"session_end","reason":"stopped","exitCode":null,"signal":"SIGKILL"}` {
		t.Errorf("last event: %s", got)
	}
}

// Proves I-B2: another owner's record ends the child, and nothing follows it.
func TestFence(t *testing.T) {
	harness.Covers(t, "I-B2")
	h := newHost(t, hostConfig{})
	s := h.start("s", "jsonl", "echo")
	pid := s.record().PID
	other, err := h.node.OpenWriter(harness.Context(t), journal.WriterConfig{
		Log: s.log, Run: 2,
		First: func(context.Context, journal.Tail, protocol.Seq) ([]*protocol.Event, error) {
			return []*protocol.Event{{Source: protocol.SourceBroker, Body: []byte(`{"type":"session_interrupted","reason":"server_restart"}`)}}, nil
		},
		Deleted: func(context.Context) (bool, error) { return false, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Close(harness.Context(t)); err != nil {
		t.Fatal(err)
	}
	if r := s.send("c1", `1`, nil); reasonOf(r) != protocol.ReasonOutcomeUnknown {
		t.Errorf("send: %+v", r)
	}
	harness.Eventually(t, "the session is forgotten", func() bool { return h.ask(s.req(protocol.OpInfo)).NotOwner })
	if harness.Living(pid) {
		t.Error("the child is alive")
	}
	if got := types(s.events()); !slices.Equal(got, []string{"session_start", "session_interrupted"}) {
		t.Errorf("events: %v", got)
	}
}

func TestResume(t *testing.T) {
	harness.Covers(t, "I-B1")
	h := newHost(t, hostConfig{})
	s := h.start("s", "jsonl", "echo")
	if r := s.send("c1", `{"a":1}`, nil); r.Result == nil {
		t.Fatalf("send: %+v", r)
	}
	s.awaitChild(`{"a":1}`)
	s.stop(0)
	s.awaitEnd()
	head := s.record().Head

	rec := s.record()
	rec.Run, rec.Owner = 2, "w1"
	h.reg.put(rec)
	_, r := h.launch(protocol.OpResume, rec)
	if r.Info == nil || r.Info.Status != protocol.StatusIdle || r.Info.Run != 2 || r.Info.Exit != nil || r.Info.PID == nil {
		t.Fatalf("resume: %+v", r)
	}
	if got := s.events()[head]; string(got.Body) != `{"type":"session_resumed","run":2}` || got.Run != 2 {
		t.Errorf("first event: %s", got.Body)
	}
	if r := s.send("c1", `{"a":1}`, nil); r.Result == nil || !r.Result.Duplicate || r.Result.Seq != 2 {
		t.Errorf("repeat over runs: %+v", r)
	}
	if r := s.send("c2", `{"b":1}`, nil); r.Result == nil {
		t.Errorf("send: %+v", r)
	}
	s.awaitChild(`{"b":1}`)
	s.stop(0)
	s.awaitEnd()

	rec = s.record()
	rec.Run, rec.ResumeArgv = 3, []string{"no-such-program"}
	h.reg.put(rec)
	if _, r := h.launch(protocol.OpResume, rec); reasonOf(r) != protocol.ReasonInvalidParams {
		t.Errorf("resume without program: %+v", r)
	}
	if end := s.awaitEnd(); describe(end) != "lost null null" {
		t.Errorf("end: %s", describe(end))
	}
	if got := s.record(); got.Status != protocol.StatusEnded || got.Exit == nil || got.Exit.Reason != protocol.EndLost {
		t.Errorf("registry: %+v", got)
	}
}

// Proves I-W3 for a stop while the journal takes nothing: the shard is full, the
// child is held back, commands fail retryable, stop and kill work. (tests/full has
// the journal that takes nothing at all.)
func TestStopWhileTheJournalStalls(t *testing.T) {
	harness.Covers(t, "I-W3", "I-W4")
	h := newHost(t, hostConfig{maxBytes: 16 << 20})
	s := h.start("s", "jsonl", "flood")
	pid := s.record().PID
	hog(t, h, s.log.Shard)
	harness.Eventually(t, "the journal takes no commands", func() bool {
		r := s.send("c", `1`, &protocol.Expect{Head: new(protocol.Seq)}) // refused by expect while it does
		return reasonOf(r) == protocol.ReasonJournalUnavailable && r.Error.Retryable
	})
	began := time.Now()
	if r := s.stop(100 * time.Millisecond); r.Info == nil || r.Info.Status != protocol.StatusEnded {
		t.Errorf("stop: %+v", r)
	}
	if harness.Living(pid) {
		t.Error("the child is alive")
	}
	t.Logf("stop took %v", time.Since(began))
	if r := s.stop(0); r.Info == nil && !r.NotOwner { // its end may have fitted
		t.Errorf("stop again: %+v", r)
	}
}

// hog fills a shard up to where the server refuses, which no output of a child
// does.
func hog(t *testing.T, h *host, shard int) {
	t.Helper()
	w, err := h.node.OpenWriter(harness.Context(t), journal.WriterConfig{
		Log: journal.Log{Key: protocol.Key{Workspace: protocol.DefaultWorkspace, Session: "hog"}, Shard: shard}, Run: 1, Epoch: protocol.NewEpoch(time.Now()),
		First: func(context.Context, journal.Tail, protocol.Seq) ([]*protocol.Event, error) {
			return []*protocol.Event{{Body: []byte("1")}}, nil
		},
		Deleted: func(context.Context) (bool, error) { return false, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_ = w.Close(ctx) // the last record never fits
	})
	noise := make([]byte, 32<<10)
	for !w.Stalled() {
		for i := range noise {
			noise[i] = 'a' + byte(rand.IntN(26))
		}
		if w.Durable() == w.Head() {
			if _, err := w.Append(&protocol.Event{Body: append(append([]byte{'"'}, noise...), '"')}, nil); err != nil {
				t.Fatal(err)
			}
		}
		harness.Eventually(t, "an outcome", func() bool { return w.Durable() == w.Head() || w.Stalled() })
	}
}

func TestRegistryAway(t *testing.T) {
	h := newHost(t, hostConfig{})
	s := h.start("s", "jsonl", "echo")
	h.own.setRefuse(errAway)
	if r := s.stop(0); r.Info == nil || r.Info.Status != protocol.StatusEnded {
		t.Errorf("stop: %+v", r)
	}
	if got := s.record().Status; got != protocol.StatusIdle {
		t.Errorf("registry: %s", got)
	}
	h.own.setRefuse(nil)
	s.awaitEnd()
	if got := s.record(); got.Status != protocol.StatusEnded {
		t.Errorf("registry: %+v", got)
	}
}

// Proves I-W3 for a killed server: the orphans of its data directory die, and
// only they.
func TestKillOrphans(t *testing.T) {
	harness.Covers(t, "I-W3")
	instance := string(protocol.NewEpoch(time.Now()))
	run := func(instance string) (*exec.Cmd, family) {
		cmd := exec.Command(os.Args[0], "harness-child", "spawner")
		cmd.Env = append(os.Environ(), "REJOIN_INSTANCE="+instance, "REJOIN_SESSION=default/s", "REJOIN_RUN=1")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(out).ReadBytes('\n')
		var f family
		if err != nil || json.Unmarshal(line, &f) != nil {
			t.Fatalf("spawner printed %q, %v", line, err)
		}
		t.Cleanup(func() { // nothing is left of a failed test
			for _, pid := range harness.MarkedBy("REJOIN_INSTANCE", instance) {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		})
		return cmd, f
	}
	killed, f := run(instance)
	if err := killed.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = killed.Wait() // killed: the error says so
	if !harness.Living(f.PID) || !harness.Living(f.Grandchild) {
		t.Fatal("the orphans did not outlive their parent")
	}
	bystander, other := run(instance + "X")
	defer func() { _ = bystander.Wait() }()

	n, err := worker.KillOrphans(harness.Context(t), instance, nil)
	if err != nil || n != 2 {
		t.Errorf("KillOrphans: %d, %v", n, err)
	}
	if harness.Living(f.PID) || harness.Living(f.Grandchild) {
		t.Error("an orphan is alive")
	}
	if !harness.Living(other.PID) || !harness.Living(other.Grandchild) {
		t.Error("a process of another data directory was killed")
	}
	if n, err := worker.KillOrphans(harness.Context(t), instance+"X", nil); err != nil || n != 3 {
		t.Errorf("KillOrphans of the other: %d, %v", n, err)
	}
}

// The state that the worker folds is the one that readers fold from the log.
func TestStateOfTheLog(t *testing.T) {
	h := newHost(t, hostConfig{})
	s := h.start("s", "jsonl", "count", "100")
	s.awaitEnd()
	snap, err := snapshot.NewReader(h.node, nil, 0).Latest(harness.Context(t), s.log, 0)
	if err != nil {
		t.Fatal(err)
	}
	if snap.Seq != s.record().Head || !strings.Contains(string(snap.State), `"status":"ended"`) {
		t.Errorf("state: %s", snap.State)
	}
	if _, err := os.Stat(filepath.Join(h.dir, "stderr")); !os.IsNotExist(err) {
		t.Errorf("a silent run left a stderr folder: %v", err)
	}
}
