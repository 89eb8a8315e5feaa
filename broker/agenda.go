package broker

import (
	"context"
	"sync"
	"time"

	"rejoin/protocol"
)

// agenda keeps at most one appointment per session and hands each out when it
// is due. Safe for concurrent use; it starts no goroutine.
type agenda struct {
	now  func() time.Time
	wake chan struct{} // capacity one, a second poke is the same news: run looks again

	mu  sync.Mutex
	due map[protocol.Key]time.Time // bounded by the number of sessions
}

func newAgenda(now func() time.Time) *agenda {
	return &agenda{now: now, wake: make(chan struct{}, 1), due: make(map[protocol.Key]time.Time)}
}

// set makes or moves the appointment of k.
func (a *agenda) set(k protocol.Key, at time.Time) {
	a.mu.Lock()
	a.due[k] = at
	a.mu.Unlock()
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// cancel drops the appointment of k.
func (a *agenda) cancel(k protocol.Key) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.due, k)
}

// has reports whether k has an appointment.
func (a *agenda) has(k protocol.Key) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, ok := a.due[k]
	return ok
}

// take returns the sessions that are due now, without their appointments, and
// how long until the next one (negative: there is none).
func (a *agenda) take() (due []protocol.Key, next time.Duration) {
	now := a.now()
	a.mu.Lock()
	defer a.mu.Unlock()
	next = -1
	for k, at := range a.due {
		wait := at.Sub(now)
		switch {
		case wait <= 0:
			due = append(due, k)
			delete(a.due, k)
		case next < 0 || wait < next:
			next = wait
		}
	}
	return due, next
}

// run calls fire for each session that is due, one at a time, until ctx ends.
func (a *agenda) run(ctx context.Context, fire func(protocol.Key)) {
	for ctx.Err() == nil {
		due, next := a.take()
		for _, k := range due {
			fire(k)
		}
		if len(due) == 0 {
			a.pause(ctx, next)
		}
	}
}

// pause waits for the next appointment, a poke or the end.
func (a *agenda) pause(ctx context.Context, next time.Duration) {
	var timer <-chan time.Time
	if next >= 0 {
		t := time.NewTimer(next)
		defer t.Stop()
		timer = t.C
	}
	select {
	case <-ctx.Done():
	case <-a.wake:
	case <-timer:
	}
}
