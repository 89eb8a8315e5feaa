package journal

import (
	"time"

	"rejoin/protocol"
)

// gathering holds back the wakes of logs that grow fast. A wake costs each
// observer a write, whatever the number of events: the first one after a silence
// comes at once, and the next when protocol.GatherWaitMax has passed since, for all
// that came meanwhile. It belongs to the feeder of a shard, so that one clock
// serves every observer of every log in it. Only wakes for news are held: whoever
// asks before finds what there is, and what observers wait for otherwise (a range,
// a fill, an answer) wakes them itself.
type gathering struct {
	held  []*Watch  // each once
	due   time.Time // when they are woken; with held
	clock *time.Timer
	armed bool
	count func() // of wakes that are held
}

func newGathering(count func()) *gathering {
	g := &gathering{clock: time.NewTimer(protocol.GatherWaitMax), armed: true, count: count}
	g.disarm()
	return g
}

// take wakes the observers of what has moved, or holds them.
func (g *gathering) take(moved []*Watch, now time.Time) {
	for i, w := range moved {
		if w.held || contains(moved[:i], w) {
			continue
		}
		if since := now.Sub(w.woken); since < 0 || since >= protocol.GatherWaitMax { // below zero: the clock was set
			w.woken = now
			w.wakers.wake()
			continue
		}
		if len(g.held) == 0 {
			g.due = w.woken.Add(protocol.GatherWaitMax)
		}
		w.held = true
		g.held = append(g.held, w)
		g.count()
	}
	switch {
	case len(g.held) == 0:
	case !now.Before(g.due):
		g.release(now)
	case !g.armed:
		g.clock.Reset(g.due.Sub(now))
		g.armed = true
	}
}

// release wakes everybody who is held.
func (g *gathering) release(now time.Time) {
	g.disarm()
	for i, w := range g.held {
		w.held, w.woken = false, now
		w.wakers.wake()
		g.held[i] = nil
	}
	g.held = g.held[:0]
}

func (g *gathering) disarm() {
	if g.armed {
		g.clock.Stop()
		g.armed = false
	}
}
