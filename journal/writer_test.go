package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"rejoin/protocol"
)

func TestGroupCommit(t *testing.T) {
	f := newFakeLog()
	w := openFake(t, f, testConfig(1))
	f.gate, f.arrived = make(chan struct{}), make(chan struct{}, 16)
	first := put(t, w, `"alone"`)
	await(t, f.arrived) // in flight
	var rest []chan error
	for i := range 500 {
		rest = append(rest, put(t, w, fmt.Sprintf(`"%d"`, i)))
	}
	f.gate <- struct{}{}
	if err := await(t, first); err != nil {
		t.Fatal(err)
	}
	await(t, f.arrived)
	f.gate <- struct{}{}
	for _, c := range rest {
		if err := await(t, c); err != nil {
			t.Fatal(err)
		}
	}
	if len(f.attempts) != 3 {
		t.Errorf("%d publishes, want 3: first, alone, the 500 together", len(f.attempts))
	}
	if n := len(f.check(t)); n != 502 || w.Durable() != 502 || w.Head() != 502 {
		t.Errorf("%d events, durable %d, head %d; want 502", n, w.Durable(), w.Head())
	}
}

func TestRecordsAreCut(t *testing.T) {
	f := newFakeLog()
	w := openFake(t, f, testConfig(1))
	f.gate, f.arrived = make(chan struct{}), make(chan struct{}, 64)
	put(t, w, `"alone"`)
	await(t, f.arrived)
	for range 2500 {
		put(t, w, `"small"`)
	}
	big := `"` + strings.Repeat("x", 100<<10) + `"`
	for range 5 {
		put(t, w, big)
	}
	close(f.gate)
	if err := w.Flush(testContext(t)); err != nil {
		t.Fatal(err)
	}
	f.check(t)
	var counts []uint32
	for _, r := range f.recs {
		counts = append(counts, r.count)
		if r.count > 1 && len(r.lines) > protocol.RecordBytesMax {
			t.Errorf("record of %d events has %d bytes", r.count, len(r.lines))
		}
	}
	// 2500 small ones in 1024, 1024 and 452 with the two big ones that fit; two; one.
	if want := []uint32{1, 1, 1024, 1024, 454, 2, 1}; !slices.Equal(counts, want) {
		t.Errorf("events per record %v, want %v", counts, want)
	}
}

// A group shares one record, wherever the cut would fall.
func TestGroupIsNotCut(t *testing.T) {
	for _, before := range []int{0, 1, 1022, 1023, 1024} {
		t.Run(fmt.Sprint(before), func(t *testing.T) {
			f := newFakeLog()
			w := openFake(t, f, testConfig(1))
			f.gate, f.arrived = make(chan struct{}), make(chan struct{}, 64)
			put(t, w, `"alone"`)
			await(t, f.arrived) // in flight
			for range before {
				put(t, w, `"small"`)
			}
			var group []*protocol.Event
			for _, body := range []string{`"g1"`, `"` + strings.Repeat("x", 300<<10) + `"`, `"g3"`} {
				group = append(group, &protocol.Event{Source: protocol.SourceBroker, Body: []byte(body)})
			}
			told := make(chan error, 2)
			if err := w.AppendGroup(group, func(err error) { told <- err }); err != nil {
				t.Fatal(err)
			}
			put(t, w, `"after"`)
			close(f.gate)
			if err := w.Flush(testContext(t)); err != nil {
				t.Fatal(err)
			}
			if err := await(t, told); err != nil || len(told) > 0 {
				t.Errorf("told %v, and %d times more", err, len(told))
			}
			f.check(t)
			for _, r := range f.recs {
				n := strings.Count(string(r.lines), `"g1"`) + strings.Count(string(r.lines), `"g3"`)
				if n == 1 {
					t.Error("the group is in two records")
				}
			}
			if got := group[2].Seq; got != protocol.Seq(before)+5 {
				t.Errorf("seq %d of the last", got)
			}
		})
	}
}

