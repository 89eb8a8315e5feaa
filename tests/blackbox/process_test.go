package blackbox

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"rejoin/tests/harness"
)

type end struct {
	Type     string
	Reason   string
	ExitCode *int
	Signal   *string
}

// TestEnds: what the last event of a run says of how it ended, after every line,
// though a pipe was full of them when the child exited. Proves I-W2.
func TestEnds(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	zero, three := 0, 3
	for _, c := range []struct {
		name   string
		steps  []string
		code   *int
		signal bool
	}{
		{"exit 0", []string{"count", "1", "5000", "100", "exit", "0"}, &zero, false},
		{"exit 3", []string{"count", "1", "5000", "100", "stderr", "5000", "exit", "3"}, &three, false},
		{"killed", []string{"count", "1", "5000", "100", "kill"}, nil, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			cl := harness.Dial(t, s)
			session := start(t, cl, c.steps...)
			st := subscribe(t, cl, session, fromStart)
			numbered(t, st, 1, 5000)
			e := body[end](t, next(t, st))
			if e.Type != "session_end" || e.Reason != "exited" || (e.Signal != nil) != c.signal || (e.ExitCode == nil) != (c.code == nil) || c.code != nil && *c.code != *e.ExitCode {
				t.Fatalf("the end is %+v", e)
			}
			i := get(t, cl, session)
			if i.State != "exited" || i.Status != "ended" || i.PID != nil || i.Exit == nil || i.Exit.Reason != "exited" {
				t.Fatalf("the session is %+v", i)
			}
			if c.code == &three && !strings.HasPrefix(i.Exit.StderrTail, "EEEE") {
				t.Fatalf("stderr tail %q", i.Exit.StderrTail)
			}
			if e := refuse(t, cl, -32004, "send", map[string]any{"sessionId": session, "command": 1}); e.Data.Reason != "session_unavailable" || e.Data.Retryable {
				t.Fatalf("send to it: %+v", e)
			}
			late := subscribe(t, harness.Dial(t, s), session, fromStart)
			numbered(t, late, 1, 5000)
			ofType(t, late, "session_end")
		})
	}
}

// TestStartThatFails: a clear refusal, and no session is left.
func TestStartThatFails(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	cl := harness.Dial(t, s)
	for name, params := range map[string]map[string]any{
		"no such program":   {"argv": []string{"/nonexistent/agent"}},
		"not in PATH":       {"argv": []string{"no-such-agent-anywhere"}},
		"not executable":    {"argv": []string{"/etc/hostname"}},
		"argv of numbers":   {"argv": []int{1}},
		"no such cwd":       {"argv": []string{"/bin/true"}, "cwd": "/nonexistent"},
		"unknown adapter":   {"argv": []string{"/bin/true"}, "adapter": "nope"},
		"unknown agent":     {"agent": "nope"},
		"bad session id":    {"argv": []string{"/bin/true"}, "sessionId": "a.b"},
		"session id a path": {"argv": []string{"/bin/true"}, "sessionId": "../../x"},
		"long session id":   {"argv": []string{"/bin/true"}, "sessionId": strings.Repeat("x", 65)},
		"bad restart":       {"argv": []string{"/bin/true"}, "restart": "always"},
		"long command id":   {"argv": []string{"/bin/true"}, "commandId": strings.Repeat("x", 129)},
	} {
		t.Run(name, func(t *testing.T) {
			e := refuse(t, cl, -32602, "start_session", params)
			if strings.Contains(name, "program") && !strings.HasPrefix(e.Message, "failed to start /nonexistent/agent: ") {
				t.Fatalf("message %q", e.Message)
			}
		})
	}
	if left := harness.Do[[]info](t, cl, "list_sessions", nil); len(left) != 0 {
		t.Fatalf("sessions are left: %+v", left)
	}
}

// TestStopLadder: a child, and a process that it left in a session of its own, both
// deaf to SIGTERM, are gone when stop_session answers. Proves I-W3.
func TestStopLadder(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	cl := harness.Dial(t, s)
	dir := t.TempDir()
	session := start(t, cl, "deaf", "pid", dir+"/pid", "orphan", dir+"/orphan", "count", "1", "1", "0", "linger")
	st := subscribe(t, cl, session, fromStart)
	numbered(t, st, 1, 1)
	child, orphan := pidIn(t, dir+"/pid"), pidIn(t, dir+"/orphan")
	type stopped struct{ SessionID, Status string }
	for range 2 {
		if r := harness.Do[stopped](t, cl, "stop_session", map[string]any{"sessionId": session, "graceMs": 1000}); r.Status != "stopped" || r.SessionID != session {
			t.Fatalf("stop_session answered %+v", r)
		}
		if harness.Living(child) || harness.Living(orphan) {
			t.Fatalf("child alive: %v, its orphan alive: %v", harness.Living(child), harness.Living(orphan))
		}
	}
	if e := body[end](t, ofType(t, st, "session_end")); e.Reason != "stopped" {
		t.Fatalf("the end is %+v", e)
	}
}

