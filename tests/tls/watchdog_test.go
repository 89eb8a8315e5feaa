package tls_test

import (
	"errors"
	"os"
	"syscall"
	"testing"
	"time"

	"rejoin/tests/harness"
)

// Whatever hangs, the process ends within 10 s of SIGTERM. Here it is the disk with
// the key, of which a reload waits for a byte.
func TestStopThatHangs(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 10 s")
	}
	f := harness.NewAuthority(t).Issue("rejoin.test")
	s := serve(t, f)
	if err := os.Remove(f.Key); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(f.Key, 0o600); err != nil {
		t.Fatal(err)
	}
	pid := s.PID()
	if err := syscall.Kill(pid, syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	var key *os.File
	harness.Eventually(t, "the key is read", func() (reads bool) {
		var err error
		key, err = os.OpenFile(f.Key, os.O_WRONLY|syscall.O_NONBLOCK, 0)
		if err != nil && !errors.Is(err, syscall.ENXIO) {
			t.Fatal(err)
		}
		return err == nil
	})
	defer key.Close()
	began := time.Now()
	code := s.Term() // fails after 10 s, and what a busy machine may add
	d := time.Since(began)
	if code != 1 || d < 9*time.Second {
		t.Errorf("ended after %v with status %d: it did not hang", d, code)
	}
	s.Says("the stop hangs; ending the process")
	t.Logf("ended after %v", d)
}
