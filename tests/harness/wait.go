package harness

import (
	"context"
	"testing"
	"time"
)

// Patience is how long a wait may take before a test gives up: far longer than
// any healthy answer takes, so that a busy machine fails no test.
const Patience = 30 * time.Second * slowdown

// Context returns a context that ends with the test or after Patience.
func Context(tb testing.TB) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), Patience)
	tb.Cleanup(cancel)
	return ctx
}

// Eventually waits until cond holds; what names the condition in the failure.
func Eventually(tb testing.TB, what string, cond func() bool) {
	tb.Helper()
	if !Within(Patience, cond) {
		tb.Fatalf("not within %v: %s", Patience, what)
	}
}

// Within reports whether cond came to hold before d was over.
func Within(d time.Duration, cond func() bool) bool {
	deadline := time.NewTimer(d)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if cond() {
			return true
		}
		select {
		case <-deadline.C:
			return cond()
		case <-tick.C:
		}
	}
}

// Holds fails the test when cond stops to hold before d is over. It proves an
// absence only as far as d reaches.
func Holds(tb testing.TB, d time.Duration, what string, cond func() bool) {
	tb.Helper()
	if Within(d, func() bool { return !cond() }) {
		tb.Fatalf("did not hold for %v: %s", d, what)
	}
}

// Pause waits for d or the end of ctx.
func Pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
