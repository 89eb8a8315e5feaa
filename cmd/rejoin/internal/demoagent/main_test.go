package demoagent

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"
)

// TestMain fails when a goroutine of this package is left after the tests.
func TestMain(m *testing.M) {
	code := m.Run()
	if code == 0 && !settled() {
		fmt.Fprintln(os.Stderr, "goroutines of demoagent are left")
		code = 1
	}
	os.Exit(code)
}

// settled waits up to 5 s until none but the caller's goroutine runs our code.
func settled() bool {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(5 * time.Second)
	stack := make([]byte, 1<<20)
	for {
		all := bytes.Split(stack[:runtime.Stack(stack, true)], []byte("\n\n"))
		left := 0
		for _, g := range all[1:] {
			if bytes.Contains(g, []byte("demoagent.")) {
				left++
			}
		}
		if left == 0 {
			return true
		}
		select {
		case <-tick.C:
		case <-deadline:
			return false
		}
	}
}