func TestGroupsThatAreRefused(t *testing.T) {
	f := newFakeLog()
	w := openFake(t, f, testConfig(1))
	head := w.Head()
	ok := &protocol.Event{Body: []byte(`1`)}
	for _, group := range [][]*protocol.Event{
		{ok, {Body: []byte("1\n2")}},
		{ok, {Body: make([]byte, protocol.PartBytesMax)}},
	} {
		if err := w.AppendGroup(group, nil); err == nil {
			t.Error("taken")
		}
	}
	if w.Head() != head {
		t.Errorf("head %d, want %d: a part of a refused group was appended", w.Head(), head)
	}
}

// Proves I-J2: then is told success only after the record is stored, in order.
func TestThenAfterStore(t *testing.T) {
	f := newFakeLog()
	w := openFake(t, f, testConfig(1))
	f.faults = []fault{drop, loseAck, refuse, pass, doubt, loseAck, pass, drop}
	var mu sync.Mutex
	var told []protocol.Seq
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Add(1)
		var seq protocol.Seq
		mu.Lock() // told before seq is known otherwise
		seq, err := w.Append(&protocol.Event{Body: fmt.Appendf(nil, `"%d"`, i)}, func(err error) {
			defer wg.Done()
			mu.Lock()
			defer mu.Unlock()
			f.mu.Lock()
			stored := f.recs[len(f.recs)-1].Last()
			f.mu.Unlock()
			if err != nil || stored < seq {
				t.Errorf("event %d: %v, stored up to %d", seq, err, stored)
			}
			told = append(told, seq)
		})
		mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		if i%20 == 0 {
			if err := w.Flush(testContext(t)); err != nil {
				t.Fatal(err)
			}
		}
	}
	wg.Wait()
	if !slices.IsSorted(told) || len(told) != 200 {
		t.Errorf("%d told, sorted %v", len(told), slices.IsSorted(told))
	}
	if n := len(f.check(t)); n != 201 {
		t.Errorf("%d events stored, want 201", n)
	}
}

// A record of unknown outcome is retried byte for byte, whatever arrives
// meanwhile, and an event never lies in two records.
func TestRetryIsIdentical(t *testing.T) {
	for _, faults := range [][]fault{
		{drop, drop, drop}, {loseAck}, {drop, loseAck}, {refuse, refuse}, {doubt}, {loseAck, drop}, {doubt, drop, loseAck},
	} {
		t.Run(fmt.Sprintf("%d", faults), func(t *testing.T) {
			f := newFakeLog()
			w := openFake(t, f, testConfig(1))
			f.mu.Lock()
			f.attempts, f.faults = nil, slices.Clone(faults)
			f.mu.Unlock()
			f.before = func(n int) {
				if n < len(faults)+1 {
					put(t, w, fmt.Sprintf(`"meanwhile %d"`, n))
				}
			}
			if err := await(t, put(t, w, `"x"`)); err != nil {
				t.Fatal(err)
			}
			if err := w.Flush(testContext(t)); err != nil {
				t.Fatal(err)
			}
			f.check(t)
			f.mu.Lock()
			defer f.mu.Unlock()
			for i := range faults {
				if !bytes.Equal(f.attempts[0], f.attempts[i]) {
					t.Errorf("attempt %d differs from the first", i)
				}
			}
		})
	}
}

func TestParts(t *testing.T) {
	f := newFakeLog()
	w := openFake(t, f, testConfig(1))
	f.faults = []fault{pass, loseAck, pass, drop}
	big := `"` + strings.Repeat("0123456789abcdef", 9<<20/16) + `"`
	a, b, c := put(t, w, `"before"`), put(t, w, big), put(t, w, `"after"`)
	for _, ch := range []chan error{a, b, c} {
		if err := await(t, ch); err != nil {
			t.Fatal(err)
		}
	}
	bodies := f.check(t)
	if len(bodies) != 4 || string(bodies[2]) != big {
		t.Fatalf("%d events, or the big one differs", len(bodies))
	}
	if w.Durable() != 4 {
		t.Errorf("durable %d", w.Durable())
	}
}

