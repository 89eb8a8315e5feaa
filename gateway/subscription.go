package gateway

import (
	"strconv"
	"sync/atomic"

	"rejoin/journal"
	"rejoin/protocol"
)

// Why the server ends a subscription.
const (
	endUntil     = "until"
	endDeleted   = "deleted"
	endForbidden = "forbidden"
)

// A subscription is a cursor in a log. It carries no events: the connection's
// writer pulls them.
type subscription struct {
	c       *conn
	id      uint64
	space   *space // its workspace's share
	log     journal.Log
	w       watch
	prefix  []byte      // of an event notification without epoch
	woken   atomic.Bool // set by Wake until the writer looks
	deficit int         // the writer's: bytes it may still send in this round; negative: a debt

	// Guarded by c.mu.
	refs     int    // holders that may use w; the last one releases it
	gen      uint64 // bumped by whatever makes a pull in flight void
	active   bool   // its response is queued: events may follow
	parked   bool   // but none does while a resync is under way
	gone     bool   // unsubscribed or ended
	cursor   protocol.Cursor
	until    protocol.Seq // with hasUntil: the last seq wanted
	hasUntil bool
	syncAt   protocol.Seq // with syncDue: synced is due once cursor reaches it
	syncDue  bool
	announce bool   // the next event carries the epoch
	want     string // reason of the snapshot that must come before any event; empty: none
	later    bool   // that snapshot was not announced by a response
	note     *note  // the snapshot, when fetched
	waiting  bool   // in c.waiters
	ending   string // reason of the subscription_end that follows what is at hand
	queued   bool   // in c.ready
	next     *subscription
}

// A note is a snapshot notification ready to be sent.
type note struct {
	bytes  []byte // LF-terminated
	cursor protocol.Cursor
}

// Wake tells that a Pull may give more. It never blocks: it marks.
func (s *subscription) Wake() {
	if s.woken.Swap(true) {
		return
	}
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.c.enqueue(s)
}

// enqueue puts s where the writer looks. Callers hold c.mu.
func (c *conn) enqueue(s *subscription) {
	if s.queued || s.gone || !s.active || s.parked {
		return
	}
	s.queued = true
	c.ready.push(s)
	c.stir()
}

// readyList is a queue of subscriptions, linked through them: it never grows and
// cannot be full.
type readyList struct{ head, tail *subscription }

func (l *readyList) push(s *subscription) {
	if l.tail == nil {
		l.head = s
	} else {
		l.tail.next = s
	}
	l.tail = s
}

func (l *readyList) pushFront(s *subscription) {
	s.next = l.head
	l.head = s
	if l.tail == nil {
		l.tail = s
	}
}

func (l *readyList) pop() *subscription {
	s := l.head
	if s == nil {
		return nil
	}
	if l.head = s.next; l.head == nil {
		l.tail = nil
	}
	s.next = nil
	return s
}

// acquire lets the caller use s.w outside c.mu until release. Callers hold c.mu.
func (s *subscription) acquire() { s.refs++ }

// release ends what acquire began.
func (s *subscription) release() {
	s.c.mu.Lock()
	s.refs--
	last := s.refs == 0
	s.c.mu.Unlock()
	if last {
		s.free()
	}
}

// free lets go of the watch; nobody uses it any more.
func (s *subscription) free() {
	s.w.Remove(s)
	s.w.Release()
}

// add makes s known to its connection; false when the connection may not have
// another one.
func (c *conn) add(s *subscription) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.subs) >= protocol.SubscriptionsMax {
		return false
	}
	if c.subs == nil {
		c.subs = make(map[uint64]*subscription)
	}
	c.subs[s.id] = s
	s.refs = 1
	s.space.subscriptions.Add(1)
	return true
}

// remove takes s from its connection; the caller releases it when true. Nothing
// of it follows what the writer has taken. Callers hold c.mu.
func (c *conn) remove(s *subscription) bool {
	if s.gone {
		return false
	}
	s.gone = true
	c.reposition(s)
	delete(c.subs, s.id)
	c.retired.add(s.id)
	s.space.subscriptions.Add(-1)
	c.stir() // it may have been the last reason to stay
	return true
}

// reposition voids everything that was under way for s. Callers hold c.mu.
func (c *conn) reposition(s *subscription) {
	s.gen++
	s.want, s.later, s.announce, s.syncDue = "", false, false, false
	if s.note != nil {
		s.note = nil
		c.freeFetcher(s)
	}
}

