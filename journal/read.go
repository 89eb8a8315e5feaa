package journal

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"rejoin/protocol"
)

// Tail is the newest record of a log, as the leader has it.
type Tail struct {
	Empty bool
	Epoch protocol.Epoch
	Run   protocol.Run
	Head  protocol.Seq
}

// Tail returns the newest record of a log through the leader. Errors:
// ErrDamaged, ErrUnavailable, ctx's.
func (n *Node) Tail(ctx context.Context, l Log) (Tail, error) {
	if err := n.checkLog(l); err != nil {
		return Tail{}, err
	}
	last, err := n.last(ctx, l)
	if err != nil {
		return Tail{}, err
	}
	return last.tail(), nil
}

// Floor returns the first retained seq of the log's newest epoch: 1 until
// something trims; after an epoch_start its seq. Errors like Tail.
func (n *Node) Floor(ctx context.Context, l Log) (protocol.Seq, error) {
	rec, err := n.newest(ctx, l)
	if err != nil || rec == nil {
		return 1, err
	}
	return n.rd.floorOf(ctx, l, rec)
}

func (n *Node) newest(ctx context.Context, l Log) (*Record, error) {
	if err := n.checkLog(l); err != nil {
		return nil, err
	}
	return n.rd.newest(ctx, l)
}

// Read returns decoded, verified records of the newest epoch that hold
// after+1…, in order, stopping near maxBytes: at least one record if there is
// one, none at or past the head. The first record may begin at or before
// after+1. Errors: ErrTrimmed below the floor, ErrDamaged (*DamageError),
// ErrUnavailable, ctx's.
func (n *Node) Read(ctx context.Context, l Log, after protocol.Seq, maxBytes int) ([]*Record, error) {
	rec, err := n.newest(ctx, l)
	if err != nil || rec == nil || after >= rec.Last() {
		return nil, err
	}
	if after+1 >= rec.base {
		return []*Record{rec}, nil
	}
	return n.rd.span(ctx, l, rec.Epoch(), after+1, rec, maxBytes)
}

// ReadBefore returns, in rising order, records of the newest epoch that hold
// the events just below before: as many as hold limit events (at least 1) or
// maxBytes, at least one record if there is one. The last record may reach past
// before. Errors like Read; ErrTrimmed when nothing below before is retained.
func (n *Node) ReadBefore(ctx context.Context, l Log, before protocol.Seq, limit, maxBytes int) ([]*Record, error) {
	newest, err := n.newest(ctx, l)
	if err != nil || newest == nil || before <= 1 {
		return nil, err
	}
	rec := newest
	if before <= newest.base {
		recs, err := n.rd.span(ctx, l, newest.Epoch(), before-1, newest, 1)
		if err != nil {
			return nil, err
		}
		rec = recs[0]
	}
	before = min(before, rec.Last()+1)
	out := []*Record{rec}
	events, size := int(before-rec.base), rec.Size()
	for events < limit && size < maxBytes {
		p, err := n.rd.prior(ctx, l, rec)
		if err != nil {
			n.log.Warn("read back", slog.String(protocol.LogSession, l.Key.String()), slog.Any(protocol.LogError, err))
			break // what was read is good; the next call meets the error
		}
		if p == nil {
			break
		}
		rec = p
		out = append(out, rec)
		events += rec.Len()
		size += rec.Size()
	}
	slices.Reverse(out)
	return out, nil
}

// Purge removes every record of the log but the newest, which keeps the fence.
// It is safe to repeat.
func (n *Node) Purge(ctx context.Context, l Log) error {
	rec, err := n.newest(ctx, l)
	if err != nil || rec == nil {
		return err
	}
	st, err := n.js.Stream(ctx, shardStream(l.Shard))
	if err != nil {
		return fmt.Errorf("journal: open stream: %w", unavailable(ctx, err))
	}
	if err := st.Purge(ctx, jetstream.WithPurgeSubject(subjectOf(l)), jetstream.WithPurgeSequence(rec.first)); err != nil {
		return fmt.Errorf("journal: purge %s: %w", l.Key, unavailable(ctx, err))
	}
	n.freed(l.Shard)
	n.rd.index.drop(l)
	return nil
}
