package broker

import (
	"context"
	"log/slog"
	"time"

	"rejoin/protocol"
)

// Bounds of the pause between two applications of the retention by age to
// sessions without an owner; between them it is a tenth of the age.
const (
	retainPauseMin = time.Minute
	retainPauseMax = time.Hour
)

// retainPause is how often ended sessions are held against the retention's age.
// Zero: never, since bytes and events only grow while a session has an owner.
func (c Config) retainPause() time.Duration {
	if c.Checkpoints == nil || c.Retention.MaxAge == 0 {
		return 0
	}
	if c.RetainEvery > 0 {
		return c.RetainEvery
	}
	return min(max(c.Retention.MaxAge/10, retainPauseMin), retainPauseMax)
}

// retainAll trims what ended sessions keep beyond the retention, now and then.
func (b *Broker) retainAll(ctx context.Context) {
	pause := b.cfg.retainPause()
	if pause == 0 {
		return
	}
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if b.cfg.Discover && !b.roster.first() {
			continue // another broker does it
		}
		for _, rec := range b.registry.records(atRest) {
			if ctx.Err() != nil {
				return
			}
			b.retain(ctx, rec.Key())
		}
	}
}

// atRest reports whether a session has no owner and will be kept.
func atRest(r *protocol.SessionRecord) bool { return terminal(r.Status) && !r.Deleting && !r.Deleted }

// retain applies the retention to one session, in its turn, so that no owner
// trims meanwhile.
func (b *Broker) retain(ctx context.Context, k protocol.Key) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	unlock, err := b.locks.lock(ctx, k)
	if err != nil {
		return // the next round comes
	}
	defer unlock()
	rec := b.registry.record(k)
	if rec == nil || !atRest(rec) {
		return
	}
	floor, err := b.cfg.Checkpoints.Retain(ctx, logOf(rec), b.cfg.Retention)
	if err == nil && floor > rec.Floor {
		_, err = b.registry.change(ctx, k, func(r *protocol.SessionRecord) error {
			r.Floor = max(r.Floor, floor)
			return nil
		})
	}
	if err != nil && ctx.Err() == nil {
		b.log.Warn("retention of an ended session", slog.String(protocol.LogSession, k.String()), slog.Any(protocol.LogError, err))
	}
}
