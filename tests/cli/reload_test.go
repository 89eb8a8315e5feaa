package cli_test

import (
	"syscall"
	"testing"

	"rejoin/tests/harness"
)

// A SIGHUP has the server read files again; it neither stops nor disturbs it.
func TestHangupDoesNotStop(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	pid := s.PID()
	for range 3 {
		if err := syscall.Kill(pid, syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		want(t, s.Dir, "ls")
	}
	if !s.Alive() {
		t.Fatal("the server ended")
	}
	if code := s.Term(); code != 0 {
		t.Fatalf("exit status %d after SIGTERM", code)
	}
}
