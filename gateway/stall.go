package gateway

import (
	"bytes"
	"errors"
	"os"
	"time"

	"rejoin/protocol"
)

// stallPatience is how long a write may wait before the client counts as stalled.
const stallPatience = 250 * time.Millisecond

// A Resumable pipe goes on after a write that missed its deadline: what it did
// not take then may be sent later, or never.
type Resumable interface {
	Resumable() bool
}

// A stretch is the events of one subscription, in a row, at the end of what is
// gathered.
type stretch struct {
	s    *subscription
	gen  uint64 // of s, then
	from int    // its first byte
	to   int    // behind its last one
}

// with returns what ends with next: both, where they are one.
func (t stretch) with(next stretch) stretch {
	if t.s == next.s && t.gen == next.gen && t.to == next.from {
		next.from = t.from
	}
	return next
}

// sendGathered sends the buffer. Of what a client stalls in, the events of the last
// subscription gathered go back to the journal but for the rest of one, unless
// something else follows them. With a little left the buffer goes to others, and
// a stalled client costs a cursor again (I-G2, I-J5).
func (w *writer) sendGathered() error {
	c, p := w.c, w.buf.b
	if t := w.tail; t.s == nil || t.to != len(p) || w.large != nil || !c.resumable {
		return c.send(p)
	}
	n, err := c.sendWithin(p, min(stallPatience, c.srv.cfg.WriteTimeout))
	if !errors.Is(err, os.ErrDeadlineExceeded) || c.cut.Load() != 0 {
		if err != nil {
			return err
		}
		return c.send(p[n:])
	}
	rest := p[n:w.giveBack(p, n)]
	if len(rest) <= smallBytes { // else the buffer stays out, and counted
		rest = bytes.Clone(rest)
		w.dropBuffer()
	}
	return c.send(rest)
}

// giveBack moves the cursor of the last stretch back to the event that begins
// where sending p has to go on to: the end of the event that n is in. It returns
// that place.
func (w *writer) giveBack(p []byte, n int) int {
	t := w.tail
	keep := max(n, t.from)
	if keep == t.from || p[keep-1] != '\n' { // the first event of a stretch may be special: it goes out
		keep += bytes.IndexByte(p[keep:], '\n') + 1
	}
	events := bytes.Count(p[keep:], []byte{'\n'})
	if events == 0 {
		return len(p)
	}
	c := w.c
	c.mu.Lock()
	defer c.mu.Unlock()
	s := t.s
	if s.gone || s.gen != t.gen || s.want != "" {
		return len(p)
	}
	s.cursor.Seq -= protocol.Seq(events)
	s.deficit += len(p) - keep
	w.events -= uint64(events) //nolint:gosec // a count of lines
	c.enqueue(s)
	return keep
}
