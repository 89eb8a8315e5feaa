package hub_test

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestMain fails when goroutines of ours or of the embedded server are left
// after the run.
func TestMain(m *testing.M) {
	code := m.Run()
	if left := leaked(); code == 0 && left != "" {
		fmt.Fprintf(os.Stderr, "goroutines left after the run:\n%s\n", left)
		code = 1
	}
	os.Exit(code)
}

// leaked returns the stacks that are still there after a grace period.
func leaked() string {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.NewTimer(5 * time.Second)
	defer deadline.Stop()
	for {
		left := stacks()
		if left == "" {
			return ""
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			return left
		}
	}
}

// stacks returns the stacks that run code of this module or of NATS, but for
// the one that asks.
func stacks() string {
	buf := make([]byte, 1<<20)
	buf = buf[:runtime.Stack(buf, true)]
	var left []string
	for i, g := range strings.Split(string(buf), "\n\n") {
		if i > 0 && (strings.Contains(g, "rejoin/") || strings.Contains(g, "nats-io/")) && !strings.Contains(g, "testing.(*M).Run") {
			left = append(left, g)
		}
	}
	return strings.Join(left, "\n\n")
}
