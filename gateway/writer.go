package gateway

import (
	"errors"
	"log/slog"
	"os"
	"time"

	"rejoin/journal"
	"rejoin/protocol"
)

const (
	// quantum is what a subscription may send in one round.
	quantum = 64 << 10
	// outKept is the largest response buffer that a connection keeps for the next one.
	outKept = 512
)

// writer is the state of a connection's writing goroutine, and nobody else's. It is
// lent by the server: a connection that sends nothing has none.
type writer struct {
	c      *conn
	buf    *buffer
	large  []byte          // sent as it is after buf: a response or snapshot larger than what buf has room for
	tail   stretch         // the last pull's part of buf
	full   bool            // what is gathered must go before anything else
	unsent int             // bytes of responses in buf and large
	events uint64          // in buf
	over   []*subscription // ended, to be released outside the lock
}

// A step is what a writer does next.
type step uint8

const (
	stepRest  step = iota // nothing: its goroutine ends until stir
	stepWrite             // send what is at hand
	stepEnd               // close the connection
)

// stir begins the writer's goroutine if there is something for it to do and none
// runs; one that runs looks again before it ends. Callers hold c.mu.
func (c *conn) stir() {
	if c.writing || c.over || c.next() == stepRest {
		return
	}
	c.writing = true
	c.writer.Add(1)
	go c.run()
}

// awaitWriter returns when the writer has closed the connection.
func (c *conn) awaitWriter() {
	c.mu.Lock()
	for !c.over {
		c.room.Wait()
	}
	c.mu.Unlock()
	c.writer.Wait() // nothing is added to it any more
}

// write is the writer's goroutine: responses first, then the ready subscriptions
// by deficit round-robin, many events per write, until nothing is left. Then it
// ends, so that a connection that waits has no stack for it.
func (c *conn) write() {
	defer c.writer.Done()
	w, _ := c.srv.writers.Get().(*writer)
	if w == nil {
		w = new(writer)
	}
	w.c = c
	last := w.work()
	w.c = nil
	c.srv.writers.Put(w)
	if last {
		c.shut()
	}
}

// work sends until nothing is left; true when the connection is to be closed.
func (w *writer) work() bool {
	for {
		switch w.await() {
		case stepRest:
			return false
		case stepEnd:
			return true
		case stepWrite:
		}
		w.fill()
		w.releaseOver()
		if err := w.flush(); err != nil {
			w.c.writeFailed(err)
			w.dropBuffer()
			return true
		}
	}
}

// await takes the next step. One that is not to write leaves no buffer.
func (w *writer) await() step {
	c := w.c
	c.mu.Lock()
	defer c.mu.Unlock()
	next := c.next()
	if next == stepWrite {
		return next
	}
	w.dropBuffer()
	if next == stepRest {
		c.out = nil
		c.writing = false
	}
	return next
}

// next is what the writer is to do. Callers hold c.mu.
func (c *conn) next() step {
	switch {
	case c.dead:
		return stepEnd
	case len(c.out) > 0:
		return stepWrite
	case c.closing:
		return stepEnd
	case c.ready.head != nil, len(c.news) > 0:
		return stepWrite
	case c.draining && c.lanes.open == 0:
		return stepEnd
	case c.ended && c.lanes.open == 0 && (c.half == nil || len(c.subs)+len(c.watching) == 0):
		return stepEnd
	}
	return stepRest
}

// shut closes the connection, as the writer's last act.
func (c *conn) shut() {
	c.mu.Lock()
	code, reason := c.closeCode, c.closeReason
	if code == 0 {
		code, reason = CloseNormal, "end of input"
		if c.draining {
			code, reason = CloseDraining, "server stops"
		}
	}
	c.dead, c.over = true, true
	c.room.Broadcast()
	c.mu.Unlock()
	c.closePipe(code, reason)
}

func (c *conn) writeFailed(err error) {
	if errors.Is(err, os.ErrDeadlineExceeded) && c.cut.Load() == 0 {
		c.srv.counters.writeTimeouts.Add(1)
		c.srv.log.Info("connection closed: no byte accepted within the write timeout", slog.Uint64(protocol.LogConn, c.id))
		c.kill(CloseOverloaded, "no byte accepted within the write timeout")
		return
	}
	c.logTransport("write", err)
	c.kill(CloseInternal, "write failed")
}

