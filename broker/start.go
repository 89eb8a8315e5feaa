package broker

import (
	"context"
	"errors"
	"log/slog"
	"strings"

	"rejoin/journal"
	"rejoin/protocol"
)

// Start makes a new session and returns when its child runs and its
// session_start is durable. A failed start leaves nothing. The same command id
// again gives the same session; with other parameters it is a conflict.
func (b *Broker) Start(ctx context.Context, p Principal, s StartParams) (protocol.SessionInfo, error) {
	if err := p.need(RoleOperator); err != nil {
		return protocol.SessionInfo{}, err
	}
	if b.cfg.Desk {
		return b.forwardInfo(ctx, p, deskStart, protocol.BrokerRequest{Op: protocol.AskStart, Start: &s})
	}
	if err := b.await(ctx); err != nil {
		return protocol.SessionInfo{}, err
	}
	if s.CommandID == "" {
		return b.startNew(ctx, p, s, nil, "")
	}
	if !protocol.ValidCommandID(s.CommandID) || strings.HasPrefix(s.CommandID, protocol.ServerCommandPrefix) {
		return protocol.SessionInfo{}, badCommandID()
	}
	hash, err := paramsHash(s)
	if err != nil {
		return protocol.SessionInfo{}, err
	}
	key := startKey(p.Workspace, s.CommandID)
	call, leader := b.starts.enter(key, hash)
	if leader {
		call.info, call.err = b.startOnce(ctx, p, s, hash)
		b.starts.leave(key, call)
		return call.info, call.err
	}
	if call.params != hash {
		return protocol.SessionInfo{}, startConflict(s.CommandID)
	}
	select {
	case <-call.done:
		return call.info, call.err
	case <-ctx.Done():
		return protocol.SessionInfo{}, outward(errNoAnswer)
	}
}

// startOnce answers from the reservation of the command id, if one stands, or starts.
func (b *Broker) startOnce(ctx context.Context, p Principal, s StartParams, hash string) (protocol.SessionInfo, error) { // I-B1
	if b.cfg.Discover {
		return b.startShared(ctx, p, s, hash)
	}
	there, err := b.starts.find(ctx, startKey(p.Workspace, s.CommandID))
	if err != nil {
		return protocol.SessionInfo{}, outward(err)
	}
	if there == nil {
		return b.startNew(ctx, p, s, nil, hash)
	}
	k := protocol.Key{Workspace: p.Workspace, Session: there.SessionID}
	rec := b.registry.record(k)
	if rec == nil || rec.StartKey != startKey(p.Workspace, s.CommandID) {
		return b.startNew(ctx, p, s, there, hash) // that start came to nothing
	}
	switch {
	case there.ParamsHash != hash:
		return protocol.SessionInfo{}, startConflict(s.CommandID)
	case rec.Deleting || rec.Deleted:
		return protocol.SessionInfo{}, protocol.ErrSessionNotFound(rec.ID)
	case rec.Status == protocol.StatusStarting && rec.Run == 1:
		return b.startAgain(ctx, p, s, hash, rec)
	}
	return b.info(ctx, rec), nil
}

// startAgain finds out how a start of unknown outcome ended, and starts anew
// where nothing came of it.
func (b *Broker) startAgain(
	ctx context.Context, p Principal, s StartParams, hash string, rec *protocol.SessionRecord,
) (protocol.SessionInfo, error) {
	work, done := b.work(ctx, startTimeout)
	defer done()
	unlock, err := b.locks.lock(work, rec.Key())
	if err != nil {
		return protocol.SessionInfo{}, outward(errNoAnswer)
	}
	err = b.abandon(work, rec, errNoAnswer)
	unlock()
	if err != nil {
		return protocol.SessionInfo{}, outward(err)
	}
	return b.startNew(ctx, p, s, nil, hash)
}

// startNew makes a session; hash is that of its parameters when s has a command
// id, old the reservation it replaces.
func (b *Broker) startNew(
	ctx context.Context, p Principal, s StartParams, old *reservation, hash string,
) (protocol.SessionInfo, error) {
	rec, err := b.resolve(p, s)
	if err != nil {
		return protocol.SessionInfo{}, err
	}
	now := b.cfg.Now()
	switch rec.ID = s.SessionID; {
	case rec.ID != "":
	case old != nil && b.cfg.Discover:
		rec.ID = old.SessionID // whoever makes the entry first has the start
	default:
		rec.ID = protocol.NewSessionID(now)
	}
	rec.Epoch, rec.Run, rec.Floor = protocol.NewEpoch(now), 1, 1
	rec.Shard = b.node.ShardOf(rec.Key())
	if rec.Owner, err = b.pick(ctx, rec); err != nil {
		return protocol.SessionInfo{}, err
	}
	b.settleDir(rec, rec.Owner)
	rec.CreatedAt, rec.UpdatedAt = now.UnixMilli(), now.UnixMilli()
	rec.StartedBy, rec.StartKey = p.Token, startKey(p.Workspace, s.CommandID)
	fill(rec, len(s.Argv) == 0, s.Args)

	if err := b.node.ShardHealth(rec.Shard).Err(); err != nil {
		return protocol.SessionInfo{}, err
	}

	ctx, done := b.work(ctx, startTimeout+abortTimeout)
	defer done()
	unlock, err := b.locks.lock(ctx, rec.Key())
	if err != nil {
		return protocol.SessionInfo{}, outward(err)
	}
	defer unlock()
	if taken := b.registry.record(rec.Key()); taken != nil {
		return protocol.SessionInfo{}, b.taken(taken, rec)
	}
	leave, err := b.quota.enter(p, rec.Key())
	if err != nil {
		return protocol.SessionInfo{}, err
	}
	defer leave()
	if rec.StartKey != "" {
		r := reservation{SessionID: rec.ID, ParamsHash: hash, At: rec.CreatedAt}
		err := b.starts.reserve(ctx, rec.StartKey, old, r)
		if b.cfg.Discover && (errors.Is(err, journal.ErrExists) || errors.Is(err, journal.ErrRevision)) {
			return protocol.SessionInfo{}, errRaced
		}
		if err != nil {
			return protocol.SessionInfo{}, outward(err)
		}
	}
	return b.launch(ctx, rec)
}

