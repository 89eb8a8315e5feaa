package snapshot

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"rejoin/journal"
	"rejoin/protocol"
)

// Writer is the part of journal.Writer that a Keeper uses.
type Writer interface {
	// EndRecord makes seq, the newest event, the last one of its record.
	EndRecord(seq protocol.Seq)
	// Await waits until the event of seq, which may not be appended yet, is durable.
	Await(ctx context.Context, seq protocol.Seq) error
}

// A Keeper takes the checkpoints of one run. A nil Keeper takes none: its
// methods do nothing.
//
// A checkpoint is encoded at once, under the session's lock: its cost is bounded
// by the bounds of a State. The rest is done in a goroutine, one at a time, that
// Close waits for: it waits until the events are durable, stores the checkpoint,
// reads it back, and applies the session's retention.
type Keeper struct {
	st     *Store
	w      Writer
	folds  Folds
	every  cadence
	cut    cadence         // how long a record of this log may be
	life   context.Context // of the goroutine
	cancel context.CancelFunc
	wg     sync.WaitGroup

	// Owned by whoever calls Applied.
	bytes  uint64    // of all events so far
	since  cadence   // since the last checkpoint
	piece  cadence   // since a record was made to end
	last   int64     // when that was, ts of its event; 0: none yet
	tried  time.Time // when the last one was taken
	inTurn bool

	shelf shelf // owned by the goroutine

	newest atomic.Uint64 // seq of the newest event applied
	when   atomic.Int64  // when that was, ns since 1970
	armed  atomic.Bool   // the clock runs, or what it asked for is being done

	mu      sync.Mutex
	busy    bool             // the goroutine runs
	next    *draft           // what it does next: the last one of a run, else it is empty; a newer one replaces it
	redo    map[int]struct{} // ledger pages of drafts that were not stored
	err     error            // of the newest draft
	idle    bool             // the log is to be brought within its retention
	clock   *time.Timer      // asks for that; nil until it is first needed
	stopped bool
}

// cadence is when a checkpoint is due.
type cadence struct {
	events, bytes uint64
}

func newKeeper(st *Store, l journal.Log, w Writer, folds Folds, r Retention, bytesSoFar uint64) *Keeper {
	r = r.withDefaults()
	k := &Keeper{
		st: st, w: w, folds: folds, every: st.cadence(r), cut: r.cut(), bytes: bytesSoFar,
		shelf: shelf{st: st, log: l, folds: folds, retention: r}, redo: make(map[int]struct{}),
	}
	k.life, k.cancel = context.WithCancel(st.vault.node.Life())
	return k
}

// cadence is how often a log of this retention is checkpointed: a small one
// needs them nearer to each other, as nothing but what they cover can be trimmed.
func (st *Store) cadence(r Retention) cadence {
	c := cadence{events: st.cfg.EveryEvents, bytes: st.cfg.EveryBytes}
	if r.MaxEvents > 0 {
		c.events = min(c.events, max(r.MaxEvents/2, 1))
	}
	if r.MaxBytes > 0 {
		c.bytes = min(c.bytes, max(uint64(r.MaxBytes)/4, 1))
	}
	return c
}

// Applied looks at s after e was folded into it and into ledger, and takes a
// checkpoint when one is due. It is called under the session's lock for every
// event, before or after its Append and before the next one's. It does not
// block.
func (k *Keeper) Applied(s *protocol.State, ledger *Ledger, e *protocol.Event) {
	if k == nil {
		return
	}
	size := eventBytes(e)
	k.bytes += size
	k.since.events++
	k.since.bytes += size
	if k.last == 0 {
		k.last = e.TS
	}
	k.when.Store(k.st.cfg.Now().UnixNano())
	k.newest.Store(uint64(e.Seq))
	k.shorten(e.Seq, size)
	k.watchSize(e.Seq)
	ended := k.inTurn && s.Turn == nil
	k.inTurn = s.Turn != nil
	kind := ""
	if e.Source == protocol.SourceBroker {
		kind = eventType(e.Body)
	}
	switch kind {
	case protocol.TypeSessionEnd, protocol.TypeSessionInterrupted, protocol.TypeFoldUpgraded:
		k.take(s, ledger, e, true)
		return
	case protocol.TypeInteraction:
		return // it shares its record with the answer that follows
	}
	if k.due(e, ended) {
		k.take(s, ledger, e, false)
	}
}

