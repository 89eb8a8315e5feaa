package journal

import (
	"context"
	"sync"
	"time"

	"rejoin/protocol"
)

const (
	notedRecordsMax = 64        // live records kept while a fill runs; beyond, the fill reads them
	notedBytesMax   = 256 << 10 // the same in bytes
	syncPatience    = 20 * time.Millisecond
)

// Position is what a watch can serve.
type Position struct {
	Epoch       protocol.Epoch
	Floor, Head protocol.Seq
}

// Waker is told that a Pull which answered PullIdle, PullWait or PullFailed may
// now give more. Wake may be called from any goroutine and must not block; one
// may still come shortly after Remove. Wakers are compared: use pointers.
type Waker interface{ Wake() }

// Watch is one watched log: the newest records in a ring, fed once for all
// readers. Its head only grows. Safe for concurrent use.
type Watch struct {
	hub     *Hub
	log     Log
	subject string // live subject

	refs    int           // guarded by hub.mu
	ready   chan struct{} // closed when the first Watch call has opened it, or failed
	openErr error         // written before ready is closed
	unsub   func()        // set by open, called by the last Release

	mu      sync.Mutex
	closed  bool
	epoch   protocol.Epoch // "" while the log is empty
	floor   protocol.Seq
	head    protocol.Seq
	newest  *Record // holds head; nil while the log is empty
	ring    ring
	filling bool         // live records are noted, not applied
	want    protocol.Seq // what a fill must reach before it ends
	pending []*Record    // live records noted by the fill, consecutive, the newest ones
	pendLen int          // bytes of pending
	fail    retry        // of fills
	shorts  int          // fills in a row that found nothing though something was announced
	recheck bool         // the next fill asks the leader how far the log reaches
	heard   time.Time    // when the journal last confirmed the head, by a record or a check
	silent  int          // idle checks since the last record
	syncers []syncer
	asking  bool      // a goroutine asks for the newest record
	next    *question // not asked yet; nil: nobody waits for one
	ranges  rangeTable

	wakers wakerSet
	woken  time.Time // the feeder's: when it woke them last
	held   bool      // the feeder's: it will wake them soon
}

// syncer waits until head has reached seq.
type syncer struct {
	seq  protocol.Seq
	done chan struct{}
}

// retry is a growing delay after failures in a row.
type retry struct {
	n  int
	at time.Time // zero: nothing is to be retried
}

// later sets the time of the next try: 50 ms after now, doubling to 5 s.
func (r *retry) later(now time.Time) {
	r.at = now.Add(min(50*time.Millisecond<<min(r.n, 10), 5*time.Second))
	r.n++
}

func newWatch(h *Hub, l Log) *Watch {
	return &Watch{hub: h, log: l, subject: liveSubjectOf(l), ready: make(chan struct{}), filling: true, floor: 1}
}

// Position returns what the watch can serve now.
func (w *Watch) Position() Position {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.position()
}

func (w *Watch) position() Position { return Position{Epoch: w.epoch, Floor: w.floor, Head: w.head} }

// Sync reads the head through the leader, together with others that come at the same time, and returns when the watch has
// reached it: nothing that was acknowledged before the call is missing from
// Position afterwards. Errors: ErrUnavailable, ErrClosed, ErrDamaged, or ctx's.
func (w *Watch) Sync(ctx context.Context) (Position, error) {
	rec, err := w.newestRecord(ctx)
	if err != nil {
		return Position{}, err
	}
	now := w.hub.now()
	w.mu.Lock()
	if rec == nil || rec.Last() <= w.head || w.closed {
		w.heard = now
		p, closed := w.position(), w.closed
		w.mu.Unlock()
		if closed {
			return Position{}, ErrClosed
		}
		return p, nil
	}
	s := syncer{rec.Last(), make(chan struct{})}
	w.syncers = append(w.syncers, s)
	w.mu.Unlock()

	// Usually the live record is on its way; a fill is for when it got lost.
	patience := time.NewTimer(syncPatience)
	defer patience.Stop()
	for {
		select {
		case <-s.done:
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.closed {
				return Position{}, ErrClosed
			}
			return w.position(), nil
		case <-patience.C:
			w.mu.Lock()
			w.note(s.seq, nil)
			w.startFill()
			w.mu.Unlock()
		case <-ctx.Done():
			w.forget(s)
			return Position{}, ctx.Err()
		}
	}
}

// forget removes a syncer that gave up.
func (w *Watch) forget(s syncer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, o := range w.syncers {
		if o.done == s.done {
			w.syncers = append(w.syncers[:i], w.syncers[i+1:]...)
			return
		}
	}
}

// offer takes a live record and reports whether the head moved. Only a record
// that joins the head exactly is applied (I-J4); an older one is dropped; a
// later one shows a gap, which the journal fills.
func (w *Watch) offer(r *Record) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.epochText == w.epoch {
		r.epochText = w.epoch // one text for all records of a watch
	}
	switch {
	case w.closed || r.Last() <= w.head:
		return false
	case !w.filling && w.joins(r):
		w.apply(r)
		return true
	}
	if !w.filling {
		w.hub.gaps.Add(1)
	}
	w.note(r.Last(), r)
	w.startFill()
	return false
}

