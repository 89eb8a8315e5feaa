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
	rec = b.registry.record(k)
	switch {
	case rec == nil || rec.Deleting || rec.Deleted:
		return protocol.ErrSessionNotFound(k.Session)
	case rec.Status == protocol.StatusEnded:
		return nil
	case owned(rec):
		served, err := b.haltOwner(ctx, rec, grace)
		if err != nil || served {
			return err
		}
	}
	return b.settle(ctx, k, endUnlessEnded(protocol.EndStopped))
}

// haltOwner stops the session at its owner; served is false when the owner does
// not have it, or is not there.
func (b *Broker) haltOwner(ctx context.Context, rec *protocol.SessionRecord, grace time.Duration) (served bool, err error) {
	req := request(protocol.OpStop, rec.Key())
	req.GraceMs = max(grace.Milliseconds(), 1)
	reply, err := b.ask(ctx, rec.Owner, grace+stopMargin, req)
	if errors.Is(err, journal.ErrNoOwner) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return !reply.NotOwner, nil
}

// owned reports whether the registry names an owner that runs the session.
func owned(rec *protocol.SessionRecord) bool { return running(rec) && rec.Owner != "" }
