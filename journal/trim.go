package journal

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"rejoin/protocol"
)

// A Place says where an event is stored.
type Place struct {
	Epoch      protocol.Epoch
	Base, Last protocol.Seq // of the record that holds it
	Pos        uint64       // stream sequence of that record's first message
	Sum        [32]byte     // chain hash of the record
}

// Aligned reports whether seq is the last event of its record: a log that is
// trimmed to what follows begins right behind it.
func (p Place) Aligned(seq protocol.Seq) bool { return p.Last == seq }

// Place returns where seq, of the newest epoch, is stored. Errors like Read;
// ErrTrimmed also above the head.
func (n *Node) Place(ctx context.Context, l Log, seq protocol.Seq) (Place, error) {
	rec, err := n.newest(ctx, l)
	if err != nil {
		return Place{}, err
	}
	if rec == nil {
		return Place{}, ErrTrimmed
	}
	if seq > rec.Last() {
		return Place{}, fmt.Errorf("%w: the log ends at %d, before %d", ErrTrimmed, rec.Last(), seq)
	}
	if seq < rec.base {
		recs, err := n.rd.span(ctx, l, rec.Epoch(), seq, rec, 1)
		if err != nil {
			return Place{}, err
		}
		rec = recs[0]
	}
	return rec.Place(), nil
}

// Place returns where the record is stored.
func (r *Record) Place() Place {
	return Place{Epoch: r.Epoch(), Base: r.base, Last: r.Last(), Pos: r.first, Sum: r.sum}
}

// Hint tells the index of records about a place known from elsewhere. A wrong
// one costs time, no more.
func (n *Node) Hint(l Log, p Place) { n.rd.index.read(l, p.Base, p.Pos, 0) }

// Trim removes the records of l all of whose events are below seq; the record
// that holds seq, and the newest one, stay whole. It returns the floor after it.
// Readers are not waited for: those behind learn that they are. It is safe to
// repeat. Errors: ErrTrimmed above the head, ErrDamaged, ErrUnavailable, ctx's.
func (n *Node) Trim(ctx context.Context, l Log, below protocol.Seq) (protocol.Seq, error) {
	newest, err := n.newest(ctx, l)
	if err != nil {
		return 0, err
	}
	if newest == nil || below > newest.Last() {
		return 0, ErrTrimmed
	}
	floor, err := n.rd.floorOf(ctx, l, newest)
	if err != nil || below <= floor {
		return floor, err
	}
	keep := newest
	if below < newest.base {
		recs, err := n.rd.span(ctx, l, newest.Epoch(), below, newest, 1)
		if err != nil {
			return 0, fmt.Errorf("journal: find where to trim %s: %w", l.Key, err)
		}
		keep = recs[0]
	}
	st, err := n.js.Stream(ctx, shardStream(l.Shard))
	if err != nil {
		return 0, fmt.Errorf("journal: open stream: %w", unavailable(ctx, err))
	}
	if err := st.Purge(ctx, jetstream.WithPurgeSubject(subjectOf(l)), jetstream.WithPurgeSequence(keep.first)); err != nil {
		return 0, fmt.Errorf("journal: trim %s: %w", l.Key, unavailable(ctx, err))
	}
	n.freed(l.Shard)
	n.counters.trims.Add(1)
	n.hub.trimmed(l, keep.Epoch(), keep.base)
	return keep.base, nil
}

// trimmed tells the watch of l, if there is one, that its floor moved.
func (h *Hub) trimmed(l Log, epoch protocol.Epoch, floor protocol.Seq) {
	h.mu.RLock()
	w := h.watches[l]
	h.mu.RUnlock()
	if w == nil {
		return
	}
	w.mu.Lock()
	if w.epoch == epoch {
		w.floor = max(w.floor, floor)
	}
	w.mu.Unlock()
	w.wakers.wake() // who waits for a range below it has waited long enough
}

// After reports whether the record comes right after the one with the chain
// hash sum.
func (r *Record) After(sum [32]byte) bool { return r.prev == sum }
