package logqueue

import (
	"bytes"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"rejoin/protocol"
)

const spareBytes = 64 << 10 // of a buffer that is kept while nothing waits

// Config of a Queue.
type Config struct {
	To     io.Writer           // required
	Bytes  int                 // that may wait; zero means protocol.LogBytesQueued
	Missed func(uint64) []byte // required: the line, with its LF, that says how many lines were left out
}

// A Queue is a log that takes whole lines and never blocks. It is safe for
// concurrent use.
type Queue struct {
	cfg  Config
	lost atomic.Uint64 // lines, in all
	done chan struct{} // closed when the goroutine has ended

	mu      sync.Mutex
	changed sync.Cond
	waiting []byte // whole lines
	writing int    // bytes that are on their way
	full    bool   // lines are left out until everything before them is written
	missed  uint64 // lines that were, and that nothing behind waiting says yet
	closed  bool
}

// Open returns a queue whose lines are written to cfg.To until Close.
func Open(cfg Config) *Queue {
	if cfg.Bytes == 0 {
		cfg.Bytes = protocol.LogBytesQueued
	}
	q := &Queue{cfg: cfg, done: make(chan struct{})}
	q.changed.L = &q.mu
	go q.run()
	return q
}

// Write takes whole lines, or leaves them out. It neither waits nor fails, and does
// not keep p.
func (q *Queue) Write(p []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.full || q.closed || q.writing+len(q.waiting)+len(p) > q.cfg.Bytes {
		q.full = true
		n := countLines(p)
		q.missed += n
		q.lost.Add(n)
	} else {
		q.waiting = append(q.waiting, p...)
	}
	q.changed.Signal()
	return len(p), nil
}

// Lost is how many lines the log lacks.
func (q *Queue) Lost() uint64 { return q.lost.Load() }

// Close has what waits written, for at most that long, and returns whether all of it
// is. What is logged later is left out. A write that hangs can be ended by nobody: it
// ends with the process.
func (q *Queue) Close(within time.Duration) bool {
	q.mu.Lock()
	q.closed = true
	q.changed.Signal()
	q.mu.Unlock()
	t := time.NewTimer(within)
	defer t.Stop()
	select {
	case <-q.done:
		return true
	case <-t.C:
		return false
	}
}

// run writes what comes until Close.
func (q *Queue) run() {
	defer close(q.done)
	p := pen{cfg: q.cfg, lost: &q.lost}
	for more := true; more; {
		var lines []byte
		var missed uint64
		lines, missed, more = q.next()
		p.missed += missed
		p.put(lines)
		q.written(lines)
	}
}

// next waits for lines, or without any for the number of those that were left out
// behind the last ones. That is the end of a queue that is closed, however much is
// logged meanwhile.
func (q *Queue) next() (lines []byte, missed uint64, more bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.waiting) == 0 && q.missed == 0 && !q.closed {
		q.changed.Wait()
	}
	if len(q.waiting) > 0 {
		lines, q.waiting, q.writing = q.waiting, nil, len(q.waiting)
		return lines, 0, true
	}
	missed, q.missed, q.full = q.missed, 0, false
	return nil, missed, !q.closed
}

// written gives the buffer back.
func (q *Queue) written(b []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.writing = 0
	if q.waiting == nil && cap(b) <= spareBytes {
		q.waiting = b[:0]
	}
}

// pen is the goroutine's: it writes, and knows what the log lacks.
type pen struct {
	cfg    Config
	lost   *atomic.Uint64
	missed uint64 // lines that the log does not say it lacks
	torn   bool   // the last line lacks its end
}

// put writes whole lines behind one that says what is missing before them.
func (p *pen) put(lines []byte) {
	var n int
	var err error
	if p.missed > 0 {
		if _, err = p.write(p.cfg.Missed(p.missed)); err == nil {
			p.missed = 0
		}
	}
	if err == nil {
		n, err = p.write(lines)
	}
	if err != nil {
		failed := countLines(lines[n:])
		p.missed += failed
		p.lost.Add(failed)
	}
}

// write writes whole lines, on a line of their own.
func (p *pen) write(b []byte) (n int, err error) {
	if p.torn {
		if _, err := p.cfg.To.Write([]byte{'\n'}); err != nil {
			return 0, err
		}
		p.torn = false
	}
	if len(b) == 0 {
		return 0, nil
	}
	n, err = p.cfg.To.Write(b)
	p.torn = n > 0 && b[n-1] != '\n'
	return n, err
}

func countLines(p []byte) uint64 { return uint64(bytes.Count(p, []byte{'\n'})) }
