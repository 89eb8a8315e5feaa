package journal

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"rejoin/protocol"
)

const (
	hubBytes     = 32 << 20 // decoded records of all rings and the cache behind them
	ringBytesMax = 1 << 20  // of one ring, whatever the budget leaves
	fillers      = 2        // goroutines that fill gaps and check tails
	readers      = 4        // goroutines that read ranges for readers that are behind
	pinsMax      = 2 * readers
	feedMessages = 1024 // live messages of one shard waiting for its feeder; more are lost, which shows as a gap
	feedBurst    = 64   // messages applied before the waiters are woken
	tickEvery    = 200 * time.Millisecond
	idleCheck    = 5 * time.Second // a watch that has heard nothing this long asks for the tail
	// idleCheckCluster is what that grows to in a cluster while nothing is found: each
	// check is a request to a leader, and 10,000 idle watches are 170 a second at that.
	idleCheckCluster = time.Minute
	checksMax        = 200 // idle checks begun per tick
	shortsMax        = 5   // fills that find nothing before an announcement is given up
)

// source is what the hub reads from: the journal, or a model of one in tests.
// Errors are ErrUnavailable, ErrDamaged, ErrTrimmed or a context's.
type source interface {
	// newest returns the newest complete record, from the leader; nil of an empty log.
	newest(ctx context.Context, l Log) (*Record, error)
	// floorOf returns the first retained seq of newest's epoch.
	floorOf(ctx context.Context, l Log, newest *Record) (protocol.Seq, error)
	// follow returns complete records that come after prev, verified against it
	// and each other, of whatever epoch; none when the leader has none. Records
	// may come together with an error that says what is wrong after them.
	follow(ctx context.Context, l Log, prev *Record, maxBytes int) ([]*Record, error)
	// span returns records of epoch from the one that holds seq on, at least
	// one or an error; newest is any later record.
	span(ctx context.Context, l Log, epoch protocol.Epoch, seq protocol.Seq, newest *Record, maxBytes int) ([]*Record, error)
}

// Hub keeps one tail ring per watched log, fed by what the streams republish
// once it is stored (I-J2: durable before visible), and reads ranges for
// readers that are behind (I-J4, I-J5). Safe for concurrent use.
type Hub struct {
	src       source
	log       *slog.Logger
	now       func() time.Time
	noted     func(l Log, base protocol.Seq, pos uint64)                 // told where records are; may be nil
	subscribe func(context.Context, Log) (unsubscribe func(), err error) // returns once the server has it

	cache     *cache
	ringBytes atomic.Int64
	ringLimit atomic.Int64
	lanes     []lane // one, or in a cluster one per shard: a shard that does not answer holds up its own
	gaps      atomic.Uint64
	filled    atomic.Uint64
	asked     atomic.Uint64 // questions for the newest record, for Sync
	held      atomic.Uint64 // wakes that waited for more events
	idleMost  time.Duration // idleCheck, or in a cluster more for a watch that stays silent
	warned    atomic.Int64  // when the log last said that the journal cannot be read, ns since 1970

	mu      sync.RWMutex
	closed  bool
	watches map[Log]*Watch
	live    map[string]*Watch // by live subject
	known   known             // of logs that were watched

	ctx  context.Context // ends with the hub
	stop context.CancelFunc
	wg   sync.WaitGroup
	feed *liveFeed // nil in stepped tests
}

// lane is work of the hub that is done in order.
type lane struct {
	fills workQueue[*Watch]
	reads workQueue[rangeJob]
}

// lane is where work of a log waits.
func (h *Hub) lane(l Log) *lane { return &h.lanes[l.Shard%len(h.lanes)] }

// openLanes makes n lanes.
func (h *Hub) openLanes(n int) {
	h.lanes = make([]lane, n)
	for i := range h.lanes {
		h.lanes[i].fills.init()
		h.lanes[i].reads.init()
	}
}

// newStillHub returns a hub without goroutines and subscriptions, to be stepped.
func newStillHub(ctx context.Context, src source, budget int, now func() time.Time, log *slog.Logger) *Hub {
	h := &Hub{src: src, log: log, now: now, watches: make(map[Log]*Watch), live: make(map[string]*Watch)}
	h.subscribe = func(context.Context, Log) (func(), error) { return func() {}, nil }
	h.cache = newCache(budget, &h.ringBytes)
	h.openLanes(1)
	h.idleMost = idleCheck
	h.ctx, h.stop = context.WithCancel(ctx)
	h.share()
	return h
}

// newHub starts the hub of a node: its own connection, a feeder per shard,
// fillers, readers and the clock. close waits for all of them.
func newHub(ctx context.Context, n *Node) (*Hub, error) {
	h := newStillHub(context.WithoutCancel(ctx), n.rd, hubBytes, n.clock, n.log)
	h.noted = n.noteRecord
	fillersEach, readersEach := fillers, readers
	if n.remote != nil {
		h.openLanes(n.format.Shards)
		h.idleMost = idleCheckCluster
		fillersEach, readersEach = 1, 1
	}
	if err := h.openFeed(ctx, n); err != nil {
		h.stop()
		return nil, err
	}
	if n.remote != nil {
		// A server of the cluster hears of a subscription when it gets there; what is
		// asked behind it on the same connection is answered after that.
		h.src = n.rd.over(h.feed.nc, n.lives)
	}
	for i := range h.lanes {
		for range fillersEach {
			h.wg.Go(func() { h.fillLoop(&h.lanes[i]) })
		}
		for range readersEach {
			h.wg.Go(func() { h.readLoop(&h.lanes[i]) })
		}
	}
	h.wg.Go(h.clockLoop)
	return h, nil
}

