package broker

import (
	"context"

	"rejoin/journal"
	"rejoin/protocol"
)

// SetTitle changes the title of a session, live or not; it is an event of its log.
func (b *Broker) SetTitle(ctx context.Context, p Principal, session, title string) error {
	if err := p.need(RoleOperator); err != nil {
		return err
	}
	if err := checkTitle(title); err != nil {
		return err
	}
	if b.cfg.Desk {
		return b.forwardDone(ctx, p, deskTitle, protocol.BrokerRequest{Op: protocol.AskTitle, Session: session, Title: title})
	}
	rec, err := b.find(ctx, p, session)
	if err != nil {
		return err
	}
	ctx, done := b.work(ctx, protocol.DispatchTimeout+startTimeout)
	defer done()
	unlock, err := b.locks.lock(ctx, rec.Key())
	if err != nil {
		return outward(errNoAnswer)
	}
	defer unlock()
	if rec, err = b.findLatest(ctx, p, session); err != nil {
		return err
	}
	req := request(protocol.OpTitle, rec.Key())
	req.Title = title
	_, rec, served, err := b.askOwner(ctx, rec, protocol.DispatchTimeout, req)
	if err != nil || served {
		return outward(err)
	}
	return outward(b.retitle(ctx, rec, title))
}

// retitle records the title of a session without an owner. The caller holds the
// session's lock.
func (b *Broker) retitle(ctx context.Context, rec *protocol.SessionRecord, title string) error {
	k := rec.Key()
	if err := b.node.ShardHealth(rec.Shard).Err(); err != nil {
		return err
	}
	w, err := b.write(ctx, takeover{
		key: k, minHead: rec.Head,
		allow: func(r *protocol.SessionRecord) error {
			switch {
			case r.Deleting || r.Deleted:
				return protocol.ErrSessionNotFound(k.Session)
			case running(r): // its owner is lost, or about to tell that the run has ended
				e := protocol.Errorf(protocol.ReasonSessionUnavailable, "session %s is starting or ending", k.Session)
				e.Retryable = true
				return e
			}
			return nil
		},
		bodies: func(context.Context, journal.Tail, protocol.Seq) ([]any, error) {
			return []any{protocol.SessionTitle{Type: protocol.TypeSessionTitle, Title: title}}, nil
		},
	})
	if err != nil {
		return err
	}
	return b.registry.Update(ctx, k, w.rec.Run, func(r *protocol.SessionRecord) {
		r.Title, r.Head, r.UpdatedAt, r.Settled = title, w.head, b.nowMs(), false
	})
}
