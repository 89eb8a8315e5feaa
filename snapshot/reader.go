package snapshot

import (
	"container/list"
	"context"
	"fmt"
	"sync"

	"rejoin/journal"
	"rejoin/protocol"
)

// chunkBytes is how much of a log one read brings into memory.
const chunkBytes = 1 << 20

// KeepDefault is how many folded states a Reader keeps when told none.
const KeepDefault = 256

// A Snapshot is a state ready for the wire. It is shared: read only.
type Snapshot struct {
	Epoch protocol.Epoch
	Seq   protocol.Seq
	State []byte // the exact bytes that Hash names
	Hash  string
	Fold  protocol.FoldVersion
}

// A Reader folds logs. It keeps the newest folds, so that the next call folds
// only the tail. Safe for concurrent use.
type Reader struct {
	node  *journal.Node
	table Folds
	keep  int

	mu    sync.Mutex
	folds map[journal.Log]*list.Element // of *fold
	lru   *list.List                    // newest first, at most keep; the oldest is dropped
}

// fold is one kept state. turn (capacity one, full while somebody folds) guards
// the rest: folds of one log take turns, and each finds the work of the one
// before it done.
type fold struct {
	log  journal.Log
	turn chan struct{}

	state *protocol.State
	snap  Snapshot // of state, when snap.State is set
}

// NewReader returns a Reader over the logs of n that keeps at most keep folded
// states (zero: KeepDefault). Folds may be nil: then every fold is minimal.
func NewReader(n *journal.Node, folds Folds, keep int) *Reader {
	if keep <= 0 {
		keep = KeepDefault
	}
	return &Reader{node: n, table: folds, keep: keep, folds: make(map[journal.Log]*list.Element), lru: list.New()}
}

// Latest folds a log up to its head as the leader knows it, or further, and
// never less far than atLeast. A log without a record gives the state before
// the first event. Errors are those of journal.Node.Tail and ReadEpochs.
func (r *Reader) Latest(ctx context.Context, l journal.Log, atLeast protocol.Seq) (Snapshot, error) {
	f := r.fold(l)
	select {
	case f.turn <- struct{}{}:
		defer func() { <-f.turn }()
	case <-ctx.Done():
		return Snapshot{}, ctx.Err()
	}
	tail, err := r.node.Tail(ctx, l)
	if err != nil {
		return Snapshot{}, fmt.Errorf("read the head of %s: %w", l.Key, err)
	}
	if f.state == nil || tail.Epoch != f.state.Epoch {
		// Another epoch may lack events of the old one that were folded here.
		f.state, f.snap = New(l.Key.Session), Snapshot{}
	}
	// What was folded before an error is a prefix of the log, and stays.
	if err := r.advance(ctx, l, f.state, nil, max(tail.Head, atLeast), 0); err != nil {
		return Snapshot{}, err
	}
	if f.snap.State == nil || f.snap.Seq != f.state.Seq {
		f.snap = r.table.Take(f.state)
	}
	return f.snap, nil
}

// Take returns the snapshot of a state that was folded by f.
func (f Folds) Take(s *protocol.State) Snapshot {
	state := Encode(s)
	return Snapshot{
		Epoch: s.Epoch, Seq: s.Seq, State: state, Hash: Hash(state),
		Fold: f.VersionOf(s.Agent.Adapter),
	}
}

// History is a log folded for whoever takes it over, or answers for it without
// an owner.
type History struct {
	State  *protocol.State
	Ledger *Ledger
	Bytes  uint64 // of all events so far, as Store.Keep wants it
}

// NewHistory returns the history before the first event.
func NewHistory(session string) *History {
	return &History{State: New(session), Ledger: NewLedger()}
}

// Load folds state and ledger of a log up to and including head, or up to the
// newest record when head is zero. The caller owns the result. Errors are those
// of journal.Node.Tail and ReadEpochs.
func (r *Reader) Load(ctx context.Context, l journal.Log, head protocol.Seq) (*History, error) {
	h := NewHistory(l.Key.Session)
	until := head
	if head == 0 {
		tail, err := r.node.Tail(ctx, l)
		if err != nil {
			return nil, fmt.Errorf("read the head of %s: %w", l.Key, err)
		}
		head = tail.Head
	}
	if err := r.advance(ctx, l, h.State, h.Ledger, head, until); err != nil {
		return nil, err
	}
	return h, nil
}

// advance folds s (and ledger, where given) on until it has reached target; it
// takes nothing above until (zero: whatever the last read brings).
func (r *Reader) advance(
	ctx context.Context, l journal.Log, s *protocol.State, ledger *Ledger, target, until protocol.Seq,
) error {
	for s.Seq < target {
		after := s.Seq
		recs, err := r.node.ReadEpochs(ctx, l, after, chunkBytes)
		if err != nil {
			return fmt.Errorf("read %s after %d: %w", l.Key, after, err)
		}
		for _, rec := range recs {
			if err := applyRecord(r.table, s, ledger, rec, until); err != nil {
				return fmt.Errorf("fold %s: %w", l.Key, err)
			}
		}
		if s.Seq <= after && s.Seq < target {
			return fmt.Errorf("read %s after %d: %w", l.Key, after, journal.ErrUnavailable)
		}
	}
	return nil
}

// applyRecord folds the events of rec that s does not hold yet.
func applyRecord(folds Folds, s *protocol.State, ledger *Ledger, rec *journal.Record, until protocol.Seq) error {
	epoch, base := rec.Epoch(), rec.Base()
	for i := range rec.Len() {
		seq := base + protocol.Seq(i)
		if seq <= s.Seq {
			continue
		}
		if until != 0 && seq > until {
			return nil
		}
		line := rec.Line(i)
		e, err := protocol.ParseEventLine(line)
		if err != nil {
			return fmt.Errorf("event %d: %w: %w", seq, journal.ErrDamaged, err)
		}
		folds.Apply(s, epoch, &e)
		if ledger != nil {
			ledger.Apply(&e)
		}
	}
	return nil
}

// fold returns the kept fold of a log, the newest from now on.
func (r *Reader) fold(l journal.Log) *fold {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, ok := r.folds[l]; ok {
		r.lru.MoveToFront(e)
		return e.Value.(*fold)
	}
	f := &fold{log: l, turn: make(chan struct{}, 1)}
	r.folds[l] = r.lru.PushFront(f)
	if r.lru.Len() > r.keep {
		oldest := r.lru.Remove(r.lru.Back()).(*fold)
		delete(r.folds, oldest.log)
	}
	return f
}

// Apply folds e into s like the reader does.
func (r *Reader) Apply(s *protocol.State, epoch protocol.Epoch, e *protocol.Event) {
	r.table.Apply(s, epoch, e)
}
