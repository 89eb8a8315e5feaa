package full_test

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rejoin/tests/harness"
)

// A fault keeps a server from writing until it is lifted.
type fault struct {
	word   string // in the refusals
	states []string
	strike func(w *world)
	lift   func(w *world)
}

// fileLimit makes every write beyond that size of a file fail, from outside and
// without any right: the server's limit of file sizes.
func fileLimit(bytes uint64) fault {
	var was unix.Rlimit
	return fault{
		word: "cannot write", states: []string{"sick"},
		strike: func(w *world) {
			if err := unix.Prlimit(w.server.PID(), unix.RLIMIT_FSIZE, nil, &was); err != nil {
				w.t.Fatal(err)
			}
			low := unix.Rlimit{Cur: bytes, Max: was.Max}
			if err := unix.Prlimit(w.server.PID(), unix.RLIMIT_FSIZE, &low, nil); err != nil {
				w.t.Fatal(err)
			}
		},
		lift: func(w *world) {
			if err := unix.Prlimit(w.server.PID(), unix.RLIMIT_FSIZE, &was, nil); err != nil {
				w.t.Fatal(err)
			}
		},
	}
}

// TestWritesFail: every write of the server fails for a while, as on a disk that
// is broken or read-only. It needs no right and no file system of its own.
func TestWritesFail(t *testing.T) {
	for _, durability := range []string{"always", "500ms"} {
		t.Run(durability, func(t *testing.T) {
			w := newWorld(t, harness.Options{Args: []string{"--durability", durability}})
			w.outage(fileLimit(0))
			harness.Eventually(t, "the log tells of a restart", func() bool { return w.restarts() > 0 })
			if n := w.restarts(); n > 3 {
				t.Errorf("the engine was restarted %d times", n)
			}
		})
	}
}

// outage runs sessions through a fault and looks at everything that is promised
// of it.
func (w *world) outage(f fault) {
	t := w.t
	t.Helper()
	harness.Covers(t, "I-J1")
	harness.Covers(t, "I-J2")
	harness.Covers(t, "I-W2")
	for range 3 {
		w.start("paced", 1<<30)
	}
	idle := w.start("paced", 0)
	running := w.sessions
	doomed := w.start("paced", 0)
	w.sessions = running
	for _, s := range w.sessions[:3] {
		harness.Eventually(t, "output", func() bool { return s.seen() > 500 })
	}
	for _, s := range running {
		if err := w.command(s); err != nil {
			t.Fatal(err)
		}
	}

	f.strike(w)
	for _, s := range running {
		harness.Eventually(t, "a command is refused with the reason", func() bool { return w.refusedAs(w.command(s), f.word) })
		if now := w.info(s); now.Blocked == "" || now.State != "running" {
			t.Errorf("session %s does not show why it waits: %+v", s.id, now)
		}
	}
	_, err := w.c.Call(harness.Context(t), "start_session", map[string]any{"argv": []string{"cat"}, "adapter": "lines"})
	if !w.refusedAs(err, f.word) {
		t.Errorf("start_session answered %v", err)
	}
	w.checkState(f.states...)
	w.history()

	stopped := running[2]
	stopped.killed = true
	harness.Do[json.RawMessage](t, w.c, "stop_session", map[string]any{"sessionId": stopped.id})
	harness.Eventually(t, "the stopped child is gone", func() bool { return !harness.Living(stopped.pid) })
	harness.Holds(t, 3*time.Second, "children live", func() bool {
		return harness.Living(running[0].pid) && harness.Living(running[1].pid) && harness.Living(idle.pid)
	})
	w.checkState(f.states...)

	_, err = w.c.Call(harness.Context(t), "delete_session", map[string]any{"sessionId": doomed.id})
	if err != nil && !w.refusedAs(err, f.word) {
		t.Errorf("delete_session answered %v", err)
	}
	harness.Eventually(t, "the child of the session to be deleted is gone", func() bool { return !harness.Living(doomed.pid) })
	f.lift(w)
	harness.Eventually(t, "the journal is well again", func() bool { return w.status().State == "ok" })
	w.settle()
	harness.Eventually(t, "the delete comes through", func() bool {
		_, err := w.c.Call(harness.Context(t), "delete_session", map[string]any{"sessionId": doomed.id})
		return err == nil
	})
	for _, s := range []*session{running[0], running[1], idle} {
		n := s.seen()
		harness.Eventually(t, "commands are taken", func() bool { return w.command(s) == nil })
		if now := w.info(s); now.Blocked != "" {
			t.Errorf("session %s is still blocked: %s", s.id, now.Blocked)
		}
		harness.Eventually(t, "output goes on", func() bool { return s.seen() > n })
		if pid := w.info(s).PID; pid == nil || *pid != s.pid {
			t.Errorf("session %s has another child", s.id)
		}
	}
	lines, commands := w.check()
	t.Logf("%d lines, %d acknowledged commands, engine restarted %d times", lines, commands, w.restarts())
}