func TestAppendRefuses(t *testing.T) {
	f := newFakeLog()
	w := openFake(t, f, testConfig(1))
	if _, err := w.Append(&protocol.Event{Body: []byte("1\n2")}, nil); err == nil {
		t.Error("a body with a line feed was taken")
	}
	if _, err := w.Append(&protocol.Event{Body: make([]byte, bodyBytesMax)}, nil); !errors.Is(err, ErrEventTooLarge) {
		t.Errorf("got %v, want ErrEventTooLarge", err)
	}
	if err := await(t, put(t, w, "1")); err != nil || w.Head() != 2 {
		t.Errorf("then: %v, head %d; a refused event must take no seq", err, w.Head())
	}
}

func TestWaitRoom(t *testing.T) {
	f := newFakeLog()
	w := openFake(t, f, testConfig(1))
	f.gate, f.arrived = make(chan struct{}), make(chan struct{}, 64)
	put(t, w, "1")
	await(t, f.arrived)
	kilo := `"` + strings.Repeat("x", 1000) + `"`
	n := 0
	for ctx := testContext(t); n < 1000; n++ {
		if w.backlogged() {
			break
		}
		if err := w.WaitRoom(ctx); err != nil {
			t.Fatal(err)
		}
		put(t, w, kilo)
	}
	if n < 200 || n > 260 {
		t.Fatalf("%d events of 1 KB before there was no room, want about 250", n)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.WaitRoom(ended); !errors.Is(err, context.Canceled) {
		t.Fatalf("no room: %v, want context.Canceled", err)
	}
	put(t, w, `"control"`) // never blocked
	room := make(chan error, 1)
	go func() { room <- w.WaitRoom(testContext(t)) }()
	f.gate <- struct{}{} // the next record takes the backlog
	await(t, f.arrived)
	if err := await(t, room); err != nil {
		t.Fatal(err)
	}
	close(f.gate)
}

// backlogged reports that WaitRoom would block.
func (w *Writer) backlogged() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.backlogBytes >= protocol.RecordBytesMax || w.backlogEvents >= protocol.RecordEventsMax
}

func TestStalled(t *testing.T) {
	f := newFakeLog()
	var now atomic.Int64
	f.now = func() time.Time { return time.Unix(1e9, now.Load()) }
	w := openFake(t, f, testConfig(1))
	f.gate, f.arrived = make(chan struct{}), make(chan struct{}, 4)
	if now.Add(int64(time.Minute)); w.Stalled() {
		t.Error("stalled while idle")
	}
	done := put(t, w, "1")
	await(t, f.arrived)
	if now.Add(int64(stalledAfter)); w.Stalled() {
		t.Error("stalled too early")
	}
	if now.Add(1); !w.Stalled() {
		t.Error("not stalled after 3 s")
	}
	f.gate <- struct{}{}
	if err := await(t, done); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(testContext(t)); err != nil || w.Stalled() {
		t.Errorf("after Close: %v, stalled %v", err, w.Stalled())
	}
}

func TestFailure(t *testing.T) {
	successor := func(t *testing.T, f *fakeLog) { t.Helper(); openFake(t, f, testConfig(2)) }
	for _, tc := range []struct {
		name    string
		deleted bool
		happens func(t *testing.T, f *fakeLog)
		want    error
	}{
		{"successor", false, successor, ErrFenced},
		{"log deleted", true, func(_ *testing.T, f *fakeLog) { f.truncate(len(f.recs)) }, ErrFenced},
		{"log lost", false, func(_ *testing.T, f *fakeLog) { f.truncate(len(f.recs)) }, ErrDamaged},
		{"rolled back", false, func(_ *testing.T, f *fakeLog) { f.truncate(1) }, ErrRolledBack},
		{"newest record damaged", false, func(_ *testing.T, f *fakeLog) {
			f.truncate(1)
			f.mu.Lock()
			defer f.mu.Unlock()
			f.lastErr = func() error { return damaged(errRecordCRC) }
		}, ErrDamaged},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFakeLog()
			cfg := testConfig(1)
			failed := make(chan error, 2)
			cfg.Failed = func(err error) { failed <- err }
			cfg.Deleted = func(context.Context) (bool, error) { return tc.deleted, nil }
			w := openFake(t, f, cfg)
			if err := await(t, put(t, w, "1")); err != nil {
				t.Fatal(err)
			}
			tc.happens(t, f)
			stored := len(f.recs)
			thens := []chan error{put(t, w, "2"), put(t, w, "3"), put(t, w, "4")}
			for _, c := range thens {
				if err := await(t, c); !errors.Is(err, tc.want) {
					t.Errorf("then: %v, want %v", err, tc.want)
				}
			}
			if err := await(t, failed); !errors.Is(err, tc.want) {
				t.Errorf("Failed: %v, want %v", err, tc.want)
			}
			if _, err := w.Append(&protocol.Event{Body: []byte("5")}, nil); !errors.Is(err, tc.want) {
				t.Errorf("Append: %v, want %v", err, tc.want)
			}
			for name, err := range map[string]error{
				"Flush": w.Flush(testContext(t)), "WaitRoom": w.WaitRoom(testContext(t)), "Close": w.Close(testContext(t)),
			} {
				if !errors.Is(err, tc.want) {
					t.Errorf("%s: %v, want %v", name, err, tc.want)
				}
			}
			if len(failed) != 0 || len(f.recs) != stored {
				t.Errorf("Failed called again (%d), or %d records written after the fence", len(failed), len(f.recs)-stored)
			}
		})
	}
}