func (w *writer) dropBuffer() {
	if w.buf != nil {
		w.c.srv.buffers.put(w.buf)
		w.buf = nil
	}
}

// fill gathers one write. Each look at the subscriptions takes the responses
// that were queued by then first, in the same critical section.
func (w *writer) fill() {
	if w.buf == nil {
		w.buf = w.c.srv.buffers.get()
	}
	c := w.c
	for w.large == nil && !w.full && len(w.buf.b) < w.buf.limit {
		c.mu.Lock()
		if !w.takeResponses() {
			c.mu.Unlock()
			return
		}
		if c.closing || c.dead {
			c.mu.Unlock()
			return
		}
		w.takeNews()
		s := c.ready.pop()
		if s == nil {
			more := len(c.news) > 0
			c.mu.Unlock()
			if more {
				continue
			}
			return
		}
		s.queued = false
		s.woken.Store(false)
		if w.inDebt(s) || !w.prepare(s) {
			c.mu.Unlock()
			continue
		}
		w.pull(s) // unlocks
	}
}

// takeResponses moves the queued responses into this write; false when they do
// not fit and what is gathered must go first. Callers hold c.mu.
func (w *writer) takeResponses() bool {
	c := w.c
	n := len(c.out)
	switch {
	case n == 0:
		return true
	case len(w.buf.b)+n <= w.buf.limit:
		w.buf.b = append(w.buf.b, c.out...)
		w.unsent += n
		c.out = c.out[:0]
		if cap(c.out) > outKept {
			c.out = nil
		}
		return true
	case len(w.buf.b) > 0:
		return false
	}
	w.large, c.out = c.out, nil
	w.unsent += n
	return false
}

// inDebt gives s its quantum; true when that does not pay for what it has sent
// already: then it is the others' turn. Callers hold c.mu.
func (w *writer) inDebt(s *subscription) bool {
	if s.deficit > 0 {
		return false
	}
	s.deficit += quantum
	if w.c.ready.head == nil { // alone
		s.deficit = quantum
	}
	if s.deficit > 0 {
		return false
	}
	w.c.enqueue(s)
	return true
}

// prepare does what s needs before its next event: its snapshot, or what is due
// at its cursor. False: there is nothing to pull. Callers hold c.mu.
func (w *writer) prepare(s *subscription) bool {
	c := w.c
	if s.gone || !s.active || s.parked {
		return false
	}
	if s.want != "" {
		if s.note == nil {
			if s.ending != "" {
				w.settle(s, true)
				return false
			}
			c.fetchFor(c.sc, s)
			return false
		}
		if !w.takeNote(s) {
			return false
		}
	}
	return !w.settle(s, false)
}

// takeNote puts the snapshot of s into this write; false when what is gathered
// must go first. Callers hold c.mu.
func (w *writer) takeNote(s *subscription) bool {
	n := s.note
	fits := len(w.buf.b)+len(n.bytes) <= w.buf.limit
	if !fits && len(w.buf.b) > 0 {
		s.queued = true
		w.c.ready.pushFront(s)
		w.full = true
		return false
	}
	w.c.srv.counters.snapshots.Add(1)
	s.note = nil
	s.cursor = n.cursor
	s.announce = s.later
	s.want, s.later = "", false
	s.deficit -= len(n.bytes)
	w.c.freeFetcher(s)
	if fits {
		w.buf.b = append(w.buf.b, n.bytes...)
		return true
	}
	w.large = n.bytes
	w.c.enqueue(s) // its events come after the snapshot, in the next write
	return false
}

// settle appends what is due for s; true when it has ended. Callers hold c.mu.
func (w *writer) settle(s *subscription, idle bool) bool {
	b, ended := w.c.settle(w.buf.b, s, idle)
	w.buf.b = b
	if ended {
		w.over = append(w.over, s)
	}
	return ended
}

