package journal

import "rejoin/protocol"

// ringRecordsMax bounds the records of a ring whatever their size.
const ringRecordsMax = 512

// ring holds the newest records of a log, without holes. Its watch's mutex
// guards it.
type ring struct {
	slots []slot
	bytes int
}

// slot keeps the base beside the pointer, so that a search touches no record.
type slot struct {
	base protocol.Seq
	rec  *Record
}

// push appends r and returns what no longer fits into max bytes, oldest first,
// appended to out. The newest record always stays.
func (g *ring) push(r *Record, max int, out []*Record) []*Record {
	g.slots = append(g.slots, slot{r.Base(), r})
	g.bytes += r.Size()
	return g.trim(max, out)
}

// trim drops the oldest records until the ring holds at most max bytes, or one record.
func (g *ring) trim(max int, out []*Record) []*Record {
	for len(g.slots) > 1 && (g.bytes > max || len(g.slots) > ringRecordsMax) {
		r := g.slots[0].rec
		g.slots[0] = slot{}
		g.slots = g.slots[1:]
		g.bytes -= r.Size()
		out = append(out, r)
	}
	return out
}

// reset empties the ring.
func (g *ring) reset() { g.slots, g.bytes = nil, 0 }

// newest returns the newest record, nil when the ring is empty.
func (g *ring) newest() *Record {
	if len(g.slots) == 0 {
		return nil
	}
	return g.slots[len(g.slots)-1].rec
}

// take copies the records from the one that holds seq on into out and returns
// how many; 0 when seq is not in the ring.
func (g *ring) take(seq protocol.Seq, out []*Record) int {
	n := len(g.slots)
	if n == 0 || seq < g.slots[0].base || seq > g.slots[n-1].rec.Last() {
		return 0
	}
	at := n - 1 // a reader that is almost caught up wants the newest
	if seq < g.slots[at].base {
		lo, hi := 0, at // slots[lo].base ≤ seq < slots[hi].base
		for hi-lo > 1 {
			if mid := int(uint(lo+hi) >> 1); g.slots[mid].base <= seq {
				lo = mid
			} else {
				hi = mid
			}
		}
		at = lo
	}
	k := min(n-at, len(out))
	for i := range k {
		out[i] = g.slots[at+i].rec
	}
	return k
}

// holds reports whether seq is in the ring.
func (g *ring) holds(seq protocol.Seq) bool {
	n := len(g.slots)
	return n > 0 && seq >= g.slots[0].base && seq <= g.slots[n-1].rec.Last()
}