// close ends the hub: watches fail, goroutines are waited for.
func (h *Hub) close() {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return
	}
	h.closed = true
	watches := h.list()
	h.mu.Unlock()
	h.stop()
	for i := range h.lanes {
		h.lanes[i].fills.close()
		h.lanes[i].reads.close()
	}
	if h.feed != nil {
		h.feed.close()
	}
	h.wg.Wait()
	for _, w := range watches {
		w.close()
		w.wakers.wake()
	}
}

// Watch starts or shares the watch of a log. It returns when the watch is live:
// everything acknowledged before the call is within its Position. Release it.
// Errors: ErrUnavailable, ErrDamaged (the newest record does not verify),
// ErrClosed, or ctx's.
func (h *Hub) Watch(ctx context.Context, l Log) (*Watch, error) {
	for {
		h.mu.Lock()
		if h.closed {
			h.mu.Unlock()
			return nil, ErrClosed
		}
		w, shared := h.watches[l]
		if !shared {
			w = newWatch(h, l)
			h.watches[l], h.live[w.subject] = w, w
			h.share()
		}
		w.refs++
		h.mu.Unlock()
		if !shared {
			return h.openShared(ctx, w)
		}
		select {
		case <-w.ready:
		case <-ctx.Done():
			w.Release()
			return nil, ctx.Err()
		}
		if w.openErr == nil {
			return w, nil
		}
		// The one who opened it may just have had less time than we have.
		if !isContext(w.openErr) {
			return nil, w.openErr
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
}

// openShared opens w for everybody who waits for it.
func (h *Hub) openShared(ctx context.Context, w *Watch) (*Watch, error) {
	err := h.open(ctx, w)
	if err != nil {
		h.mu.Lock()
		h.forget(w)
		h.mu.Unlock()
		w.close()
	}
	w.openErr = err
	close(w.ready)
	if err != nil {
		return nil, err
	}
	return w, nil
}

// open subscribes first and reads the tail then, so that nothing falls between.
func (h *Hub) open(ctx context.Context, w *Watch) error {
	unsub, err := h.subscribe(ctx, w.log)
	if err != nil {
		return err
	}
	rec, floor, err := h.tail(ctx, w.log)
	if err != nil {
		unsub()
		return err
	}
	w.unsub = unsub
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		unsub()
		return ErrClosed
	}
	if rec != nil {
		w.restart(rec, floor)
	}
	w.heard = h.now()
	w.finish()
	return nil
}

// tail returns the newest record and the floor of its epoch.
func (h *Hub) tail(ctx context.Context, l Log) (*Record, protocol.Seq, error) {
	rec, err := h.src.newest(ctx, l)
	if err != nil || rec == nil {
		return nil, 1, err
	}
	floor, err := h.src.floorOf(ctx, l, rec)
	if err != nil {
		return nil, 0, err
	}
	return rec, floor, nil
}

// Release gives the watch up; the last one ends it.
func (w *Watch) Release() {
	h, at := w.hub, w.Position()
	h.mu.Lock()
	w.refs--
	last := w.refs == 0 && h.watches[w.log] == w
	if last {
		h.known.note(w.log, at)
		h.forget(w)
	}
	h.mu.Unlock()
	if last {
		w.unsub()
		w.close()
	}
}

// forget takes w out of the tables; hub.mu is held.
func (h *Hub) forget(w *Watch) {
	if h.watches[w.log] == w {
		delete(h.watches, w.log)
		delete(h.live, w.subject)
		h.share()
	}
}

// share sets what one ring may hold, so that all rings stay within half of the
// budget; hub.mu is held.
func (h *Hub) share() {
	h.ringLimit.Store(int64(min(ringBytesMax, h.cache.budget/2/max(1, len(h.watches)))))
}

func (h *Hub) ringMax() int { return int(h.ringLimit.Load()) }

// list returns the watches; hub.mu is held.
func (h *Hub) list() []*Watch {
	all := make([]*Watch, 0, len(h.watches))
	for _, w := range h.watches {
		all = append(all, w)
	}
	return all
}

func (h *Hub) all() []*Watch {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.list()
}

// checkAll asks for the tail of every watch: live records may have been lost.
func (h *Hub) checkAll() {
	for _, w := range h.all() {
		w.check()
	}
}

// clockLoop drives everything that waits for time.
func (h *Hub) clockLoop() {
	t := time.NewTicker(tickEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			h.tick(h.now())
		case <-h.ctx.Done():
			return
		}
	}
}

// tick retries what is due, checks tails that have been silent, and shrinks
// rings to their share.
func (h *Hub) tick(now time.Time) {
	checks := checksMax
	for _, w := range h.all() {
		wake, checked := w.tick(now, checks > 0)
		if checked {
			checks--
		}
		if wake {
			w.wakers.wake()
		}
	}
}

// tick does the part of one watch.
func (w *Watch) tick(now time.Time, mayCheck bool) (wake, checked bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false, false
	}
	if at := w.ranges.fail.at; !at.IsZero() && !now.Before(at) {
		w.ranges.fail.at = time.Time{}
		wake = true
	}
	if at := w.fail.at; !at.IsZero() && !now.Before(at) {
		w.fail.at = time.Time{}
		w.hub.lane(w.log).fills.put(w)
	}
	if mayCheck && !w.filling && now.Sub(w.heard) >= min(idleCheck<<min(w.silent, 10), w.hub.idleMost) {
		w.silent++
		w.startCheck()
		checked = true
	}
	before := w.ring.bytes
	if out := w.ring.trim(w.hub.ringMax(), nil); len(out) > 0 {
		w.hub.ringBytes.Add(int64(w.ring.bytes - before))
		w.hub.cache.spill(w, out, now)
	}
	return wake, checked
}

func isContext(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
