package harness

import "strings"

// raceMark begins a report of the race detector; raceEnd is the line around each.
const (
	raceMark = "WARNING: DATA RACE"
	raceEnd  = "=================="
)

// raceExitCode is the status of a process in which the race detector spoke
// (GORACE's exitcode).
const raceExitCode = 66

// knownRaces are functions of libraries that race with themselves, each on both
// sides of a report, and why that harms nothing.
var knownRaces = []string{
	// nats-server v2.15.2: a new file store arms its timer of syncs without its lock. When the
	// machine takes longer to store the timer than the timer takes to fire, its function may
	// see no timer and arms one more: the store then syncs twice per interval.
	"github.com/nats-io/nats-server/v2/server.(*fileStore).setSyncTimer()",
}

// Races returns the reports of the race detector in a log, but for known ones of
// libraries.
func Races(log string) []string {
	var found []string
	for {
		_, rest, ok := strings.Cut(log, raceMark)
		if !ok {
			return found
		}
		report, after, _ := strings.Cut(rest, raceEnd)
		if !knownRace(report) {
			found = append(found, raceMark+report)
		}
		log = after
	}
}

// knownRace reports whether both accesses of a report are in one of knownRaces.
func knownRace(report string) bool {
	lines := strings.Split(report, "\n")
	var accesses []string // the function of each
	for i, line := range lines {
		line = strings.TrimSpace(line)
		access := strings.HasPrefix(line, "Read at ") || strings.HasPrefix(line, "Write at ") || strings.HasPrefix(line, "Previous ")
		if access && i+1 < len(lines) {
			accesses = append(accesses, strings.TrimSpace(lines[i+1]))
		}
	}
	for _, known := range knownRaces {
		if len(accesses) == 2 && accesses[0] == known && accesses[1] == known {
			return true
		}
	}
	return false
}
