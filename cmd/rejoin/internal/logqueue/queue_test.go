package logqueue

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"rejoin/protocol"
)

// gate is a log whose reader stops: while it is shut, a write waits.
type gate struct {
	mu   sync.Mutex
	open *sync.Cond
	shut bool
	b    bytes.Buffer
}

func newGate() *gate {
	g := &gate{}
	g.open = sync.NewCond(&g.mu)
	return g
}

func (g *gate) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.shut {
		g.open.Wait()
	}
	return g.b.Write(p)
}

func (g *gate) set(shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = shut
	g.open.Broadcast()
}

func (g *gate) String() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.b.String()
}

func missed(n uint64) []byte { return fmt.Appendf(nil, "%d missing\n", n) }

func line(i int) string { return fmt.Sprintf("line %06d\n", i) }

func log(t *testing.T, q *Queue, lines ...string) {
	t.Helper()
	for _, l := range lines {
		if n, err := q.Write([]byte(l)); n != len(l) || err != nil {
			t.Fatalf("%q: %d, %v", l, n, err)
		}
	}
}

// Nobody who logs waits for a log that nobody reads; what is left out is counted,
// and told in its place when the log is read again.
func TestLogBytesQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		g.set(true)
		q := Open(Config{To: g, Missed: missed})
		fit := protocol.LogBytesQueued / len(line(0))
		var before strings.Builder
		for i := range fit {
			log(t, q, line(i))
			before.WriteString(line(i))
		}
		synctest.Wait() // the first ones are on their way, and count
		if q.Lost() != 0 {
			t.Errorf("%d are lost below the limit", q.Lost())
		}
		log(t, q, line(fit), "x\n", line(fit))
		if q.Lost() != 3 {
			t.Errorf("%d are lost, want 3: one that would fit, but behind others that are", q.Lost())
		}
		g.set(false)
		synctest.Wait()
		log(t, q, "again\n")
		if !q.Close(time.Second) {
			t.Error("it does not end")
		}
		if want := before.String() + "3 missing\nagain\n"; g.String() != want {
			t.Errorf("the log is not what it should be from %.200q on", g.String()[min(len(g.String()), fit*len(line(0))):])
		}
		if q.Lost() != 3 {
			t.Errorf("%d are lost", q.Lost())
		}
	})
}

// Lines of several loggers stay whole and each logger's in order.
func TestOrder(t *testing.T) {
	const loggers, each = 4, 2000
	g := newGate()
	q := Open(Config{To: g, Missed: missed})
	var wg sync.WaitGroup
	for who := range loggers {
		wg.Go(func() {
			for i := range each {
				_, _ = fmt.Fprintf(q, "%d %d\n", who, i) // it never fails
			}
		})
	}
	wg.Wait()
	if !q.Close(time.Minute) || q.Lost() != 0 {
		t.Fatalf("%d are lost", q.Lost())
	}
	var next [loggers]int
	for l := range bytes.Lines(g.b.Bytes()) {
		var who, i int
		if _, err := fmt.Sscanf(string(l), "%d %d\n", &who, &i); err != nil || i != next[who] {
			t.Fatalf("%q where %d follows: %v", l, next[who], err)
		}
		next[who]++
	}
	for who, n := range next {
		if n != each {
			t.Errorf("logger %d has %d lines", who, n)
		}
	}
}

// A log that ends within a bound, whatever its reader does.
func TestCloseOfALogThatNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		g.set(true)
		q := Open(Config{To: g, Missed: missed})
		log(t, q, line(1))
		began := time.Now()
		if q.Close(time.Second) || time.Since(began) != time.Second {
			t.Errorf("it ended after %v", time.Since(began))
		}
		log(t, q, line(2)) // too late
		if q.Lost() != 1 {
			t.Errorf("%d are lost", q.Lost())
		}
		g.set(false)
		if !q.Close(time.Second) {
			t.Error("it does not end")
		}
		if want := line(1) + "1 missing\n"; g.String() != want {
			t.Errorf("the log has %q", g)
		}
	})
}

// echo is a log whose every line has something logged, until it is quiet.
type echo struct {
	q     *Queue
	quiet atomic.Bool
	wrote atomic.Int64
}

func (e *echo) Write(p []byte) (int, error) {
	if !e.quiet.Load() {
		_, _ = e.q.Write([]byte("more\n")) // it never fails
	}
	e.wrote.Add(1)
	return len(p), nil
}

// A queue that is closed ends, however much is logged.
func TestCloseWhileSomethingLogsWithoutEnd(t *testing.T) {
	e := &echo{}
	defer e.quiet.Store(true)
	e.q = Open(Config{To: e, Missed: missed})
	log(t, e.q, line(1))
	if !e.q.Close(time.Second) {
		t.Errorf("it goes on: %d writes", e.wrote.Load())
	}
}

// disk fails as it is told.
type disk struct {
	b    bytes.Buffer
	room int // bytes; negative: any number
}

var errFull = errors.New("full")

func (d *disk) Write(p []byte) (int, error) {
	if d.room < 0 || len(p) <= d.room {
		d.room -= min(len(p), max(d.room, 0))
		return d.b.Write(p)
	}
	n, _ := d.b.Write(p[:d.room])
	d.room = 0
	return n, errFull
}

// What a full disk did not take is told before what it takes again, on a line of
// its own.
func TestLogThatCannotBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{room: 6}
		q := Open(Config{To: d, Missed: missed})
		log(t, q, "one\n")
		synctest.Wait()
		log(t, q, "two\n") // torn
		synctest.Wait()
		log(t, q, "three\n")
		synctest.Wait()
		if q.Lost() != 2 || d.b.String() != "one\ntw" {
			t.Fatalf("%d are lost; the disk has %q", q.Lost(), &d.b)
		}
		d.room = -1
		log(t, q, "four\n")
		synctest.Wait()
		log(t, q, "five\n")
		if !q.Close(time.Second) {
			t.Error("it does not end")
		}
		if want := "one\ntw\n2 missing\nfour\nfive\n"; d.b.String() != want || q.Lost() != 2 {
			t.Errorf("%d are lost; the disk has %q, want %q", q.Lost(), &d.b, want)
		}
	})
}
