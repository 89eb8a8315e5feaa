package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"rejoin/journal"
	"rejoin/protocol"
)

// sing writes this broker's canary every HeartbeatEvery until ctx ends, and wakes
// look after each: which workers are silent is known by it.
func (b *Broker) sing(ctx context.Context) {
	var rev uint64
	tick := time.NewTicker(protocol.HeartbeatEvery)
	defer tick.Stop()
	for {
		err := b.roster.sing(ctx, &rev)
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			b.log.Warn("canary not written: nobody is called lost", slog.Any(protocol.LogError, err))
		}
		b.look.poke()
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
	}
	b.hush(context.WithoutCancel(ctx))
}

// hush removes the canary of a broker that stops: it counts as none at once.
func (b *Broker) hush(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, protocol.HeartbeatEvery)
	defer cancel()
	bucket, err := b.roster.open()
	if err == nil {
		err = bucket.Delete(ctx, b.roster.own)
	}
	if err != nil {
		b.log.Debug("canary not removed", slog.Any(protocol.LogError, err))
	}
}

// sing writes the next canary over the one of revision rev (zero: there is none).
func (r *roster) sing(ctx context.Context, rev *uint64) error {
	bucket, err := r.open()
	if err != nil {
		return err
	}
	r.mu.Lock()
	n := r.life.send(r.now())
	r.mu.Unlock()
	value, err := json.Marshal(canary{Beat: n})
	if err != nil {
		return fmt.Errorf("encode canary: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, protocol.HeartbeatEvery)
	defer cancel()
	next, err := bucket.PutOver(ctx, r.own, value, *rev)
	if err == nil {
		*rev = next
		return nil
	}
	r.mu.Lock()
	r.life.fail(r.now())
	r.mu.Unlock()
	if there, gerr := bucket.Get(ctx, r.own); gerr == nil { // that write may have come through
		*rev = there.Revision
	} else if errors.Is(gerr, journal.ErrNotFound) {
		*rev = 0
	}
	return err
}

// poke wakes a goroutine that looks at everything when it is woken.
type poke chan struct{} // capacity one: a second poke is the same news

func newPoke() poke { return make(chan struct{}, 1) }

func (p poke) poke() {
	select {
	case p <- struct{}{}:
	default:
	}
}
