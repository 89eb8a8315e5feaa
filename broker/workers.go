package broker

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"rejoin/journal"
	"rejoin/protocol"
)

const (
	movePause    = 5 * time.Second // until a session that could not be moved is tried again
	moveTakeover = 2 * movePause   // until another broker than the one that was asked moves it
	moveParallel = 4               // sessions on their way elsewhere at a time
)

// Workers returns the workers there are and were, by id. They serve every
// workspace: only operators of the server's own are told.
func (b *Broker) Workers(ctx context.Context, p Principal) ([]protocol.WorkerInfo, error) {
	if err := p.needOwn(RoleOperator); err != nil {
		return nil, err
	}
	if err := b.await(ctx); err != nil {
		return nil, err
	}
	var out []protocol.WorkerInfo
	if b.roster == nil {
		load := b.owners()
		for _, id := range b.cfg.Workers {
			out = append(out, protocol.WorkerInfo{ID: id, State: protocol.WorkerLive, Labels: map[string]string{}, Sessions: load[id], Version: b.cfg.Version})
		}
	} else {
		for _, c := range b.candidates() {
			out = append(out, b.workerInfo(c))
		}
	}
	slices.SortFunc(out, func(x, y protocol.WorkerInfo) int { return cmp.Compare(x.ID, y.ID) })
	return out, nil
}

func (b *Broker) workerInfo(c candidate) protocol.WorkerInfo {
	info := protocol.WorkerInfo{
		ID: c.ID, State: protocol.WorkerLive, Labels: c.Labels, Capacity: c.Capacity, Sessions: c.load, Version: c.Version,
	}
	if info.Labels == nil {
		info.Labels = map[string]string{}
	}
	switch {
	case c.Lost:
		info.State = protocol.WorkerLost
	case c.Left:
		info.State = protocol.WorkerLeft
	case c.Draining:
		info.State = protocol.WorkerDraining
	}
	return info
}

// Census counts the brokers that run and the workers that are live.
func (b *Broker) Census() (brokers, workers int) {
	if b.roster == nil {
		return 1, len(b.cfg.Workers)
	}
	for _, e := range b.roster.workers() {
		if !e.Lost && !e.Left {
			workers++
		}
	}
	return b.roster.brokers(), workers
}

// DrainWorker has a worker take no new sessions, or take them again. With d.Move
// its sessions with policy resume go on elsewhere, as far as another worker may
// run them: each is stopped there and resumed; Moving tells how many.
func (b *Broker) DrainWorker(ctx context.Context, p Principal, id string, d protocol.DrainParams) (protocol.WorkerInfo, error) {
	if err := p.needOwn(RoleAdmin); err != nil {
		return protocol.WorkerInfo{}, err
	}
	if d.Undo && d.Move {
		return protocol.WorkerInfo{}, invalid("undo and move exclude each other")
	}
	if b.cfg.Desk {
		reply, err := b.forward(ctx, p, deskDrain, protocol.BrokerRequest{Op: protocol.AskDrain, Worker: id, Drain: d})
		if err == nil && reply.Worker == nil {
			err = outward(errNoAnswer)
		}
		if err != nil {
			return protocol.WorkerInfo{}, err
		}
		return *reply.Worker, outward(b.roster.refresh(ctx, id))
	}
	if err := b.await(ctx); err != nil {
		return protocol.WorkerInfo{}, err
	}
	if b.roster == nil {
		return protocol.WorkerInfo{}, protocol.Errorf(protocol.ReasonUnsupported, "one process that does all has no other worker: stop the server instead")
	}
	return b.drain(ctx, id, d)
}

