package snapshot

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"

	"rejoin/journal"
	"rejoin/protocol"
)

const (
	// KeepDefault is how many folded states a Reader keeps when told none.
	KeepDefault = 256

	keptBytesMax = 64 << 20 // of the encoded states of Latest, and once more of At; the oldest go
	foldsAtOnce  = 4        // folds that At runs at a time; more wait
	baseTries    = 4        // starts anew when a trim overtakes a fold
)

// A Snapshot is a state ready for the wire. It is shared: read only.
type Snapshot struct {
	Epoch protocol.Epoch
	Seq   protocol.Seq
	State []byte // the exact bytes that Hash names
	Hash  string
	Fold  protocol.FoldVersion
}

// A Reader folds logs, from the nearest checkpoint on. It keeps the newest
// folds, so that the next call folds only the tail. Safe for concurrent use.
type Reader struct {
	node  *journal.Node
	vault vault
	table Folds
	keep  int
	slots chan struct{} // capacity foldsAtOnce

	mu    sync.Mutex
	folds map[journal.Log]*list.Element // of *fold
	lru   *list.List                    // newest first; the oldest is dropped when there are more than keep, or keptBytesMax
	bytes int                           // weights over lru
	past  pastStates
}

// fold is one kept state. turn (capacity one, full while somebody folds) guards
// the rest: folds of one log take turns, and each finds the work of the one
// before it done.
type fold struct {
	log    journal.Log
	turn   chan struct{}
	weight int // guarded by Reader.mu

	at   *folding // nil: not folded yet
	snap Snapshot // of at, when snap.State is set
}

// NewReader returns a Reader over the logs of n that keeps at most keep folded
// states (zero: KeepDefault). Folds may be nil: then every fold is minimal.
func NewReader(n *journal.Node, folds Folds, keep int) *Reader {
	if keep <= 0 {
		keep = KeepDefault
	}
	return &Reader{
		node: n, vault: newVault(n, n.Logger()), table: folds, keep: keep, slots: make(chan struct{}, foldsAtOnce),
		folds: make(map[journal.Log]*list.Element), lru: list.New(), past: newPastStates(),
	}
}

// Apply folds e into s as the reader does.
func (r *Reader) Apply(s *protocol.State, epoch protocol.Epoch, e *protocol.Event) {
	r.table.Apply(s, epoch, e)
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
	for try := 1; ; try++ {
		tail, err := r.node.Tail(ctx, l)
		if err != nil {
			return Snapshot{}, fmt.Errorf("read the head of %s: %w", l.Key, err)
		}
		// What was folded before an error is a prefix of the log, and stays.
		err = r.catchUp(ctx, l, f, tail, max(tail.Head, atLeast))
		if err == nil {
			break
		}
		if !errors.Is(err, journal.ErrTrimmed) || try == baseTries {
			return Snapshot{}, err
		}
		f.at = nil
	}
	if f.snap.State == nil || f.snap.Seq != f.at.state.Seq {
		f.snap = r.table.Take(f.at.state)
		r.weigh(f, len(f.snap.State))
	}
	return f.snap, nil
}

// catchUp folds f on to target.
func (r *Reader) catchUp(ctx context.Context, l journal.Log, f *fold, tail journal.Tail, target protocol.Seq) error {
	// Another epoch may lack events of the old one that were folded here, and a
	// checkpoint may be much nearer.
	if f.at == nil || tail.Epoch != f.at.state.Epoch || tail.Head > f.at.state.Seq+longTail {
		b, err := r.base(ctx, l, tail, tail.Head, false)
		if err != nil {
			return fmt.Errorf("fold %s: %w", l.Key, err)
		}
		if tail.Head > b.state.Seq+longTail {
			if b, err = r.base(ctx, l, tail, tail.Head, true); err != nil {
				return fmt.Errorf("fold %s: %w", l.Key, err)
			}
		}
		f.at, f.snap = b, Snapshot{}
	}
	if err := r.advance(ctx, l, f.at, target, 0); err != nil {
		return err
	}
	if f.at.ledger != nil {
		r.save(ctx, l, f.at)
		f.at.ledger = nil
	}
	return nil
}

// Take returns the snapshot of a state that was folded by f.
func (f Folds) Take(s *protocol.State) Snapshot {
	state := Encode(s)
	return Snapshot{Epoch: s.Epoch, Seq: s.Seq, State: state, Hash: Hash(state), Fold: f.VersionOf(s.Agent.Adapter)}
}

