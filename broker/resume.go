package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"rejoin/journal"
	"rejoin/protocol"
)

// errRunning: the session that is to be resumed runs.
var errRunning = errors.New("broker: the session runs")

// Resume starts the next run of a session that has exited or was interrupted. A
// running session is left as it is and answered alike, so that a repetition
// under the same commandID needs no memory: with one, only expect's epoch is
// looked at then.
func (b *Broker) Resume(
	ctx context.Context, p Principal, session, commandID string, expect *protocol.Expect,
) (protocol.SessionInfo, error) {
	if err := p.need(RoleOperator); err != nil {
		return protocol.SessionInfo{}, err
	}
	if commandID != "" && !protocol.ValidCommandID(commandID) {
		return protocol.SessionInfo{}, badCommandID()
	}
	if expect != nil && expect.Turn != nil {
		return protocol.SessionInfo{}, protocol.Errorf(protocol.ReasonUnsupported, "a session that is resumed has no turn to expect")
	}
	if b.cfg.Desk {
		return b.forwardInfo(ctx, p, deskResume, protocol.BrokerRequest{Op: protocol.AskResume, Session: session, CommandID: commandID, Expect: expect})
	}
	rec, err := b.find(ctx, p, session)
	if err != nil {
		return protocol.SessionInfo{}, err
	}
	ctx, done := b.work(ctx, 2*startTimeout)
	defer done()
	unlock, err := b.locks.lock(ctx, rec.Key())
	if err != nil {
		return protocol.SessionInfo{}, outward(errNoAnswer)
	}
	defer unlock()
	if rec, err = b.findLatest(ctx, p, session); err != nil {
		return protocol.SessionInfo{}, err
	}
	info := b.info(ctx, rec)
	if running(rec) && info.State != protocol.StatusIdle.State() {
		if rec, err = b.awaitEnd(ctx, rec); err != nil {
			return protocol.SessionInfo{}, outward(err)
		}
		info = b.info(ctx, rec)
	}
	if running(rec) && commandID != "" && expect != nil {
		expect = &protocol.Expect{Epoch: expect.Epoch}
	}
	if err := b.meets(ctx, rec, info, expect); err != nil {
		return protocol.SessionInfo{}, outward(err)
	}
	if running(rec) {
		return info, nil
	}
	leave, err := b.quota.enter(p, rec.Key())
	if err != nil {
		return protocol.SessionInfo{}, err
	}
	defer leave()
	b.restarts.done(rec.Key())
	info, err = b.resume(ctx, rec, grant{startedBy: p.Token})
	return info, outward(err)
}

// awaitEnd returns the record of a session whose owner says that its run has
// ended, once the registry says so too. While the journal is away that may take
// as long as it likes: then the error is retryable.
func (b *Broker) awaitEnd(ctx context.Context, rec *protocol.SessionRecord) (*protocol.SessionRecord, error) {
	// The owner answers a stop when the end is settled, or shortly after the child's death.
	if _, err := b.haltOwner(ctx, rec, protocol.GraceDefault); err != nil {
		return nil, err
	}
	now, err := b.latest(ctx, rec.Key())
	switch {
	case err != nil:
		return nil, err
	case now == nil || now.Deleting || now.Deleted:
		return nil, protocol.ErrSessionNotFound(rec.ID)
	case running(now) && now.Run == rec.Run:
		return nil, protocol.Errorf(protocol.ReasonJournalUnavailable, "the end of session %s is not recorded yet", rec.ID)
	}
	return now, nil
}

// meets holds a session against what a request demands of it.
func (b *Broker) meets(ctx context.Context, rec *protocol.SessionRecord, info protocol.SessionInfo, want *protocol.Expect) error {
	if want == nil {
		return nil
	}
	head := info.Head
	if want.Head != nil && !running(rec) {
		tail, err := b.node.Tail(ctx, logOf(rec))
		if err != nil {
			return fmt.Errorf("read the head of %s: %w", rec.Key(), err)
		}
		head = tail.Head
	}
	differs := func(what string, want, is any) error {
		e := protocol.Errorf(protocol.ReasonConflict, "expected %s %v, it is %v", what, want, is)
		e.Head, e.Epoch = &head, info.Epoch
		return e
	}
	switch {
	case want.Epoch != nil && *want.Epoch != info.Epoch:
		return differs("epoch", *want.Epoch, info.Epoch)
	case want.Run != nil && *want.Run != info.Run:
		return differs("run", *want.Run, info.Run)
	case want.Status != nil && *want.Status != info.Status:
		return differs("status", *want.Status, info.Status)
	case want.Head != nil && *want.Head != head:
		return differs("head", *want.Head, head)
	}
	return nil
}