// shorten makes a record end now and then where the retention is so small that
// whole records are too much.
func (k *Keeper) shorten(seq protocol.Seq, size uint64) {
	if k.cut == (cadence{}) {
		return
	}
	k.piece.events++
	k.piece.bytes += size
	if k.cut.events > 0 && k.piece.events >= k.cut.events || k.cut.bytes > 0 && k.piece.bytes >= k.cut.bytes {
		k.w.EndRecord(seq)
		k.piece = cadence{}
	}
}

// watchSize starts the clock when the log holds more than it may.
func (k *Keeper) watchSize(seq protocol.Seq) {
	floor := protocol.Seq(k.shelf.shown.Load())
	if floor == 0 {
		floor = 1 // nothing is read yet: there may be more than it seems
	}
	if k.armed.Load() || !k.shelf.retention.exceeds(uint64(seq-min(seq, floor-1)), k.bytes-min(k.bytes, k.shelf.below.Load())) {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.stopped {
		k.armed.Store(true)
		k.runClock(k.st.cfg.IdleAfter)
	}
}

// runClock lets tick come after d. Mu is held.
func (k *Keeper) runClock(d time.Duration) {
	if k.clock == nil {
		k.clock = time.AfterFunc(d, k.tick)
		return
	}
	k.clock.Reset(d)
}

// tick has the log brought within its retention, once no event has come for a
// while.
func (k *Keeper) tick() {
	quiet := k.st.cfg.Now().Sub(time.Unix(0, k.when.Load()))
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.stopped:
	case quiet < k.st.cfg.IdleAfter:
		k.runClock(k.st.cfg.IdleAfter - max(quiet, 0))
	default:
		k.idle = true
		k.start()
	}
}

// start has the goroutine run. Mu is held.
func (k *Keeper) start() {
	if !k.busy {
		k.busy = true
		k.wg.Go(k.run)
	}
}

// due reports whether a checkpoint is due at e.
func (k *Keeper) due(e *protocol.Event, turnEnded bool) bool {
	cfg := &k.st.cfg
	switch {
	case k.since.events >= cfg.EveryEvents, k.since.bytes >= cfg.EveryBytes,
		turnEnded && k.since.events >= cfg.TurnEvents,
		e.TS-k.last >= cfg.EveryAge.Milliseconds():
		return true
	case k.since.events >= k.every.events, k.since.bytes >= k.every.bytes:
		return cfg.Now().Sub(k.tried) >= cfg.Soonest
	}
	return false
}

// take makes a draft and hands it to the goroutine. While that has one, only a
// draft that must be is made; any other is due again at the next event.
func (k *Keeper) take(s *protocol.State, ledger *Ledger, e *protocol.Event, must bool) {
	k.mu.Lock()
	if k.stopped || k.busy && !must {
		k.mu.Unlock()
		return
	}
	redo := k.redo
	k.redo = make(map[int]struct{})
	if k.next != nil { // it makes way for the newer one
		for n := range k.next.ledger.changed {
			redo[n] = struct{}{}
		}
		k.next = nil
	}
	k.mu.Unlock()

	d := newDraft(k.folds, s, ledger, e.TS, k.bytes, redo)
	k.w.EndRecord(e.Seq)
	k.since, k.last, k.tried = cadence{}, e.TS, k.st.cfg.Now()

	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stopped {
		return
	}
	d.last = must
	k.next = d
	k.start()
}

