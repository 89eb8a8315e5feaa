package snapshot

import (
	"context"
	"encoding/hex"
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
	Commands    int            `json:"commands"`    // ids in the ledger at head
	StateHash   string         `json:"stateHash"`   // at head
	Chain       string         `json:"chain"`       // the chain's head: SHA-256 of the newest record, in hex
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
	quest
	reader *Reader
	log    journal.Log
	due    []*checkpoint   // to be compared, rising
	pages  map[int][]entry // of the ledger, read so far; nil: damaged
	sum    [32]byte        // chain hash of the last record
	chain  bool            // sum is known
	why    error           // what the next record is behind cannot be read; nil: it can
}

// Verify folds a log anew, from its beginning or from the oldest checkpoint of
// this program's fold, checks checksums, chain and density of every record on
// the way, and compares every checkpoint of that fold, and its ledger, with what
// its events add up to. What does not fit is in the report, and so is what cannot
// be read. Errors: journal.ErrUnavailable, ctx's.
func (r *Reader) Verify(ctx context.Context, l journal.Log) (Report, error) {
	var v verification
	err := attempts(func(lossy bool) error {
		v = verification{reader: r, log: l, quest: quest{ledger: true, lossy: lossy}, pages: make(map[int][]entry), Report: Report{Problems: []string{}}}
		return v.run(ctx)
	})
	if errors.Is(err, journal.ErrDamaged) || errors.Is(err, journal.ErrTrimmed) { // not even its head can be read
		v.problem("%v", err)
		err = nil
	}
	if err != nil {
		return v.Report, fmt.Errorf("verify %s: %w", l.Key, err)
	}
	return v.Report, nil
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
	if newest, ok, err := r.node.Newest(ctx, v.log); err != nil {
		return err
	} else if ok {
		v.Chain = hex.EncodeToString(newest.Sum[:])
	}
	whole, err := r.complete(ctx, v.log, v.lossy)
	if err != nil {
		return err
	}
	anchored, err := v.collect(ctx, tail)
	if err != nil {
		return err
	}
	f := beginning(v.log, v.quest)
	if !whole {
		if !anchored {
			v.problem("no checkpoint for the state at %d, before the log's first event", v.Floor-1)
		}
		switch {
		case len(v.due) > 0 && (anchored || v.due[0].seq < v.Floor):
			f = v.adopt()
		case anchored: // by a checkpoint of another fold
			return nil
		case !v.lossy:
			return errNoBase // unless a trim took both between two looks
		default:
			if f, err = r.remains(ctx, v.log, nil, v.quest); err != nil {
				return err
			}
			f.state.Seq = v.Floor - 1
			f.state.Epoch = tail.Epoch
		}
	}
	if f, err = v.fold(ctx, f); err != nil {
		return err
	}
	for _, c := range v.due {
		v.problem("checkpoint %d is above the head %d", c.seq, f.state.Seq)
	}
	v.StateHash, v.Commands = Hash(Encode(f.state)), f.ledger.Len()
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
		if err := v.readPages(ctx, c.pages); err != nil {
			return false, err
		}
		anchored = anchored || c.seq+1 == v.Floor || c.seq < v.Floor && c.epoch != tail.Epoch
		if c.fold != r.table.VersionOf(c.fold.Adapter) {
			v.OtherFold++
			continue
		}
		v.due = append(v.due, c)
	}
	v.skip(tail.Epoch, anchored)
	return anchored, nil
}

// skip leaves out the checkpoints that the log has been trimmed past: a server
// that was killed between the trim and their removal leaves them behind, and
// nothing tells any more what came after them. The newest one before the floor
// is what the log hangs on, unless another fold made that.
func (v *verification) skip(epoch protocol.Epoch, anchored bool) {
	for len(v.due) > 1 && v.due[1].seq < v.Floor {
		v.due = v.due[1:]
	}
	if anchored && len(v.due) > 0 && v.due[0].epoch == epoch && v.due[0].seq+1 < v.Floor {
		v.due = v.due[1:]
	}
}

