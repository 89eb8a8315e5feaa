package gateway

import (
	"context"
	"errors"
	"time"

	"rejoin/broker"
	"rejoin/journal"
	"rejoin/protocol"
)

const (
	// verdictAfter is how far apart two words of leaders must be to be believed
	// without the owner: a deposed one answers for a moment, not for so long.
	verdictAfter = 10 * time.Second
	// The pauses between two looks, doubled from the first to the last.
	lookPauseMin = 50 * time.Millisecond
	lookPauseMax = time.Second
)

// look reads where a log ends, through the leader.
type look func(ctx context.Context) (journal.Position, error)

// settled returns where a log ends for somebody who wants to read from w. The
// leader's word is enough where it puts w inside the log. What it calls future, an
// epoch that is younger than the log's, and an end before one that this server has
// shown, may be the word of a deposed leader: in one process, where there is one
// leader, it counts; else the live owner must confirm it, or without one a second look
// verdictAfter later. Until then it waits, as long as ctx. Errors are those of
// looking, and of ctx.
func (s *Server) settled(ctx context.Context, who broker.Principal, log journal.Log, w wish, f look) (journal.Position, error) {
	at, err := f(ctx)
	if err != nil || !s.remote || !s.doubtful(log, w, at) {
		return at, err
	}
	begin := time.Now()
	pause := lookPauseMin
	for {
		owner, live, err := s.sessions.OwnerHead(ctx, who, log.Key.Session)
		if err != nil {
			return at, err
		}
		if live && s.doubtful(log, w, owner) || !live && time.Since(begin) >= verdictAfter {
			return at, nil
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return at, ctx.Err()
		}
		pause = min(2*pause, lookPauseMax)
		if at, err = f(ctx); err != nil || !s.doubtful(log, w, at) {
			return at, err
		}
	}
}

// attached is settled for somebody who reads from a watch. While no leader can be
// asked, a cursor inside what the watch has needs no word of one: its events go on
// from there. The head is then the watch's, which this server has shown.
func (s *Server) attached(ctx context.Context, who broker.Principal, log journal.Log, want wish, w watch) (journal.Position, error) {
	at, err := s.settled(ctx, who, log, want, w.Sync)
	if !s.remote || !errors.Is(err, journal.ErrUnavailable) {
		return at, err
	}
	if here := w.Position(); want.hasAfter && decide(want, here).mode == modeReplay && !s.doubtful(log, want, here) {
		return here, nil
	}
	return at, err
}

// doubtful reports that a log which ends at that position lacks what w has, or what
// this server has shown.
func (s *Server) doubtful(log journal.Log, w wish, at journal.Position) bool {
	end := protocol.Cursor{Epoch: at.Epoch, Seq: at.Head}
	if w.hasAfter {
		had := protocol.Cursor{Epoch: w.epoch, Seq: w.after}
		if had.Epoch == "" {
			had.Epoch = at.Epoch
		}
		if beyond(had, end) {
			return true
		}
	}
	shown, ok := s.watches.Known(log)
	return ok && beyond(protocol.Cursor{Epoch: shown.Epoch, Seq: shown.Head}, end)
}

// beyond reports that c lies after end: in its epoch, or in one that began later.
// Epochs are ULIDs, in the order in which they began.
func beyond(c, end protocol.Cursor) bool {
	if c.Epoch != end.Epoch {
		return c.Epoch > end.Epoch
	}
	return c.Seq > end.Seq
}

// settledExtent is extentOf for somebody who wants to read from w.
func (c *conn) settledExtent(ctx context.Context, who broker.Principal, log journal.Log, w wish) (extent, error) {
	var e extent
	_, err := c.srv.settled(ctx, who, log, w, func(ctx context.Context) (p journal.Position, err error) {
		e, err = c.extentOf(ctx, log)
		return journal.Position{Epoch: e.epoch, Floor: e.floor, Head: e.head}, err
	})
	return e, err
}
