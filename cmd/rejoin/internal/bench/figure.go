package bench

import (
	"errors"
	"fmt"
	"slices"
)

// A Figure is one thing that a row measured.
type Figure struct {
	Name  string  `json:"name"`
	Unit  string  `json:"unit"`
	Value float64 `json:"value"`
	Must  *Bound  `json:"must,omitempty"`
	Aim   *Bound  `json:"aim,omitempty"`
}

// A Bound is what a figure is to reach.
type Bound struct {
	AtLeast bool    `json:"atLeast"`
	Value   float64 `json:"value"`
}

func (b *Bound) holds(v float64) bool {
	if b == nil {
		return true
	}
	return v == b.Value || v > b.Value == b.AtLeast
}

// A Result is one row, measured once.
type Result struct {
	Row        string   `json:"row"`
	Durability string   `json:"durability,omitempty"` // of a rejoin server
	Figures    []Figure `json:"figures"`
	Checked    Checked  `json:"checked"`
	Void       string   `json:"void,omitempty"` // why its figures mean nothing
}

// Checked is what a row compared: subscriptions with what was printed, each by the
// SHA-256 of its lines, and states with their hash.
type Checked struct {
	Subscriptions int64 `json:"subscriptions"`
	Lines         int64 `json:"lines"`
	States        int64 `json:"states,omitempty"`
	Retries       int64 `json:"retries,omitempty"` // requests that were refused for the moment
}

// Units.
const (
	perSecond = "/s"
	micros    = "µs"
	millis    = "ms"
	seconds   = "s"
	kib       = "KiB"
	mib       = "MiB"
	ratio     = "×"
)

// Names of figures that several rows have.
const (
	deliveries     = "deliveries"
	cpuPerDelivery = "server CPU per delivery"
	cpuPerEvent    = "server CPU per event"
	cpuInAll       = "server CPU"
	serverRSS      = "server RSS"
	eventsRate     = "events"
	p50            = "p50"
	p99            = "p99"
)

// target is what a figure of a row is to reach. A figure without a row here is
// for the reader's information.
type target struct {
	row, figure string
	durability  string // only at that; empty: at any
	atLeast     bool
	must, aim   float64 // 0: none
}

// targets are the absolute bounds of a machine with two processors; those against
// other servers are in tests/bench/peers.
var targets = []target{
	{row: rowFan, figure: deliveries, atLeast: true, must: 1e6},
	{row: rowFan, figure: cpuPerDelivery, must: 0.58, aim: 0.29},
	{row: rowFan20, figure: cpuPerDelivery, must: 1.6, aim: 0.6},
	{row: rowRate2000, figure: cpuPerDelivery, must: 3.5, aim: 2.7},
	{row: rowIdle, figure: rssPerObserver, must: 14, aim: 9},
	{row: rowResume, figure: caughtUp, must: 1, aim: 0.5},
	{row: rowResume, figure: cpuInAll, must: 1, aim: 0.4},
	{row: rowReplay, figure: replayed, must: 150, aim: 60},
	{row: rowJoin, figure: joinLargest, must: 10, aim: 3},
	{row: rowJoin, figure: joinSpread, must: 1.5},
	{row: rowLast100, figure: p50, must: 20, aim: 5},
	{row: rowSlow, figure: slowRatio, atLeast: true, must: 0.9},
	{row: rowSlow, figure: slowMemory, must: 64},
	{row: rowJournal, figure: cpuLone, must: 15},
	{row: rowJournal, figure: cpuBurst, must: 2.5, aim: 1.2},
	{row: rowSessions, figure: p99, durability: "always", must: 10, aim: 6},
	{row: rowRestart, figure: startClean, must: 1},
	{row: rowRestart, figure: startKilled, must: 5},
	{row: rowRestart, figure: heapPerEnded, must: 2},
	{row: rowCommand, figure: p50, durability: "20ms", must: 0.5, aim: 0.2},
	{row: rowFlood, figure: eventsRate, atLeast: true, must: 300e3, aim: 600e3},
}

var errBound = errors.New("bench: a bound is of a figure that the row has not")

// bounded puts the bounds beside the figures of a row; errBound when one of them has
// no figure.
func bounded(row, durability string, figures []Figure) error {
	for _, r := range targets {
		if r.row != row || r.durability != "" && r.durability != durability {
			continue
		}
		i := slices.IndexFunc(figures, func(f Figure) bool { return f.Name == r.figure })
		if i < 0 {
			return fmt.Errorf("%w: %s", errBound, r.figure)
		}
		f := &figures[i]
		f.Must = &Bound{r.atLeast, r.must}
		if r.aim != 0 {
			f.Aim = &Bound{r.atLeast, r.aim}
		}
	}
	return nil
}