// park stops the delivery of s where it is, until place or unpark: meanwhile
// nothing follows and it cannot end. Callers hold c.mu.
func (c *conn) park(s *subscription) {
	s.parked = true
	s.gen++ // a pull under way does not count
}

// unpark lets s go on where it was parked.
func (c *conn) unpark(s *subscription) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.parked = false
	c.enqueue(s)
}

// place sets where s reads from and lets it begin. Its response is queued in the
// same critical section: callers hold c.mu.
func (c *conn) place(s *subscription, p position) {
	if s.gone {
		return
	}
	c.reposition(s)
	s.cursor = p.cursor
	s.syncAt, s.syncDue = p.head, true
	if p.mode == modeSnapshot {
		s.want = p.reason
	}
	s.active, s.parked = true, false
	c.enqueue(s)
}

// end lets s end with reason after what is at hand.
func (c *conn) end(s *subscription, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.ending == "" {
		s.ending = reason
	}
	c.enqueue(s)
}

// releaseAll is the connection's end: no goroutine of it runs any more.
func (c *conn) releaseAll() {
	c.mu.Lock()
	subs := make([]*subscription, 0, len(c.subs))
	for _, s := range c.subs {
		if c.remove(s) {
			subs = append(subs, s)
		}
	}
	c.mu.Unlock()
	for _, s := range subs {
		s.release()
	}
}

// settle appends what the cursor of s makes due: synced, subscription_end. Idle
// says that nothing more is at hand. It reports whether s has ended; the caller
// then releases it. Callers hold c.mu.
func (c *conn) settle(dst []byte, s *subscription, idle bool) ([]byte, bool) {
	if s.want != "" && s.ending == "" {
		return dst, false
	}
	if s.want == "" && s.syncDue && s.cursor.Seq >= s.syncAt {
		s.syncDue = false
		if !s.hasUntil || s.until >= s.syncAt {
			dst = appendSynced(dst, s)
		}
	}
	switch {
	case s.want == "" && s.hasUntil && s.cursor.Seq >= s.until:
		dst = appendSubscriptionEnd(dst, s, endUntil)
	case s.ending != "" && idle:
		dst = appendSubscriptionEnd(dst, s, s.ending)
	default:
		return dst, false
	}
	return dst, c.remove(s)
}

// appendHead appends the start of a notification up to its sessionId.
func appendHead(dst []byte, method string, s *subscription) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","method":"`...)
	dst = append(dst, method...)
	dst = append(dst, `","params":{"subscriptionId":`...)
	dst = strconv.AppendUint(dst, s.id, 10)
	dst = append(dst, `,"sessionId":`...)
	return protocol.AppendString(dst, s.log.Key.Session)
}

func appendSynced(dst []byte, s *subscription) []byte {
	dst = appendHead(dst, "synced", s)
	dst = append(dst, `,"seq":`...)
	dst = strconv.AppendUint(dst, uint64(s.cursor.Seq), 10)
	return append(dst, "}}\n"...)
}

func appendSubscriptionEnd(dst []byte, s *subscription, reason string) []byte {
	dst = appendHead(dst, "subscription_end", s)
	dst = append(dst, `,"seq":`...)
	dst = strconv.AppendUint(dst, uint64(s.cursor.Seq), 10)
	dst = append(dst, `,"reason":`...)
	dst = protocol.AppendString(dst, reason)
	return append(dst, "}}\n"...)
}

// retiredMax is how many ended subscriptions a connection remembers, so that
// unsubscribe stays idempotent; of more the oldest is forgotten.
const retiredMax = 1024

// retired remembers the ids of a connection's ended subscriptions.
type retired struct {
	ids  map[uint64]struct{} // nil until the first
	ring []uint64
	next int // of ring to overwrite, once it is full
}

func (r *retired) add(id uint64) {
	if r.ids == nil {
		r.ids = make(map[uint64]struct{})
	}
	r.ids[id] = struct{}{}
	if len(r.ring) < retiredMax {
		r.ring = append(r.ring, id)
		return
	}
	delete(r.ids, r.ring[r.next])
	r.ring[r.next] = id
	r.next = (r.next + 1) % retiredMax
}

func (r *retired) has(id uint64) bool {
	_, ok := r.ids[id]
	return ok
}