// run stores drafts until there is none, and fits the log when it is asked to.
func (k *Keeper) run() {
	for {
		k.mu.Lock()
		d, idle := k.next, k.idle
		k.next, k.idle = nil, false
		if d == nil && !idle {
			k.busy = false
			k.mu.Unlock()
			return
		}
		k.mu.Unlock()
		if d == nil {
			k.fitIdle(k.life)
			continue
		}
		err := k.store(k.life, d)
		k.mu.Lock()
		k.err = err
		if err != nil {
			for n := range d.ledger.changed {
				k.redo[n] = struct{}{}
			}
		}
		k.mu.Unlock()
		if err != nil && k.life.Err() == nil {
			k.st.counters.failed.Add(1)
			k.st.log.Warn("checkpoint is not stored", slog.String(protocol.LogSession, k.shelf.log.Key.String()),
				slog.Uint64(protocol.LogSeq, uint64(d.seq)), slog.Any(protocol.LogError, err))
		}
	}
}

// store stores d once its events are durable, and trims what the session need
// not keep.
func (k *Keeper) store(ctx context.Context, d *draft) error {
	if err := k.w.Await(ctx, d.seq); err != nil {
		return fmt.Errorf("wait for the events: %w", err)
	}
	if err := k.open(ctx); err != nil {
		return err
	}
	if err := k.st.vault.put(ctx, k.shelf.log, d); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	k.st.counters.stored.Add(1)
	k.shelf.add(d)
	if err := k.shelf.retain(ctx, d.ts, false); err != nil && ctx.Err() == nil {
		// The checkpoint is stored all the same; the next one tries again.
		k.st.log.Warn("retention is not applied", slog.String(protocol.LogSession, k.shelf.log.Key.String()), slog.Any(protocol.LogError, err))
	}
	if d.last {
		k.fit(ctx, d.ts)
	}
	return nil
}

// idleRetry is after how many times StoreConfig.IdleAfter what failed is tried
// again.
const idleRetry = 30

// fitIdle brings the log of an idle session within its retention, and has the
// clock run on where it did not, or events have come meanwhile.
func (k *Keeper) fitIdle(ctx context.Context) {
	seq := k.newest.Load()
	ok := k.w.Await(ctx, protocol.Seq(seq)) == nil && k.fit(ctx, k.st.cfg.Now().UnixMilli())
	k.armed.Store(false)
	if ok && seq == k.newest.Load() {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stopped || k.armed.Swap(true) {
		return
	}
	if ok {
		k.runClock(k.st.cfg.IdleAfter)
	} else {
		k.runClock(idleRetry * k.st.cfg.IdleAfter)
	}
}

// open reads the shelf. Damaged pages of the ledger are stored again with the
// next draft.
func (k *Keeper) open(ctx context.Context) error {
	if err := k.shelf.open(ctx); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, n := range k.shelf.damagedPages() {
		k.redo[n] = struct{}{}
	}
	return nil
}

// fit brings the log within its retention; false when that failed.
func (k *Keeper) fit(ctx context.Context, now int64) bool {
	err := k.open(ctx)
	if err == nil {
		err = k.shelf.fit(ctx, now)
	}
	if err != nil && ctx.Err() == nil {
		k.st.log.Warn("the log stays larger than its retention", slog.String(protocol.LogSession, k.shelf.log.Key.String()), slog.Any(protocol.LogError, err))
	}
	return err == nil
}

// Floor returns the first retained seq as far as the keeper knows, 0 when it
// does not.
func (k *Keeper) Floor() protocol.Seq {
	if k == nil {
		return 0
	}
	return protocol.Seq(k.shelf.shown.Load())
}

// Close waits until the newest checkpoint is stored, or ctx ends; then it takes
// no more. It returns why the newest one could not be stored. Call it before the
// writer is closed.
func (k *Keeper) Close(ctx context.Context) error {
	if k == nil {
		return nil
	}
	k.mu.Lock()
	k.stopped = true
	if k.clock != nil {
		k.clock.Stop()
	}
	k.mu.Unlock()
	defer context.AfterFunc(ctx, k.cancel)()
	k.wg.Wait()
	k.cancel()
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.err
}