// TestOrphansOfAKilledServer: after kill -9 nothing of a session is alive when the
// next server is ready, and the session is interrupted. Proves I-W3.
func TestOrphansOfAKilledServer(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	cl := harness.Dial(t, s)
	dir := t.TempDir()
	session := start(t, cl, "deaf", "pid", dir+"/pid", "orphan", dir+"/orphan", "count", "1", "1", "0", "linger")
	st := subscribe(t, cl, session, fromStart)
	numbered(t, st, 1, 1)
	epoch, seq := st.Cursor()
	child, orphan := pidIn(t, dir+"/pid"), pidIn(t, dir+"/orphan")
	s.Kill9()
	harness.Eventually(t, "the child dies with the server", func() bool { return !harness.Living(child) })
	s.Run()
	if harness.Living(orphan) {
		t.Fatalf("orphan %d lives though the server is ready", orphan)
	}
	cl = harness.Dial(t, s)
	if i := get(t, cl, session); i.State != "interrupted" || i.Status != "interrupted" || i.Epoch != epoch {
		t.Fatalf("the session is %+v", i)
	}
	st = subscribe(t, cl, session, map[string]any{"after": seq, "epoch": epoch})
	e := next(t, st)
	if b := body[struct{ Type, Reason string }](t, e); b.Type != "session_interrupted" || b.Reason != "server_restart" {
		t.Fatalf("after the restart comes %s", e.Body)
	}
	must(t, cl, "stop_session", map[string]any{"sessionId": session})
	if e := body[end](t, next(t, st)); e.Type != "session_end" || e.Reason != "stopped" || e.ExitCode != nil || e.Signal != nil {
		t.Fatalf("stopping it gives %+v", e)
	}
}

// TestClosedStdin: a child that closed its stdin costs no more than its commands.
// Proves I-W4.
func TestClosedStdin(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	cl := harness.Dial(t, s)
	session := start(t, cl, "closestdin", "count", "1", "1", "0", "linger")
	other := start(t, cl, "echo")
	numbered(t, subscribe(t, cl, session, fromStart), 1, 1)
	for i := range 4 {
		_, err := cl.Call(harness.Context(t), "send", map[string]any{"sessionId": session, "commandId": fmt.Sprintf("c%d", i), "command": strings.Repeat("p", 100_000)})
		t.Logf("command %d: %v", i, err)
	}
	st := subscribe(t, cl, other, fromStart)
	send(t, cl, other, "c", map[string]any{})
	ofType(t, st, "got")
	must(t, cl, "stop_session", map[string]any{"sessionId": session, "graceMs": 500})
	refuse(t, cl, -32004, "send", map[string]any{"sessionId": session, "command": 1})
}

// TestNobodyWatches: a session goes on, with stdin open, when its last client has
// gone.
func TestNobodyWatches(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	network, address := s.Addr()
	first, err := harness.Connect(harness.Context(t), network, address, s.Token())
	if err != nil {
		t.Fatal(err)
	}
	path := t.TempDir() + "/in"
	session := start(t, first, "ticks", "40", "10", "hold", path)
	send(t, first, session, "c0", 0)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	inFile(t, path, "0\n") // by then all ticks are over
	cl := harness.Dial(t, s)
	numbered(t, subscribe(t, cl, session, fromStart), 1, 40)
	send(t, cl, session, "c1", 1)
	inFile(t, path, "0\n1\n")
}

// TestStderr: 5 MB of it do not block the child and never become events; the tail
// is kept.
func TestStderr(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	cl := harness.Dial(t, s)
	session := start(t, cl, "count", "1", "1", "0", "stderr", "5000000", "count", "2", "2", "0", "echo")
	for _, e := range numbered(t, subscribe(t, cl, session, fromStart), 1, 2) {
		if strings.Contains(string(e.Body), "EEEEEEEE") {
			t.Fatalf("stderr became event %d", e.Seq)
		}
	}
	harness.Eventually(t, "the tail of stderr", func() bool {
		r := harness.Do[struct{ Text string }](t, cl, "read_stderr", map[string]any{"sessionId": session})
		if len(r.Text) > 64<<10 {
			t.Fatalf("%d bytes of stderr were kept", len(r.Text))
		}
		return strings.HasSuffix(r.Text, strings.Repeat("E", 1000))
	})
}

// TestEnvironment: the marks of a session, and what start_session sets.
func TestEnvironment(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	cl := harness.Dial(t, s)
	session := start(t, cl, "env", "REJOIN_SESSION", "env", "REJOIN_RUN", "env", "REJOIN_INSTANCE", "echo")
	st := subscribe(t, cl, session, fromStart)
	var got []string
	for range 3 {
		got = append(got, body[struct{ Value string }](t, ofType(t, st, "env")).Value)
	}
	instance, err := os.ReadFile(filepath.Join(s.Dir, "instance"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(got[0], session) || got[1] != "1" || got[2] != strings.TrimSpace(string(instance)) {
		t.Fatalf("the child's marks are %q", got)
	}
}

// TestSecondServer: one data directory, one server; the second fails at once and
// the first does not notice.
func TestSecondServer(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	second := harness.New(t, harness.Options{DataDir: s.Dir})
	if err := second.TryRun(); err == nil {
		t.Fatal("a second server runs on the same data directory")
	}
	if log := second.LogTail(); !strings.Contains(log, fmt.Sprint(s.PID())) {
		t.Fatalf("the refusal does not name process %d: %s", s.PID(), log)
	}
	must(t, harness.Dial(t, s), "ping", nil)
}

// TestSignals: SIGINT ends the server like SIGTERM.
func TestSignals(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	cl := harness.Dial(t, s)
	session := start(t, cl, "echo")
	if err := syscall.Kill(s.PID(), syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	<-s.Exited()
	s.Run()
	if i := get(t, harness.Dial(t, s), session); i.State != "exited" || i.Exit == nil || i.Exit.Reason != "stopped" {
		t.Fatalf("after SIGINT the session is %+v", i)
	}
}