// resume grants the next run to a worker and has it start there. When that fails, the registry is set right again from the log. The caller holds the
// session's lock.
func (b *Broker) resume(ctx context.Context, seen *protocol.SessionRecord, g grant) (protocol.SessionInfo, error) { // I-B2
	k := seen.Key()
	if len(seen.Argv) == 0 {
		return protocol.SessionInfo{}, protocol.Errorf(protocol.ReasonUnsupported, "session %s cannot be resumed", k.Session)
	}
	if err := b.node.ShardHealth(seen.Shard).Err(); err != nil {
		return protocol.SessionInfo{}, err
	}
	seen, err := b.mend(ctx, seen)
	if err != nil {
		return protocol.SessionInfo{}, err
	}
	owner, err := b.pick(ctx, seen)
	if err != nil {
		return protocol.SessionInfo{}, err
	}
	there := clone(seen)
	b.settleDir(there, owner)
	ready, err := b.resumable(ctx, inDir(there))
	if err != nil {
		return protocol.SessionInfo{}, err
	}
	rec, err := b.registry.change(ctx, k, func(r *protocol.SessionRecord) error {
		switch {
		case r.Deleting || r.Deleted:
			return protocol.ErrSessionNotFound(k.Session)
		case running(r):
			return errRunning
		}
		if err := g.admit(r, seen, b.cfg.Now()); err != nil {
			return err
		}
		r.Run++
		r.StartedBy = g.startedBy
		r.Owner, r.Status, r.Settled, r.UpdatedAt = owner, protocol.StatusStarting, false, b.nowMs()
		b.settleDir(r, owner)
		return nil
	})
	if errors.Is(err, errRunning) {
		return b.info(ctx, b.registry.record(k)), nil
	}
	if err != nil {
		return protocol.SessionInfo{}, err
	}
	req := request(protocol.OpResume, k)
	req.Record = clone(rec)
	req.Record.Argv, req.Record.ResumeArgv, req.Record.ResumeOpen = ready.Argv, ready.ResumeArgv, ready.ResumeOpen
	reply, err := b.ask(ctx, owner, startTimeout, req)
	switch {
	case err == nil && reply.NotOwner:
		err = ErrNotOwner
	case err == nil && reply.Info == nil:
		err = errNoAnswer
	case err == nil:
		b.freshen(ctx, k)
		b.log.Info("session resumed", slog.String(protocol.LogSession, k.String()), slog.Uint64(protocol.LogRun, uint64(rec.Run)))
		return *reply.Info, nil
	}
	b.unresume(ctx, rec, err)
	return protocol.SessionInfo{}, err
}

// unresume settles a session whose resume failed with cause. Where the worker
// may still be at it, the next stop, delete or recovery finds out.
func (b *Broker) unresume(ctx context.Context, rec *protocol.SessionRecord, cause error) {
	ctx, done := b.work(ctx, abortTimeout)
	defer done()
	k := rec.Key()
	var err error
	if errors.Is(cause, errNoAnswer) {
		_, err = b.haltOwner(ctx, rec, protocol.GraceDefault)
	}
	cur, lerr := b.latest(ctx, k)
	err = errors.Join(err, lerr)
	if err == nil && cur != nil && cur.Run == rec.Run && running(cur) {
		err = b.settle(ctx, k, endUnlessTerminal)
	}
	if err != nil && !errors.Is(err, journal.ErrFenced) {
		b.log.Warn("failed resume not settled", slog.String(protocol.LogSession, k.String()), slog.Any(protocol.LogError, err))
	}
}
