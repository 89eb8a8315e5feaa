package attach_test

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"rejoin/tests/harness"
)

func TestMain(m *testing.M) { harness.Main(m, nil) }

// screen is a rejoin attach on a terminal of its own.
type screen struct {
	*terminal
	t    *testing.T
	pty  *os.File
	cmd  *exec.Cmd
	done chan struct{} // closed when the program and its output have ended
}

// openPTY opens a pair of pseudo terminals.
func openPTY(t *testing.T) (ours, theirs *os.File) {
	t.Helper()
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fd := int(ours.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return ours, theirs
}

func (s *screen) size(rows, cols int) {
	s.t.Helper()
	s.resize(rows, cols)
	if err := unix.IoctlSetWinsize(int(s.pty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(rows), Col: uint16(cols)}); err != nil {
		s.t.Fatal(err)
	}
}

// attach shows a session of the server of a data directory.
func attach(t *testing.T, dir, session string, args ...string) *screen {
	t.Helper()
	ours, theirs := openPTY(t)
	s := &screen{t: t, terminal: newTerminal(24, 80), pty: ours, done: make(chan struct{})}
	s.size(24, 80)
	s.cmd = exec.CommandContext(context.WithoutCancel(t.Context()), harness.Binary(t), append([]string{"--data-dir", dir, "attach", session}, args...)...)
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = theirs, theirs, theirs
	s.cmd.Env = append(os.Environ(), "TERM=vt100", "REJOIN_TOKEN=")
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = theirs.Close()
	go func() {
		defer close(s.done)
		_, _ = io.Copy(s.terminal, ours) // EIO when the last one at the other end has left
		_ = s.cmd.Wait()                 // the state it leaves is what tests look at
	}()
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		<-s.done
		_ = ours.Close()
		if len(s.unknown) > 0 {
			t.Errorf("sequences that the test's terminal does not know: %q", s.unknown)
		}
	})
	return s
}

func (s *screen) keys(keys string) {
	s.t.Helper()
	if _, err := s.pty.WriteString(keys); err != nil {
		s.t.Fatal(err)
	}
}

// shows waits until the screen satisfies want.
func (s *screen) until(what string, want func(screen string) bool) {
	s.t.Helper()
	if !harness.Within(harness.Patience, func() bool { return want(s.String()) }) {
		s.t.Fatalf("%s: never\n%s", what, s)
	}
}

func (s *screen) shows(text string) {
	s.t.Helper()
	s.until("shows "+strconv.Quote(text), func(screen string) bool { return strings.Contains(screen, text) })
}

func (s *screen) hides(text string) {
	s.t.Helper()
	s.until("hides "+strconv.Quote(text), func(screen string) bool { return !strings.Contains(screen, text) })
}

// ends waits for the program's end and returns its exit code.
func (s *screen) ends() int {
	s.t.Helper()
	if !harness.Within(harness.Patience, func() bool {
		select {
		case <-s.done:
			return true
		default:
			return false
		}
	}) {
		s.t.Fatalf("attach does not end\n%s", s)
	}
	return s.cmd.ProcessState.ExitCode()
}

// run executes a command line against the server of a data directory.
func run(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(harness.Context(t), harness.Binary(t), append([]string{"--data-dir", dir}, args...)...)
	cmd.Dir = t.TempDir()
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		t.Fatalf("%v: %v\n%s", args, err, exit.Stderr)
	}
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}
