package worker

import (
	"os"
	"sync"

	"rejoin/protocol"
)

// inputLine is one admitted line with its LF.
type inputLine struct {
	id   string
	data []byte
}

// stdin is the queue before a child's standard input. Room is reserved at
// admission and given back when the line is written or will never be, so at most
// StdinQueueLinesMax lines and StdinQueueBytesMax bytes are held; above that a
// command is refused as overloaded. Its one writer blocks nobody (I-W4). Safe
// for concurrent use.
type stdin struct {
	f    *os.File // non-blocking: closing it ends a write that waits
	heir heir

	mu     sync.Mutex
	queue  []inputLine
	lines  int
	bytes  int
	closed bool            // by the ladder: what is queued stays unwritten
	cause  string          // why the child takes no more; empty while it does
	partly map[string]bool // commands of which some bytes were written
	wake   chan struct{}   // capacity one: a second token says nothing new
}

// heir is told what became of a line: one of the two, once.
type heir interface {
	wrote(id string)
	broke(id string, outcome protocol.Outcome, result protocol.RawJSON)
}

func newStdin(f *os.File, h heir) *stdin {
	return &stdin{f: f, heir: h, partly: make(map[string]bool), wake: make(chan struct{}, 1)}
}

// short names the limit that leaves no room for a line of about n bytes; empty:
// it fits.
func (q *stdin) short(n int) string {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.lines >= protocol.StdinQueueLinesMax:
		return "StdinQueueLinesMax"
	case q.bytes+n > protocol.StdinQueueBytesMax:
		return "StdinQueueBytesMax"
	}
	return ""
}

// reserve takes room for a line that fits, or for one of rejoin's own: of those
// there are at most a probe, an abort, an answer for each open question and the
// driver's dismissals of others, which are bounded, too, above the bound.
func (q *stdin) reserve(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lines++
	q.bytes += n
}

func (q *stdin) release(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lines--
	q.bytes -= n
}

// push queues a line for which room is reserved.
func (q *stdin) push(l inputLine) {
	q.mu.Lock()
	q.queue = append(q.queue, l)
	q.mu.Unlock()
	q.signal()
}

func (q *stdin) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// broken reports that the child's end is closed.
func (q *stdin) broken() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed || q.cause != ""
}

// close ends stdin: the write under way is cut off, the queue stays.
func (q *stdin) close() {
	q.mu.Lock()
	closed := q.closed
	q.closed = true
	q.mu.Unlock()
	if !closed {
		_ = q.f.Close() // a pipe holds nothing back that closing could fail to write
		q.signal()
	}
}

// wasPartly reports whether some, but not all, bytes of a command's line were
// written before stdin was closed.
func (q *stdin) wasPartly(id string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.partly[id]
}

// run writes whole lines in order until close.
func (q *stdin) run() {
	for {
		l, cause, ok := q.next()
		switch {
		case !ok:
			return
		case cause != "":
			q.heir.broke(l.id, protocol.OutcomeFailed, resultError(cause))
		default:
			q.write(l)
		}
		q.release(len(l.data))
	}
}

// next waits for a line; ok is false when stdin is closed.
func (q *stdin) next() (l inputLine, cause string, ok bool) {
	for {
		q.mu.Lock()
		switch {
		case q.closed:
			q.mu.Unlock()
			return inputLine{}, "", false
		case len(q.queue) > 0:
			l, cause = q.queue[0], q.cause
			q.queue[0] = inputLine{}
			q.queue = q.queue[1:]
			if len(q.queue) == 0 {
				q.queue = nil
			}
			q.mu.Unlock()
			return l, cause, true
		}
		q.mu.Unlock()
		<-q.wake
	}
}

// write writes one line and says how that ended. What close cut off is left to
// the run's end, which knows it by partly.
func (q *stdin) write(l inputLine) {
	n, err := q.f.Write(l.data)
	if err == nil {
		q.heir.wrote(l.id)
		return
	}
	q.mu.Lock()
	closed := q.closed
	if n > 0 {
		q.partly[l.id] = true
	}
	if !closed {
		q.cause = "stdin: " + causeOf(err)
	}
	cause := q.cause
	q.mu.Unlock()
	switch {
	case closed:
	case n > 0:
		q.heir.broke(l.id, protocol.OutcomeInterrupted, resultError(cause))
	default:
		q.heir.broke(l.id, protocol.OutcomeFailed, resultError(cause))
	}
}

func resultError(what string) protocol.RawJSON {
	return append(protocol.AppendString([]byte(`{"error":`), what), '}')
}
