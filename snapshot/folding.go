package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"

	"rejoin/journal"
	"rejoin/protocol"
)

const (
	// chunkBytes is how much of a log one read brings into memory.
	chunkBytes = 2 << 20
	// longTail is how many events a fold goes over before its result is stored as
	// a checkpoint: only logs that nobody kept checkpoints of have such tails.
	longTail = 4 * everyEvents
	// eventFrame stands for what an event takes in a log besides its body.
	eventFrame = 96
)

// eventBytes is what retention counts of an event.
func eventBytes(e *protocol.Event) uint64 { return uint64(len(e.Body)) + eventFrame }

// folding is a fold under way.
type folding struct {
	state  *protocol.State
	ledger *Ledger // nil: it is not wanted
	bytes  uint64  // of all events so far
	ts     int64   // of the newest event
	from   *protocol.FoldVersion
}

// base returns the fold to start from to get to target: the newest checkpoint
// of this program's fold at or below it, the beginning of a log that is
// complete, or the newest checkpoint of another fold. Errors: errNoBase, those
// of reading.
func (r *Reader) base(ctx context.Context, l journal.Log, tail journal.Tail, target protocol.Seq, ledger bool) (*folding, error) {
	seqs, err := r.vault.list(ctx, l)
	if err != nil {
		return nil, fmt.Errorf("list checkpoints: %w", err)
	}
	var other *checkpoint
	for i := len(seqs) - 1; i >= 0; i-- {
		if seqs[i] > target {
			continue
		}
		c, err := r.vault.usable(ctx, l, seqs[i])
		if err != nil {
			return nil, fmt.Errorf("read checkpoint %d: %w", seqs[i], err)
		}
		if c == nil {
			continue
		}
		if ok, err := r.belongs(ctx, l, tail, c); err != nil {
			return nil, err
		} else if !ok {
			continue
		}
		if c.fold != r.table.VersionOf(c.fold.Adapter) {
			if other == nil {
				other = c
			}
			continue
		}
		f, err := r.begin(ctx, l, tail, c, ledger)
		if errors.Is(err, ErrDamaged) {
			r.vault.report(l, seqs[i], err)
			continue
		}
		return f, err
	}
	whole, err := r.complete(ctx, l)
	if err != nil {
		return nil, err
	}
	if whole {
		return beginning(l, ledger), nil
	}
	if other == nil {
		return nil, errNoBase
	}
	f, err := r.begin(ctx, l, tail, other, ledger)
	if err == nil {
		f.from = &other.fold
	}
	return f, err
}

// beginning is the fold before the first event.
func beginning(l journal.Log, ledger bool) *folding {
	f := &folding{state: New(l.Key.Session)}
	if ledger {
		f.ledger = NewLedger()
	}
	return f
}

// begin is the fold at c.
func (r *Reader) begin(ctx context.Context, l journal.Log, tail journal.Tail, c *checkpoint, ledger bool) (*folding, error) {
	f := &folding{state: c.state, bytes: c.bytes, ts: c.ts}
	if ledger {
		var err error
		if f.ledger, err = r.vault.ledger(ctx, l, c); err != nil {
			return nil, err
		}
	}
	if c.epoch == tail.Epoch && c.seq <= tail.Head {
		r.node.Hint(l, c.place)
	}
	return f, nil
}

// belongs reports whether c is of the history that the log tells: of its epoch,
// or of the time before that.
func (r *Reader) belongs(ctx context.Context, l journal.Log, tail journal.Tail, c *checkpoint) (bool, error) {
	if c.epoch == tail.Epoch {
		return c.seq <= tail.Head, nil
	}
	floor, err := r.node.Floor(ctx, l)
	if err != nil {
		return false, fmt.Errorf("read the floor: %w", err)
	}
	return c.seq < floor, nil
}

// complete reports whether a log can be folded from its beginning.
func (r *Reader) complete(ctx context.Context, l journal.Log) (bool, error) {
	recs, err := r.node.ReadEpochs(ctx, l, 0, 1)
	if err != nil || len(recs) == 0 {
		return err == nil, err
	}
	return recs[0].Base() == 1 || beginsEpoch(recs[0]), nil
}

