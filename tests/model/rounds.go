package model

import (
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"rejoin/tests/harness"
)

// Fault is one way to break a system of type S; Strike returns when it is over, with
// a system that is whole.
type Fault[S any] struct {
	Name   string
	Strike func(S)
	Needs  func(S) string // why it cannot be brought about here; nil or empty: it can
	Keeps  bool           // no owner is concerned: no run changes, no session is interrupted
	Short  bool           // it is in the short form
}

// Choose returns the faults that a variable names, with commas between them (all
// where it is not set; of those, short: the ones of the short form), and that are
// possible here; skipped says why others are not.
func Choose[S any](tb testing.TB, s S, all []Fault[S], variable string, short bool) (some []Fault[S], skipped map[string]string) {
	tb.Helper()
	var wanted []string
	if text := os.Getenv(variable); text != "" {
		wanted = strings.Split(text, ",")
	}
	skipped = map[string]string{}
	for _, f := range all {
		switch {
		case wanted != nil && !slices.Contains(wanted, f.Name), wanted == nil && short && !f.Short:
			continue
		case f.Needs != nil && f.Needs(s) != "":
			skipped[f.Name] = f.Needs(s)
			continue
		}
		some = append(some, f)
	}
	if len(some) == 0 {
		tb.Fatalf("%s names none of the faults that are possible here", variable)
	}
	return some, skipped
}

// Rounds does n rounds: each fault once, in an order that is drawn, and again.
func Rounds[S any](rng *rand.Rand, n int, some []Fault[S], round func(n int, f Fault[S])) {
	for i := range n {
		if i%len(some) == 0 {
			rng.Shuffle(len(some), func(a, b int) { some[a], some[b] = some[b], some[a] })
		}
		round(i, some[i%len(some)])
	}
}

// Hold keeps a fault up for a while that is drawn.
func Hold(tb testing.TB, rng *rand.Rand, least, most time.Duration) {
	tb.Helper()
	harness.Pause(tb.Context(), least+time.Duration(rng.Int64N(int64(most-least))))
}
