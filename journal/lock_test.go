package journal

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// The lock of a process that ends is waited for; that of one that lives is not.
func TestLockOfAnEndingProcess(t *testing.T) {
	dir := t.TempDir()
	child := exec.CommandContext(t.Context(), "cat")
	stdin, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	held, err := tryLock(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/lock", fmt.Appendf(nil, "%d\n", child.Process.Pid), 0o600); err != nil {
		t.Fatal(err)
	}
	var locked *LockedError
	if _, err := lockDir(dir); !errors.As(err, &locked) || locked.PID != child.Process.Pid || processEnds(child.Process.Pid) {
		t.Fatalf("while the process lives: %v", err)
	}
	_ = stdin.Close() // cat ends, and stays a zombie until Wait
	if err := unix.Waitid(unix.P_PID, child.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	if !processEnds(child.Process.Pid) {
		t.Error("a zombie does not end")
	}
	taken := make(chan error, 1)
	go func() {
		l, err := lockDir(dir)
		if err == nil {
			err = l.release()
		}
		taken <- err
	}()
	if err := child.Wait(); err != nil { // gone is ending, too
		t.Fatal(err)
	}
	if _, err := tryLock(dir); !errors.As(err, &locked) {
		t.Fatalf("it is not held: %v", err)
	}
	if err := held.release(); err != nil {
		t.Fatal(err)
	}
	if err := <-taken; err != nil {
		t.Errorf("after the process: %v", err)
	}
}
