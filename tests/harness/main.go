package harness

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Children are the programs that a test binary becomes when a server starts it
// with the arguments of ChildArgv. The arguments are those after the name; the
// result is the exit status.
type Children map[string]func(args []string) int

const childWord = "harness-child"

// ChildArgv returns the command line that runs this test binary as the child of
// that name.
func ChildArgv(name string, args ...string) []string {
	exe, err := os.Executable()
	if err != nil {
		exe = os.Args[0]
	}
	return append([]string{exe, childWord, name}, args...)
}

// Main runs a child, or the tests of a package and then the check that no
// goroutine is left. It does not return.
func Main(m *testing.M, children Children) {
	if len(os.Args) > 2 && os.Args[1] == childWord {
		child, ok := children[os.Args[2]]
		if !ok {
			fmt.Fprintf(os.Stderr, "no child named %q in this test binary\n", os.Args[2])
			os.Exit(2)
		}
		os.Exit(child(os.Args[3:]))
	}
	if signal.Ignored(syscall.SIGHUP) { // under nohup; whom a process that catches a signal starts begins with its default
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	code := m.Run()
	if left := leaked(5 * time.Second); left != "" && code == 0 {
		fmt.Fprintf(os.Stderr, "goroutines are left after the tests:\n%s\n", left)
		code = 1
	}
	removeBuilt()
	os.Exit(code)
}

// leaked returns the stacks of the goroutines that are still there after
// patience, or nothing.
func leaked(patience time.Duration) string {
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		left := strangers()
		if len(left) == 0 {
			return ""
		}
		select {
		case <-deadline.C:
			return strings.Join(left, "\n\n")
		case <-tick.C:
		}
	}
}

// strangers lists the goroutines that neither the runtime nor the testing
// package keeps.
func strangers() []string {
	buf := make([]byte, 1<<20)
	for {
		n := runtime.Stack(buf, true)
		if n < len(buf) {
			buf = buf[:n]
			break
		}
		buf = make([]byte, 2*len(buf))
	}
	var left []string
	for i, g := range strings.Split(string(buf), "\n\n") {
		if i == 0 || known(g) { // the first is the one that asks
			continue
		}
		left = append(left, g)
	}
	return left
}

func known(stack string) bool {
	for _, name := range []string{
		"testing.(*M).", "testing.runTests", "testing.runFuzz", "testing.tRunner",
		"os/signal.signal_recv", "os/signal.loop", "runtime.ensureSigM", "runtime/trace.Start",
		"os/exec.(*Cmd).watchCtx", "internal/fuzz.",
	} {
		if strings.Contains(stack, name) {
			return true
		}
	}
	return false
}
