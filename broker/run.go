package broker

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"rejoin/journal"
	"rejoin/protocol"
)

const (
	watchPause      = time.Second            // until a broken watch is begun again
	workerWait      = time.Second            // until a restart is tried again while no worker may run it
	deleteLost      = time.Minute            // until a delete of another broker is carried on: longer than that takes
	settleRetry     = 5 * time.Second        // until Settled is tried again while the journal is away
	restartWait     = 250 * time.Millisecond // until a restart is tried again while no worker serves
	journalWait     = time.Second            // until it is tried again while the journal takes nothing new
	restartParallel = 16                     // restarts at a time; the next ones wait
	hearPause       = 15 * time.Second       // until the owners are asked for what announcements may have lost
	settleIntervals = 3                      // fsync intervals after a session's end until it counts as on disk
)

// Run keeps the registry's copy in memory, starts sessions again by policy,
// finishes deletes and marks what is on disk as settled, until ctx ends. It
// waits for everything it began, and ends what requests have in work.
func (b *Broker) Run(ctx context.Context) error {
	if err := b.open(ctx); err != nil {
		return err
	}
	deaf, err := b.node.Bus().Subscribe(protocol.ChangesAll, b.announced)
	if err != nil {
		return err
	}
	defer deaf()
	var wg sync.WaitGroup
	stop := func() {}
	if b.cfg.split() {
		if stop, err = b.runSplit(ctx, &wg); err != nil {
			return err
		}
	}
	wg.Go(func() { b.follow(ctx, "registry", &b.registry.lateBucket, b.registry.take) })
	wg.Go(func() { b.tokens.run(ctx) })
	wg.Go(func() { b.askAround(ctx) })
	if !b.cfg.Desk { // a desk decides nothing
		wg.Go(func() { b.retainAll(ctx) })
		wg.Go(func() { b.settling.run(ctx, func(k protocol.Key) { b.markSettled(ctx, k) }) })
		wg.Go(func() { b.deleting.run(ctx, func(k protocol.Key) { b.carryOnDelete(ctx, k) }) })
		wg.Go(func() { b.several(ctx, b.restarts.agenda, restartParallel, b.restart) })
	}
	<-ctx.Done()
	stop()
	b.end()
	wg.Wait()
	return nil
}

// runSplit starts what only one of several processes does; stop ends the service of
// gateways.
func (b *Broker) runSplit(ctx context.Context, wg *sync.WaitGroup) (stop func(), err error) {
	if b.cfg.Desk {
		wg.Go(func() { b.follow(ctx, "workers", &b.roster.lateBucket, b.roster.take) })
		return func() {}, nil
	}
	song, hush := context.WithCancel(context.WithoutCancel(ctx)) // heard while there are requests in work
	silence, err := b.serve(song)
	if err != nil {
		hush()
		return nil, err
	}
	stop = func() {
		silence()
		hush()
	}
	wg.Go(func() { b.follow(ctx, "workers", &b.roster.lateBucket, b.roster.take) })
	wg.Go(func() { b.sing(song) })
	wg.Go(func() { b.tend(ctx) })
	wg.Go(func() { b.several(ctx, b.stuck, recoverParallel, b.unstick) })
	wg.Go(func() { b.several(ctx, b.moving, moveParallel, b.move) })
	return stop, nil
}

// several runs an agenda with so many appointments at a time; further ones wait.
func (b *Broker) several(ctx context.Context, a *agenda, parallel int, f func(context.Context, protocol.Key)) {
	var tries sync.WaitGroup
	defer tries.Wait()
	room := make(chan struct{}, parallel)
	a.run(ctx, func(k protocol.Key) {
		select {
		case room <- struct{}{}:
			tries.Go(func() {
				defer func() { <-room }()
				f(ctx, k)
			})
		case <-ctx.Done():
		}
	})
}

