package broker

import (
	"context"
	"errors"
	"time"

	"rejoin/protocol"
)

const (
	startRaces  = 8                      // times that a start finds another broker faster until it says so
	startLook   = 200 * time.Millisecond // between looks at a start that another broker has in work
	startOthers = startTimeout + abortTimeout
)

// errRaced: another broker made the start under the same command id, or is at it.
var errRaced = errors.New("broker: another start under the command id was faster")

// startShared is startOnce where several brokers make starts. The reservation names
// the session before there is one; of those who make its entry one is first, and
// the others answer with it.
func (b *Broker) startShared(ctx context.Context, p Principal, s StartParams, hash string) (protocol.SessionInfo, error) { // I-B1
	for range startRaces {
		info, err := b.startOrJoin(ctx, p, s, hash)
		if !errors.Is(err, errRaced) {
			return info, err
		}
	}
	return protocol.SessionInfo{}, outward(errNoAnswer)
}

// startOrJoin is one attempt at that.
func (b *Broker) startOrJoin(ctx context.Context, p Principal, s StartParams, hash string) (protocol.SessionInfo, error) {
	key := startKey(p.Workspace, s.CommandID)
	there, err := b.starts.find(ctx, key)
	if err != nil {
		return protocol.SessionInfo{}, outward(err)
	}
	if there == nil {
		return b.startNew(ctx, p, s, nil, hash)
	}
	if there.ParamsHash != hash {
		return protocol.SessionInfo{}, startConflict(s.CommandID)
	}
	rec, err := b.awaitStart(ctx, protocol.Key{Workspace: p.Workspace, Session: there.SessionID})
	switch {
	case err != nil:
		return protocol.SessionInfo{}, outward(err)
	case rec == nil || rec.StartKey != key: // that start has not come so far, or came to nothing
		return b.startNew(ctx, p, s, there, hash)
	case rec.Deleting || rec.Deleted:
		return protocol.SessionInfo{}, protocol.ErrSessionNotFound(rec.ID)
	case unborn(rec):
		return protocol.SessionInfo{}, b.giveUpStart(ctx, rec)
	}
	return b.info(ctx, rec), nil
}

// awaitStart returns the record of a session as it is when its start is over, or
// has taken longer than any does; nil when there is none.
func (b *Broker) awaitStart(ctx context.Context, k protocol.Key) (*protocol.SessionRecord, error) {
	ctx, cancel := context.WithTimeout(ctx, startOthers)
	defer cancel()
	tick := time.NewTicker(startLook)
	defer tick.Stop()
	var last *protocol.SessionRecord
	for {
		rec, err := b.registry.Record(ctx, k)
		switch {
		case err == nil && (rec == nil || !unborn(rec)):
			return rec, nil
		case err == nil:
			last = rec
		case ctx.Err() == nil || last == nil:
			return nil, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return last, nil
		}
	}
}

// giveUpStart finds out how a start of unknown outcome ended; when nothing came of
// it, errRaced says that it may be made again.
func (b *Broker) giveUpStart(ctx context.Context, rec *protocol.SessionRecord) error {
	work, done := b.work(ctx, startTimeout)
	defer done()
	unlock, err := b.locks.lock(work, rec.Key())
	if err != nil {
		return outward(errNoAnswer)
	}
	defer unlock()
	if err := b.abandon(work, rec, errNoAnswer); err != nil {
		return outward(err)
	}
	return errRaced
}

// taken says why the entry of a new session cannot be made: there has its id.
func (b *Broker) taken(there, rec *protocol.SessionRecord) error {
	if b.cfg.Discover && rec.StartKey != "" && (there == nil || there.StartKey == rec.StartKey) {
		return errRaced
	}
	return sessionTaken(rec.ID)
}