// launch registers rec and has its worker start it; what a failure leaves is
// removed. The caller holds the session's lock.
func (b *Broker) launch(ctx context.Context, rec *protocol.SessionRecord) (protocol.SessionInfo, error) {
	if err := b.registry.create(ctx, rec); err != nil {
		if errors.Is(err, errTaken) {
			there, ferr := b.latest(ctx, rec.Key())
			if ferr != nil {
				return protocol.SessionInfo{}, outward(ferr)
			}
			if err = b.taken(there, rec); !errors.Is(err, errRaced) {
				b.freeStart(ctx, rec)
			}
			return protocol.SessionInfo{}, err
		}
		b.unregister(ctx, rec)
		return protocol.SessionInfo{}, outward(err)
	}
	req := request(protocol.OpStart, rec.Key())
	req.Record = inDir(rec)
	reply, err := b.ask(ctx, rec.Owner, startTimeout, req)
	switch {
	case err == nil && reply.NotOwner:
		err = ErrNotOwner
	case err == nil && reply.Info == nil:
		err = errNoAnswer
	}
	if err != nil {
		if aerr := b.abandon(ctx, rec, err); aerr != nil {
			return protocol.SessionInfo{}, outward(aerr)
		}
		return protocol.SessionInfo{}, outward(err)
	}
	b.freshen(ctx, rec.Key())
	b.log.Info("session started", slog.String(protocol.LogSession, rec.Key().String()), slog.String("agent", rec.Agent))
	return *reply.Info, nil
}

// abandon removes a session whose start failed with cause. When it cannot be
// known that nothing of it lives, everything is left as it is and an error
// tells so: the same command id, or the next recovery, finds out. The caller
// holds the session's lock.
func (b *Broker) abandon(ctx context.Context, rec *protocol.SessionRecord, cause error) error {
	ctx, done := b.work(ctx, abortTimeout)
	defer done()
	var tail journal.Tail
	var err error
	if errors.Is(cause, errNoAnswer) {
		if _, err := b.haltOwner(ctx, rec, protocol.GraceDefault); err != nil {
			return err
		}
		tail, err = b.tailOf(ctx, rec, 0) // it may have been written, and a server not know it
	} else {
		tail, err = b.node.Tail(ctx, logOf(rec))
	}
	if err != nil {
		return err
	}
	if tail.Empty {
		b.unregister(ctx, rec)
		return nil
	}
	// Its first record became durable after all: the log stays used, and so the id.
	if _, err := b.registry.change(ctx, rec.Key(), tombstone); err != nil {
		return err
	}
	if err := b.finishDelete(ctx, rec.Key()); err != nil {
		return err
	}
	b.freeStart(ctx, rec)
	return nil
}

// unregister removes the registry entry of a start that failed, if it is that
// start's, and its reservation. What stays behind because the journal is away
// is removed by the next recovery.
func (b *Broker) unregister(ctx context.Context, rec *protocol.SessionRecord) {
	if b.cfg.Discover {
		b.freeStart(ctx, rec) // before: whoever finds no entry under it takes the reservation over
	}
	e, err := b.registry.fetch(ctx, rec.Key())
	if err == nil && e.rec.Epoch == rec.Epoch {
		err = b.registry.removeAt(ctx, e)
	}
	if err != nil && !errors.Is(err, errNoRecord) {
		b.log.Warn("failed start not removed", slog.String(protocol.LogSession, rec.Key().String()), slog.Any(protocol.LogError, err))
		return
	}
	if !b.cfg.Discover {
		b.freeStart(ctx, rec)
	}
}

// freeStart makes the command id of a failed start free again.
func (b *Broker) freeStart(ctx context.Context, rec *protocol.SessionRecord) {
	err := b.starts.free(ctx, rec)
	if err != nil {
		b.log.Warn("reservation of a failed start not removed",
			slog.String(protocol.LogSession, rec.Key().String()), slog.Any(protocol.LogError, err))
	}
}

func badCommandID() *protocol.Error {
	return invalid("commandId must be 1 to %d printable ASCII characters; the prefix %s is the server's",
		protocol.CommandIDBytesMax, protocol.ServerCommandPrefix)
}

func startConflict(id string) *protocol.Error {
	return protocol.Errorf(protocol.ReasonConflict, "commandId %s started a session with other parameters", id)
}

func sessionTaken(id string) *protocol.Error {
	return protocol.Errorf(protocol.ReasonConflict, "session id %s is taken or was used before", id)
}
