package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"rejoin/journal"
	"rejoin/protocol"
)

const (
	recoverParallel = 16 // sessions settled at a time
	// reservationStale is how old the reservation of a start must be, where several
	// brokers make them, until one without a session is removed.
	reservationStale = time.Hour
	recoverPause     = 250 * time.Millisecond // until a session is tried again while the journal is away
)

// Recover settles what an earlier process left: unfinished deletes and starts,
// sessions that were live (session_interrupted, durable), and after an unclean
// boot the broken continuity of every session that is not Settled. The children
// of that process must be dead before (I-W3). Requests that touch sessions wait
// for it. It returns when everything is settled, or with ctx's error; a log that
// is damaged is reported and stays readable as far as it goes.
func (b *Broker) Recover(ctx context.Context) error {
	if err := b.open(ctx); err != nil {
		return err
	}
	if b.cfg.split() {
		return b.recoverSplit(ctx)
	}
	if err := b.heal(ctx); err != nil {
		return err
	}
	began := time.Now()
	recs := b.registry.records(b.unsettled)
	if err := b.each(ctx, recs, b.recoverOne); err != nil {
		return err
	}
	if err := b.freeOrphanStarts(ctx); err != nil {
		return err
	}
	if err := b.node.SettleBoot(); err != nil {
		return fmt.Errorf("settle boot mark: %w", err)
	}
	if err := b.node.SettleDamage(); err != nil {
		return fmt.Errorf("settle damage: %w", err)
	}
	for _, rec := range b.registry.records(func(r *protocol.SessionRecord) bool {
		return r.Status == protocol.StatusInterrupted && r.Restart == protocol.RestartResume && !r.Deleting && !r.Deleted
	}) {
		b.restarts.plan(rec.Key(), true)
		b.planned(rec.Key())
	}
	if len(recs) > 0 {
		b.log.Info("sessions recovered", slog.Int("sessions", len(recs)), slog.Duration("took", time.Since(began)))
	}
	b.opened.Do(func() { close(b.ready) })
	return nil
}

// unsettled reports whether recovery has to look at a session.
func (b *Broker) unsettled(r *protocol.SessionRecord) bool {
	switch {
	case r.Deleted:
		return false
	case r.Deleting, running(r), len(b.node.Damage()) > 0:
		return true
	}
	return !r.Settled
}

// each settles sessions, several at a time, each as often as the journal is away.
func (b *Broker) each(
	ctx context.Context, recs []*protocol.SessionRecord, f func(context.Context, *protocol.SessionRecord) error,
) error {
	var wg sync.WaitGroup
	room := make(chan struct{}, recoverParallel)
	for _, rec := range recs {
		select {
		case room <- struct{}{}:
		case <-ctx.Done():
			wg.Wait()
			return ctx.Err()
		}
		wg.Go(func() {
			defer func() { <-room }()
			b.insist(ctx, rec, f)
		})
	}
	wg.Wait()
	return ctx.Err()
}

// insist calls f until the journal answers or ctx ends.
func (b *Broker) insist(ctx context.Context, rec *protocol.SessionRecord, f func(context.Context, *protocol.SessionRecord) error) {
	for told := false; ; {
		err := f(ctx, rec)
		if err == nil || ctx.Err() != nil {
			return
		}
		note := b.log.With(slog.String(protocol.LogSession, rec.Key().String()), slog.Any(protocol.LogError, err))
		if !errors.Is(err, journal.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
			note.Error("session not recovered")
			b.giveUp(ctx, rec)
			return
		}
		if !told {
			told = true
			note.Warn("session not recovered yet")
		}
		pause := time.NewTimer(recoverPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return
		}
	}
}

// giveUp notes that nobody owns a session whose log cannot be brought to its end.
func (b *Broker) giveUp(ctx context.Context, rec *protocol.SessionRecord) {
	_, err := b.registry.change(ctx, rec.Key(), func(r *protocol.SessionRecord) error {
		if r.Owner = ""; running(r) {
			r.Status, r.PID, r.PIDStart, r.BootID = protocol.StatusInterrupted, 0, 0, ""
		}
		return nil
	})
	if err != nil && !errors.Is(err, errNoRecord) {
		b.log.Error("session without owner not noted", slog.String(protocol.LogSession, rec.Key().String()), slog.Any(protocol.LogError, err))
	}
}

