package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"rejoin/protocol"
)

// errLost is what a publisher sees of a request without an answer.
var errLost = errors.New("timeout")

// A fault is what happens to one publish.
type fault uint8

const (
	pass    fault = iota
	drop          // never arrives: the outcome is unknown
	loseAck       // is stored, the acknowledgement gets lost
	refuse        // the server is full
	doubt         // "wrong last sequence" though nothing is wrong
)

// fakeLog is the stream of one log with compare-and-set as the server does it,
// and faults before it.
type fakeLog struct {
	mu       sync.Mutex
	recs     []*Record
	pos      uint64
	attempts [][]byte         // every publish's bytes
	faults   []fault          // of the next publishes; then pass
	before   func(n int)      // called without mu before publish n (from 0)
	lastErr  func() error     // of reading the newest record
	gate     chan struct{}    // not nil: each publish takes one
	arrived  chan struct{}    // not nil: gets one per publish, before the gate
	now      func() time.Time // of the writer
	keep     time.Duration    // how long the writer retains a record
}

func newFakeLog() *fakeLog { return &fakeLog{now: time.Now, keep: time.Hour} }

func (f *fakeLog) store() store {
	return store{publish: f.publish, last: f.last, noted: func(Log, protocol.Seq, uint64) {}, turn: newTurnstile(turnsPerShard), gate: &gate{disk: newDiskGate(), quota: 1 << 40, soon: func() {}}, clock: func() time.Time { return f.now() }, keep: f.keep, log: slog.New(slog.DiscardHandler)}
}

func (f *fakeLog) publish(ctx context.Context, _ string, data []byte, expect uint64) (uint64, error) {
	f.mu.Lock()
	n := len(f.attempts)
	f.attempts = append(f.attempts, bytes.Clone(data))
	kind := pass
	if len(f.faults) > 0 {
		kind, f.faults = f.faults[0], f.faults[1:]
	}
	f.mu.Unlock()
	if f.before != nil {
		f.before(n)
	}
	if f.arrived != nil {
		f.arrived <- struct{}{}
	}
	if f.gate != nil {
		select {
		case <-f.gate:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	switch kind {
	case drop:
		return 0, errLost
	case refuse:
		return 0, &apiError{Code: 503, ErrCode: 10077, Description: "maximum bytes exceeded"}
	case doubt:
		return 0, &apiError{Code: 400, ErrCode: apiWrongLast, Description: "wrong last sequence"}
	case pass, loseAck:
	}
	pos, err := f.put(data, expect)
	if err == nil && kind == loseAck {
		return 0, errLost
	}
	return pos, err
}

// put stores data if expect is the newest position.
func (f *fakeLog) put(data []byte, expect uint64) (uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	newest := uint64(0)
	if len(f.recs) > 0 {
		newest = f.recs[len(f.recs)-1].pos
	}
	if newest != expect {
		return 0, &apiError{Code: 400, ErrCode: apiWrongLast, Description: fmt.Sprintf("wrong last sequence: %d", newest)}
	}
	f.pos += 3 // positions of one log have holes: the stream has other logs too
	rec, err := decodeStored(bytes.Clone(data), f.pos)
	if err != nil {
		return 0, err
	}
	f.recs = append(f.recs, rec)
	return f.pos, nil
}

func (f *fakeLog) last(context.Context, Log) (lastRecord, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lastErr != nil {
		if err := f.lastErr(); err != nil {
			return lastRecord{}, err
		}
	}
	if len(f.recs) == 0 {
		return lastRecord{}, nil
	}
	return lastRecord{rec: f.recs[len(f.recs)-1]}, nil
}

// truncate forgets the newest n records.
func (f *fakeLog) truncate(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.recs = f.recs[:len(f.recs)-n]
}

// check verifies what is stored: chain, density from 1, one record or set of
// parts per event; it returns the bodies.
func (f *fakeLog) check(t *testing.T) [][]byte {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	var bodies [][]byte
	var set []*Record
	var prev chainHash
	next := protocol.Seq(1)
	for _, r := range f.recs {
		if r.prev != prev {
			t.Fatalf("record at %d breaks the chain", r.base)
		}
		prev = r.sum
		if !r.whole() {
			if set = append(set, r); !r.complete() {
				continue
			}
			var err error
			if r, err = joinParts(set); err != nil {
				t.Fatal(err)
			}
			set = nil
		}
		if r.base != next {
			t.Fatalf("record begins at %d, want %d", r.base, next)
		}
		for i := range r.Len() {
			e, err := protocol.ParseEventLine(r.Line(i))
			if err != nil {
				t.Fatal(err)
			}
			if e.Seq != next || e.Run != r.run {
				t.Fatalf("event %d of run %d where %d of run %d belongs", e.Seq, e.Run, next, r.run)
			}
			next++
			bodies = append(bodies, bytes.Clone(e.Body))
		}
	}
	return bodies
}

var testLog = Log{Key: protocol.Key{Workspace: "default", Session: "s1"}}

const logEpoch = protocol.Epoch("01ARZ3NDEKTSV4RRFFQ69G5FAV")

// testConfig opens a new log with one event.
func testConfig(run protocol.Run) WriterConfig {
	return WriterConfig{
		Log: testLog, Run: run, Epoch: logEpoch,
		First: func(context.Context, Tail, protocol.Seq) ([]*protocol.Event, error) {
			return []*protocol.Event{{Source: protocol.SourceBroker, Body: []byte(`"first"`)}}, nil
		},
		Deleted: func(context.Context) (bool, error) { return false, nil },
	}
}

func testContext(tb testing.TB) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 20*time.Second)
	tb.Cleanup(cancel)
	return ctx
}

// startNode starts a server of its own for the test, with one shard.
func startNode(ctx context.Context, tb testing.TB) *Node {
	tb.Helper()
	n, err := Start(ctx, Config{Dir: tb.TempDir(), Durability: Durability{Interval: time.Second}, Shards: 1, MaxBytes: 64 << 20})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := n.Close(context.WithoutCancel(ctx)); err != nil {
			tb.Error(err)
		}
	})
	return n
}

// tryOpen opens a writer on f.
func tryOpen(tb testing.TB, f *fakeLog, cfg WriterConfig) (*Writer, error) {
	tb.Helper()
	life, abort := context.WithCancel(context.Background())
	w, err := newWriter(f.store(), cfg, abort)
	if err != nil {
		abort()
		tb.Fatal(err)
	}
	if err := w.open(testContext(tb), life, func() {}); err != nil {
		return nil, err
	}
	tb.Cleanup(func() {
		w.abort()
		<-w.done
	})
	return w, nil
}

func openFake(tb testing.TB, f *fakeLog, cfg WriterConfig) *Writer {
	tb.Helper()
	w, err := tryOpen(tb, f, cfg)
	if err != nil {
		tb.Fatalf("open: %v", err)
	}
	return w
}

// put appends one event with body and returns its outcome's channel.
func put(tb testing.TB, w *Writer, body string) chan error {
	tb.Helper()
	done := make(chan error, 1)
	if _, err := w.Append(&protocol.Event{Body: []byte(body)}, func(err error) { done <- err }); err != nil {
		tb.Fatalf("Append: %v", err)
	}
	return done
}

// await receives from c within the test's patience.
func await[T any](tb testing.TB, c <-chan T) T {
	tb.Helper()
	select {
	case v := <-c:
		return v
	case <-testContext(tb).Done():
		tb.Fatal("nothing came")
	}
	panic("unreachable")
}
