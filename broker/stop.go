package broker

import (
	"context"
	"errors"
	"time"

	"rejoin/journal"
	"rejoin/protocol"
)

// Stop ends the child of a session by the kill ladder and returns when it is
// gone; grace is the ladder's (zero: protocol.GraceDefault). It does not wait for
// the journal while the session has an owner. A session that has ended stays as
// it is; an interrupted one is ended on the record.
func (b *Broker) Stop(ctx context.Context, p Principal, session string, grace time.Duration) error {
	if err := p.need(RoleOperator); err != nil {
		return err
	}
	if grace < 0 || grace > protocol.GraceMax {
		return invalid("graceMs must be between 0 and %d", protocol.GraceMax.Milliseconds()).Met("GraceMax")
	}
	if b.cfg.Desk {
		wait := grace
		if grace == 0 {
			wait = protocol.GraceDefault
		}
		return b.forwardDone(ctx, p, deskStop(wait), protocol.BrokerRequest{Op: protocol.AskStop, Session: session, GraceMs: grace.Milliseconds()})
	}
	rec, err := b.find(ctx, p, session)
	if err != nil {
		return err
	}
	if grace == 0 {
		grace = protocol.GraceDefault
	}
	ctx, done := b.work(ctx, 2*(grace+stopMargin)+startTimeout)
	defer done()
	b.restarts.done(rec.Key())
	b.planned(rec.Key())
	return b.explain(rec, b.stop(ctx, rec.Key(), grace))
}

// stop ends what runs, without the session's lock, so that a start or resume
// that hangs does not hold it up; then it settles what has no owner.
func (b *Broker) stop(ctx context.Context, k protocol.Key, grace time.Duration) error {
	rec := b.registry.record(k)
	if rec != nil && owned(rec) {
		served, err := b.haltOwner(ctx, rec, grace)
		if err != nil || served {
			return err
		}
	}
	unlock, err := b.locks.lock(ctx, k)
	if err != nil {
		return errNoAnswer
	}
	defer unlock()
	b.restarts.done(k)
	b.planned(k)
	if rec, err = b.latest(ctx, k); err != nil {
		return err
	}
	switch {
	case rec == nil || rec.Deleting || rec.Deleted:
		return protocol.ErrSessionNotFound(k.Session)
	case rec.Status == protocol.StatusEnded:
		return b.rest(ctx, rec)
	case owned(rec):
		reply, err := b.askStop(ctx, rec, grace)
		if errors.Is(err, journal.ErrNoOwner) && b.roster != nil && b.roster.fate(rec.Owner) == "" {
			return unavailableNow("the worker of session %s does not answer; ask again", k.Session) // it may run there: not known yet
		}
		if err != nil && !errors.Is(err, journal.ErrNoOwner) || err == nil && !reply.NotOwner {
			return err
		}
	}
	return b.settle(ctx, k, endUnlessEnded(protocol.EndStopped))
}

// haltOwner stops the session at its owner; served is false when the owner does
// not have it, or is not there.
func (b *Broker) haltOwner(ctx context.Context, rec *protocol.SessionRecord, grace time.Duration) (served bool, err error) {
	reply, err := b.askStop(ctx, rec, grace)
	if errors.Is(err, journal.ErrNoOwner) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return !reply.NotOwner, nil
}

// askStop has the owner of a session stop it.
func (b *Broker) askStop(ctx context.Context, rec *protocol.SessionRecord, grace time.Duration) (protocol.WorkerReply, error) {
	return b.askEnd(ctx, rec, grace, false)
}

// askEnd is askStop; with move the policy is to bring the session back.
func (b *Broker) askEnd(ctx context.Context, rec *protocol.SessionRecord, grace time.Duration, move bool) (protocol.WorkerReply, error) {
	req := request(protocol.OpStop, rec.Key())
	req.GraceMs, req.Move = max(grace.Milliseconds(), 1), move
	reply, err := b.ask(ctx, rec.Owner, grace+stopMargin, req)
	if err == nil {
		b.freshen(ctx, rec.Key())
	}
	return reply, err
}

// owned reports whether the registry names an owner that runs the session.
func owned(rec *protocol.SessionRecord) bool { return running(rec) && rec.Owner != "" }
