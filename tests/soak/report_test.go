package soak_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"rejoin/tests/model"
)

// row is what a round prints.
type row struct {
	round                     int
	fault, level              string
	eventsBefore, eventsAfter uint64
	acksBefore, acksAfter     int64
	took                      time.Duration
}

// report counts what was done and what was judged.
type report struct {
	t       *testing.T
	rounds  int
	hits    map[string]int
	skipped map[string]string
	tally   model.Tally
	notes   []string // what was done in a round
}

func newReport(t *testing.T) *report {
	t.Helper()
	fmt.Println("round fault        level   events: before  after   acks: before  after     took")
	return &report{t: t, hits: map[string]int{}, skipped: map[string]string{}}
}

// add counts a round. Its fault hit during writes: events and acknowledgements of
// every session came before and after it.
func (r *report) add(w row) {
	r.rounds++
	r.hits[w.fault]++
	for _, text := range r.notes {
		r.t.Logf("round %d: %s", w.round, text)
	}
	r.notes = nil
	fmt.Printf("%5d %-12s %-7s %14d %6d %14d %6d %7.2fs\n", w.round, w.fault, w.level, w.eventsBefore, w.eventsAfter, w.acksBefore, w.acksAfter, w.took.Seconds())
}

// note says what was done in this round.
func (r *report) note(text string) { r.notes = append(r.notes, text) }

func (r *report) print() {
	states, err := r.tally.Print(os.Stdout, r.rounds)
	if err != nil {
		r.t.Error(err)
	}
	if states == 0 {
		r.t.Error("no state that a client was shown was compared with the fold of its log (I-S2)")
	}
	fmt.Println("faults that hit during writes:")
	for _, name := range slices.Sorted(maps.Keys(r.hits)) {
		fmt.Printf("  %-12s %4d\n", name, r.hits[name])
	}
	for _, name := range slices.Sorted(maps.Keys(r.skipped)) {
		fmt.Printf("  %-12s    not here: %s\n", name, r.skipped[name])
	}
}
