package pi_test

import (
	"os"
	"path/filepath"
	"testing"

	"rejoin/tests/harness"
)

// Without configuration pi is offered where it is on PATH, and resumed.
func TestFoundOnPath(t *testing.T) {
	w := newWorld(t, options{known: true})
	c := w.start()
	c.prompt("hello")
	end, _ := c.await("the end", settled)
	c.transcript(end.Seq, `user done: "hello"`, `assistant done: "You said: hello"`, "idle")
	before := c.told()
	if _, err := c.Call(harness.Context(t), "stop_session", map[string]any{"sessionId": c.session}); err != nil {
		t.Fatal(err)
	}
	w.resume(c)
	if after := c.told(); after != before || after.SessionFile == "" {
		t.Errorf("pi is in session %+v, was in %+v", after, before)
	}
	if _, err := os.Stat(filepath.Join(w.home, ".pi", "agent", "sessions")); err != nil {
		t.Error(err)
	}
}
