package blackbox

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rejoin/tests/harness"
)

// TestDefaultAgent: start_session without params starts the built-in agent.
func TestDefaultAgent(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	cl := harness.Dial(t, s)
	r := harness.Do[struct {
		SessionID string
		Session   info
	}](t, cl, "start_session", map[string]any{"unknown": true})
	st := subscribe(t, cl, r.SessionID, fromStart)
	harness.Do[sendResult](t, cl, "prompt", map[string]any{"sessionId": r.SessionID, "text": "hello"})
	until(t, st, "a child event", func(e harness.Event) bool { return e.Source == "child" })
}

// TestStartDedupe: one command id, one session, across a restart; other params are
// refused; after a failed start the id is free. Proves I-B1.
func TestStartDedupe(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	cl := harness.Dial(t, s)
	params := map[string]any{"argv": harness.ChildArgv("script", "echo"), "commandId": "start-1"}
	type started struct{ SessionID string }
	first := harness.Do[started](t, cl, "start_session", params).SessionID
	if again := harness.Do[started](t, cl, "start_session", params).SessionID; again != first {
		t.Fatalf("the retry started %s, first %s", again, first)
	}
	refuse(t, cl, -32006, "start_session", map[string]any{"argv": harness.ChildArgv("script", "linger"), "commandId": "start-1"})
	s.Kill9()
	s.Run()
	cl = harness.Dial(t, s)
	if again := harness.Do[started](t, cl, "start_session", params).SessionID; again != first {
		t.Fatalf("after a restart the retry started %s, first %s", again, first)
	}
	refuse(t, cl, -32602, "start_session", map[string]any{"argv": []string{"/nonexistent"}, "commandId": "start-2"})
	harness.Do[started](t, cl, "start_session", map[string]any{"argv": harness.ChildArgv("script", "echo"), "commandId": "start-2"})
	if all := harness.Do[[]info](t, cl, "list_sessions", nil); len(all) != 2 {
		t.Fatalf("%d sessions, want 2", len(all))
	}
}

// TestChosenID: an id is taken once and for ever.
func TestChosenID(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	cl := harness.Dial(t, s)
	params := map[string]any{"argv": harness.ChildArgv("script", "echo"), "sessionId": "My_session-1"}
	must(t, cl, "start_session", params)
	refuse(t, cl, -32006, "start_session", params)
	must(t, cl, "delete_session", map[string]any{"sessionId": "My_session-1"})
	refuse(t, cl, -32006, "start_session", params)
}

// TestDelete: subscriptions end, everything answers not found, again is the same
// answer, also after a restart.
func TestDelete(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	cl := harness.Dial(t, s)
	pid := filepath.Join(t.TempDir(), "pid")
	session := start(t, cl, "pid", pid, "count", "1", "100", "0", "echo")
	other := start(t, cl, "echo")
	st := subscribe(t, cl, session, fromStart)
	numbered(t, st, 1, 100)
	child := pidIn(t, pid)
	type deleted struct{ Status string }
	gone := func() {
		t.Helper()
		if r := harness.Do[deleted](t, cl, "delete_session", map[string]any{"sessionId": session}); r.Status != "deleted" {
			t.Fatalf("delete_session answered %+v", r)
		}
		for _, method := range []string{"get_session", "subscribe", "read_events", "send", "stop_session", "resume_session", "get_snapshot", "set_title", "read_stderr"} {
			refuse(t, cl, -32000, method, map[string]any{"sessionId": session, "after": 0, "limit": 1, "command": 1, "title": "x"})
		}
		if all := harness.Do[[]info](t, cl, "list_sessions", nil); len(all) != 1 || all[0].ID != other {
			t.Fatalf("listed are %+v", all)
		}
	}
	gone()
	if end, err := st.End(harness.Context(t)); err != nil || end.Reason != "deleted" {
		t.Fatalf("the subscription's end: %+v, %v", end, err)
	}
	if harness.Living(child) {
		t.Fatalf("child %d outlived its session", child)
	}
	gone()
	s.Kill9()
	s.Run()
	cl = harness.Dial(t, s)
	must(t, cl, "stop_session", map[string]any{"sessionId": other})
	gone()
	refuse(t, cl, -32000, "delete_session", map[string]any{"sessionId": "never-was"})
}

