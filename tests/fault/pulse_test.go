package fault_test

import (
	"maps"
	"slices"
	"sync"
	"time"

	"rejoin/tests/harness"
	"rejoin/tests/model"
)

// pulse takes the time between what clients see: the longest time in which a
// client that reads at the tail of a session saw nothing of it.
type pulse struct {
	mu          sync.Mutex
	last        map[*model.Reader]time.Time
	gaps        map[*model.Reader]time.Duration // the longest since the mark
	marked      time.Time
	interrupted map[string]time.Duration // session → when a client saw it interrupted, after the mark
}

// seen is called with every event that a client gets.
func (p *pulse) seen(r *model.Reader, e harness.Event) {
	if !r.Prompt() {
		return
	}
	now := time.Now()
	cut := e.Source == "broker" && e.Type() == "session_interrupted"
	p.mu.Lock()
	defer p.mu.Unlock()
	if was, ok := p.last[r]; ok {
		p.gaps[r] = max(p.gaps[r], now.Sub(was))
	}
	p.last[r] = now
	if _, ok := p.interrupted[r.Session()]; cut && !ok && !p.marked.IsZero() {
		p.interrupted[r.Session()] = now.Sub(p.marked)
	}
}

// mark begins to take the time.
func (p *pulse) mark() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.marked = time.Now()
	p.gaps, p.interrupted = map[*model.Reader]time.Duration{}, map[string]time.Duration{}
	for r := range p.last {
		p.last[r] = p.marked
	}
}

// reset forgets the clients that were.
func (p *pulse) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last, p.gaps, p.interrupted = map[*model.Reader]time.Time{}, map[*model.Reader]time.Duration{}, map[string]time.Duration{}
}

// longest is the longest gap of those sessions' clients since the mark.
func (p *pulse) longest(sessions map[string]bool) (gap time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for r, g := range p.gaps {
		if sessions == nil || sessions[r.Session()] {
			gap = max(gap, g)
		}
	}
	return gap
}

// told reports whether the interruption of a session was seen since the mark.
func (p *pulse) told(session string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.interrupted[session]
	return ok
}

// firstAndLast are when the first and the last interruption were seen, if any was.
func (p *pulse) firstAndLast() []time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := slices.Sorted(maps.Values(p.interrupted))
	if len(all) > 2 {
		all = []time.Duration{all[0], all[len(all)-1]}
	}
	return all
}
