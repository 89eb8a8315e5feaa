package harness

import (
	"regexp"
	"testing"
)

var promise = regexp.MustCompile(`^I-[A-Z][0-9]+$`)

// Covers says in a test's log which promises of docs/ARCHITECTURE.md it is there
// for; tests/arch reads the calls from the source.
func Covers(tb testing.TB, ids ...string) {
	tb.Helper()
	for _, id := range ids {
		if !promise.MatchString(id) {
			tb.Fatalf("%q is not the id of a promise", id)
		}
		tb.Logf("covers %s", id)
	}
}
