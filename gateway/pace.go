package gateway

import (
	"time"

	"rejoin/protocol"
)

// pace is the rate at which one connection is read: a bucket that fills with rate
// requests a second up to protocol.RequestsBurst's worth. It belongs to the
// connection's reader; the zero value is full.
type pace struct {
	level float64 // requests; below zero the reader waits
	at    time.Time
}

// pauseWorth is how much of a second's requests a reader that had to wait has
// saved up when it goes on, so that it does not wake for each.
const pauseWorth = 50

// take counts n requests at now. It returns how long to read no further one.
func (p *pace) take(n, rate int, now time.Time) time.Duration {
	full := float64(rate) * protocol.RequestsBurst.Seconds()
	if p.at.IsZero() {
		p.level = full
	} else {
		p.level = min(full, p.level+float64(rate)*now.Sub(p.at).Seconds())
	}
	p.at = now
	if p.level -= float64(n); p.level >= 0 {
		return 0
	}
	return time.Duration((float64(rate)/pauseWorth - p.level) / float64(rate) * float64(time.Second))
}

// keepPace counts n requests and, when they came faster than a connection may
// send, holds the reader: what the client sends meanwhile waits in its own socket,
// nothing of it is lost, and no other connection waits with it. What is subscribed
// goes on.
//
//go:noinline // the reader's stack stays small: see BenchmarkIdleConnection
func (c *conn) keepPace(n int) {
	d := c.pace.take(n, c.srv.cfg.RequestsPerSecond, time.Now())
	if d == 0 {
		return
	}
	c.srv.counters.refuse("RequestsPerSecondDefault")
	c.mu.Lock()
	defer c.mu.Unlock()
	due := false
	t := time.AfterFunc(d, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		due = true
		c.room.Broadcast()
	})
	defer t.Stop()
	for !due && !c.dead && !c.closing && !c.draining {
		c.room.Wait()
	}
}