// beginsEpoch reports whether rec is the first of an epoch that broke another.
func beginsEpoch(rec *journal.Record) bool {
	e, err := protocol.ParseEventLine(rec.Line(0))
	return err == nil && e.Source == protocol.SourceBroker && eventType(e.Body) == protocol.TypeEpochStart
}

// advance folds on until it has reached target; it takes nothing above until
// (zero: whatever the last read brings). Errors: journal.ErrTrimmed when what
// comes next was trimmed meanwhile, those of reading.
func (r *Reader) advance(ctx context.Context, l journal.Log, f *folding, target, until protocol.Seq) error {
	for f.state.Seq < target {
		after := f.state.Seq
		recs, err := r.node.ReadEpochs(ctx, l, after, chunkBytes)
		if err != nil {
			return fmt.Errorf("read %s after %d: %w", l.Key, after, err)
		}
		for _, rec := range recs {
			if err := f.apply(r.table, rec, until); err != nil {
				return fmt.Errorf("fold %s: %w", l.Key, err)
			}
			if until != 0 && rec.Last() >= until {
				return nil // where until is in a hole between two epochs, it is not reached
			}
		}
		if f.state.Seq <= after && f.state.Seq < target {
			return fmt.Errorf("read %s after %d: %w", l.Key, after, journal.ErrUnavailable)
		}
	}
	return nil
}

// apply folds the events of rec that the fold does not hold yet.
func (f *folding) apply(folds Folds, rec *journal.Record, until protocol.Seq) error {
	s, epoch, base := f.state, rec.Epoch(), rec.Base()
	if base > s.Seq+1 && (epoch == s.Epoch || !beginsEpoch(rec)) {
		return fmt.Errorf("event %d: %w", s.Seq+1, journal.ErrTrimmed)
	}
	adapter, name := folds[s.Agent.Adapter], s.Agent.Adapter
	for i := range rec.Len() {
		seq := base + protocol.Seq(i)
		if seq <= s.Seq {
			continue
		}
		if until != 0 && seq > until {
			return nil
		}
		e, err := protocol.ParseEventLine(rec.Line(i))
		if err != nil {
			return fmt.Errorf("event %d: %w: %w", seq, journal.ErrDamaged, err)
		}
		if name != s.Agent.Adapter {
			adapter, name = folds[s.Agent.Adapter], s.Agent.Adapter
		}
		Apply(adapter, s, epoch, &e)
		f.bytes += eventBytes(&e)
		f.ts = e.TS
		if f.ledger != nil {
			f.ledger.Apply(&e)
		}
	}
	return nil
}

// save stores the result of a long fold, so that the next one is short. A
// failure costs nothing but that. The fold has its ledger.
func (r *Reader) save(ctx context.Context, l journal.Log, f *folding) {
	d := newDraft(r.table, f.state, f.ledger, f.ts, f.bytes, nil)
	if err := r.vault.put(ctx, l, d); err != nil {
		f.ledger.again(d.ledger.changed)
		r.vault.log.Warn("checkpoint after a long fold is not stored", slog.String(protocol.LogSession, l.Key.String()),
			slog.Uint64(protocol.LogSeq, uint64(d.seq)), slog.Any(protocol.LogError, err))
	}
}

// Upgrade returns the body of the event that records under which fold the state
// of h goes on, when that is another one than its checkpoints were made by and
// the log does not reach back to its beginning. The owner appends it right
// after h.
func (r *Reader) Upgrade(h *History) (body protocol.FoldUpgraded, ok bool) {
	if h.From == nil {
		return body, false
	}
	v := r.table.VersionOf(h.State.Agent.Adapter)
	return protocol.FoldUpgraded{
		Type: protocol.TypeFoldUpgraded, Adapter: v.Adapter, From: h.From.Version, To: v.Version, StateHash: Hash(Encode(h.State)),
	}, true
}

// sameState reports whether two states are equal.
func sameState(a, b *protocol.State) bool { return bytes.Equal(Encode(a), Encode(b)) }
