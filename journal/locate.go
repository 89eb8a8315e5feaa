package journal

import (
	"container/list"
	"context"
	"sort"
	"sync"

	"github.com/oklog/ulid/v2"

	"rejoin/protocol"
)

const (
	indexStride   = 64   // records between two marks, until a session has too many
	indexMarksMax = 1024 // of one session; then every second one goes
	indexLogsMax  = 1024 // sessions; the least recently used one goes
	locateGetsMax = 32   // direct gets of one search
	locateBackMax = 32   // records walked back from the head instead of searching
)

// mark says that the record of base begins at stream sequence pos.
type mark struct {
	base protocol.Seq
	pos  uint64
}

// index remembers, sparsely, where records are. It is only a hint: what was
// trimmed meanwhile is found missing by the read. Safe for concurrent use.
type index struct {
	mu   sync.Mutex
	logs map[Log]*list.Element // of *logIndex
	lru  list.List             // front is the most recently used
}

type logIndex struct {
	log    Log
	marks  []mark // rising
	newest protocol.Seq
	since  int // records noted since the last mark
	stride int
}

func newIndex() *index {
	x := &index{logs: make(map[Log]*list.Element)}
	x.lru.Init()
	return x
}

func (x *index) of(l Log) *logIndex {
	if el, ok := x.logs[l]; ok {
		x.lru.MoveToFront(el)
		return el.Value.(*logIndex)
	}
	for len(x.logs) >= indexLogsMax {
		el := x.lru.Back()
		delete(x.logs, el.Value.(*logIndex).log)
		x.lru.Remove(el)
	}
	li := &logIndex{log: l, stride: indexStride}
	x.logs[l] = x.lru.PushFront(li)
	return li
}

// note learns of a record at the head; what is not newer than all noted is left out.
func (x *index) note(l Log, base protocol.Seq, pos uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	li := x.of(l)
	if base <= li.newest {
		return
	}
	li.newest = base
	if li.since++; li.since < li.stride {
		return
	}
	li.since = 0
	li.insert(mark{base, pos})
}

// read learns of record i of a range read.
func (x *index) read(l Log, base protocol.Seq, pos uint64, i int) {
	if i%indexStride != 0 {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.of(l).insert(mark{base, pos})
}

// insert adds m unless a neighbour is so near that it says the same.
func (li *logIndex) insert(m mark) {
	i := sort.Search(len(li.marks), func(i int) bool { return li.marks[i].base >= m.base })
	if i < len(li.marks) && (li.marks[i].base == m.base || li.marks[i].pos < m.pos+indexStride) {
		return
	}
	if i > 0 && li.marks[i-1].pos+indexStride > m.pos {
		return
	}
	if len(li.marks) >= indexMarksMax {
		kept := li.marks[:0]
		for k, o := range li.marks {
			if k%2 == 0 {
				kept = append(kept, o)
			}
		}
		li.marks = kept
		li.stride *= 2
		i = sort.Search(len(li.marks), func(i int) bool { return li.marks[i].base >= m.base })
	}
	li.marks = append(li.marks, mark{})
	copy(li.marks[i+1:], li.marks[i:])
	li.marks[i] = m
}

// around returns the nearest marks at or below seq and above it; a pos of 0 means none.
func (x *index) around(l Log, seq protocol.Seq) (lo, hi mark) {
	x.mu.Lock()
	defer x.mu.Unlock()
	el, ok := x.logs[l]
	if !ok {
		return lo, hi
	}
	x.lru.MoveToFront(el)
	marks := el.Value.(*logIndex).marks
	i := sort.Search(len(marks), func(i int) bool { return marks[i].base > seq })
	if i > 0 {
		lo = marks[i-1]
	}
	if i < len(marks) {
		hi = marks[i]
	}
	return lo, hi
}

// drop forgets a log.
func (x *index) drop(l Log) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if el, ok := x.logs[l]; ok {
		delete(x.logs, l)
		x.lru.Remove(el)
	}
}

// noteRecord tells the index that the record of base begins at stream sequence
// pos. Writers call it for what is acknowledged, the hub for what is live.
func (n *Node) noteRecord(l Log, base protocol.Seq, pos uint64) { n.rd.index.note(l, base, pos) }