// TestListAndTitle: newest first, pages and filters, titles that stay.
func TestListAndTitle(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	cl := harness.Dial(t, s)
	if raw, err := cl.Call(harness.Context(t), "list_sessions", nil); err != nil || string(raw) != "[]" {
		t.Fatalf("an empty list is %s, %v", raw, err)
	}
	var ids []string
	for range 5 {
		ids = append(ids, start(t, cl, "echo"))
	}
	must(t, cl, "stop_session", map[string]any{"sessionId": ids[1]})
	list := func(params map[string]any) string {
		t.Helper()
		var got []string
		for _, i := range harness.Do[[]info](t, cl, "list_sessions", params) {
			for k, id := range ids {
				if i.ID == id {
					got = append(got, string(rune('0'+k)))
				}
			}
		}
		return strings.Join(got, "")
	}
	for want, params := range map[string]map[string]any{
		"43210": {}, "43": {"limit": 2}, "21": {"limit": 2, "before": ids[3]}, "1": {"state": "exited"}, "4320": {"state": "running"},
	} {
		if got := list(params); got != want {
			t.Errorf("list_sessions %v gave %s, want %s", params, got, want)
		}
	}
	st := subscribe(t, cl, ids[0], fromStart)
	must(t, cl, "set_title", map[string]any{"sessionId": ids[0], "title": "Größe"})
	must(t, cl, "set_title", map[string]any{"sessionId": ids[1], "title": "ended"})
	ofType(t, st, "session_title")
	s.Kill9()
	s.Run()
	cl = harness.Dial(t, s)
	if a, b := get(t, cl, ids[0]).Title, get(t, cl, ids[1]).Title; a != "Größe" || b != "ended" {
		t.Fatalf("titles after a restart: %q, %q", a, b)
	}
}

// TestSnapshotNow: get_snapshot without a place, of live and ended sessions.
func TestSnapshotNow(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	cl := harness.Dial(t, s)
	session := start(t, cl, "count", "1", "10", "0", "echo")
	numbered(t, subscribe(t, cl, session, fromStart), 1, 10)
	type snap struct {
		Epoch     string
		Seq       uint64
		StateHash string
		State     struct{ Status string }
	}
	a := harness.Do[snap](t, cl, "get_snapshot", map[string]any{"sessionId": session})
	if a.Seq != get(t, cl, session).Head || a.State.Status != "idle" || len(a.StateHash) != 64 {
		t.Fatalf("live: %+v", a)
	}
	must(t, cl, "stop_session", map[string]any{"sessionId": session})
	if b := harness.Do[snap](t, cl, "get_snapshot", map[string]any{"sessionId": session}); b.Seq <= a.Seq || b.State.Status != "ended" {
		t.Fatalf("ended: %+v", b)
	}
}

// TestRestartPolicy: with policy resume a child that fails comes back by itself.
func TestRestartPolicy(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	cl := harness.Dial(t, s)
	dir := t.TempDir()
	r := harness.Do[struct{ SessionID string }](t, cl, "start_session", map[string]any{
		"argv": harness.ChildArgv("script", "pid", dir+"/pid", "count", "1", "3", "0", "read", "exit", "7"), "restart": "resume",
	})
	st := subscribe(t, cl, r.SessionID, fromStart)
	numbered(t, st, 1, 3)
	send(t, cl, r.SessionID, "die", 1)
	ofType(t, st, "session_end")
	ofType(t, st, "session_resumed")
	numbered(t, st, 1, 3)
}

// TestDataDirIsPrivate: nobody else may read what agents said.
func TestDataDirIsPrivate(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	for _, name := range []string{"", "token"} {
		i, err := os.Stat(filepath.Join(s.Dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if i.Mode().Perm()&0o077 != 0 {
			t.Errorf("%q is %v", name, i.Mode())
		}
	}
	token, err := os.ReadFile(filepath.Join(s.Dir, "token"))
	if err != nil || len(strings.TrimSpace(string(token))) != 32 {
		t.Fatalf("the token is %q, %v", token, err)
	}
}
