package cli_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"rejoin/tests/harness"
)

// SIGHUP stops nothing; the loss of the terminal that the server runs in does.
func TestHangups(t *testing.T) {
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	if err := unix.IoctlSetPointerInt(int(ours.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(ours.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	dir := t.TempDir()
	ready := filepath.Join(dir, "ready.json")
	log := &screen{}
	cmd := exec.CommandContext(harness.Context(t), harness.Binary(t), "serve",
		"--data-dir", filepath.Join(dir, "data"), "--listen", "tcp://127.0.0.1:0", "--ready-file", ready)
	cmd.Stdin, cmd.Stderr = theirs, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	harness.Eventually(t, "the server is ready", func() bool {
		b, err := os.ReadFile(ready)
		return err == nil && bytes.Contains(b, []byte("listeners"))
	})
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	log.shows(t, "msg=reloaded what=tokens")
	if err := theirs.Close(); err != nil {
		t.Fatal(err)
	}
	if err := ours.Close(); err != nil { // the terminal goes
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("the server ended with %v", err)
	}
	log.shows(t, "the terminal has gone")
}
