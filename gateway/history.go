package gateway

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"rejoin/journal"
	"rejoin/protocol"
)

// extent is what of a log can be read.
type extent struct {
	epoch       protocol.Epoch
	floor, head protocol.Seq
}

func (c *conn) extentOf(ctx context.Context, l journal.Log) (extent, error) {
	tail, err := c.srv.history.Tail(ctx, l)
	if err != nil || tail.Empty {
		return extent{floor: 1}, err
	}
	floor, err := c.srv.history.Floor(ctx, l)
	return extent{epoch: tail.Epoch, floor: max(floor, 1), head: tail.Head}, err
}

// outside is the error for what the log can not give.
func (e extent) outside(reason protocol.Reason, format string, args ...any) *protocol.Error {
	err := protocol.Errorf(reason, format, args...)
	err.Floor, err.Head, err.Epoch = &e.floor, &e.head, e.epoch
	return err
}

func (e extent) checkEpoch(want protocol.Epoch) error {
	if want != "" && want != e.epoch {
		return e.outside(protocol.ReasonEpoch, "the epoch is %s", e.epoch)
	}
	return nil
}

// page is a read_events request.
type page struct {
	epoch    protocol.Epoch
	backward bool
	from     protocol.Seq // exclusive
	limit    int
	bytes    int
}

// readEventsWeight is how much a read_events may answer, but for one event.
func readEventsWeight(p protocol.Params) int {
	n, ok, err := p.Uint("maxBytes")
	if err != nil || !ok {
		return protocol.ReadEventsBytes
	}
	return int(min(n, protocol.ReadEventsBytesMax))
}

func parsePage(p protocol.Params) (page, error) {
	pg := page{limit: protocol.ReadEventsMax, bytes: readEventsWeight(p)}
	epoch, _, err := p.String("epoch")
	if err != nil {
		return pg, err
	}
	pg.epoch = protocol.Epoch(epoch)
	after, hasAfter, err := p.Uint("after")
	if err != nil {
		return pg, err
	}
	before, hasBefore, err := p.Uint("before")
	if err != nil {
		return pg, err
	}
	if hasAfter == hasBefore {
		return pg, invalid("one of after and before is required")
	}
	pg.from, pg.backward = protocol.Seq(after), hasBefore
	if hasBefore {
		pg.from = protocol.Seq(before)
	}
	limit, ok, err := p.Uint("limit")
	if err != nil {
		return pg, err
	}
	if ok && (limit == 0 || limit > protocol.ReadEventsMax) {
		return pg, invalid("limit must be 1 to %d", protocol.ReadEventsMax).Met("ReadEventsMax")
	}
	if ok {
		pg.limit = int(limit)
	}
	_, _, err = p.Uint("maxBytes")
	return pg, err
}