// follow keeps the watch of a bucket.
func (b *Broker) follow(ctx context.Context, what string, bucket *lateBucket, take func(journal.Entry) error) {
	for {
		err := bucket.watch(ctx, take, b.unreadable)
		if ctx.Err() != nil {
			return
		}
		b.log.Warn("watch of a bucket broke", slog.String("bucket", what), slog.Any(protocol.LogError, err))
		pause := time.NewTimer(watchPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return
		}
	}
}

// askAround asks the owners about their sessions now and then, while somebody
// watches: announcements may be lost.
func (b *Broker) askAround(ctx context.Context) {
	tick := time.NewTicker(hearPause)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		b.mu.Lock()
		feeds := maps.Clone(b.feeds)
		b.mu.Unlock()
		for workspace, f := range feeds {
			if !f.watched() {
				continue
			}
			for _, info := range b.live(ctx, workspace) {
				f.hear(info)
			}
		}
	}
}

// changed is told of every change of the registry and makes appointments; it
// does not block.
func (b *Broker) changed(old, cur *protocol.SessionRecord) {
	k := cur.Key()
	b.feed(k.Workspace).look(k.Session)
	if b.cfg.split() {
		b.changedElsewhere(old, cur)
		return
	}
	switch {
	case cur.Deleted:
		b.deleting.cancel(k)
		b.settling.cancel(k)
		b.restarts.done(k)
		return
	case cur.Deleting:
		b.deleting.set(k, b.cfg.Now().Add(deleteRetry))
		b.restarts.done(k)
		return
	}
	if terminal(cur.Status) && !cur.Settled {
		b.settling.set(k, b.cfg.Now().Add(settleIntervals*b.node.Durability().Interval))
	} else {
		b.settling.cancel(k)
	}
	if old != nil && failed(cur) && !terminal(old.Status) && !b.restarts.scheduled(k) {
		b.log.Warn("session fails too often to be started again", slog.String(protocol.LogSession, k.String()))
	}
}

// changedElsewhere is changed where others write the registry too: what another
// broker is at is looked at when it should be done with it.
func (b *Broker) changedElsewhere(old, cur *protocol.SessionRecord) {
	k := cur.Key()
	if cur.Deleted && (old == nil || !old.Deleted) {
		b.tellDeleted(k)
	}
	if b.cfg.Desk {
		return
	}
	now := b.cfg.Now()
	if cur.Deleting && !cur.Deleted {
		if old == nil || !old.Deleting {
			b.deleting.set(k, now.Add(deleteLost))
		}
	} else {
		b.deleting.cancel(k)
	}
	switch {
	case !between(cur):
		b.stuck.cancel(k)
	case old == nil || !between(old) || old.Run != cur.Run:
		b.stuck.set(k, now.Add(stuckAfter))
	}
	if cur.Deleting || cur.Deleted || running(cur) || cur.Rests == cur.Run {
		b.restarts.done(k)
	}
}

// decide plans the restart of a session that failed; whoever sees the end sees
// that it is planned, too. It does not block.
func (b *Broker) decide(old, cur *protocol.SessionRecord) {
	if b.cfg.Discover {
		if wants(cur) && (old == nil || old.Run != cur.Run || !terminal(old.Status)) {
			b.planShared(cur)
		}
		return
	}
	if old != nil && failed(cur) && !terminal(old.Status) && !cur.Deleting && !cur.Deleted {
		b.restarts.plan(cur.Key(), false)
	}
}

// planned tells watchers that a plan was made or called off.
func (b *Broker) planned(k protocol.Key) { b.feed(k.Workspace).look(k.Session) }

// failed reports whether the policy wants a session again: it exited by itself,
// and not well.
func failed(r *protocol.SessionRecord) bool {
	if r.Restart != protocol.RestartResume || r.Status != protocol.StatusEnded || r.Exit == nil || r.Exit.Reason != protocol.EndExited {
		return false
	}
	return r.Exit.Signal != nil || r.Exit.Code != nil && *r.Exit.Code != 0
}

