package broker

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"rejoin/journal"
	"rejoin/protocol"
)

const (
	// stuckAfter is how long a session of several brokers may be between two owners
	// until another broker than the one that works on it looks: longer than any
	// start or takeover takes.
	stuckAfter = startTimeout + 2*abortTimeout
	// rollbackConfirm is how long after one leader another one is asked whether a
	// log is shorter than it was: the first may have been deposed.
	rollbackConfirm = 10 * time.Second
	lostTimeout     = time.Minute // one session of a lost owner
)

// tend settles the sessions of owners that are lost, and plans those of owners that
// drain, until ctx ends. It looks at all of them each time it is woken: by a canary, by
// a worker's entry.
func (b *Broker) tend(ctx context.Context) {
	for {
		select {
		case <-b.look:
		case <-ctx.Done():
			return
		}
		b.callLost(ctx)
		b.settleLost(ctx)
		b.planMoves()
	}
}

// callLost notes in the bucket who is silent, so that the worker itself and every
// broker know.
func (b *Broker) callLost(ctx context.Context) {
	owners := b.owners()
	ids := make(map[string]bool, len(owners))
	for owner := range owners {
		ids[protocol.WorkerOf(owner)] = true
	}
	b.roster.expect(ids)
	workers, canaries := b.roster.silent()
	for id, m := range workers {
		owner := m.entry.Owner
		if m.rev == 0 {
			if owner = ownerOf(owners, id); owner == "" {
				continue // the registry has forgotten it
			}
		}
		lost, err := b.roster.lose(ctx, id, m, owner)
		switch {
		case err != nil:
			b.log.Warn("silent worker not called lost", slog.String(protocol.LogWorker, id), slog.Any(protocol.LogError, err))
		case lost:
			b.log.Error("worker is lost", slog.String(protocol.LogWorker, id), slog.Duration("silent", protocol.WorkerLostAfter))
		}
	}
	for _, key := range canaries {
		bucket, err := b.roster.open()
		if err == nil {
			err = bucket.Delete(ctx, key)
		}
		if err != nil {
			b.log.Debug("canary of a broker that is gone not removed", slog.String("key", key), slog.Any(protocol.LogError, err))
		}
	}
}

// owners returns what the registry says who owns how many sessions.
func (b *Broker) owners() map[string]int {
	out := make(map[string]int)
	for _, rec := range b.registry.records(owned) {
		out[rec.Owner]++
	}
	return out
}

// ownerOf returns one of the owners that is a life of the worker.
func ownerOf(owners map[string]int, id string) string {
	for owner := range owners {
		if protocol.WorkerOf(owner) == id {
			return owner
		}
	}
	return ""
}

// settleLost brings the sessions of owners that are no more to their end. What
// fails is tried again when tend is woken next.
func (b *Broker) settleLost(ctx context.Context) {
	for owner := range b.owners() {
		if b.roster.fate(owner) == "" {
			continue
		}
		// The copy in memory may be older than the registry's record.
		if err := b.roster.refresh(ctx, protocol.WorkerOf(owner)); err != nil {
			b.log.Warn("worker not looked up", slog.String(protocol.LogWorker, protocol.WorkerOf(owner)), slog.Any(protocol.LogError, err))
			continue
		}
		reason := b.roster.fate(owner)
		if reason == "" {
			continue
		}
		recs := b.registry.records(func(r *protocol.SessionRecord) bool { return owned(r) && r.Owner == owner })
		b.parallel(ctx, recs, func(ctx context.Context, rec *protocol.SessionRecord) { b.settleOwned(ctx, rec, reason) })
	}
}

// parallel calls f for each record, at most recoverParallel at a time.
func (b *Broker) parallel(ctx context.Context, recs []*protocol.SessionRecord, f func(context.Context, *protocol.SessionRecord)) {
	var wg sync.WaitGroup
	defer wg.Wait()
	room := make(chan struct{}, recoverParallel)
	for _, rec := range recs {
		select {
		case room <- struct{}{}:
		case <-ctx.Done():
			return
		}
		wg.Go(func() {
			defer func() { <-room }()
			f(ctx, rec)
		})
	}
}