// announce takes the news that the log holds seq.
func (w *Watch) announce(seq protocol.Seq) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || seq <= w.head {
		return
	}
	w.note(seq, nil)
	w.startFill()
}

// joins reports that r comes right after the newest record: by the chain, and
// by its seq inside an epoch.
func (w *Watch) joins(r *Record) bool {
	var sum chainHash
	if w.newest != nil {
		sum = w.newest.sum
	}
	if r.prev != sum {
		return false
	}
	if r.Epoch() == w.epoch {
		return r.Base() == w.head+1
	}
	return r.Base() > w.head
}

// apply makes r, which joins, the newest record.
func (w *Watch) apply(r *Record) {
	now := w.hub.now()
	if r.Epoch() != w.epoch {
		w.restart(r, r.Base())
		return
	}
	w.newest, w.head, w.heard, w.silent = r, r.Last(), now, 0
	w.push(r, now)
	w.settle()
}

// restart begins anew at r: a new epoch, or the far side of a hole.
func (w *Watch) restart(r *Record, floor protocol.Seq) {
	now := w.hub.now()
	if w.epoch != r.Epoch() {
		w.hub.cache.drop(w)
		w.ranges.forgetVerdicts()
	}
	w.hub.ringBytes.Add(-int64(w.ring.bytes))
	w.ring.reset()
	w.epoch, w.floor = r.Epoch(), floor
	w.newest, w.head, w.heard, w.silent = r, r.Last(), now, 0
	w.push(r, now)
	w.settle()
}

// push puts r into the ring and what falls out of it into the cache.
func (w *Watch) push(r *Record, now time.Time) {
	var spilled [8]*Record
	before := w.ring.bytes
	out := w.ring.push(r, w.hub.ringMax(), spilled[:0])
	w.hub.ringBytes.Add(int64(w.ring.bytes - before))
	if len(out) > 0 {
		w.hub.cache.spill(w, out, now)
	}
}

// settle tells the syncers whose seq has come.
func (w *Watch) settle() {
	kept := w.syncers[:0]
	for _, s := range w.syncers {
		if s.seq <= w.head {
			close(s.done)
		} else {
			kept = append(kept, s)
		}
	}
	w.syncers = kept
}

// note remembers, for the fill, that the log reaches seq; r is the live record
// that said so, or nil.
func (w *Watch) note(seq protocol.Seq, r *Record) {
	w.want = max(w.want, seq)
	if r == nil {
		return
	}
	if n := len(w.pending); n > 0 && (w.pending[n-1].sum != r.prev || n == notedRecordsMax || w.pendLen+r.Size() > notedBytesMax) {
		w.dropNoted()
	}
	w.pending = append(w.pending, r)
	w.pendLen += r.Size()
}

// dropNoted forgets the live records noted so far.
func (w *Watch) dropNoted() {
	clear(w.pending)
	w.pending, w.pendLen = w.pending[:0], 0
}

// startFill queues a fill unless one is under way.
func (w *Watch) startFill() {
	if w.filling || w.closed {
		return
	}
	w.filling = true
	w.hub.lane(w.log).fills.put(w)
}

// close ends the watch; the hub calls it once nobody holds it.
func (w *Watch) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for _, s := range w.syncers {
		close(s.done)
	}
	w.syncers = nil
	w.hub.ringBytes.Add(-int64(w.ring.bytes))
	w.ring.reset()
	w.hub.cache.drop(w)
}

// Add registers k for wakes. A waker added twice needs two Removes.
func (w *Watch) Add(k Waker) { w.wakers.add(k) }

// Remove takes back one Add.
func (w *Watch) Remove(k Waker) { w.wakers.remove(k) }

// wakerSet is who is told of progress. Most watches have one waker, which needs no
// table.
type wakerSet struct {
	mu    sync.Mutex
	first Waker // nil: there is none
	times int   // how often first was added
	more  map[Waker]int
	list  []Waker // first and the keys of more, replaced, never changed in place; stale when nil
}

func (s *wakerSet) add(k Waker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = nil
	switch {
	case s.first == k || s.first == nil && s.more[k] == 0:
		s.first = k
		s.times++
	case s.more == nil:
		s.more = map[Waker]int{k: 1}
	default:
		s.more[k]++
	}
}

func (s *wakerSet) remove(k Waker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = nil
	if s.first == k {
		if s.times--; s.times == 0 {
			s.first = nil
		}
		return
	}
	if s.more[k] > 1 {
		s.more[k]--
	} else {
		delete(s.more, k)
	}
}

// wake tells everyone. It must be called without any lock of the watch.
func (s *wakerSet) wake() {
	s.mu.Lock()
	first, list := s.first, s.list
	if list == nil && len(s.more) > 0 {
		list = make([]Waker, 0, len(s.more)+1)
		if first != nil {
			list = append(list, first)
		}
		for k := range s.more {
			list = append(list, k)
		}
		s.list = list
	}
	s.mu.Unlock()
	if list == nil && first != nil {
		first.Wake()
	}
	for _, k := range list {
		k.Wake()
	}
}
