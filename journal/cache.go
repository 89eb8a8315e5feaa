package journal

import (
	"container/list"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"rejoin/protocol"
)

const (
	// spillBytesMax is the size at which a segment of records that left a ring is closed.
	spillBytesMax = 128 << 10
	// pinFor is how long a range that was read for somebody stays before it has
	// been looked at once: a reader is awake well within it.
	pinFor = 100 * time.Millisecond
)

// cache is the hub's memory of decoded records behind the rings: segments of
// consecutive records, the least recently used one leaves first. A range that
// was just read is pinned until its first reader has come (or pinFor is over),
// so that readers make progress however small the budget is. Safe for
// concurrent use; it is locked after a watch's mutex, never before.
type cache struct {
	mu     sync.Mutex
	budget int           // bytes of rings and segments together; pinned ones may pass it for a moment
	rings  *atomic.Int64 // bytes of all rings
	used   int
	logs   map[*Watch]*logSegments
	lru    list.List // of *segment, front is the most recently used
}

// logSegments are the segments of one watch, by first seq, none overlapping.
type logSegments struct {
	segs  []*segment
	spill *segment // takes what leaves the ring next; nil: open a new one
}

// segment is a run of consecutive records of one epoch.
type segment struct {
	watch  *Watch
	recs   []*Record
	bytes  int
	pinned time.Time // until when it may not be evicted; zero: it may
	el     *list.Element
}

func (s *segment) first() protocol.Seq { return s.recs[0].Base() }
func (s *segment) last() protocol.Seq  { return s.recs[len(s.recs)-1].Last() }

func newCache(budget int, rings *atomic.Int64) *cache {
	c := &cache{budget: budget, rings: rings, logs: make(map[*Watch]*logSegments)}
	c.lru.Init()
	return c
}

// limit is what the segments may hold: what the rings leave, a quarter at least.
func (c *cache) limit() int { return max(c.budget/4, c.budget-int(c.rings.Load())) }

// take copies the records from the one that holds seq on into out and returns
// how many. ahead is the seq that a reader in the second half of a segment
// will want next and that is not cached; 0: none.
func (c *cache) take(w *Watch, seq protocol.Seq, out []*Record) (n int, ahead protocol.Seq) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.logs[w]
	if l == nil {
		return 0, 0
	}
	s := l.find(seq)
	if s == nil {
		return 0, 0
	}
	s.pinned = time.Time{}
	c.lru.MoveToFront(s.el)
	at := sort.Search(len(s.recs), func(i int) bool { return s.recs[i].Last() >= seq })
	n = copy(out, s.recs[at:])
	if at+n > len(s.recs)/2 && l.find(s.last()+1) == nil {
		ahead = s.last() + 1
	}
	return n, ahead
}

// find returns the segment that holds seq.
func (l *logSegments) find(seq protocol.Seq) *segment {
	i := sort.Search(len(l.segs), func(i int) bool { return l.segs[i].last() >= seq })
	if i == len(l.segs) || l.segs[i].first() > seq {
		return nil
	}
	return l.segs[i]
}

// addRange keeps the records of a finished range read, pinned. Records that
// are there already are left out.
func (c *cache) addRange(w *Watch, recs []*Record, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.log(w)
	for len(recs) > 0 {
		// the longest prefix of recs between two segments
		i := sort.Search(len(l.segs), func(i int) bool { return l.segs[i].last() >= recs[0].Base() })
		end := len(recs)
		if i < len(l.segs) {
			next := l.segs[i]
			end = sort.Search(len(recs), func(k int) bool { return recs[k].Last() >= next.first() })
			if end == 0 { // recs[0] is in next
				next.pinned = now.Add(pinFor)
				skip := sort.Search(len(recs), func(k int) bool { return recs[k].Base() > next.last() })
				recs = recs[skip:]
				continue
			}
		}
		c.insert(l, i, &segment{watch: w, recs: recs[:end:end], pinned: now.Add(pinFor)})
		recs = recs[end:]
	}
	c.evict(now)
}

// spill keeps records that left the ring of w, oldest first.
func (c *cache) spill(w *Watch, recs []*Record, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.log(w)
	for _, r := range recs {
		if l.find(r.Base()) != nil {
			l.spill = nil
			continue
		}
		if s := l.spill; s != nil && s.last()+1 == r.Base() && s.bytes < spillBytesMax {
			s.recs = append(s.recs, r)
			s.bytes += r.Size()
			c.used += r.Size()
			continue
		}
		i := sort.Search(len(l.segs), func(i int) bool { return l.segs[i].last() >= r.Base() })
		l.spill = &segment{watch: w, recs: []*Record{r}}
		c.insert(l, i, l.spill)
	}
	c.evict(now)
}

// insert puts s at place i of l and accounts for it.
func (c *cache) insert(l *logSegments, i int, s *segment) {
	for _, r := range s.recs {
		s.bytes += r.Size()
	}
	l.segs = append(l.segs, nil)
	copy(l.segs[i+1:], l.segs[i:])
	l.segs[i] = s
	s.el = c.lru.PushFront(s)
	c.used += s.bytes
}

// bytesUsed is what the ranges that readers share hold.
func (c *cache) bytesUsed() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return int64(c.used)
}

// evict removes the least recently used segments until the budget holds or
// nothing but pinned ones is left.
func (c *cache) evict(now time.Time) {
	for el := c.lru.Back(); el != nil && c.used > c.limit(); {
		s := el.Value.(*segment)
		el = el.Prev()
		if now.Before(s.pinned) {
			continue
		}
		c.remove(s)
	}
}

// pins returns how many segments may not be evicted at now.
func (c *cache) pins(now time.Time) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for el := c.lru.Front(); el != nil; el = el.Next() {
		if now.Before(el.Value.(*segment).pinned) {
			n++
		}
	}
	return n
}

func (c *cache) remove(s *segment) {
	l := c.logs[s.watch]
	if l.spill == s {
		l.spill = nil
	}
	for i, o := range l.segs {
		if o == s {
			l.segs = append(l.segs[:i], l.segs[i+1:]...)
			break
		}
	}
	c.lru.Remove(s.el)
	c.used -= s.bytes
	if len(l.segs) == 0 {
		delete(c.logs, s.watch)
	}
}

// drop forgets everything of w.
func (c *cache) drop(w *Watch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.logs[w]
	if l == nil {
		return
	}
	for _, s := range l.segs {
		c.lru.Remove(s.el)
		c.used -= s.bytes
	}
	delete(c.logs, w)
}

func (c *cache) log(w *Watch) *logSegments {
	l := c.logs[w]
	if l == nil {
		l = &logSegments{}
		c.logs[w] = l
	}
	return l
}
