package hub_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"rejoin/journal"
	"rejoin/protocol"
	"rejoin/tests/logs"
)

// Proves I-J2. The store refuses what does not fit; nobody ever sees it.
func TestNothingVisibleThatIsNotStored(t *testing.T) {
	n, err := journal.Start(logs.Context(t), journal.Config{
		Dir: t.TempDir(), Durability: journal.Durability{Interval: 500 * time.Millisecond}, Shards: 1, MaxBytes: 1 << 20,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := n.Close(logs.Context(t)); err != nil {
			t.Error(err)
		}
	}()
	ctx := logs.Context(t)
	l := logs.Of(n, "a")
	wr := logs.Open(t, n, logs.Begin(l, 1, logs.Epoch(0)))
	w := watch(t, n, l)
	body := make([]byte, 100<<10) // does not compress
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range body {
		body[i] = byte('a' + rnd.IntN(26))
	}
	body[0], body[len(body)-1] = '"', '"'
	look := func() (p journal.Position, tail journal.Tail) {
		t.Helper()
		p = w.Position()
		tail, err := n.Tail(ctx, l)
		if err != nil {
			t.Fatal(err)
		}
		if p.Head > tail.Head {
			t.Fatalf("the hub shows %d, the log ends at %d", p.Head, tail.Head)
		}
		return p, tail
	}
	for range 40 { // 4 MiB into 1 MiB
		if _, err := wr.Append(&protocol.Event{Source: protocol.SourceChild, Body: body}, nil); err != nil {
			t.Fatal(err)
		}
		look()
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !wr.Stalled() {
		look()
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("the writer does not stall on a full store")
		}
	}
	p, tail := look()
	if wr.Head() <= tail.Head || p.Head != tail.Head {
		t.Fatalf("written %d, stored %d, visible %d", wr.Head(), tail.Head, p.Head)
	}
	short, cancel := context.WithCancel(ctx)
	cancel()
	_ = wr.Close(short) // what does not fit stays unwritten
}

// stuck is a waker that stops the feeder of its shard until it is let go.
type stuck struct {
	once    sync.Once
	entered chan struct{}
	release chan struct{}
}

func (s *stuck) Wake() {
	s.once.Do(func() {
		close(s.entered)
		<-s.release
	})
}

// Proves I-J4. While the feeder is held up, far more live records come than it
// can hold; all readers get every event nevertheless.
func TestLostLiveRecordsAreFound(t *testing.T) {
	n := start(t)
	l := logs.Of(n, "a")
	wr := logs.Open(t, n, logs.Begin(l, 1, logs.Epoch(0)))
	w := watch(t, n, l)
	ctx := logs.Context(t)
	readers := make([]*reader, 20)
	for i := range readers {
		readers[i] = newReader(w, protocol.Cursor{Epoch: wr.Epoch()})
		defer readers[i].close()
	}
	for round := range 3 {
		s := &stuck{entered: make(chan struct{}), release: make(chan struct{})}
		w.Add(s)
		write(t, wr, 1, false)
		select {
		case <-s.entered:
		case <-ctx.Done():
			t.Fatal("never woken")
		}
		write(t, wr, 3000, false) // the channel holds 1,024
		w.Remove(s)
		close(s.release)
		if round == 2 {
			write(t, wr, 500, true)
		}
		var wg sync.WaitGroup
		for i, r := range readers {
			r.max = 100 << (i % 10)
			wg.Go(func() {
				if err := r.upTo(ctx, wr.Head()); err != nil {
					t.Errorf("reader %d: %v", i, err)
				}
			})
		}
		wg.Wait()
	}
}

// Proves I-J5. A reader that does not read delays nobody, costs a cursor, and
// gets everything when it comes back.
func TestSlowReader(t *testing.T) {
	n := start(t)
	l := logs.Of(n, "a")
	wr := logs.Open(t, n, logs.Begin(l, 1, logs.Epoch(0)))
	w := watch(t, n, l)
	ctx := logs.Context(t)
	slow, fast := newReader(w, protocol.Cursor{Epoch: wr.Epoch()}), newReader(w, protocol.Cursor{Epoch: wr.Epoch()})
	defer slow.close()
	defer fast.close()
	for range 20 {
		write(t, wr, 1000, true)
		if err := fast.upTo(ctx, wr.Head()); err != nil {
			t.Fatal(err)
		}
	}
	slow.max = 1 << 20
	if err := slow.upTo(ctx, wr.Head()); err != nil {
		t.Fatal(err)
	}
}

// Proves I-J2. What was acknowledged before a Sync is within its answer.
func TestSyncLinearises(t *testing.T) {
	n := start(t)
	ctx := logs.Context(t)
	var wg sync.WaitGroup
	for _, name := range []string{"a", "b", "c", "d"} {
		l := logs.Of(n, name)
		wr := logs.Open(t, n, logs.Begin(l, 1, logs.Epoch(0)))
		w := watch(t, n, l)
		wg.Go(func() {
			for range 300 {
				seq, err := wr.Append(event(wr.Head()+1), nil)
				if err == nil {
					err = wr.Flush(ctx)
				}
				if err != nil {
					t.Error(err)
					return
				}
				p, err := w.Sync(ctx)
				if err != nil || p.Head < seq {
					t.Errorf("acknowledged %d, Sync = %+v, %v", seq, p, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// Concurrent Watch and Release of one log neither fail nor leave anything.
func TestWatchReleaseStorm(t *testing.T) {
	n := start(t)
	l := logs.Of(n, "a")
	wr := logs.Open(t, n, logs.Begin(l, 1, logs.Epoch(0)))
	write(t, wr, 10, false)
	ctx := logs.Context(t)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 50 {
				w, err := n.Hub().Watch(ctx, l)
				if err != nil {
					t.Errorf("Watch: %v", err)
					return
				}
				r := newReader(w, protocol.Cursor{Epoch: wr.Epoch()})
				if err := r.upTo(ctx, 11); err != nil {
					t.Error(err)
				}
				r.close()
				w.Release()
			}
		})
	}
	wg.Wait()
}

func TestCloseEndsWatches(t *testing.T) {
	n := start(t)
	l := logs.Of(n, "a")
	wr := logs.Open(t, n, logs.Begin(l, 1, logs.Epoch(0)))
	write(t, wr, 10, false)
	w, err := n.Hub().Watch(logs.Context(t), l)
	if err != nil {
		t.Fatal(err)
	}
	r := newReader(w, protocol.Cursor{Epoch: wr.Epoch()})
	h := n.Hub()
	if err := wr.Close(logs.Context(t)); err != nil {
		t.Fatal(err)
	}
	if err := n.Close(logs.Context(t)); err != nil {
		t.Fatal(err)
	}
	select {
	case <-r.bell:
	case <-logs.Context(t).Done():
		t.Fatal("not woken by Close")
	}
	if _, err := h.Watch(logs.Context(t), l); !errors.Is(err, journal.ErrClosed) {
		t.Errorf("Watch after Close: %v", err)
	}
	if _, err := w.Sync(logs.Context(t)); err == nil {
		t.Error("Sync after Close succeeded")
	}
	r.close()
	w.Release()
}

// Two hundred that come at once, while events are acknowledged, ask the leader a
// few times together, and each finds everything that was acknowledged before it came.
func TestSubscribersShareQuestions(t *testing.T) {
	const clients, rounds = 200, 5
	n := start(t)
	l := logs.Of(n, "s")
	w := logs.Open(t, n, logs.Begin(l, 1, logs.Epoch(1)))
	keep, err := n.Hub().Watch(logs.Context(t), l)
	if err != nil {
		t.Fatal(err)
	}
	defer keep.Release()
	before := n.Stats().HubAsked
	ctx := logs.Context(t)
	var durable atomic.Uint64
	for range rounds {
		var wg sync.WaitGroup
		begin := make(chan struct{})
		for range clients {
			wg.Go(func() {
				<-begin
				acked := protocol.Seq(durable.Load())
				watch, err := n.Hub().Watch(ctx, l)
				if err != nil {
					t.Error(err)
					return
				}
				defer watch.Release()
				if at, err := watch.Sync(ctx); err != nil || at.Head < acked {
					t.Errorf("synced to %d, %v; %d was acknowledged before", at.Head, err, acked)
				}
			})
		}
		close(begin)
		for range 3 {
			write(t, w, 1, false)
			durable.Store(uint64(w.Head()))
		}
		wg.Wait()
	}
	asked := n.Stats().HubAsked - before
	t.Logf("%d questions of %d", asked, clients*rounds)
	if asked == 0 || asked > clients*rounds/4 {
		t.Errorf("%d questions of %d clients", asked, clients*rounds)
	}
}