func TestCloseCutShort(t *testing.T) {
	f := newFakeLog()
	cfg := testConfig(1)
	cfg.Failed = func(err error) { t.Errorf("Failed(%v) of a closed writer", err) }
	w := openFake(t, f, cfg)
	f.gate, f.arrived = make(chan struct{}), make(chan struct{}, 4)
	inFlight := put(t, w, "1")
	await(t, f.arrived)
	behind := put(t, w, "2")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Close(ctx); !errors.Is(err, ErrClosed) {
		t.Errorf("Close: %v, want ErrClosed", err)
	}
	for _, c := range []chan error{inFlight, behind} {
		if err := await(t, c); !errors.Is(err, ErrClosed) {
			t.Errorf("then: %v, want ErrClosed", err)
		}
	}
	if _, err := w.Append(&protocol.Event{Body: []byte("3")}, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("Append: %v, want ErrClosed", err)
	}
}

func TestCloseFlushes(t *testing.T) {
	f := newFakeLog()
	w := openFake(t, f, testConfig(1))
	f.faults = []fault{drop, loseAck}
	var last chan error
	for i := range 3000 {
		last = put(t, w, strconv.Itoa(i))
	}
	if err := w.Close(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if err := await(t, last); err != nil || len(f.check(t)) != 3001 {
		t.Errorf("last then %v, %d events", err, len(f.recs))
	}
	if err := w.Close(testContext(t)); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

// then may append: the session actor answers an event with another.
func TestAppendFromThen(t *testing.T) {
	f := newFakeLog()
	w := openFake(t, f, testConfig(1))
	done := make(chan error, 1)
	_, err := w.Append(&protocol.Event{Body: []byte("1")}, func(error) {
		if _, err := w.Append(&protocol.Event{Body: []byte("2")}, func(err error) { done <- err }); err != nil {
			done <- err
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := await(t, done); err != nil || len(f.check(t)) != 3 {
		t.Error(err)
	}
}

func BenchmarkAppendAllocations(b *testing.B) {
	f := newFakeLog()
	st := f.store()
	pos := uint64(0)
	st.publish = func(context.Context, string, []byte, uint64) (uint64, error) { pos++; return pos, nil }
	life, abort := context.WithCancel(context.Background())
	w, err := newWriter(st, testConfig(1), abort)
	if err != nil {
		b.Fatal(err)
	}
	if err := w.open(b.Context(), life, func() {}); err != nil {
		b.Fatal(err)
	}
	ctx := b.Context()
	e := &protocol.Event{Source: protocol.SourceChild, Body: []byte(`{"delta":"` + strings.Repeat("x", 230) + `"}`)}
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		if n%64 == 0 {
			if err := w.WaitRoom(ctx); err != nil {
				b.Fatal(err)
			}
		}
		if _, err := w.Append(e, nil); err != nil {
			b.Fatal(err)
		}
	}
	if err := w.Close(ctx); err != nil {
		b.Fatal(err)
	}
}
