package journal

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	"rejoin/protocol"
)

// fillBytes bounds one step of a fill; then other watches have their turn.
const fillBytes = 1 << 20

// warnEvery is how often the log says that the journal cannot be read.
const warnEvery = 10 * time.Second

// workQueue hands work to a fixed number of goroutines, first come first
// served. Its bound is its users': a watch is in fills at most once and has at
// most rangesMax ranges in reads.
type workQueue[T any] struct {
	mu     sync.Mutex
	cond   sync.Cond
	work   []T
	closed bool
}

func (q *workQueue[T]) init() { q.cond.L = &q.mu }

func (q *workQueue[T]) put(t T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.work = append(q.work, t)
	q.cond.Signal()
}

// get waits for work; false means the queue was closed.
func (q *workQueue[T]) get() (t T, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.work) == 0 && !q.closed {
		q.cond.Wait()
	}
	return q.pop()
}

// try returns work if there is some.
func (q *workQueue[T]) try() (t T, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.pop()
}

func (q *workQueue[T]) pop() (t T, ok bool) {
	if q.closed || len(q.work) == 0 {
		return t, false
	}
	var zero T
	t, q.work[0] = q.work[0], zero
	q.work = q.work[1:]
	return t, true
}

func (q *workQueue[T]) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.cond.Broadcast()
}

// check asks for the tail, because live records may have been lost.
func (w *Watch) check() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed && !w.filling {
		w.startCheck()
		return
	}
	w.recheck = true // what runs now may have looked already
}

// startCheck queues a check: a fill that first asks the leader how far the log reaches.
func (w *Watch) startCheck() {
	w.recheck = true
	w.filling = true
	w.hub.lane(w.log).fills.put(w)
}

func (h *Hub) fillLoop(l *lane) {
	for {
		w, ok := l.fills.get()
		if !ok {
			return
		}
		h.filled.Add(1)
		if h.fill(w) {
			w.wakers.wake()
		}
	}
}

// fill takes one step towards what was announced for w, and reports whether
// the head moved. While it runs, live records are noted, not applied.
func (h *Hub) fill(w *Watch) bool {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return false
	}
	before, prev, recheck := w.head, w.newest, w.recheck
	w.recheck = false
	w.mu.Unlock()

	var err error
	var recs []*Record
	if recheck {
		var tail *Record
		if tail, err = h.src.newest(h.ctx, w.log); err == nil {
			w.mu.Lock()
			w.heard = h.now()
			if tail != nil {
				w.want = max(w.want, tail.Last())
			}
			w.mu.Unlock()
		}
	}
	w.mu.Lock()
	behind := w.want > w.head
	w.mu.Unlock()
	if err == nil && behind {
		recs, err = h.follow(w, prev)
	}
	if errors.Is(err, ErrDamaged) && len(recs) == 0 {
		return h.jump(w, err)
	}

	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	for _, r := range recs {
		if r.Last() > w.head {
			w.apply(r)
		}
	}
	switch {
	case h.ctx.Err() != nil:
		return false
	case err != nil && !errors.Is(err, ErrDamaged):
		w.recheck = w.recheck || recheck
		w.fail.later(h.now())
		h.warnUnread(w.log, w.head, err)
		return w.head > before
	case behind && len(recs) == 0:
		w.short()
		return false
	}
	w.shorts, w.fail = 0, retry{}
	w.finish()
	return w.head > before
}

// warnUnread says that the journal did not answer for a log: once for all of them
// in warnEvery, because it is the same for thousands.
func (h *Hub) warnUnread(l Log, seq protocol.Seq, err error) {
	level, now, told := slog.LevelDebug, h.now().UnixNano(), h.warned.Load()
	if now-told >= int64(warnEvery) && h.warned.CompareAndSwap(told, now) {
		level = slog.LevelWarn
	}
	h.log.LogAttrs(h.ctx, level, "read from journal", slog.String(protocol.LogSession, l.Key.String()),
		slog.Uint64(protocol.LogSeq, uint64(seq)), slog.Any(protocol.LogError, err))
}

// follow reads what comes after prev. An empty log that is empty no more is
// read from its first record.
func (h *Hub) follow(w *Watch, prev *Record) ([]*Record, error) {
	return h.src.follow(h.ctx, w.log, prev, fillBytes)
}