// History is a log folded for whoever takes it over, or answers for it without
// an owner.
type History struct {
	State  *protocol.State
	Ledger *Ledger
	Bytes  uint64                // of all events so far, as Store.Keep wants it
	From   *protocol.FoldVersion // set: see Reader.Upgrade
}

// NewHistory returns the history before the first event.
func NewHistory(session string) *History {
	return &History{State: New(session), Ledger: NewLedger()}
}

// Load folds state and ledger of a log up to and including head, or up to the
// newest record when head is zero. The caller owns the result. Errors are those
// of journal.Node.Tail and ReadEpochs.
func (r *Reader) Load(ctx context.Context, l journal.Log, head protocol.Seq) (*History, error) {
	for try := 1; ; try++ {
		h, err := r.load(ctx, l, head)
		if err == nil || !errors.Is(err, journal.ErrTrimmed) || try == baseTries {
			return h, err
		}
	}
}

func (r *Reader) load(ctx context.Context, l journal.Log, head protocol.Seq) (*History, error) {
	tail, err := r.node.Tail(ctx, l)
	if err != nil {
		return nil, fmt.Errorf("read the head of %s: %w", l.Key, err)
	}
	until := head
	if head == 0 {
		head = tail.Head
	}
	f, err := r.base(ctx, l, tail, head, true)
	if err != nil {
		return nil, fmt.Errorf("fold %s: %w", l.Key, err)
	}
	long := head > f.state.Seq+longTail
	if err := r.advance(ctx, l, f, head, until); err != nil {
		return nil, err
	}
	if long {
		r.save(ctx, l, f)
	}
	return &History{State: f.state, Ledger: f.ledger, Bytes: f.bytes, From: f.from}, nil
}

// LoadLost is Load of a log that may have lost its newest events: where a
// checkpoint reaches further than the log does, it is what the checkpoint holds.
// An epoch that begins above its seq goes on from there. Errors are Load's.
func (r *Reader) LoadLost(ctx context.Context, l journal.Log) (*History, error) {
	tail, err := r.node.Tail(ctx, l)
	if err != nil {
		return nil, fmt.Errorf("read the head of %s: %w", l.Key, err)
	}
	seqs, err := r.vault.list(ctx, l)
	if err != nil {
		return nil, fmt.Errorf("list checkpoints: %w", err)
	}
	for i := len(seqs) - 1; i >= 0 && seqs[i] > tail.Head; i-- {
		c, err := r.vault.usable(ctx, l, seqs[i])
		if err != nil {
			return nil, fmt.Errorf("read checkpoint %d: %w", seqs[i], err)
		}
		if c == nil || c.fold != r.table.VersionOf(c.fold.Adapter) {
			continue
		}
		f, err := r.begin(ctx, l, tail, c, true)
		if errors.Is(err, ErrDamaged) {
			r.vault.report(l, seqs[i], err)
			continue
		}
		if err != nil {
			return nil, err
		}
		return &History{State: f.state, Ledger: f.ledger, Bytes: f.bytes}, nil
	}
	return r.Load(ctx, l, 0)
}

// High returns the highest seq that a checkpoint holds, 0 without one: what was
// durable once, whatever the log has lost since. Errors: journal.ErrUnavailable,
// ctx's.
func (r *Reader) High(ctx context.Context, l journal.Log) (protocol.Seq, error) {
	seqs, err := r.vault.list(ctx, l)
	if err != nil || len(seqs) == 0 {
		return 0, err
	}
	return seqs[len(seqs)-1], nil
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
	r.shrink()
	return f
}

// weigh counts the bytes of a fold's state.
func (r *Reader) weigh(f *fold, weight int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, ok := r.folds[f.log]; !ok || e.Value != any(f) {
		return // dropped meanwhile: it serves its caller and goes
	}
	r.bytes += weight - f.weight
	f.weight = weight
	r.shrink()
}

// shrink drops the oldest folds. Mu is held.
func (r *Reader) shrink() {
	for r.lru.Len() > 1 && (r.lru.Len() > r.keep || r.bytes > keptBytesMax) {
		oldest := r.lru.Remove(r.lru.Back()).(*fold)
		r.bytes -= oldest.weight
		delete(r.folds, oldest.log)
	}
}