// restart carries out a restart that the policy planned, unless somebody called
// it off. A restart that fails is planned again, as long as the window allows.
func (b *Broker) restart(ctx context.Context, k protocol.Key) {
	unlock, err := b.locks.lock(ctx, k)
	if err != nil {
		return
	}
	defer unlock()
	if b.cfg.Discover {
		b.restartShared(ctx, k)
		return
	}
	rec := b.registry.record(k)
	if !b.restarts.scheduled(k) {
		return
	}
	if rec == nil || rec.Deleting || rec.Deleted || running(rec) {
		b.restarts.done(k) // not shown of such a session
		return
	}
	owner, err := b.pick(ctx, rec)
	if err == nil {
		_, err = b.ask(ctx, owner, infoTimeout, protocol.WorkerRequest{Op: protocol.OpInfo})
	}
	if _, none := protocol.AsError(err); none || errors.Is(err, journal.ErrNoOwner) {
		b.restarts.again(k, restartWait) // no worker serves yet
		return
	}
	if b.node.ShardHealth(rec.Shard).Refuses() {
		b.restarts.again(k, journalWait) // a try would be for nothing, and is one of few
		return
	}
	work, done := b.work(ctx, 2*startTimeout)
	defer done()
	b.restarts.try(k) // before: the new child may fail, and be planned for, while we are here
	_, err = b.resume(work, rec, grant{startedBy: rec.StartedBy})
	b.restarts.tried(k)
	if err == nil {
		b.restarted.Add(1)
		return
	}
	defer b.planned(k)
	note := b.log.With(slog.String(protocol.LogSession, k.String()), slog.Any(protocol.LogError, err))
	if ctx.Err() != nil {
		note.Warn("restart cut short by the server's stop")
		return
	}
	if !b.restarts.plan(k, false) {
		note.Warn("restart failed; the session is left as it is")
		return
	}
	note.Warn("restart failed; it is tried again")
}

// markSettled notes that the end of a session has reached the disk.
func (b *Broker) markSettled(ctx context.Context, k protocol.Key) {
	rec := b.registry.record(k)
	if rec == nil {
		return
	}
	err := b.trySettled(ctx, k, rec.Run)
	if err != nil && !errors.Is(err, errNoRecord) && ctx.Err() == nil {
		b.log.Log(ctx, b.levelOf(rec), "end of a session not marked as settled", slog.String(protocol.LogSession, k.String()), slog.Any(protocol.LogError, err))
		b.settling.set(k, b.cfg.Now().Add(settleRetry))
	}
}

// trySettled takes the session's turn: a record that a takeover is about to
// write has not been on its way to the disk for long enough.
func (b *Broker) trySettled(ctx context.Context, k protocol.Key, run protocol.Run) error {
	ctx, cancel := context.WithTimeout(ctx, settleRetry)
	defer cancel()
	unlock, err := b.locks.lock(ctx, k)
	if err != nil {
		return err
	}
	defer unlock()
	_, err = b.registry.change(ctx, k, func(r *protocol.SessionRecord) error {
		if r.Run == run && terminal(r.Status) && !r.Deleting && !r.Deleted {
			r.Settled = true
		}
		return nil
	})
	return err
}

// levelOf is that of something which is tried again: while the journal takes
// nothing, the journal has said so.
func (b *Broker) levelOf(rec *protocol.SessionRecord) slog.Level {
	if rec != nil && b.node.ShardHealth(rec.Shard).Refuses() {
		return slog.LevelDebug
	}
	return slog.LevelWarn
}

// carryOnDelete finishes a delete whose request gave up.
func (b *Broker) carryOnDelete(ctx context.Context, k protocol.Key) {
	work, done := b.work(ctx, protocol.GraceDefault+stopMargin+startTimeout)
	defer done()
	err := b.resumeDelete(work, k)
	if rec := b.registry.record(k); rec == nil || rec.Deleted {
		b.deleting.cancel(k)
		return
	}
	if ctx.Err() == nil {
		b.log.Log(ctx, b.levelOf(b.registry.record(k)), "delete not finished", slog.String(protocol.LogSession, k.String()), slog.Any(protocol.LogError, err))
		b.deleting.set(k, b.cfg.Now().Add(deleteRetry))
	}
}