func readEvents(ctx context.Context, c *conn, r *request) (reply, error) {
	id, err := session(r.params)
	if err != nil {
		return reply{}, err
	}
	pg, err := parsePage(r.params)
	if err != nil {
		return reply{}, err
	}
	log, err := c.srv.sessions.Log(ctx, r.who, id)
	if err != nil {
		return reply{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	at, err := c.settledExtent(ctx, r.who, log, wish{hasAfter: !pg.backward, after: pg.from, epoch: pg.epoch})
	if err == nil {
		err = at.checkEpoch(pg.epoch)
	}
	if err != nil {
		return reply{}, err
	}
	var lines eventLines
	if pg.backward {
		lines, err = c.readBackward(ctx, log, at, pg)
	} else {
		lines, err = c.readForward(ctx, log, at, pg)
	}
	if errors.Is(err, journal.ErrDamaged) {
		err = c.damaged(ctx, log, at, pg)
	}
	if errors.Is(err, journal.ErrTrimmed) {
		// Trimmed since the extent was read.
		if now, nerr := c.extentOf(ctx, log); nerr == nil {
			at = now
		}
		err = at.outside(protocol.ReasonTrimmed, "the log begins at %d", at.floor)
	}
	if err != nil {
		return reply{}, err
	}
	return reply{result: lines.append(nil, id, at, pg.from)}, nil
}

// damaged refuses a page that cannot be read, and says behind which event the next
// one can.
func (c *conn) damaged(ctx context.Context, log journal.Log, at extent, pg page) error {
	refusal := at.outside(protocol.ReasonDamaged, "the log cannot be read there; a snapshot leads across it")
	if pg.backward {
		return refusal
	}
	seq, ok, err := c.srv.history.Behind(ctx, log, pg.from)
	if err != nil {
		return err
	}
	if ok && seq <= at.head {
		next := seq - 1
		refusal.Next = &next
	}
	return refusal
}

// eventLines are stored lines in rising order of seq, without a hole.
type eventLines struct {
	lines       [][]byte
	first, last protocol.Seq
	bytes       int
	backward    bool
}

// full reports that a line of n bytes is one too many.
func (l *eventLines) full(pg page, n int) bool {
	return len(l.lines) > 0 && (len(l.lines) >= pg.limit || l.bytes+n > pg.bytes)
}

// room reports that the page wants more.
func (l *eventLines) room(pg page) bool {
	return len(l.lines) == 0 || len(l.lines) < pg.limit && l.bytes < pg.bytes
}

// chunk is how many bytes to read for what the page still wants: a page of few
// events does not pay for a megabyte of them.
func (l *eventLines) chunk(pg page) int {
	return min(pg.bytes-l.bytes, max((pg.limit-len(l.lines))*eventBytesGuess, readChunkMin))
}

const (
	eventBytesGuess = 512
	readChunkMin    = 4 << 10
)

func (l *eventLines) add(seq protocol.Seq, line []byte) {
	if len(l.lines) == 0 {
		l.first, l.last = seq, seq
	}
	l.first, l.last = min(l.first, seq), max(l.last, seq)
	l.lines = append(l.lines, line)
	l.bytes += len(line) + eventOverhead
}

// eventOverhead is about what a line costs besides itself in an answer.
const eventOverhead = 48

func (c *conn) readForward(ctx context.Context, log journal.Log, at extent, pg page) (eventLines, error) {
	var l eventLines
	switch {
	case pg.from > at.head:
		return l, at.outside(protocol.ReasonTrimmed, "after %d lies beyond the head %d", pg.from, at.head)
	case pg.from+1 < at.floor:
		return l, at.outside(protocol.ReasonTrimmed, "the log begins at %d", at.floor)
	}
	for cursor := pg.from; cursor < at.head && l.room(pg); cursor = l.last {
		records, err := c.srv.history.Read(ctx, log, cursor, l.chunk(pg))
		if errors.Is(err, journal.ErrDamaged) && len(l.lines) > 0 {
			return l, nil // what is in front of the damage is good; the next call meets it
		}
		if err != nil {
			return l, err
		}
		before := len(l.lines)
		for _, r := range records {
			if r.Epoch() != at.epoch {
				return l, nil // the epoch ended meanwhile
			}
			for i := range r.Len() {
				seq := r.Base() + protocol.Seq(i)
				if seq <= cursor || seq > at.head {
					continue
				}
				if l.full(pg, len(r.Line(i))) {
					return l, nil
				}
				l.add(seq, r.Line(i))
			}
		}
		if len(l.lines) == before {
			return l, nil
		}
	}
	return l, nil
}

func (c *conn) readBackward(ctx context.Context, log journal.Log, at extent, pg page) (eventLines, error) {
	l := eventLines{backward: true}
	cursor := min(pg.from, at.head+1)
	if cursor <= at.floor && at.floor > 1 {
		return l, at.outside(protocol.ReasonTrimmed, "the log begins at %d", at.floor)
	}
	defer func() { slices.Reverse(l.lines) }()
	for ; cursor > at.floor && l.room(pg); cursor = l.first {
		records, err := c.srv.history.ReadBefore(ctx, log, cursor, pg.limit-len(l.lines), pg.bytes-l.bytes)
		if errors.Is(err, journal.ErrDamaged) && len(l.lines) > 0 {
			return l, nil
		}
		if err != nil {
			return l, err
		}
		before := len(l.lines)
		for _, r := range slices.Backward(records) {
			if r.Epoch() != at.epoch {
				return l, nil
			}
			for i := r.Len() - 1; i >= 0; i-- {
				seq := r.Base() + protocol.Seq(i)
				if seq >= cursor || seq < at.floor {
					continue
				}
				if l.full(pg, len(r.Line(i))) {
					return l, nil
				}
				l.add(seq, r.Line(i))
			}
		}
		if len(l.lines) == before {
			return l, nil
		}
	}
	return l, nil
}

// append appends the result of read_events; next is where to go on.
func (l *eventLines) append(dst []byte, session string, at extent, from protocol.Seq) []byte {
	next := from
	switch {
	case len(l.lines) == 0:
	case l.backward:
		next = l.first
	default:
		next = l.last
	}
	dst = append(dst, `{"events":[`...)
	for i, line := range l.lines {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = protocol.AppendEventObject(dst, session, line)
	}
	dst = append(dst, `],"head":`...)
	dst = strconv.AppendUint(dst, uint64(at.head), 10)
	dst = append(dst, `,"floor":`...)
	dst = strconv.AppendUint(dst, uint64(at.floor), 10)
	dst = append(dst, `,"epoch":`...)
	dst = protocol.AppendString(dst, string(at.epoch))
	dst = append(dst, `,"next":`...)
	dst = strconv.AppendUint(dst, uint64(next), 10)
	return append(dst, '}')
}
