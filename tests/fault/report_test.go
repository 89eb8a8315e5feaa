package fault_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"rejoin/tests/model"
)

// row is what a round prints.
type row struct {
	round                     int
	fault                     string
	eventsBefore, eventsAfter uint64
	acksBefore, acksAfter     int64
	pause                     time.Duration // the longest that a client at the tail saw nothing
	interrupted               []time.Duration
	took                      time.Duration
}

// report counts what was done and what was judged.
type report struct {
	t       *testing.T
	rows    []row
	skipped map[string]string
	tally   model.Tally
}

func newReport(t *testing.T) *report {
	t.Helper()
	return &report{t: t, skipped: map[string]string{}}
}

func (r *report) head() {
	fmt.Println("round fault                   events: before  after   acks: before  after    pause  interruption seen      took")
}

func (r *report) add(w row) {
	r.rows = append(r.rows, w)
	var told []string
	for _, d := range w.interrupted {
		told = append(told, fmt.Sprintf("%.1fs", d.Seconds()))
	}
	fmt.Printf("%5d %-23s %14d %6d %14d %6d %7.2fs  %-20s %7.1fs\n",
		w.round, w.fault, w.eventsBefore, w.eventsAfter, w.acksBefore, w.acksAfter, w.pause.Seconds(), strings.Join(told, " "), w.took.Seconds())
}

// targets are the pauses to reach, by the fault that makes them.
var targets = map[string]string{
	"kill-nats": "pause ≤ 15 s", "stop-nats": "pause ≤ 1 s", "drain-nats": "pause ≤ 1 s", "kill-gateway": "pause ≤ 2 s", "kill-worker": "interruption seen ≤ 45 s",
}

func (r *report) print() {
	states, err := r.tally.Print(os.Stdout, len(r.rows))
	if err != nil {
		r.t.Error(err)
	}
	if states == 0 {
		r.t.Error("no state that a client was shown was compared with the fold of its log (I-S2)")
	}
	fmt.Println("faults under load, and the longest that a client at the tail saw nothing:")
	fmt.Println("  fault                   rounds   median     most  interruption seen: most  to reach")
	of := map[string][]row{}
	for _, w := range r.rows {
		of[w.fault] = append(of[w.fault], w)
	}
	for _, name := range slices.Sorted(maps.Keys(of)) {
		var pauses, told []time.Duration
		for _, w := range of[name] {
			pauses, told = append(pauses, w.pause), append(told, w.interrupted...)
		}
		slices.Sort(pauses)
		seen := ""
		if len(told) > 0 {
			seen = fmt.Sprintf("%.1fs", slices.Max(told).Seconds())
		}
		fmt.Printf("  %-23s %6d %7.2fs %7.2fs  %-23s  %s\n", name, len(pauses), pauses[len(pauses)/2].Seconds(), pauses[len(pauses)-1].Seconds(), seen, targets[name])
	}
	for _, name := range slices.Sorted(maps.Keys(r.skipped)) {
		fmt.Printf("  %-23s    not here: %s\n", name, r.skipped[name])
	}
}
