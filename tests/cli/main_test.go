package cli_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"rejoin/tests/harness"
)

func TestMain(m *testing.M) { harness.Main(m, nil) }

// result is how a command ended.
type result struct {
	code     int
	out, err string
}

func command(ctx context.Context, t *testing.T, dir string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(ctx, harness.Binary(t), append([]string{"--data-dir", dir}, args...)...)
	cmd.Dir = t.TempDir()
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "REJOIN_TOKEN=") {
			cmd.Env = append(cmd.Env, e)
		}
	}
	return cmd
}

// run executes a command line against the server of a data directory.
func run(t *testing.T, dir string, args ...string) result {
	t.Helper()
	cmd := command(harness.Context(t), t, dir, args...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%v: %v", args, err)
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), errOut.String()}
}

// want runs a command that must succeed and returns its output.
func want(t *testing.T, dir string, args ...string) string {
	t.Helper()
	r := run(t, dir, args...)
	if r.code != 0 {
		t.Fatalf("%v: exit code %d\n%s%s", args, r.code, r.out, r.err)
	}
	return r.out
}

// refused runs a command that must fail with that code and message.
func refused(t *testing.T, dir string, code int, says string, args ...string) {
	t.Helper()
	r := run(t, dir, args...)
	if r.code != code || !strings.Contains(r.err, says) || strings.Contains(r.err, "goroutine ") {
		t.Errorf("%v: exit code %d, want %d and %q\n%s%s", args, r.code, code, says, r.out, r.err)
	}
}

// start starts a session and returns its id.
func start(t *testing.T, dir string, args ...string) string {
	t.Helper()
	return strings.TrimSpace(want(t, dir, append([]string{"start", "--no-wait"}, args...)...))
}

// screen is what a running command has printed so far.
type screen struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func (s *screen) shows(t *testing.T, text string) {
	t.Helper()
	if !harness.Within(harness.Patience, func() bool { return strings.Contains(s.String(), text) }) {
		t.Fatalf("never shown: %q\n%s", text, s)
	}
}

// background is a command that runs on.
type background struct {
	cmd      *exec.Cmd
	out, err screen
	done     chan struct{}
}

// background starts a command; the test's end interrupts it.
func runOn(t *testing.T, dir string, args ...string) *background {
	t.Helper()
	b := &background{cmd: command(context.Background(), t, dir, args...), done: make(chan struct{})}
	b.cmd.Stdout, b.cmd.Stderr = &b.out, io.MultiWriter(&b.err)
	if err := b.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = b.cmd.Wait() // the state it leaves is what tests look at
		close(b.done)
	}()
	t.Cleanup(func() { b.interrupt(t) })
	return b
}

// interrupt sends SIGINT and returns the exit code.
func (b *background) interrupt(t *testing.T) int {
	t.Helper()
	if err := b.cmd.Process.Signal(os.Interrupt); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Error(err)
	}
	return b.wait(t)
}

func (b *background) wait(t *testing.T) int {
	t.Helper()
	if !harness.Within(harness.Patience, func() bool {
		select {
		case <-b.done:
			return true
		default:
			return false
		}
	}) {
		_ = b.cmd.Process.Kill()
		<-b.done
		t.Fatalf("%v does not end\n%s%s", b.cmd.Args, &b.out, &b.err)
	}
	return b.cmd.ProcessState.ExitCode()
}
