package snapshot

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"rejoin/journal"
	"rejoin/protocol"
)

const (
	// KeepDefault is how many folded states a Reader keeps when told none.
	KeepDefault = 256

	keptBytesMax = 64 << 20 // of the encoded states of Latest, and once more of At; the oldest go
	foldsAtOnce  = 4        // folds that At runs at a time; more wait
	baseTries    = 8        // starts when trims overtake a fold; the last one takes what is readable
)

// A Snapshot is a state ready for the wire. It is shared: read only.
type Snapshot struct {
	Epoch protocol.Epoch
	Seq   protocol.Seq
	State []byte // the exact bytes that Hash names
	Hash  string
	Fold  protocol.FoldVersion
	// Damaged: a part of the log, or the state that it begins with, cannot be
	// read. The state is what the rest adds up to.
	Damaged bool
}

// An Origin is what the registry knows of a session's beginning, which its log
// may not tell any more.
type Origin struct {
	Agent, Adapter, Title string
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
	told  map[journal.Log]struct{} // damage that was reported; a full one, of toldMax, begins anew

	origin func(protocol.Key) (Origin, bool)
}

// toldMax is how many damaged logs a Reader remembers to have reported.
const toldMax = 1024

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
		folds: make(map[journal.Log]*list.Element), lru: list.New(), past: newPastStates(), told: make(map[journal.Log]struct{}),
		origin: func(protocol.Key) (Origin, bool) { return Origin{}, false },
	}
}

// Know tells the reader whom to ask for the origin of a session. It is called
// before the reader is used.
func (r *Reader) Know(origin func(protocol.Key) (Origin, bool)) { r.origin = origin }

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
	if err := attempts(func(lossy bool) error {
		tail, err := r.node.Tail(ctx, l)
		if err != nil {
			return fmt.Errorf("read the head of %s: %w", l.Key, err)
		}
		// What was folded before an error is a prefix of the log, and stays.
		if err = r.catchUp(ctx, l, f, tail, max(tail.Head, atLeast), lossy); errors.Is(err, journal.ErrTrimmed) || errors.Is(err, journal.ErrDamaged) {
			f.at = nil
		}
		return err
	}); err != nil {
		return Snapshot{}, err
	}
	if f.snap.State == nil || f.snap.Seq != f.at.state.Seq {
		f.snap = r.table.Take(f.at.state)
		f.snap.Damaged = f.at.lost
		r.weigh(f, len(f.snap.State))
	}
	return f.snap, nil
}

// catchUp folds f on to target.
func (r *Reader) catchUp(ctx context.Context, l journal.Log, f *fold, tail journal.Tail, target protocol.Seq, lossy bool) error {
	// Another epoch may lack events of the old one that were folded here, and a
	// checkpoint may be much nearer.
	if f.at == nil || tail.Epoch != f.at.state.Epoch || tail.Head > f.at.state.Seq+longTail {
		b, err := r.base(ctx, l, tail, tail.Head, quest{lossy: lossy})
		if err != nil {
			return fmt.Errorf("fold %s: %w", l.Key, err)
		}
		if tail.Head > b.state.Seq+longTail {
			if b, err = r.base(ctx, l, tail, tail.Head, quest{ledger: true, lossy: lossy}); err != nil {
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
	r.tell(l, f.at)
	return nil
}

// tell reports the damage of a log, once.
func (r *Reader) tell(l journal.Log, f *folding) {
	if !f.lost {
		return
	}
	r.mu.Lock()
	_, known := r.told[l]
	if !known && len(r.told) >= toldMax {
		clear(r.told)
	}
	r.told[l] = struct{}{}
	r.mu.Unlock()
	if !known {
		r.vault.log.Error("a session's history is damaged: its state is what the rest adds up to (rejoin verify tells more)",
			slog.String(protocol.LogSession, l.Key.String()), slog.Uint64(protocol.LogSeq, uint64(f.state.Seq)))
	}
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
	Lost   bool                  // a part of the log, or of the ledger, cannot be read: this is what the rest adds up to
}

// NewHistory returns the history before the first event.
func NewHistory(session string) *History {
	return &History{State: New(session), Ledger: NewLedger()}
}

// Load folds state and ledger of a log up to and including head, or up to the
// newest record when head is zero. The caller owns the result. Errors are those
// of journal.Node.Tail and ReadEpochs.
func (r *Reader) Load(ctx context.Context, l journal.Log, head protocol.Seq) (h *History, err error) {
	err = attempts(func(lossy bool) (err error) {
		h, err = r.load(ctx, l, head, lossy)
		return err
	})
	return h, err
}

func (r *Reader) load(ctx context.Context, l journal.Log, head protocol.Seq, lossy bool) (*History, error) {
	tail, err := r.node.Tail(ctx, l)
	if err != nil {
		return nil, fmt.Errorf("read the head of %s: %w", l.Key, err)
	}
	until := head
	if head == 0 {
		head = tail.Head
	}
	f, err := r.base(ctx, l, tail, head, quest{ledger: true, lossy: lossy})
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
	r.tell(l, f)
	return f.history(), nil
}

func (f *folding) history() *History {
	return &History{State: f.state, Ledger: f.ledger, Bytes: f.bytes, From: f.from, Lost: f.lost}
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
	var other *folding // of another fold
	for i := len(seqs) - 1; i >= 0 && seqs[i] > tail.Head; i-- {
		c, err := r.vault.usable(ctx, l, seqs[i])
		if err != nil {
			return nil, fmt.Errorf("read checkpoint %d: %w", seqs[i], err)
		}
		if c == nil {
			continue
		}
		f, err := r.begin(ctx, l, tail, c, quest{ledger: true})
		if errors.Is(err, ErrDamaged) {
			r.vault.report(l, seqs[i], err)
			continue
		}
		if err != nil {
			return nil, err
		}
		if c.fold == r.table.VersionOf(c.fold.Adapter) {
			return f.history(), nil
		}
		if other == nil {
			other, f.from = f, &c.fold
		}
	}
	if other != nil {
		return other.history(), nil
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
