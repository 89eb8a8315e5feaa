package client

import (
	"context"
	"math/rand/v2"
	"time"
)

// backoff is exponential back-off with full jitter: the n-th wait is drawn evenly
// from [0, min(max, base·2ⁿ)). It is for one goroutine.
type backoff struct {
	base, max time.Duration
	jitter    func(time.Duration) time.Duration
	tries     int
	choices   func() int // how many servers there are to try in turn; nil: one
}

func newBackoff(o *Options) backoff {
	return backoff{base: o.BackoffBase, max: o.BackoffMax, jitter: o.jitter}
}

// among makes the bound grow once per round of attempts at all of s.
func (b backoff) among(s *servers) backoff {
	b.choices = s.count
	return b
}

// bound is the upper end of the next wait.
func (b *backoff) bound() time.Duration {
	d, rounds := b.base, b.tries
	if b.choices != nil {
		rounds /= b.choices()
	}
	for range rounds {
		if d >= b.max/2 {
			return b.max
		}
		d *= 2
	}
	return min(d, b.max)
}

// next draws the next wait.
func (b *backoff) next() time.Duration {
	d := b.jitter(b.bound())
	b.tries++
	return d
}

// reset is called on progress.
func (b *backoff) reset() { b.tries = 0 }

func fullJitter(d time.Duration) time.Duration { return rand.N(d) }

// pause waits for d; false when ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
