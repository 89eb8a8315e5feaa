package broker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"

	"rejoin/journal"
	"rejoin/protocol"
)

// reasonDamaged is why an epoch begins after damage of the journal's files that
// may have taken a log's end.
const reasonDamaged = "damaged"

// heal makes registry and logs agree again after damage: a log without an entry
// gets one, what a delete or a trim removed and damage brought back is removed
// again. What the logs of the sessions lack is recovery's. Damage is what the
// start found, or a log without an entry: an entry is made before its log and
// outlives it, but a lost block at the end of the registry shows in nothing else.
// A cut end of a block is none: a kill leaves one. What it can take is the mark of
// a trim or a purge, so those are looked at every time.
func (b *Broker) heal(ctx context.Context) error {
	logs, err := b.node.Logs(ctx)
	if err != nil {
		return fmt.Errorf("look for sessions without an entry: %w", err)
	}
	damaged := len(b.node.Damage()) > 0
	for l := range logs {
		damaged = damaged || b.registry.record(l.Key) == nil
	}
	for l, messages := range logs {
		rec := b.registry.record(l.Key)
		switch {
		case rec == nil:
			err = b.adopt(ctx, l)
		case rec.Shard != l.Shard && damaged:
			err = fmt.Errorf("it has records in shard %d, the registry says %d", l.Shard, rec.Shard)
		case rec.Deleted && rec.Shard == l.Shard && messages > 1:
			err = b.node.Purge(ctx, l)
		case damaged && !rec.Deleted && !rec.Deleting:
			err = b.rejoin(ctx, l, rec)
		}
		if errors.Is(err, journal.ErrUnavailable) || ctx.Err() != nil {
			return fmt.Errorf("heal session %s: %w", l.Key, err)
		}
		if err != nil {
			b.log.Error("session not healed", slog.String(protocol.LogSession, l.Key.String()), slog.Any(protocol.LogError, err))
		}
	}
	if damaged {
		return nil
	}
	return b.each(ctx, b.registry.records(wasTrimmed), b.retrim)
}

// wasTrimmed reports whether the registry knows of a trim of a session's log.
func wasTrimmed(r *protocol.SessionRecord) bool { return r.Floor > 1 && !r.Deleted && !r.Deleting }

// retrim removes what came back of a log that was trimmed. Errors: those after
// which it is worth another try.
func (b *Broker) retrim(ctx context.Context, rec *protocol.SessionRecord) error {
	_, err := b.node.Trim(ctx, logOf(rec), rec.Floor)
	switch {
	case err == nil, errors.Is(err, journal.ErrTrimmed), errors.Is(err, journal.ErrDamaged): // recovery tells
		return nil
	case errors.Is(err, journal.ErrUnavailable), ctx.Err() != nil:
		return err
	}
	b.log.Error("session not trimmed again", slog.String(protocol.LogSession, rec.Key().String()), slog.Any(protocol.LogError, err))
	return nil
}

// rejoin brings the log of a session that the registry knows in line with it: an
// older entry may have come back.
func (b *Broker) rejoin(ctx context.Context, l journal.Log, rec *protocol.SessionRecord) error {
	deleted, _, err := b.lastWord(ctx, l)
	if err != nil {
		return err
	}
	if deleted { // recovery finishes it
		_, err := b.registry.change(ctx, l.Key, tombstone)
		return err
	}
	if _, err := b.node.Trim(ctx, l, rec.Floor); err != nil && !errors.Is(err, journal.ErrTrimmed) && !errors.Is(err, journal.ErrDamaged) {
		return err
	}
	return nil
}

// lastWord reports whether the newest event of a log is that it is deleted, and
// when that event was.
func (b *Broker) lastWord(ctx context.Context, l journal.Log) (deleted bool, ts int64, err error) {
	tail, err := b.node.Tail(ctx, l)
	if err != nil || tail.Head == 0 {
		return false, 0, err
	}
	recs, err := b.node.Read(ctx, l, tail.Head-1, 1)
	if err != nil || len(recs) == 0 {
		return false, 0, err
	}
	rec := recs[len(recs)-1]
	e, err := protocol.ParseEventLine(rec.Line(rec.Len() - 1))
	if err != nil {
		return false, 0, err
	}
	end, err := encode(sessionDeleted{Type: protocol.TypeSessionDeleted})
	return e.Source == protocol.SourceBroker && bytes.Equal(e.Body, bytes.TrimSpace(end)), e.TS, err
}

// adopt makes an entry for a log that has none: what its events add up to. The
// command line and the directory were in the entry alone, so the session can be
// read, and not be resumed.
func (b *Broker) adopt(ctx context.Context, l journal.Log) error {
	deleted, ts, err := b.lastWord(ctx, l)
	if err != nil {
		return err
	}
	tail, err := b.node.Tail(ctx, l)
	if err != nil {
		return err
	}
	rec := &protocol.SessionRecord{
		Workspace: l.Key.Workspace, ID: l.Key.Session, Shard: l.Shard, Epoch: tail.Epoch, Run: tail.Run, Head: tail.Head, Floor: tail.Head,
		Status: protocol.StatusEnded, CreatedAt: ts, UpdatedAt: ts,
	}
	if deleted {
		rec.Deleted = true
	} else if err := b.remember(ctx, l, rec); err != nil {
		return err
	}
	if err := b.registry.create(ctx, rec); err != nil && !errors.Is(err, errTaken) {
		return err
	}
	b.log.Warn("session had no entry in the registry: one was made from its log", slog.String(protocol.LogSession, l.Key.String()),
		slog.Bool("deleted", deleted))
	return nil
}

// remember fills rec from what the log of a session tells.
func (b *Broker) remember(ctx context.Context, l journal.Log, rec *protocol.SessionRecord) error {
	h, err := b.folds.LoadLost(ctx, l)
	if err != nil {
		return err
	}
	if rec.Floor, err = b.node.Floor(ctx, l); err != nil {
		return err
	}
	s := h.State
	rec.Status, rec.Agent, rec.Adapter, rec.Title, rec.Exit = s.Status, s.Agent.Name, s.Agent.Adapter, s.Title, exitOf(s, nil)
	recs, err := b.node.Read(ctx, l, rec.Floor-1, 1)
	if err != nil || len(recs) == 0 {
		return err
	}
	e, err := protocol.ParseEventLine(recs[0].Line(0))
	if err != nil {
		return err
	}
	rec.CreatedAt = e.TS // of the oldest event that is left
	return nil
}