// pull gathers events of s. It is called with c.mu held and releases it: the pull
// itself runs outside, and counts only if s was not repositioned meanwhile (I-G1).
func (w *writer) pull(s *subscription) {
	c := w.c
	gen, cursor, until := s.gen, s.cursor, protocol.Seq(0)
	if s.hasUntil {
		until = s.until
	}
	prefix, limit := s.prefix, 0
	if s.announce {
		prefix, limit = protocol.AppendEventPrefix(nil, s.id, s.log.Key.Session, cursor.Epoch), 1
	}
	s.acquire()
	c.mu.Unlock()

	mark := len(w.buf.b)
	room := min(w.buf.limit, mark+s.deficit)
	out, last, status := s.w.Pull(w.buf.b, prefix, cursor, until, room, limit)

	c.mu.Lock()
	w.buf.b = out
	if s.gen != gen {
		w.buf.b = out[:mark]
	} else {
		s.deficit -= len(out) - mark
		if len(out) > mark {
			w.events += uint64(last - s.cursor.Seq)
		}
		s.cursor.Seq = last
		if len(out) > mark {
			s.announce = false
			w.tail = w.tail.with(stretch{s, gen, mark, len(out)})
		}
		w.follow(s, status)
	}
	s.refs--
	over := s.refs == 0
	c.mu.Unlock()
	if over {
		s.free()
	}
}

// follow decides what comes after a pull of s. Callers hold c.mu.
func (w *writer) follow(s *subscription, status journal.PullStatus) {
	c := w.c
	if w.settle(s, status == journal.PullIdle || lost(status)) {
		return
	}
	if status == journal.PullMore {
		if s.deficit > 0 && !s.queued {
			s.queued = true
			c.ready.pushFront(s)
			return
		}
		c.enqueue(s)
		return
	}
	s.deficit = min(s.deficit, 0)
	if lost(status) {
		s.want, s.later = lostReason(status), true
		c.enqueue(s)
	}
}

// lost reports that the next seq can no longer be read.
func lost(st journal.PullStatus) bool {
	return st == journal.PullTrimmed || st == journal.PullEpoch || st == journal.PullDamaged
}

func lostReason(st journal.PullStatus) string {
	switch st {
	case journal.PullEpoch:
		return reasonEpoch
	case journal.PullDamaged:
		return reasonDamaged
	default:
		return reasonTrimmed
	}
}

func (w *writer) releaseOver() {
	for i, s := range w.over {
		s.release()
		w.over[i] = nil
	}
	w.over = w.over[:0]
}

// flush sends what was gathered.
func (w *writer) flush() error {
	err := w.sendGathered()
	if err == nil {
		err = w.c.send(w.large)
	}
	w.c.srv.counters.events.Add(w.events)
	w.large, w.full, w.tail, w.events = nil, false, stretch{}, 0
	if w.buf != nil {
		if w.buf.limit < bufferBytes || cap(w.buf.b) > 2*bufferBytes {
			w.dropBuffer() // for the next one a large one may be free
		} else {
			w.buf.b = w.buf.b[:0]
		}
	}
	if w.unsent > 0 {
		w.c.mu.Lock()
		w.c.unsent -= w.unsent
		w.c.room.Broadcast()
		w.c.mu.Unlock()
		w.unsent = 0
	}
	return err
}

// send writes p whole. The deadline is for any progress: bytes that were taken
// renew it.
func (c *conn) send(p []byte) error {
	for len(p) > 0 {
		n, err := c.sendWithin(p, c.srv.cfg.WriteTimeout)
		p = p[n:]
		if err != nil && (n == 0 || c.cut.Load() != 0 || !errors.Is(err, os.ErrDeadlineExceeded)) {
			return err
		}
	}
	return nil
}

// sendWithin is one write of p with a deadline.
func (c *conn) sendWithin(p []byte, limit time.Duration) (int, error) {
	if err := c.pipe.SetWriteDeadline(time.Now().Add(limit)); err != nil {
		return 0, err
	}
	if cut := c.cut.Load(); cut != 0 { // drain stores it before it sets its own deadline
		if err := c.pipe.SetWriteDeadline(time.Unix(0, cut)); err != nil {
			return 0, err
		}
	}
	n, err := c.pipe.Write(p)
	c.srv.counters.bytes.Add(uint64(n))
	return n, err
}
