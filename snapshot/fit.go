package snapshot

import (
	"context"
	"errors"
	"fmt"

	"rejoin/journal"
	"rejoin/protocol"
)

// exceeds reports whether so many events and bytes are more than r keeps.
func (r Retention) exceeds(events, bytes uint64) bool {
	return r.MaxEvents > 0 && events > r.MaxEvents || r.MaxBytes > 0 && bytes > uint64(r.MaxBytes)
}

// cut is after how much a record is to end, so that what is trimmed, whole
// records, is fine enough for a small retention. Zero: as it comes.
func (r Retention) cut() cadence {
	var c cadence
	if r.MaxEvents > 0 && r.MaxEvents < 2*protocol.RecordEventsMax {
		c.events = max(r.MaxEvents/2, 1)
	}
	if r.MaxBytes > 0 && r.MaxBytes < 2*protocol.RecordBytesMax {
		c.bytes = max(uint64(r.MaxBytes)/2, 1)
	}
	return c
}

// fit brings the log within its retention when nothing more is coming:
// retain alone trims to a checkpoint that was taken on the way, and a burst takes
// none. It stores one at the head, one at the record from which on the retention
// keeps, both folded from the log, and trims to that.
func (s *shelf) fit(ctx context.Context, now int64) error {
	kept := s.usable()
	if s.doubt || len(kept) == 0 {
		return nil
	}
	r := NewReader(s.st.vault.node, s.folds, 1)
	newest := kept[len(kept)-1]
	head, ok, err := s.st.vault.node.Newest(ctx, s.log)
	if err != nil || !ok || head.Epoch != newest.epoch {
		return err
	}
	if newest.seq < head.Last {
		if newest, err = s.checkpoint(ctx, r, head.Last, nil); err != nil {
			return fmt.Errorf("checkpoint at %d: %w", head.Last, err)
		}
	}
	if !s.retention.exceeds(uint64(newest.seq-s.floor+1), newest.bytes-min(newest.bytes, s.below.Load())) {
		return nil
	}
	before := newest.place.Base - 1 // the newest record stays whole
	kept = s.usable()
	if i := s.retention.target(kept, now); i < 0 || kept[i].seq < before {
		enough := func(f *folding) bool {
			return !s.retention.exceeds(uint64(newest.seq-f.state.Seq), newest.bytes-min(newest.bytes, f.bytes))
		}
		if _, err := s.checkpoint(ctx, r, before, enough); err != nil {
			return fmt.Errorf("checkpoint up to %d: %w", before, err)
		}
	}
	return s.retain(ctx, now, true)
}

// checkpoint folds the log up to target, or to the end of the first record after
// which enough says so, stores the result and puts it on the shelf. Where a newer
// one is kept the pages of the ledger stay as they are: they are that one's.
func (s *shelf) checkpoint(ctx context.Context, r *Reader, target protocol.Seq, enough func(*folding) bool) (header, error) {
	tail, err := r.node.Tail(ctx, s.log)
	if err != nil {
		return header{}, err
	}
	f, err := r.base(ctx, s.log, tail, s.from(target, enough), quest{ledger: true})
	if err != nil {
		return header{}, err
	}
	done := func() bool { return f.state.Seq >= target || enough != nil && f.state.Seq >= s.floor && enough(f) }
	for !done() {
		recs, err := r.read(ctx, s.log, f.state.Seq, chunkBytes, false)
		if err == nil && len(recs) == 0 {
			err = journal.ErrUnavailable
		}
		if err != nil {
			return header{}, fmt.Errorf("read after %d: %w", f.state.Seq, err)
		}
		for _, rec := range recs {
			if err := f.apply(r.table, rec, 0); err != nil {
				return header{}, err
			}
			if done() {
				break
			}
		}
	}
	if f.from != nil {
		return header{}, errors.New("snapshot: the fold is not recorded as upgraded yet")
	}
	d := newDraft(r.table, f.state, f.ledger, f.ts, f.bytes, nil)
	if n := len(s.kept); n > 0 && s.kept[n-1].seq > d.seq {
		d.ledger.changed = nil
	}
	if err := s.st.vault.put(ctx, s.log, d); err != nil {
		return header{}, err
	}
	for n := range d.ledger.changed {
		s.pages[n] = pageOwn
	}
	s.insert(d.header)
	return d.header, nil
}

// from is the seq of the newest checkpoint to begin at: for a fold that looks for
// its end it must lie before that.
func (s *shelf) from(target protocol.Seq, enough func(*folding) bool) protocol.Seq {
	if enough == nil {
		return target
	}
	from := s.floor - 1
	for _, h := range s.kept {
		if h.seq < target && !enough(&folding{state: &protocol.State{Seq: h.seq}, bytes: h.bytes}) {
			from = max(from, h.seq)
		}
	}
	return from
}
