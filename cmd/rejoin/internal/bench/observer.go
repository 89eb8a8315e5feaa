package bench

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// An Observer is one subscription to a stream and what it has seen. It lives over
// several connections; the one that it has is read by one goroutine.
type Observer struct {
	size  int
	Timed *Histogram // of the lines' times; nil: not wanted
	Late  *Histogram // the same of the later half of a row: lines after Half
	Half  int64
	slow  *brake // nil: reads as fast as it can

	// The reader's.
	last  int64 // number of the newest line
	lines int64 // how many came
	seq   uint64
	epoch string
	hash  hash.Hash
	got   int64 // lines since the last flush
	now   time.Time
	fault error // the first thing that was not as it must be

	seen  atomic.Int64 // last, for others
	goal  atomic.Pointer[goal]
	total *atomic.Int64   // lines of all observers of the stream
	wake  chan<- struct{} // of its publisher

	conn net.Conn
	done chan struct{} // closed when the reader has ended
}

// goal is a number of a line that somebody waits for.
type goal struct {
	n       int64
	once    sync.Once
	at      time.Time
	reached chan struct{}
}

// NewObserver is one that has seen nothing of a stream of lines of so many bytes.
func NewObserver(size int) *Observer { return &Observer{size: size, hash: sha256.New()} }

// Faults of what an observer gets.
var (
	errGap   = errors.New("bench: lines are missing")
	errTwice = errors.New("bench: a line came twice")
	errForm  = errors.New("bench: a line is not as it was printed")
	errSeq   = errors.New("bench: seqs are not dense")
	errEpoch = errors.New("bench: the epoch changed")
)

func (o *Observer) blame(err error) {
	if o.fault == nil {
		o.fault = err
	}
}

// line takes the bytes of one line.
func (o *Observer) line(b []byte) {
	if len(b) != o.size || string(b[:numberAt]) != lineStart {
		o.blame(errForm)
		return
	}
	n := parseDigits(b[numberAt : numberAt+numberDigits])
	switch {
	case n > o.last+1:
		o.blame(fmt.Errorf("%w: %d to %d", errGap, o.last+1, n-1))
	case n <= o.last:
		o.blame(fmt.Errorf("%w: %d after %d", errTwice, n, o.last))
	}
	o.last = n
	o.lines++
	o.hash.Write(b)
	o.got++
	if o.Timed == nil {
		return
	}
	if at := parseDigits(b[timeAt : timeAt+timeDigits]); at > 0 {
		d := time.Duration(o.now.UnixNano() - at)
		o.Timed.add(d)
		if o.Late != nil && n > o.Half {
			o.Late.add(d)
		}
	}
}

// flush tells the others what was seen.
func (o *Observer) flush() {
	if o.got == 0 {
		return
	}
	o.seen.Store(o.last)
	if o.total != nil {
		o.total.Add(o.got)
		select {
		case o.wake <- struct{}{}:
		default:
		}
	}
	o.got = 0
	o.meet(o.goal.Load())
}

func (o *Observer) meet(g *goal) {
	if g != nil && o.seen.Load() >= g.n {
		g.once.Do(func() {
			g.at = time.Now()
			close(g.reached)
		})
	}
}

// reach returns the goal of having seen line n; one at a time.
func (o *Observer) reach(n int64) *goal {
	g := &goal{n: n, reached: make(chan struct{})}
	o.goal.Store(g)
	o.meet(g)
	return g
}

// Follow reads conn until it ends. first was read already; take is told what has
// come and returns how much of it it used.
func (o *Observer) Follow(conn net.Conn, bufferBytes int, first []byte, take func([]byte) (int, error)) {
	o.conn, o.done = conn, make(chan struct{})
	go func() {
		defer close(o.done)
		err := pump(conn, bufferBytes, first, o.slow, func(b []byte, now time.Time) (int, error) {
			o.now = now
			n, err := take(b)
			o.flush()
			return n, err
		})
		if err != nil {
			o.blame(err)
		}
	}()
}

// Scan finds lines in the bytes of any protocol that carries them unchanged.
func (o *Observer) Scan(b []byte) (int, error) {
	used := 0
	for {
		i := bytes.Index(b[used:], []byte(lineStart))
		if i < 0 {
			return max(used, len(b)-len(lineStart)+1), nil
		}
		used += i
		if len(b)-used < o.size {
			return used, nil
		}
		o.line(b[used : used+o.size])
		used += o.size
	}
}

// Seen is the number of the newest line.
func (o *Observer) Seen() int64 { return o.seen.Load() }

// Leave closes the connection and waits for the reader.
func (o *Observer) Leave() {
	if o.conn == nil {
		return
	}
	_ = o.conn.Close() // whatever was sent and not read is asked for again
	<-o.done
	o.conn = nil
}

// A Tally counts what a row has compared, and what it had to ask again.
type Tally struct {
	subscriptions, lines, states, retries atomic.Int64
}

// Checked is what was counted so far.
func (t *Tally) Checked() Checked {
	return Checked{t.subscriptions.Load(), t.lines.Load(), t.states.Load(), t.retries.Load()}
}

type tallyKey struct{}

// WithTally has every Check under the context counted in t.
func WithTally(ctx context.Context, t *Tally) context.Context {
	return context.WithValue(ctx, tallyKey{}, t)
}

// tally of a context, or one that nobody looks at.
func tally(ctx context.Context) *Tally {
	if t, ok := ctx.Value(tallyKey{}).(*Tally); ok {
		return t
	}
	return new(Tally)
}

// Check compares what was seen with what was printed. The reader has ended.
func (o *Observer) Check(ctx context.Context, want Digest) error {
	t := tally(ctx)
	t.subscriptions.Add(1)
	t.lines.Add(o.lines)
	got := Digest{o.last, hex.EncodeToString(o.hash.Sum(nil))}
	switch {
	case o.fault != nil:
		return o.fault
	case got.Lines != want.Lines:
		return fmt.Errorf("%w: %d of %d came", errGap, got.Lines, want.Lines)
	case got.Sum != want.Sum:
		return fmt.Errorf("%w: SHA-256 of %d lines", errForm, got.Lines)
	}
	return nil
}

// brake makes a reader slow: so many bytes per tick until it is released.
type brake struct {
	bytes int
	tick  time.Duration
	off   chan struct{}
}

func newBrake(bytesPerSecond int) *brake {
	const ticks = 10
	return &brake{bytesPerSecond / ticks, time.Second / ticks, make(chan struct{})}
}

// wait returns how much may be read now.
func (b *brake) wait(room int) int {
	if b == nil {
		return room
	}
	t := time.NewTimer(b.tick)
	defer t.Stop()
	select {
	case <-b.off:
		return room
	case <-t.C:
		return min(room, b.bytes)
	}
}

// pump reads conn into take until it ends, which is no error.
func pump(conn io.Reader, bufferBytes int, first []byte, slow *brake, take func([]byte, time.Time) (int, error)) error {
	buf := make([]byte, max(bufferBytes, 2*len(first)))
	have := copy(buf, first)
	for {
		used, err := take(buf[:have], time.Now())
		if err != nil {
			return err
		}
		have = copy(buf, buf[used:have])
		if have == len(buf) {
			buf = append(buf, make([]byte, len(buf))...)
		}
		n, err := conn.Read(buf[have : have+slow.wait(len(buf)-have)])
		have += n
		if err != nil {
			if n > 0 {
				_, err = take(buf[:have], time.Now())
				return err
			}
			return nil // whether everything has come is seen by the digest
		}
	}
}