// checkState compares what operators see.
func (w *world) checkState(states ...string) {
	w.t.Helper()
	now := w.status()
	for _, s := range states {
		if now.State == s {
			if now.Reason == "" || now.QuotaBytes == 0 {
				w.t.Errorf("server_status says %+v", now)
			}
			return
		}
	}
	w.t.Errorf("server_status says %+v, want one of %v", now, states)
}

// history is read on while nothing can be written.
func (w *world) history() {
	t := w.t
	t.Helper()
	s := w.sessions[0]
	head := w.info(s).Head
	sub, err := w.c.Subscribe(harness.Context(t), s.id, map[string]any{"from": "start", "until": head})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sub.End(harness.Context(t)); err != nil {
		t.Fatalf("read the history: %v", err)
	}
}

// TestRestartsDoNotLoop: the probe succeeds and the journal's own writes fail all
// the same. The engine is restarted less and less often, and nothing is lost.
func TestRestartsDoNotLoop(t *testing.T) {
	w := newWorld(t, harness.Options{})
	s := w.start("paced", 1<<30)
	harness.Eventually(t, "output of 1 MB", func() bool { return s.seen() > 2000 })
	f := fileLimit(256 << 10) // a probe has 64 KiB
	f.strike(w)
	harness.Eventually(t, "restarts", func() bool { return len(w.restartTimes()) >= 5 })
	at := w.restartTimes()
	if first, last := at[1].Sub(at[0]), at[4].Sub(at[3]); last < first*3/2 {
		t.Errorf("restarts %v and then %v apart", first, last)
	}
	if !harness.Living(s.pid) {
		t.Error("the child is gone")
	}
	f.lift(w)
	n := s.seen()
	harness.Eventually(t, "output goes on", func() bool { return s.seen() > n+100 })
	w.settle()
	lines, _ := w.check()
	t.Logf("%d lines, engine restarted %d times", lines, w.restarts())
}

// TestStopOfASickServer: SIGTERM ends a server whose writes fail, in time, and the
// next one has everything that was acknowledged.
func TestStopOfASickServer(t *testing.T) {
	harness.Covers(t, "I-J2")
	harness.Covers(t, "I-W3")
	w := newWorld(t, harness.Options{})
	s := w.start("paced", 1<<30)
	harness.Eventually(t, "output", func() bool { return s.seen() > 500 })
	if err := w.command(s); err != nil {
		t.Fatal(err)
	}
	f := fileLimit(0)
	f.strike(w)
	harness.Eventually(t, "the journal is sick", func() bool { return w.status().State == "sick" })
	if code := w.server.Term(); code > 1 {
		t.Errorf("the server ended with %d", code)
	}
	if harness.Living(s.pid) {
		t.Error("the child is left")
	}
	seen := s.seen()
	w.server.Run()
	w.c = harness.Dial(t, w.server)
	sub, err := w.c.Subscribe(harness.Context(t), s.id, map[string]any{"from": "start"})
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	want := w.printed(s)
	events, err := sub.Until(harness.Context(t), func(e harness.Event) bool { return e.Type() == "session_interrupted" || e.Type() == "session_end" })
	if err != nil {
		t.Fatal(err)
	}
	admitted := false
	for _, e := range events {
		if e.Source == "child" {
			if !bytes.Equal(e.Body, want[lines]) {
				t.Fatalf("broke I-W2: line %d is %.100s", lines+1, e.Body)
			}
			lines++
		}
		admitted = admitted || e.Type() == "command"
	}
	if lines < seen || !admitted {
		t.Errorf("broke I-J2: %d lines are left of %d that were seen; command: %v", lines, seen, admitted)
	}
}
