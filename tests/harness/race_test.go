package harness

import (
	"strings"
	"testing"
)

// report is one as the race detector writes it.
func report(kinds [2]string, functions [2]string) string {
	return "==================\nWARNING: DATA RACE\n" + kinds[0] + " at 0x00c0001c3510 by goroutine 99:\n  " + functions[0] +
		"\n      /x/filestore.go:12269 +0x3b\n  a.b()\n      /x/a.go:1 +0x1\n\nPrevious " + strings.ToLower(kinds[1]) +
		" at 0x00c0001c3510 by goroutine 90:\n  " + functions[1] + "\n      /x/filestore.go:12276 +0x1a4\n\nGoroutine 99 (running) created at:\n  time.goFunc()\n" +
		"      /x/sleep.go:215 +0x44\n==================\n"
}

func TestRacesAreTold(t *testing.T) {
	t.Parallel()
	known, ours := knownRaces[0], "rejoin/journal.(*Node).open()"
	for name, c := range map[string]struct {
		log  string
		want int
	}{
		"none":                        {"time=x level=INFO msg=stopped\n", 0},
		"a known one":                 {report([2]string{"Read", "Write"}, [2]string{known, known}), 0},
		"a known one, both write":     {report([2]string{"Write", "Write"}, [2]string{known, known}), 0},
		"ours":                        {report([2]string{"Read", "Write"}, [2]string{ours, ours}), 1},
		"ours against a known one":    {report([2]string{"Read", "Write"}, [2]string{ours, known}), 1},
		"a known one against ours":    {report([2]string{"Write", "Read"}, [2]string{known, ours}), 1},
		"ours behind a known one":     {report([2]string{"Read", "Write"}, [2]string{known, known}) + report([2]string{"Read", "Write"}, [2]string{ours, ours}), 1},
		"a known one behind two ours": {strings.Repeat(report([2]string{"Read", "Write"}, [2]string{ours, ours}), 2) + report([2]string{"Read", "Write"}, [2]string{known, known}), 2},
		"one that was cut off":        {"WARNING: DATA RACE\nRead at 0x00c0001c3510 by goroutine 99:\n", 1},
	} {
		if got := Races(c.log); len(got) != c.want {
			t.Errorf("%s: %d reports, want %d: %q", name, len(got), c.want, got)
		}
	}
}