// readPages reads the first n pages of the ledger.
func (v *verification) readPages(ctx context.Context, n int) error {
	for i := range n {
		if _, ok := v.pages[i]; ok {
			continue
		}
		page, err := v.reader.vault.page(ctx, v.log, i)
		if errors.Is(err, ErrDamaged) {
			v.problem("%v: its command ids are unknown, unless the log still tells them", err)
		} else if err != nil {
			return err
		}
		v.pages[i] = page
	}
	return nil
}

// ledgerOf returns the ledger of c, and whether it has all its pages.
func (v *verification) ledgerOf(c *checkpoint) (g *Ledger, whole bool) {
	g, whole = NewLedger(), true
	for n := range c.pages {
		whole = whole && v.pages[n] != nil
		g.take(v.pages[n])
	}
	g.take(c.ledger.rest)
	return g, whole
}

// adopt goes on with the state of the oldest checkpoint that is due.
func (v *verification) adopt() *folding {
	c := v.due[0]
	v.due = v.due[1:]
	g, _ := v.ledgerOf(c)
	return &folding{state: c.state, ledger: g, bytes: c.bytes, ts: c.ts, lossy: v.lossy}
}

// fold folds up to the head, over whatever cannot be read.
func (v *verification) fold(ctx context.Context, f *folding) (*folding, error) {
	r := v.reader
	for f.state.Seq < v.Head {
		after := f.state.Seq
		recs, err := r.node.ReadEpochs(ctx, v.log, after, chunkBytes)
		if errors.Is(err, journal.ErrDamaged) {
			v.why, v.chain = err, false
			recs, err = r.node.ReadOver(ctx, v.log, after, chunkBytes)
		}
		if err != nil {
			return f, fmt.Errorf("after %d: %w", after, err)
		}
		for _, rec := range recs {
			if f, err = v.record(f, rec); err != nil {
				return f, err
			}
		}
		if f.state.Seq <= after {
			return f, fmt.Errorf("after %d: %w", after, journal.ErrUnavailable)
		}
	}
	return f, nil
}

// record folds one record, with a stop at each checkpoint in it.
func (v *verification) record(f *folding, rec *journal.Record) (*folding, error) {
	if v.chain && !rec.After(v.sum) {
		v.problem("event %d: the chain is broken", rec.Base())
	}
	v.sum, v.chain = rec.Place().Sum, true
	hole := rec.Base() > f.state.Seq+1 && (rec.Epoch() == f.state.Epoch || !beginsEpoch(rec))
	if hole {
		if !v.lossy {
			return f, journal.ErrTrimmed // unless it is damage
		}
		if v.why == nil {
			v.problem("events %d to %d are missing", f.state.Seq+1, rec.Base()-1)
		} else {
			v.problem("events %d to %d are missing: %v", f.state.Seq+1, rec.Base()-1, v.why)
		}
	} else if v.why != nil {
		v.problem("%v", v.why)
	}
	v.why = nil
	if hole || rec.Epoch() != f.state.Epoch && f.state.Epoch != "" {
		// The events that were lost are in checkpoints only.
		for len(v.due) > 0 && v.due[0].seq < rec.Base() {
			f = v.adopt()
		}
	}
	before := f.state.Seq
	for len(v.due) > 0 && v.due[0].seq <= rec.Last() {
		c := v.due[0]
		if err := f.apply(v.reader.table, rec, c.seq); err != nil {
			return f, err
		}
		if f.lost { // it knows what the fold does not
			f = v.adopt()
			continue
		}
		v.due = v.due[1:]
		v.compare(f, rec, c)
	}
	if err := f.apply(v.reader.table, rec, 0); err != nil {
		return f, err
	}
	v.Events += uint64(f.state.Seq - min(f.state.Seq, max(before, rec.Base()-1)))
	return f, nil
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
	if g, whole := v.ledgerOf(c); whole && f.state.Seq == c.seq && !f.ledger.sameCommands(g) {
		v.problem("checkpoint %d: its ledger is not what its events add up to", c.seq)
	}
}
