package broker

import (
	"context"

	"rejoin/protocol"
	"rejoin/snapshot"
)

// Command takes a command to the owner of the session and returns once it is
// admitted and durable. An empty id is filled in; that a client invents none of
// the server's form is the gateway's check. Without an owner, or while its run
// starts, a command that the log knows is answered from there. Nothing tells whether a command whose answer
// was lost is admitted (outcome_unknown): repeat it under the same id.
func (b *Broker) Command(ctx context.Context, p Principal, session string, in protocol.CommandInput) (protocol.SendResult, error) { // I-B1
	if err := p.need(RoleOperator); err != nil {
		return protocol.SendResult{}, err
	}
	if in.ID == "" {
		in.ID = protocol.NewCommandID(b.cfg.Now())
	}
	if !protocol.ValidCommandID(in.ID) {
		return protocol.SendResult{}, badCommandID()
	}
	rec, err := b.find(ctx, p, session)
	if err != nil {
		return protocol.SendResult{}, err
	}
	req := request(protocol.OpCommand, rec.Key())
	req.Command = &in
	reply, rec, served, err := b.askOwner(ctx, rec, protocol.DispatchTimeout, req)
	switch {
	case err != nil:
		return protocol.SendResult{}, outward(err)
	case served && reply.Result == nil:
		return protocol.SendResult{}, outward(errNoAnswer)
	case served:
		return *reply.Result, nil
	}
	return b.recall(ctx, rec, in, reply.Starting || rec.Status == protocol.StatusStarting)
}

// recall answers a command of a session that has no owner, or one that starts,
// from its log.
func (b *Broker) recall(ctx context.Context, rec *protocol.SessionRecord, in protocol.CommandInput, starting bool) (protocol.SendResult, error) {
	value := in.Command
	if in.Verb != "" {
		value = in.Params
	}
	known, ok, err := b.ledgers.lookup(ctx, b.node, logOf(rec), in.ID)
	switch {
	case err != nil:
		return protocol.SendResult{}, outward(err)
	case !ok && starting:
		e := protocol.Errorf(protocol.ReasonSessionUnavailable, "session %s is starting", rec.ID)
		e.Retryable = true
		return protocol.SendResult{}, e
	case !ok:
		return protocol.SendResult{}, b.unavailable(rec)
	case known.Hash != snapshot.PayloadHash(in.Verb, value):
		return protocol.SendResult{}, protocol.Errorf(protocol.ReasonConflict, "command id %s was used for another command", in.ID)
	}
	return protocol.SendResult{SessionID: rec.ID, Status: "sent", CommandID: in.ID, Seq: known.Seq, Duplicate: true}, nil
}

// unavailable tells that a session has no live child, and whether it is about to
// have one.
func (b *Broker) unavailable(rec *protocol.SessionRecord) *protocol.Error {
	e := protocol.Errorf(protocol.ReasonSessionUnavailable, "session %s has no live child", rec.ID)
	if now := b.registry.record(rec.Key()); now != nil {
		rec = now
	}
	// A run whose end is not recorded yet may be followed by another; an owner that
	// cannot be reached may be back, or be found lost.
	e.Retryable = rec.Status == protocol.StatusStarting || b.due(rec) ||
		running(rec) && (rec.Restart == protocol.RestartResume || b.cfg.split())
	return e
}

// CommandStatus tells what is known of each of ids, in their order.
func (b *Broker) CommandStatus(ctx context.Context, p Principal, session string, ids []string) ([]protocol.CommandStatus, error) {
	if len(ids) > protocol.CommandStatusIDsMax {
		return nil, invalid("commandIds must be at most %d", protocol.CommandStatusIDsMax).Met("CommandStatusIDsMax")
	}
	rec, err := b.find(ctx, p, session)
	if err != nil {
		return nil, err
	}
	req := request(protocol.OpStatus, rec.Key())
	req.IDs = ids
	reply, rec, served, err := b.askOwner(ctx, rec, protocol.DispatchTimeout, req)
	switch {
	case err != nil:
		return nil, outward(err)
	case served:
		return reply.Statuses, nil
	}
	out, err := b.ledgers.statuses(ctx, b.node, logOf(rec), ids)
	return out, outward(err)
}