func (b *Broker) drain(ctx context.Context, id string, d protocol.DrainParams) (protocol.WorkerInfo, error) {
	e, ok := b.roster.worker(id)
	switch {
	case !ok:
		return protocol.WorkerInfo{}, invalid("there is no worker %q", id)
	case e.Lost || e.Left:
		return protocol.WorkerInfo{}, protocol.Errorf(protocol.ReasonSessionUnavailable, "worker %s does not run", id)
	}
	req := protocol.WorkerRequest{Op: protocol.OpDrain, Move: d.Move}
	if d.Undo {
		req.Op = protocol.OpUndrain
	}
	_, err := b.ask(ctx, e.Owner, protocol.DispatchTimeout, req)
	if errors.Is(err, journal.ErrNoOwner) {
		err = unavailableNow("worker %s does not answer", id)
	}
	if err == nil {
		err = b.roster.refresh(ctx, id)
	}
	if err != nil {
		return protocol.WorkerInfo{}, outward(err)
	}
	moving := 0
	for _, rec := range b.registry.records(func(r *protocol.SessionRecord) bool { return owned(r) && r.Owner == e.Owner }) {
		switch {
		case d.Undo:
			b.moving.cancel(rec.Key())
		case d.Move && rec.Restart == protocol.RestartResume:
			b.moving.set(rec.Key(), b.cfg.Now())
			moving++
		}
	}
	b.log.Info("worker drained", slog.String(protocol.LogWorker, id), slog.Bool("undo", d.Undo), slog.Int("moving", moving))
	if e, ok = b.roster.worker(id); !ok {
		return protocol.WorkerInfo{}, invalid("there is no worker %q", id)
	}
	info := b.workerInfo(candidate{e, b.owners()[e.Owner]})
	info.Moving = moving
	return info, nil
}

// planMoves has sessions of workers that are to lose them move, a while after the
// broker that was asked has begun with it: it may be gone. Where both are at it the
// registry decides whose next run it is.
func (b *Broker) planMoves() {
	leaving := make(map[string]bool)
	for _, e := range b.roster.workers() {
		if e.Moving && !e.Lost && !e.Left {
			leaving[e.Owner] = true
		}
	}
	if len(leaving) == 0 {
		return
	}
	for _, rec := range b.registry.records(func(r *protocol.SessionRecord) bool {
		return owned(r) && leaving[r.Owner] && r.Restart == protocol.RestartResume
	}) {
		if !b.moving.has(rec.Key()) {
			b.moving.set(rec.Key(), b.cfg.Now().Add(moveTakeover))
		}
	}
}

// move ends a session of a worker that drains and starts its next run elsewhere,
// unless no other worker may run it: then it stays and is tried again. The session is
// interrupted, as by its worker's own end: what fails behind that, and a broker that is
// gone then, is the restart policy's.
func (b *Broker) move(ctx context.Context, k protocol.Key) {
	unlock, err := b.locks.lock(ctx, k)
	if err != nil {
		return
	}
	defer unlock()
	work, done := b.work(ctx, 2*startTimeout+protocol.GraceDefault+stopMargin)
	defer done()
	again, err := b.tryMove(work, k)
	if err != nil && ctx.Err() == nil {
		b.log.Warn("session not moved", slog.String(protocol.LogSession, k.String()), slog.Any(protocol.LogError, err))
	}
	if again {
		b.moving.set(k, b.cfg.Now().Add(movePause))
	}
}

func (b *Broker) tryMove(ctx context.Context, k protocol.Key) (again bool, err error) {
	e, err := b.registry.fetch(ctx, k)
	if err != nil {
		return !errors.Is(err, errNoRecord), err
	}
	host, ok := b.roster.worker(protocol.WorkerOf(e.rec.Owner))
	if !owned(e.rec) || e.rec.Deleting || !ok || host.Owner != e.rec.Owner || !host.Draining || !host.Moving {
		return false, nil // it has ended, or moved, or the drain has
	}
	if _, err := b.pick(ctx, e.rec); err != nil {
		return true, err
	}
	if _, err := b.askEnd(ctx, e.rec, protocol.GraceDefault, true); err != nil && !errors.Is(err, journal.ErrNoOwner) {
		return true, err
	}
	now, err := b.registry.fetch(ctx, k)
	switch {
	case err != nil:
		return false, err
	case running(now.rec):
		return true, nil // its end is not recorded yet
	case now.rec.Status != protocol.StatusInterrupted:
		return false, nil // it ended by itself, or somebody stopped it
	}
	_, err = b.resume(ctx, now.rec, grant{startedBy: now.rec.StartedBy, move: true})
	if errors.Is(err, journal.ErrFenced) {
		err = nil // another broker was faster
	}
	return false, err
}
