package journal

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"rejoin/protocol"
)

// fed is a hub whose feeder runs on the clock of a bubble, with one watch.
type fed struct {
	hub  *Hub
	w    *Watch
	shed *shardFeed
	head *Record
	seq  protocol.Seq
	bell atomic.Int64
	done chan struct{}
}

// Wake counts.
func (f *fed) Wake() { f.bell.Add(1) }

func feed(t *testing.T) *fed {
	t.Helper()
	f := &fed{shed: newShardFeed(0), seq: 1, done: make(chan struct{})}
	f.hub = newStillHub(t.Context(), &modelLog{}, hubBytes, time.Now, slog.New(slog.DiscardHandler))
	w, err := f.hub.Watch(t.Context(), Log{Key: protocol.Key{Workspace: "w", Session: "s"}})
	if err != nil {
		t.Fatal(err)
	}
	f.w = w
	w.Add(f)
	go func() {
		defer close(f.done)
		f.hub.feedLoop(f.shed)
	}()
	return f
}

func (f *fed) end() {
	f.w.Remove(f)
	f.w.Release()
	f.hub.stop()
	<-f.done
}

// event hands one live record to the feeder and waits until it has been applied.
func (f *fed) event(t *testing.T) {
	t.Helper()
	h := header{epoch: testEpoch(1), run: 1, base: f.seq, count: 1, part: 1, parts: 1}
	if f.head != nil {
		h.prev = f.head.sum
	}
	data := appendRecord(nil, &h, fmt.Appendf(nil, "\"seq\":%d\n", f.seq))
	rec, err := decodeStored(data, uint64(f.seq))
	if err != nil {
		t.Fatal(err)
	}
	f.head = rec
	f.shed.ch <- &nats.Msg{Subject: f.w.subject, Data: data}
	synctest.Wait()
	if at := f.w.Position().Head; at != f.seq {
		t.Fatalf("the head is at %d, want %d", at, f.seq)
	}
	f.seq++
}

// after lets d pass and reports how many wakes there have been.
func (f *fed) after(d time.Duration) int64 {
	<-time.After(d)
	synctest.Wait()
	return f.bell.Load()
}

// The first event after a silence wakes at once; those that follow within
// GatherWaitMax wake together when it has passed. What has been applied can be
// pulled meanwhile.
func TestWakesAreGathered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const step = protocol.GatherWaitMax / 4
		f := feed(t)
		defer f.end()
		var got []int64
		for range 8 { // at 0, ¼, ½ … 1¾
			f.event(t)
			got = append(got, f.bell.Load())
			f.after(step)
		}
		// The fifth comes as the wait ends: it wakes by itself, or finds them woken.
		if want := []int64{1, 1, 1, 1}; !slices.Equal(got[:4], want) || got[7] != got[4] || got[4] < 2 || got[4] > 3 {
			t.Errorf("wakes after each event: %v", got)
		}
		if n := f.after(protocol.GatherWaitMax); n < 3 || n > 4 {
			t.Errorf("%d wakes in all for 8 events in twice the wait", n)
		}
		if _, last, st := f.w.Pull(nil, nil, protocol.Cursor{}, 0, 1<<20, 0); last != 8 || st != PullIdle {
			t.Errorf("pulled to %d, status %d", last, st)
		}
		quiet := f.bell.Load()
		f.after(10 * protocol.GatherWaitMax)
		if n := f.bell.Load(); n != quiet {
			t.Errorf("%d wakes for nothing", n-quiet)
		}
	})
}

// Events that come less often than that are never held.
func TestSlowEventsAreNotHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := feed(t)
		defer f.end()
		for i := range int64(20) {
			f.event(t)
			if n := f.bell.Load(); n != i+1 {
				t.Fatalf("%d wakes after %d events", n, i+1)
			}
			f.after(protocol.GatherWaitMax)
		}
		if n := f.hub.held.Load(); n != 0 {
			t.Errorf("%d were held", n)
		}
	})
}

// A held wake comes exactly when the wait has passed since the last one, and is counted.
func TestHeldWakeComesInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := feed(t)
		defer f.end()
		f.event(t)
		const early = protocol.GatherWaitMax / 3
		f.after(early)
		f.event(t)
		if n := f.after(protocol.GatherWaitMax - early - 1); n != 1 || f.hub.held.Load() != 1 {
			t.Errorf("%d wakes, %d held, just before the wait is over", n, f.hub.held.Load())
		}
		if n := f.after(1); n != 2 {
			t.Errorf("%d wakes when it is over", n)
		}
	})
}

// A watch that ends while its wake is held harms nobody, and another one of the same
// shard, woken together with it, is.
func TestHeldWatchEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGathering(func() {})
		defer g.disarm()
		h := newStillHub(t.Context(), &modelLog{}, hubBytes, time.Now, slog.New(slog.DiscardHandler))
		var ws []*Watch
		var bells []*countingWaker
		for i := range 3 {
			w, err := h.Watch(context.Background(), Log{Key: protocol.Key{Workspace: "w", Session: fmt.Sprint(i)}})
			if err != nil {
				t.Fatal(err)
			}
			b := new(countingWaker)
			w.Add(b)
			ws, bells = append(ws, w), append(bells, b)
		}
		g.take([]*Watch{ws[0], ws[1], ws[0]}, time.Now())
		<-time.After(protocol.GatherWaitMax / 2)
		g.take([]*Watch{ws[1], ws[0], ws[2], ws[1]}, time.Now())
		if bells[0].woken != 1 || bells[1].woken != 1 || bells[2].woken != 1 || len(g.held) != 2 {
			t.Fatalf("woken %d, %d, %d; %d are held", bells[0].woken, bells[1].woken, bells[2].woken, len(g.held))
		}
		ws[0].Remove(bells[0])
		ws[0].Release()
		g.release(<-g.clock.C)
		if bells[0].woken != 1 || bells[1].woken != 2 || bells[2].woken != 1 || len(g.held) != 0 {
			t.Errorf("woken %d, %d, %d; %d are held", bells[0].woken, bells[1].woken, bells[2].woken, len(g.held))
		}
		for i, w := range ws[1:] {
			w.Remove(bells[i+1])
			w.Release()
		}
		h.stop()
	})
}

// What the feeder and the ring do for a delivered event allocates nothing: telling the
// observers, at once or later, and each one's pull. The writer's part is
// gateway TestDeliveryDoesNotAllocate.
func TestDeliveryFromTheRingDoesNotAllocate(t *testing.T) {
	const observers, events = 100, 2000
	s := newSteps(t, hubBytes)
	w := s.watch()
	for range observers {
		w.Add(new(countingWaker))
	}
	for range events {
		s.live(s.log.append(1, 250))
	}
	first := w.ring.slots[0].base - 1
	prefix, buf := []byte(`{"jsonrpc":"2.0","method":"event","params":{`), make([]byte, 0, 64<<10)
	wakes := newGathering(func() {})
	defer wakes.disarm()
	moved, now, pulled := []*Watch{w}, s.time, 0
	allocs := testing.AllocsPerRun(100, func() {
		wakes.take(moved, now)
		now = now.Add(protocol.GatherWaitMax / 3)
		c := protocol.Cursor{Epoch: w.epoch, Seq: first}
		for st := PullMore; st == PullMore; {
			_, c.Seq, st = w.Pull(buf[:0], prefix, c, 0, cap(buf), 0)
		}
		pulled += int(c.Seq - first)
	})
	if allocs != 0 || pulled < 100*100 || s.bell < 10 {
		t.Errorf("%.0f allocations, %d events pulled, %d wakes", allocs, pulled, s.bell)
	}
}
