package broker

import (
	"time"

	"rejoin/protocol"
)

// canaryPatience is how long a canary may be on its way until it counts as failed,
// and how long none may have been sent before the windows begin again.
const canaryPatience = 2 * protocol.HeartbeatEvery

// liveness finds out which writers of a bucket have fallen silent, by its owner's
// monotonic clock alone. A writer is silent when no revision of it was seen in a
// window in which canaries, written to the same bucket and seen back by the same
// watch, went through without a failure: the watch keeps the order of the bucket,
// so what was written before a canary is seen before it. Any failure begins every
// window again: an outage, however long, is nobody's silence. It needs a lock of
// its owner's; it starts nothing and reads no clock.
type liveness struct {
	quiet  map[string]time.Time // by key: since when nothing of it was seen; bounded by the bucket
	number uint64               // of the newest canary
	sent   time.Time            // when that was; zero: it is back, or failed
	proven time.Time            // when the newest canary that came back was sent; zero: none since the last failure
}

func newLiveness() *liveness { return &liveness{quiet: make(map[string]time.Time)} }

// beat notes that a new revision of key was seen.
func (l *liveness) beat(key string, now time.Time) { l.quiet[key] = now }

// expect begins a window for a key of which nothing may ever come.
func (l *liveness) expect(key string, now time.Time) {
	if _, ok := l.quiet[key]; !ok {
		l.quiet[key] = now
	}
}

// forget ends the watch over key.
func (l *liveness) forget(key string) { delete(l.quiet, key) }

// send notes that the next canary is about to be written, and returns its number.
// One that is still out has failed. The first one after none, or after a failure,
// begins every window.
func (l *liveness) send(now time.Time) uint64 {
	if !l.sent.IsZero() || l.proven.IsZero() || now.Sub(l.proven) > canaryPatience {
		l.fail(now)
	}
	l.number++
	l.sent = now
	return l.number
}

// fail begins every window again.
func (l *liveness) fail(now time.Time) {
	l.sent, l.proven = time.Time{}, time.Time{}
	for key := range l.quiet {
		l.quiet[key] = now
	}
}

// echo notes that a canary was seen back.
func (l *liveness) echo(number uint64, now time.Time) {
	switch {
	case number != l.number || l.sent.IsZero(): // it was given up
	case now.Sub(l.sent) > canaryPatience:
		l.fail(now)
	default:
		l.proven, l.sent = l.sent, time.Time{}
	}
}

// silent reports whether the window of key is as long as after.
func (l *liveness) silent(key string, after time.Duration) bool {
	since, ok := l.quiet[key]
	return ok && !l.proven.IsZero() && l.proven.Sub(since) >= after
}
