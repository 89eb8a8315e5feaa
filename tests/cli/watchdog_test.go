package cli_test

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rejoin/tests/harness"
)

// Whatever hangs, the process ends within 10 s of SIGTERM. Here it is everything
// that logs: the log's reader is there but does not read.
func TestStopThatHangs(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 10 s")
	}
	dir := t.TempDir()
	ready := filepath.Join(dir, "ready.json")
	addr := harness.FixedPort(t)
	cmd := command(t.Context(), t, filepath.Join(dir, "data"), "serve", "--listen", addr, "--ready-file", ready, "--log-level", "debug")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd.Stderr = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	paused := make(chan error)
	go func() {
		_, err := io.Copy(io.Discard, r) // until the deadline below
		paused <- err
	}()
	harness.Eventually(t, "the server is ready", func() bool {
		_, err := os.Stat(ready)
		return err == nil
	})
	if err := r.SetReadDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if err := <-paused; err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(r.Fd(), unix.F_SETPIPE_SZ, 4096); err != nil {
		t.Fatal(err)
	}
	for range 100 { // each is logged; the pipe takes a few dozen lines
		c, err := net.Dial("tcp", addr[len("tcp://"):])
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	began := time.Now()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	state, err := cmd.Process.Wait()
	if err != nil {
		t.Fatal(err)
	}
	d := time.Since(began)
	if state.ExitCode() != 1 || d < 9*time.Second {
		t.Errorf("ended after %v with %v: the log did not block it", d, state)
	}
	if d > 10*time.Second+harness.Patience/10 { // a busy machine may add to the 10 s
		t.Errorf("ended after %v", d)
	}
	t.Logf("ended after %v", d)
}