// short deals with a log that ends before what was announced, though the
// leader was asked: a deposed leader, or a log rolled back. It is asked again a
// few times, then the announcement is given up; the head stays what it was.
func (w *Watch) short() {
	h := w.hub
	if w.shorts++; w.shorts < shortsMax {
		w.recheck = true
		w.fail.later(h.now())
		return
	}
	h.log.Warn("log is shorter than announced", slog.String(protocol.LogSession, w.log.Key.String()),
		slog.Uint64(protocol.LogSeq, uint64(w.head)), slog.Uint64("announced", uint64(w.want)))
	w.want, w.shorts, w.fail = w.head, 0, retry{}
	w.finish()
}

// finish applies the live records noted meanwhile and ends the fill when
// everything announced is reached, else queues the next step.
func (w *Watch) finish() {
	for _, r := range w.pending {
		if r.Last() > w.head && w.joins(r) {
			w.apply(r)
		}
	}
	if w.head >= w.want {
		w.dropNoted()
		if !w.recheck {
			w.filling = false
			return
		}
	}
	w.filling = true
	w.hub.lane(w.log).fills.put(w)
}

// jump restarts the watch at the newest record, because the one after its head
// cannot be read. Readers before the hole learn of it when they get there.
func (h *Hub) jump(w *Watch, why error) bool {
	rec, floor, err := h.tail(h.ctx, w.log)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	if err == nil && floor > w.head+1 { // not damage: what the fill wanted was trimmed, or its epoch ended
		h.log.Info("watch skips what was trimmed", slog.String(protocol.LogSession, w.log.Key.String()), slog.Uint64(protocol.LogSeq, uint64(w.head)))
	} else {
		h.log.Error("log is damaged", slog.String(protocol.LogSession, w.log.Key.String()), slog.Any(protocol.LogError, why))
	}
	if err != nil || rec == nil || rec.Last() <= w.head {
		w.fail.later(h.now())
		return false
	}
	w.restart(rec, floor)
	w.shorts, w.fail = 0, retry{}
	w.finish()
	return true
}

// rangeJob reads a range for readers of w that are behind.
type rangeJob struct {
	w     *Watch
	from  protocol.Seq
	epoch protocol.Epoch
}

func (h *Hub) readLoop(l *lane) {
	for {
		j, ok := l.reads.get()
		if !ok || !h.waitPins() {
			return
		}
		h.readRange(j)
		j.w.wakers.wake()
	}
}

// waitPins waits until few enough ranges wait for their first reader; false
// means the hub ends.
func (h *Hub) waitPins() bool {
	for h.cache.pins(h.now()) >= pinsMax {
		t := time.NewTimer(pinFor / 10)
		select {
		case <-t.C:
		case <-h.ctx.Done():
			t.Stop()
			return false
		}
	}
	return true
}

// readRange reads one range into the cache, or learns why it cannot be read.
func (h *Hub) readRange(j rangeJob) {
	w := j.w
	w.mu.Lock()
	newest := w.newest
	stale := w.closed || w.epoch != j.epoch
	w.mu.Unlock()
	var recs []*Record
	var err error
	if !stale {
		recs, err = h.src.span(h.ctx, w.log, j.epoch, j.from, newest, rangeBytes)
	}
	var floor protocol.Seq
	if errors.Is(err, ErrTrimmed) {
		floor, err = h.src.floorOf(h.ctx, w.log, newest)
		if err == nil && floor <= j.from {
			err = &DamageError{Log: w.log, Seq: j.from, Why: "missing above the floor"}
		}
	}

	now := h.now()
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.ranges.jobs, j.from)
	if w.closed || stale || w.epoch != j.epoch {
		return
	}
	switch {
	case len(recs) > 0:
		w.ranges.fail = retry{}
		h.cache.addRange(w, recs, now)
	case floor > j.from:
		w.floor = max(w.floor, floor)
	case errors.Is(err, ErrDamaged):
		w.ranges.judge(j.from, PullDamaged, now)
		h.log.Error("log is damaged", slog.String(protocol.LogSession, w.log.Key.String()), slog.Any(protocol.LogError, err))
	case h.ctx.Err() != nil:
	case w.ranges.fail.at.IsZero():
		w.ranges.fail.later(now)
		h.warnUnread(w.log, j.from, err)
	}
}
