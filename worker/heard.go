package worker

import (
	"context"

	"rejoin/journal"
)

// reasonUnheard says why a session of a worker waits that is not heard.
const reasonUnheard = "its worker does not reach the registry: it goes on by itself when it does"

// heard is a log to which the output of a child and commands are added only while the
// heartbeats of its worker go through. A worker that brokers call lost has stopped
// writing then, by its own clock: who takes the log over meets what was on its way, and
// no writer that is faster every time. What ends a run is recorded all the same.
type heard struct {
	appender
	by *presence
}

// WaitRoom is of appender.
func (h heard) WaitRoom(ctx context.Context) error { // I-B2
	if back := h.by.silent(); back != nil {
		select {
		case <-back:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return h.appender.WaitRoom(ctx)
}

// Health is of appender.
func (h heard) Health() journal.Health {
	if h.by.silent() != nil {
		return journal.Health{State: journal.HealthSick, Reason: reasonUnheard}
	}
	return h.appender.Health()
}

// silence has the logs of all sessions wait until a heartbeat goes through.
func (p *presence) silence() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.unheard == nil {
		p.unheard = make(chan struct{})
	}
}

// silent returns nil while heartbeats go through, else what is closed when they do.
func (p *presence) silent() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.unheard
}