// recoverOne settles one session of an earlier process.
func (b *Broker) recoverOne(ctx context.Context, rec *protocol.SessionRecord) error { // I-B3
	k := rec.Key()
	unlock, err := b.locks.lock(ctx, k)
	if err != nil {
		return err
	}
	defer unlock()
	if rec = b.registry.record(k); rec == nil {
		return nil
	}
	if rec.Deleting {
		return b.finishDelete(ctx, k)
	}
	tail, err := b.node.Tail(ctx, logOf(rec))
	switch {
	case err != nil:
		return fmt.Errorf("read the head of %s: %w", k, err)
	case tail.Empty && running(rec) && rec.Run == 1 && rec.Head == 0:
		return b.discard(ctx, rec)
	case terminal(rec.Status) && tail.Head == rec.Head && !b.node.UncleanBoot() && len(b.node.Damage()) == 0:
		return nil // the registry heard of the last record
	}
	return b.settle(ctx, k, interruptUnlessTerminal)
}

// recoverSplit is Recover beside others: what belongs to owners that live, and what
// another broker may be at, is left alone; sessions without a live owner are
// settled, once before requests are answered and from then on by Run.
func (b *Broker) recoverSplit(ctx context.Context) error {
	if b.cfg.Discover {
		b.settleLost(ctx)
		if err := b.freeOrphanStarts(ctx); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	b.opened.Do(func() { close(b.ready) })
	return nil
}

// freeOrphanStarts removes the reservations of starts that never came to a
// registry entry.
func (b *Broker) freeOrphanStarts(ctx context.Context) error {
	all, err := b.starts.all(ctx)
	if err != nil {
		return fmt.Errorf("read start reservations: %w", err)
	}
	for key, r := range all {
		ws, ok := workspaceOf(key)
		if !ok {
			continue
		}
		rec := b.registry.record(protocol.Key{Workspace: ws, Session: r.SessionID})
		if rec != nil && rec.StartKey == key {
			continue
		}
		if b.cfg.split() && b.cfg.Now().Sub(time.UnixMilli(r.At)) < reservationStale {
			continue // another broker may be about to make the entry
		}
		if err := b.starts.remove(ctx, key, r); err != nil {
			return fmt.Errorf("remove start reservation: %w", err)
		}
	}
	return nil
}

// open opens the buckets and loads the registry into memory, once. After an error
// nothing counts as loaded: the next call begins again. Recover and Run call it, one
// after the other.
func (b *Broker) open(ctx context.Context) error {
	if b.loaded {
		return nil
	}
	sessions, err := b.node.Bucket(ctx, protocol.BucketSessions)
	if err != nil {
		return err
	}
	if !b.cfg.Desk {
		startsBucket, err := b.node.Bucket(ctx, protocol.BucketStarts)
		if err != nil {
			return err
		}
		b.starts.setBucket(startsBucket)
	}
	if b.roster != nil {
		workers, err := b.node.Bucket(ctx, protocol.BucketWorkers)
		if err != nil {
			return err
		}
		b.roster.setBucket(workers)
		if err := b.roster.load(ctx, b.roster.take, b.unreadable); err != nil {
			return fmt.Errorf("load the workers: %w", err)
		}
	}
	b.registry.setBucket(sessions)
	if err := b.registry.load(ctx, b.registry.take, b.unreadable); err != nil {
		return fmt.Errorf("load the registry: %w", err)
	}
	b.loaded = true
	return nil
}

// unreadable reports an entry of a bucket that is not what it should be.
func (b *Broker) unreadable(key string, err error) {
	b.log.Error("entry of a bucket not readable", slog.String("key", key), slog.Any(protocol.LogError, err))
}
