package journal

import (
	"bytes"
	"errors"

	"rejoin/protocol"
)

// errEventLine: an event's line would break the record's framing.
var errEventLine = errors.New("journal: event body holds a line feed")

// idleBytesMax is the largest buffer that a writer keeps while it is idle.
const idleBytesMax = 64 << 10

// batch is events that wait for their record, already encoded. A writer has
// two: one collects while the other is cut into records.
type batch struct {
	base  protocol.Seq // of the first event
	lines []byte       // event lines, each with its LF
	ends  []int        // where in lines each line's LF is
	thens []func(error)
	tied  []int // rising indexes of the events that share their predecessor's record
	next  int   // index of the first event that is in no record yet
	cuts  []int // indices, rising, at which a record begins
}

// add encodes e as the newest event.
func (b *batch) add(e *protocol.Event, then func(error)) error {
	if len(e.Body) >= bodyBytesMax {
		return ErrEventTooLarge
	}
	start := len(b.lines)
	b.lines = protocol.AppendEventLine(b.lines, e)
	line := b.lines[start:]
	if bytes.IndexByte(line, '\n') >= 0 {
		b.lines = b.lines[:start]
		return errEventLine
	}
	if len(line) >= bodyBytesMax {
		b.lines = b.lines[:start]
		return ErrEventTooLarge
	}
	if len(b.ends) == 0 {
		b.base = e.Seq
	}
	b.ends = append(b.ends, len(b.lines))
	b.lines = append(b.lines, '\n')
	b.thens = append(b.thens, then)
	return nil
}

// tie keeps the newest event in the record of the one before it.
func (b *batch) tie() { b.tied = append(b.tied, len(b.ends)-1) }

// group returns how many events from the i-th on share one record: itself and
// those tied to it.
func (b *batch) group(i int) int {
	n := 1
	for _, at := range b.tied {
		if at == i+n {
			n++
		}
	}
	return n
}

// size is what the newest event added to lines.
func (b *batch) size() int {
	last := len(b.ends) - 1
	return b.ends[last] + 1 - b.start(last)
}

func (b *batch) start(i int) int {
	if i == 0 {
		return 0
	}
	return b.ends[i-1] + 1
}

// done reports that every event is in a record.
func (b *batch) done() bool { return b.next == len(b.ends) }

// cut is the next record's share of a batch: events [first, first+count).
type cut struct {
	first, count int
	body         []byte // their lines with LFs
}

// cut takes the next record off the batch: as many events as fit in a group
// commit, at least one, and never a part of a group.
func (b *batch) cut() cut {
	c := cut{first: b.next}
	start := b.start(b.next)
	end := start
	for b.next < len(b.ends) && c.count < protocol.RecordEventsMax {
		n := b.group(b.next)
		e := b.ends[b.next+n-1] + 1
		if c.count > 0 && (e-start > protocol.RecordBytesMax || c.count+n > protocol.RecordEventsMax || b.begins(b.next)) {
			break
		}
		end = e
		c.count += n
		b.next += n
	}
	c.body = b.lines[start:end]
	return c
}

// endHere asks for a record to end with the newest event.
func (b *batch) endHere() { b.cuts = append(b.cuts, len(b.ends)) }

// begins reports whether a record was asked to begin at event i.
func (b *batch) begins(i int) bool {
	for len(b.cuts) > 0 && b.cuts[0] < i { // inside a group, or where one began anyway
		b.cuts = b.cuts[1:]
	}
	return len(b.cuts) > 0 && b.cuts[0] == i
}

// finish calls the thens of n events from first on.
func (b *batch) finish(first, n int, err error) {
	for i := first; i < first+n; i++ {
		if then := b.thens[i]; then != nil {
			b.thens[i] = nil
			then(err)
		}
	}
}

// reset empties the batch and keeps its buffers.
func (b *batch) reset() {
	b.base, b.next = 0, 0
	b.lines, b.ends, b.tied = b.lines[:0], b.ends[:0], b.tied[:0]
	clear(b.thens)
	b.thens = b.thens[:0]
	b.cuts = nil // it was cut from the front
}

// bulky reports that the batch holds buffers that only a burst needs.
func (b *batch) bulky() bool {
	return cap(b.lines) > idleBytesMax || cap(b.ends) > protocol.RecordEventsMax
}