// place is a message found by its header.
type place struct {
	mark
	last  protocol.Seq
	epoch ulid.ULID
	part  uint16
	back  uint64
}

// placeOf reads the header of m; ok is false when it does not decode.
func placeOf(m rawMsg) (p place, ok bool) {
	h, err := decodeHeader(m.data)
	if err != nil {
		return place{mark: mark{pos: m.pos}, part: 1}, false
	}
	return place{mark{h.base, m.pos}, h.base + protocol.Seq(h.count) - 1, h.epoch, h.part, m.back}, true
}

// legible returns the first message of l at or after pos and before end whose
// header decodes; a few that do not are passed over, the forward read meets them.
func (r *reader) legible(ctx context.Context, l Log, pos, end uint64) (p place, ok bool, err error) {
	for range 4 {
		raw, found, err := r.next(ctx, l, pos)
		if err != nil || !found || raw.pos >= end {
			return place{}, false, err
		}
		if p, ok = placeOf(raw); ok {
			return p, true, nil
		}
		pos = raw.pos + 1
	}
	return place{}, false, nil
}

// locate returns a stream sequence from which a forward read meets the record
// that holds seq, without many before it. newest is that record or a later one.
func (r *reader) locate(ctx context.Context, l Log, seq protocol.Seq, newest *Record) (uint64, error) {
	if seq >= newest.base {
		return newest.first, nil
	}
	low, high := r.index.around(l, seq)
	if low.pos != 0 && low.base == seq {
		return low.pos, nil
	}
	hi := place{mark: mark{newest.base, newest.first}, back: newest.back}
	if high.pos != 0 && high.base < hi.base {
		hi = place{mark: high} // its back-link is not at hand
	}
	lo := place{mark: low, part: 1}
	if low.pos == 0 {
		raw, ok, err := r.next(ctx, l, 1)
		if err != nil || !ok {
			return 1, err
		}
		if lo, ok = placeOf(raw); ok && lo.last >= seq {
			return lo.pos, nil
		}
	}
	return r.search(ctx, l, seq, lo, hi)
}

// search narrows down lo.base ≤ seq < hi.base by interpolation, and by halving
// where that does not get on. It stops when a back-link proves lo to be the one.
func (r *reader) search(ctx context.Context, l Log, seq protocol.Seq, lo, hi place) (uint64, error) {
	halve := false
	for range locateGetsMax {
		if lo.last >= seq || hi.back != 0 && hi.back <= lo.pos || lo.pos+1 >= hi.pos {
			break
		}
		if hi.back != 0 && hi.base-seq <= locateBackMax { // few records away: step back
			raw, ok, err := r.at(ctx, l, hi.back)
			if err != nil {
				return 0, err
			}
			p, legible := placeOf(raw)
			switch {
			case !ok || !legible: // seq is in it, or before it
				hi.pos, hi.back = hi.back, 0
			case p.base <= seq:
				lo = p
			default:
				hi = p
			}
			continue
		}
		width := hi.pos - lo.pos
		guess := lo.pos + width/2
		if !halve {
			share := float64(seq-lo.base) / float64(hi.base-lo.base)
			guess = min(max(lo.pos+uint64(share*float64(width)), lo.pos+1), hi.pos-1)
		}
		p, ok, err := r.legible(ctx, l, guess, hi.pos)
		switch {
		case err != nil:
			return 0, err
		case !ok:
			hi.pos = guess // nothing to go by from guess to hi
		case p.base <= seq:
			lo = p
		default:
			hi = p
			hi.pos = guess
		}
		halve = hi.pos-lo.pos > width/2
	}
	return r.firstPart(ctx, l, lo)
}

// firstPart returns where the set of p begins, if p is a later part of one.
func (r *reader) firstPart(ctx context.Context, l Log, p place) (uint64, error) {
	for part := p.part; part > 1 && p.back != 0; part-- {
		raw, ok, err := r.at(ctx, l, p.back)
		if err != nil {
			return 0, err
		}
		before, legible := placeOf(raw)
		if !ok || !legible {
			break
		}
		p = before
	}
	return p.pos, nil
}