// settleOwned settles a session whose owner, as seen has it, is no more.
func (b *Broker) settleOwned(ctx context.Context, seen *protocol.SessionRecord, reason string) { // I-B2, I-B3
	err := b.tryLost(ctx, seen, reason)
	note := b.log.With(slog.String(protocol.LogSession, seen.Key().String()), slog.Uint64(protocol.LogRun, uint64(seen.Run)))
	switch {
	case err == nil:
		note.Info("session of a lost owner settled", slog.String("reason", reason))
	case errors.Is(err, journal.ErrFenced), errors.Is(err, errNoRecord), ctx.Err() != nil:
		// another broker was faster, or its owner's last word was
	case errors.Is(err, journal.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		note.Warn("session of a lost owner not settled yet", slog.Any(protocol.LogError, err))
	default:
		note.Error("session of a lost owner not settled", slog.Any(protocol.LogError, err))
		b.abandonRun(ctx, seen)
	}
}

// tryLost is one attempt at that. Errors: ErrNotOwner when the session is not as it
// was seen any more.
func (b *Broker) tryLost(ctx context.Context, seen *protocol.SessionRecord, reason string) error {
	ctx, cancel := context.WithTimeout(ctx, lostTimeout)
	defer cancel()
	k := seen.Key()
	unlock, err := b.locks.lock(ctx, k)
	if err != nil {
		return err
	}
	defer unlock()
	e, err := b.registry.fetch(ctx, k)
	if err != nil {
		return err
	}
	if e.rec.Run != seen.Run || e.rec.Owner != seen.Owner || !running(e.rec) || e.rec.Deleted {
		return ErrNotOwner
	}
	if e.rec.Deleting {
		return b.finishDelete(ctx, k)
	}
	tail, err := b.tailOf(ctx, e.rec, e.rec.Head)
	if err != nil {
		return err
	}
	if tail.Empty && e.rec.Run == 1 && e.rec.Head == 0 {
		return b.forgetStart(ctx, e)
	}
	return b.settle(ctx, k, interrupt(reason))
}

// tailOf reads where a log ends. Where a server answers that is no longer the
// leader, the log may seem shorter than it is known to be: then it is asked again.
func (b *Broker) tailOf(ctx context.Context, rec *protocol.SessionRecord, known protocol.Seq) (journal.Tail, error) {
	tail, err := b.node.Tail(ctx, logOf(rec))
	if err != nil || !b.cfg.split() || !tail.Empty && tail.Head >= known {
		return tail, err
	}
	pause := time.NewTimer(rollbackConfirm)
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-ctx.Done():
		return tail, ctx.Err()
	}
	return b.node.Tail(ctx, logOf(rec))
}

// forgetStart forgets a session of whose start nothing became durable.
func (b *Broker) forgetStart(ctx context.Context, e entry) error {
	if err := b.starts.free(ctx, e.rec); err != nil {
		return err
	}
	if err := b.registry.removeAt(ctx, e); err != nil {
		return err
	}
	b.log.Info("unfinished start removed", slog.String(protocol.LogSession, e.rec.Key().String()))
	return nil
}

// abandonRun notes that nobody owns a session whose log cannot be brought to its
// end, as long as it is as it was seen.
func (b *Broker) abandonRun(ctx context.Context, seen *protocol.SessionRecord) {
	err := b.registry.Update(ctx, seen.Key(), seen.Run, func(r *protocol.SessionRecord) {
		if r.Owner = ""; running(r) {
			r.Status, r.PID, r.PIDStart, r.BootID = protocol.StatusInterrupted, 0, 0, ""
		}
	})
	if err != nil && !errors.Is(err, journal.ErrFenced) && ctx.Err() == nil {
		b.log.Error("session without owner not noted", slog.String(protocol.LogSession, seen.Key().String()), slog.Any(protocol.LogError, err))
	}
}

// between reports whether a session is between two owners, or on its way up: what
// the broker that works on it is about to change.
func between(r *protocol.SessionRecord) bool {
	return running(r) && !r.Deleting && (r.Owner == "" || r.Status == protocol.StatusStarting)
}

// unstick settles a session that has been between two owners for so long that the
// broker that was at it must be gone.
func (b *Broker) unstick(ctx context.Context, k protocol.Key) {
	e, err := b.registry.fetch(ctx, k)
	if err != nil {
		if !errors.Is(err, errNoRecord) && ctx.Err() == nil {
			b.stuck.set(k, b.cfg.Now().Add(stuckAfter))
		}
		return
	}
	if !between(e.rec) {
		return
	}
	if e.rec.Owner != "" {
		reply, err := b.ask(ctx, e.rec.Owner, infoTimeout, request(protocol.OpInfo, k))
		if err != nil || !reply.NotOwner || reply.Starting { // it has it, or cannot tell, or is called lost some time
			b.stuck.set(k, b.cfg.Now().Add(stuckAfter))
			return
		}
	}
	b.settleOwned(ctx, e.rec, protocol.InterruptedRestart)
	if rec := b.registry.record(k); rec != nil && between(rec) {
		b.stuck.set(k, b.cfg.Now().Add(stuckAfter))
	}
}
