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
	lossy  bool // what cannot be read is passed over
	lost   bool // and something was: the state does not hold all that happened
}

// quest is what a fold is to be like.
type quest struct {
	ledger bool // with the ledger
	lossy  bool // of what is readable, where it is not all
}

// attempts calls f until it works: again when a trim overtook it; in the end,
// and at once where the log is damaged, for what is readable.
func attempts(f func(lossy bool) error) error {
	lossy := false
	for try := 1; ; try++ {
		err := f(lossy)
		switch {
		case err == nil || lossy || errors.Is(err, errOutside):
			return err
		case errors.Is(err, journal.ErrDamaged):
			lossy = true
		case errors.Is(err, journal.ErrTrimmed):
			lossy = try >= baseTries-1
		default:
			return err
		}
	}
}

// base returns the fold to start from to get to target: the newest checkpoint
// of this program's fold at or below it, the beginning of a log that is
// complete, or the newest checkpoint of another fold. Where there is none of
// them, a lossy one starts from the newest checkpoint without all of its ledger,
// or from nothing. Errors: errNoBase, those of reading.
func (r *Reader) base(ctx context.Context, l journal.Log, tail journal.Tail, target protocol.Seq, q quest) (*folding, error) {
	seqs, err := r.vault.list(ctx, l)
	if err != nil {
		return nil, fmt.Errorf("list checkpoints: %w", err)
	}
	var other, torn *checkpoint // the newest of another fold, and the newest whose ledger is damaged
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
		f, err := r.begin(ctx, l, tail, c, q)
		if errors.Is(err, ErrDamaged) {
			r.vault.report(l, seqs[i], err)
			if torn == nil {
				torn = c
			}
			continue
		}
		return f, err
	}
	whole, err := r.complete(ctx, l, q.lossy)
	if err != nil {
		return nil, err
	}
	if whole {
		return beginning(l, q), nil
	}
	if other != nil {
		f, err := r.begin(ctx, l, tail, other, q)
		if err == nil {
			f.from = &other.fold
		}
		if !errors.Is(err, ErrDamaged) {
			return f, err
		}
		if torn == nil {
			torn = other
		}
	}
	if !q.lossy {
		return nil, errNoBase
	}
	return r.remains(ctx, l, torn, q)
}

// remains is the fold to start from where none is whole: torn, a checkpoint that
// lacks a part of its ledger, or nil.
func (r *Reader) remains(ctx context.Context, l journal.Log, torn *checkpoint, q quest) (*folding, error) {
	if torn == nil {
		f := beginning(l, q)
		f.lost = true
		if o, ok := r.origin(l.Key); ok {
			f.state.Agent, f.state.Title = protocol.StateAgent{Name: o.Agent, Adapter: o.Adapter}, o.Title
		}
		return f, nil
	}
	f := &folding{state: torn.state, bytes: torn.bytes, ts: torn.ts, lossy: true, lost: true}
	if torn.fold != r.table.VersionOf(torn.fold.Adapter) {
		f.from = &torn.fold
	}
	var err error
	f.ledger, err = r.vault.salvage(ctx, l, torn)
	return f, err
}

// beginning is the fold before the first event.
func beginning(l journal.Log, q quest) *folding {
	f := &folding{state: New(l.Key.Session), lossy: q.lossy}
	if q.ledger {
		f.ledger = NewLedger()
	}
	return f
}

// begin is the fold at c.
func (r *Reader) begin(ctx context.Context, l journal.Log, tail journal.Tail, c *checkpoint, q quest) (*folding, error) {
	f := &folding{state: c.state, bytes: c.bytes, ts: c.ts, lossy: q.lossy}
	if q.ledger {
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

// read reads records after a seq; a lossy one goes on behind what is damaged.
func (r *Reader) read(ctx context.Context, l journal.Log, after protocol.Seq, maxBytes int, lossy bool) ([]*journal.Record, error) {
	recs, err := r.node.ReadEpochs(ctx, l, after, maxBytes)
	if lossy && errors.Is(err, journal.ErrDamaged) {
		return r.node.ReadOver(ctx, l, after, maxBytes)
	}
	return recs, err
}

// complete reports whether a log can be folded from its beginning.
func (r *Reader) complete(ctx context.Context, l journal.Log, lossy bool) (bool, error) {
	recs, err := r.read(ctx, l, 0, 1, lossy)
	if err != nil || len(recs) == 0 {
		return err == nil, err
	}
	return recs[0].Base() == 1, nil
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
		recs, err := r.read(ctx, l, after, chunkBytes, f.lossy)
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

// apply folds the events of rec that the fold does not hold yet. Errors, unless
// the fold is lossy: journal.ErrTrimmed where events before rec are missing,
// journal.ErrDamaged.
func (f *folding) apply(folds Folds, rec *journal.Record, until protocol.Seq) error {
	s, epoch, base := f.state, rec.Epoch(), rec.Base()
	if base > s.Seq+1 && (epoch == s.Epoch || !beginsEpoch(rec)) {
		if !f.lossy {
			return fmt.Errorf("event %d: %w", s.Seq+1, journal.ErrTrimmed)
		}
		f.lost = true
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
		if err != nil && !f.lossy {
			return fmt.Errorf("event %d: %w: %w", seq, journal.ErrDamaged, err)
		}
		if err != nil {
			f.lost = true
			continue
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
	if f.lost {
		return // whoever owns the session decides what it goes on with
	}
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
