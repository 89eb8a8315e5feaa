package snapshot

import (
	"context"
	"errors"
	"fmt"

	"rejoin/journal"
	"rejoin/protocol"
)

// problemsMax bounds the problems of one Report.
const problemsMax = 100

// A Report is what Verify found.
type Report struct {
	Epoch       protocol.Epoch `json:"epoch"`
	Floor       protocol.Seq   `json:"floor"`
	Head        protocol.Seq   `json:"head"`
	Events      uint64         `json:"events"`      // folded
	Checkpoints int            `json:"checkpoints"` // stored
	Compared    int            `json:"compared"`    // of them, with what their events add up to
	OtherFold   int            `json:"otherFold"`   // of them, made by another fold: not comparable
	StateHash   string         `json:"stateHash"`   // at head
	Problems    []string       `json:"problems"`    // what does not fit; at most 100
}

// problem notes what does not fit.
func (r *Report) problem(format string, args ...any) {
	if len(r.Problems) < problemsMax {
		r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
	}
}

// verification is a Verify under way.
type verification struct {
	Report
	reader *Reader
	log    journal.Log
	due    []*checkpoint // to be compared, rising
	sum    [32]byte      // chain hash of the last record
	chain  bool          // sum is known
}

// Verify folds a log anew, from its beginning or from the oldest checkpoint of
// this program's fold, checks checksums, chain and density of every record on
// the way, and compares every checkpoint of that fold with what its events add
// up to. What does not fit is in the report. Errors: those of reading; a trim
// that overtakes it makes it start again.
func (r *Reader) Verify(ctx context.Context, l journal.Log) (Report, error) {
	for try := 1; ; try++ {
		v := verification{reader: r, log: l, Report: Report{Problems: []string{}}}
		err := v.run(ctx)
		switch {
		case errors.Is(err, journal.ErrDamaged):
			v.problem("%v", err)
			return v.Report, nil
		case err == nil:
			return v.Report, nil
		case !errors.Is(err, journal.ErrTrimmed) || try == baseTries:
			return v.Report, fmt.Errorf("verify %s: %w", l.Key, err)
		}
	}
}

func (v *verification) run(ctx context.Context) error {
	r := v.reader
	tail, err := r.node.Tail(ctx, v.log)
	if err != nil {
		return err
	}
	v.Epoch, v.Head = tail.Epoch, tail.Head
	if v.Floor, err = r.node.Floor(ctx, v.log); err != nil {
		return err
	}
	whole, err := r.complete(ctx, v.log)
	if err != nil {
		return err
	}
	anchored, err := v.collect(ctx, tail)
	if err != nil {
		return err
	}
	f := beginning(v.log, false)
	if !whole {
		if !anchored {
			v.problem("no checkpoint for the state at %d, before the log's first event", v.Floor-1)
		}
		if len(v.due) == 0 {
			return nil
		}
		f = v.adopt()
	}
	if err := v.fold(ctx, f); err != nil {
		return err
	}
	for _, c := range v.due {
		v.problem("checkpoint %d is above the head %d", c.seq, f.state.Seq)
	}
	v.StateHash = Hash(Encode(f.state))
	return nil
}

// collect reads the checkpoints, and reports whether one is of the state before
// the first event of the newest epoch that is retained.
func (v *verification) collect(ctx context.Context, tail journal.Tail) (anchored bool, err error) {
	r := v.reader
	seqs, err := r.vault.list(ctx, v.log)
	if err != nil {
		return false, err
	}
	v.Checkpoints = len(seqs)
	for _, seq := range seqs {
		c, err := r.vault.get(ctx, v.log, seq)
		switch {
		case errors.Is(err, journal.ErrNoBlob):
			v.Checkpoints--
			continue
		case errors.Is(err, ErrDamaged):
			v.problem("checkpoint %d: %v", seq, err)
			continue
		case err != nil:
			return false, err
		}
		if ok, err := r.belongs(ctx, v.log, tail, c); err != nil {
			return false, err
		} else if !ok {
			if c.epoch == tail.Epoch && c.seq > tail.Head { // written since
				v.Checkpoints--
				continue
			}
			v.problem("checkpoint %d belongs to a history that the log does not tell", seq)
			continue
		}
		anchored = anchored || c.seq < v.Floor
		if c.fold != r.table.VersionOf(c.fold.Adapter) {
			v.OtherFold++
			continue
		}
		if _, err := r.vault.ledger(ctx, v.log, c); errors.Is(err, ErrDamaged) {
			v.problem("ledger of checkpoint %d: %v", seq, err)
		} else if err != nil {
			return false, err
		}
		v.due = append(v.due, c)
	}
	return anchored, nil
}

// adopt goes on with the state of the oldest checkpoint that is due.
func (v *verification) adopt() *folding {
	c := v.due[0]
	v.due = v.due[1:]
	return &folding{state: c.state, bytes: c.bytes, ts: c.ts}
}

// fold folds up to the head.
func (v *verification) fold(ctx context.Context, f *folding) error {
	r := v.reader
	for f.state.Seq < v.Head {
		after := f.state.Seq
		recs, err := r.node.ReadEpochs(ctx, v.log, after, chunkBytes)
		if err != nil {
			return fmt.Errorf("after %d: %w", after, err)
		}
		for _, rec := range recs {
			if err := v.record(f, rec); err != nil {
				return err
			}
		}
		if f.state.Seq <= after {
			return fmt.Errorf("after %d: %w", after, journal.ErrUnavailable)
		}
	}
	return nil
}

// record folds one record, with a stop at each checkpoint in it.
func (v *verification) record(f *folding, rec *journal.Record) error {
	if v.chain && !rec.After(v.sum) {
		v.problem("event %d: the chain is broken", rec.Base())
	}
	v.sum, v.chain = rec.Place().Sum, true
	if rec.Epoch() != f.state.Epoch && f.state.Epoch != "" {
		// The events that the older epoch lost are in its checkpoints only.
		for len(v.due) > 0 && v.due[0].seq < rec.Base() {
			*f = *v.adopt()
		}
	}
	before := f.state.Seq
	for len(v.due) > 0 && v.due[0].seq <= rec.Last() {
		c := v.due[0]
		v.due = v.due[1:]
		if err := f.apply(v.reader.table, rec, c.seq); err != nil {
			return err
		}
		v.compare(f, rec, c)
	}
	if err := f.apply(v.reader.table, rec, 0); err != nil {
		return err
	}
	v.Events += uint64(f.state.Seq - max(before, rec.Base()-1))
	return nil
}

// compare compares a checkpoint with the fold at its seq.
func (v *verification) compare(f *folding, rec *journal.Record, c *checkpoint) {
	v.Compared++
	switch p := rec.Place(); {
	case f.state.Seq != c.seq:
		v.problem("checkpoint %d: the log holds no such event", c.seq)
	case !sameState(f.state, c.state):
		v.problem("checkpoint %d: its state is not what its events add up to", c.seq)
	case p.Sum != c.place.Sum || p.Base != c.place.Base || p.Last != c.place.Last:
		v.problem("checkpoint %d: its record is not the one in the log", c.seq)
	}
}
