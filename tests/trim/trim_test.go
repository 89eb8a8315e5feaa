package trim_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"rejoin/journal"
	"rejoin/protocol"
	"rejoin/snapshot"
	"rejoin/tests/harness"
)

// TestTrimUnderLoad: writers, slow readers and joiners run while retention
// trims behind them.
// Proves I-J6 and I-S2.
func TestTrimUnderLoad(t *testing.T) {
	node := newNode(t, t.TempDir())
	store := eager(t, node, folds)
	owners := []*owner{newOwner(t, node, "s0"), newOwner(t, node, "s1"), newOwner(t, node, "s2")}
	for i := range owners {
		owners[i].log.Shard = 0 // they share one
		owners[i].open(store, snapshot.Retention{MaxEvents: 400})
	}
	stop := make(chan struct{})
	var readers, writers sync.WaitGroup
	var snapshots, events, states atomic.Int64
	r := snapshot.NewReader(node, folds, 2) // less than there are logs
	for i, o := range owners {
		for pace := range 3 {
			readers.Go(func() {
				follow(o, r, time.Duration(pace*pace)*5*time.Millisecond, stop, &snapshots, &events)
			})
		}
		readers.Go(func() { lookBack(o, r, rand.New(rand.NewPCG(1, uint64(i))), stop, &states) })
		writers.Go(func() { write(o, store, 6000, rand.New(rand.NewPCG(2, uint64(i)))) })
	}
	writers.Wait()
	for _, o := range owners {
		o.end()
	}
	close(stop)
	readers.Wait()
	t.Logf("%d snapshots and %d events delivered, %d states of the past", snapshots.Load(), events.Load(), states.Load())
	if snapshots.Load() == 0 || events.Load() == 0 || states.Load() == 0 {
		t.Error("the test did not test anything")
	}
	for _, o := range owners {
		check(o)
	}
}

// write is a session's life in several runs.
func write(o *owner, store *snapshot.Store, n int, rnd *rand.Rand) {
	for i := range n {
		switch {
		case i%1500 == 1499:
			if rnd.IntN(2) == 0 {
				o.end()
			} else {
				o.stop()
			}
			o.open(store, snapshot.Retention{MaxEvents: 400})
		case i%40 == 0:
			o.add(protocol.SourceBroker, command(fmt.Sprintf("c%d", i)))
		case i%40 == 30:
			o.add(protocol.SourceBroker, outcome(fmt.Sprintf("c%d", i-30)))
		case i%50 == 7:
			o.add(protocol.SourceChild, `{"type":"begin"}`)
		case i%50 == 48:
			o.add(protocol.SourceChild, `{"type":"end"}`)
		default:
			o.add(protocol.SourceChild, fmt.Sprintf(`{"n":%d}`, rnd.IntN(1000)))
		}
	}
}

// waker wakes one reader.
type waker struct{ c chan struct{} }

func (w *waker) Wake() {
	select {
	case w.c <- struct{}{}:
	default:
	}
}

// follow reads a log as a gateway does for a client, pausing between pulls. It
// gets every event, or a snapshot that covers what it missed.
func follow(o *owner, r *snapshot.Reader, pace time.Duration, stop chan struct{}, snapshots, events *atomic.Int64) {
	w, err := o.node.Hub().Watch(o.ctx, o.log)
	if err != nil {
		o.tb.Errorf("watch: %v", err)
		return
	}
	defer w.Release()
	k := &waker{make(chan struct{}, 1)}
	w.Add(k)
	defer w.Remove(k)
	cursor := protocol.Cursor{Epoch: w.Position().Epoch}
	for {
		out, last, st := w.Pull(nil, nil, cursor, 0, 4<<10, 0)
		deliver(o, out, cursor.Seq)
		events.Add(int64(last - cursor.Seq))
		cursor.Seq = last
		switch st {
		case journal.PullTrimmed:
			snap, err := r.Latest(o.ctx, o.log, cursor.Seq)
			if err != nil {
				o.tb.Errorf("snapshot: %v", err)
				return
			}
			if snap.Seq <= cursor.Seq || snap.Hash != o.hash(snap.Seq) {
				o.tb.Errorf("snapshot at %d after %d is not the state there", snap.Seq, cursor.Seq)
			}
			cursor = protocol.Cursor{Epoch: snap.Epoch, Seq: snap.Seq}
			snapshots.Add(1)
		case journal.PullEpoch, journal.PullDamaged:
			o.tb.Errorf("pull after %d: status %d", cursor.Seq, st)
			return
		case journal.PullIdle, journal.PullWait, journal.PullFailed:
			select {
			case <-k.c:
			case <-stop:
				if st == journal.PullIdle {
					return
				}
				stop = nil // it is not at the end yet
			case <-o.ctx.Done():
				return
			}
		case journal.PullMore:
		}
		if pace > 0 && stop != nil {
			t := time.NewTimer(pace)
			select {
			case <-t.C:
			case <-stop:
				t.Stop()
				pace = 0
			}
		}
	}
}

// deliver checks that lines are the events after after, without a hole.
func deliver(o *owner, lines []byte, after protocol.Seq) {
	for len(lines) > 0 {
		n := 0
		for lines[n] != '\n' {
			n++
		}
		e, err := protocol.ParseEventLine(lines[:n])
		if after++; err != nil || e.Seq != after || string(e.Body) != o.body(after) {
			o.tb.Errorf("event %d instead of %d: %v", e.Seq, after, err)
			return
		}
		lines = lines[n+1:]
	}
}

// lookBack asks for states of the past.
func lookBack(o *owner, r *snapshot.Reader, rnd *rand.Rand, stop <-chan struct{}, states *atomic.Int64) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		floor := o.floor()
		tail, err := o.node.Tail(o.ctx, o.log)
		if err != nil {
			o.tb.Errorf("tail: %v", err)
			return
		}
		seq := floor - 1 + protocol.Seq(rnd.Uint64N(uint64(tail.Head-floor+2)))
		if rnd.IntN(3) == 0 {
			seq = floor - 1
		}
		snap, err := r.At(o.ctx, o.log, seq)
		switch {
		case errors.Is(err, journal.ErrTrimmed) && o.floor() > seq+1: // trimmed meanwhile
		case err != nil:
			o.tb.Errorf("state at %d, floor %d: %v", seq, floor, err)
		case snap.Seq != seq || snap.Hash != o.hash(seq):
			o.tb.Errorf("state at %d is not the one that was", seq)
		default:
			states.Add(1)
		}
	}
}

// check looks at a log whose run has ended.
func check(o *owner) {
	o.tb.Helper()
	ctx := harness.Context(o.tb)
	r := snapshot.NewReader(o.node, folds, 0)
	tail, err := o.node.Tail(ctx, o.log)
	if err != nil {
		o.tb.Fatal(err)
	}
	floor := o.floor()
	if kept := tail.Head - floor + 1; floor < 4000 || kept > 1500 {
		o.tb.Errorf("%s: floor %d, head %d: retention did not keep up", o.log.Key, floor, tail.Head)
	}
	report, err := r.Verify(ctx, o.log)
	if err != nil || len(report.Problems) > 0 || report.Compared == 0 || report.StateHash != o.hash(tail.Head) {
		o.tb.Errorf("verify: %+v, %v", report, err)
	}
	if report.Checkpoints > 40 {
		o.tb.Errorf("%d checkpoints are kept", report.Checkpoints)
	}
	for seq := floor - 1; seq <= tail.Head; seq++ {
		fresh := r
		if seq%97 == 0 {
			fresh = snapshot.NewReader(o.node, folds, 0)
		}
		snap, err := fresh.At(ctx, o.log, seq)
		if err != nil || snap.Hash != o.hash(seq) || snap.Seq != seq {
			o.tb.Fatalf("state at %d: %v", seq, err)
		}
	}
	for _, seq := range []protocol.Seq{floor - 2, tail.Head + 1} {
		if _, err := r.At(ctx, o.log, seq); !errors.Is(err, journal.ErrTrimmed) {
			o.tb.Errorf("state at %d, outside the log: %v", seq, err)
		}
	}
	checkCommands(ctx, o, r)
}

// checkCommands looks for every command that the session admitted.
func checkCommands(ctx context.Context, o *owner, r *snapshot.Reader) {
	o.tb.Helper()
	h, err := r.Load(ctx, o.log, 0)
	if err != nil {
		o.tb.Fatal(err)
	}
	if h.Ledger.Len() != o.ledger.Len() || h.Ledger.Len() < 100 {
		o.tb.Errorf("%d commands in the ledger, the owner's has %d", h.Ledger.Len(), o.ledger.Len())
	}
	for i := 0; i < 6000; i += 40 {
		id := fmt.Sprintf("c%d", i)
		got, ok := h.Ledger.Lookup(id)
		want, _ := o.ledger.Lookup(id)
		if !ok || got.Seq != want.Seq || got.Hash != want.Hash || got.Outcome != want.Outcome || string(got.Result) != string(want.Result) {
			o.tb.Errorf("command %s: %+v, want %+v", id, got, want)
		}
	}
}

// TestDedupeBehindTheFloor: a command id is known long after its event is
// trimmed, to the owner, without one, and to the next one.
func TestDedupeBehindTheFloor(t *testing.T) {
	node := newNode(t, t.TempDir())
	store := eager(t, node, folds)
	o := newOwner(t, node, "s")
	r := snapshot.Retention{MaxEvents: 10}
	o.open(store, r)
	o.add(protocol.SourceBroker, command("c1"))
	want, _ := o.ledger.Lookup("c1")
	known := func(g *snapshot.Ledger) {
		t.Helper()
		if got, ok := g.Lookup("c1"); !ok || got.Seq != want.Seq || got.Hash != want.Hash {
			t.Errorf("the command is %+v, want %+v", got, want)
		}
	}
	for i := range 100 {
		o.add(protocol.SourceChild, fmt.Sprintf(`{"n":%d}`, i))
		if err := o.w.Flush(o.ctx); err != nil {
			t.Fatal(err)
		}
	}
	known(o.ledger)
	harness.Eventually(t, "the command's event is trimmed", func() bool {
		o.add(protocol.SourceChild, `{}`)
		return o.floor() > want.Seq
	})
	o.stop() // without an end
	for run := range 3 {
		h, err := snapshot.NewReader(node, folds, 0).Load(o.ctx, o.log, 0)
		if err != nil {
			t.Fatal(err)
		}
		known(h.Ledger)
		if got := h.Ledger.Open(); run == 0 && (len(got) != 1 || got[0] != "c1") {
			t.Errorf("open commands %v", got)
		}
		o.open(store, r)
		known(o.ledger)
		o.end()
	}
}

// TestRetain trims the log of a session that nobody owns.
func TestRetain(t *testing.T) {
	node := newNode(t, t.TempDir())
	now := time.Now()
	store := snapshot.NewStore(node, folds, nil, snapshot.StoreConfig{EveryEvents: 50, Now: func() time.Time { return now }})
	o := newOwner(t, node, "s")
	o.open(store, snapshot.Retention{MaxAge: time.Hour})
	for i := range 300 {
		o.add(protocol.SourceChild, fmt.Sprintf(`{"n":%d}`, i))
		if i%50 == 49 {
			if err := o.w.Flush(o.ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	o.end()
	for _, c := range []struct {
		after   time.Duration
		trimmed bool
	}{{time.Minute, false}, {3 * time.Hour, true}, {4 * time.Hour, true}} {
		now = time.Now().Add(c.after)
		floor, err := store.Retain(o.ctx, o.log, snapshot.Retention{MaxAge: time.Hour})
		if err != nil || (floor > 1) != c.trimmed || floor != o.floor() {
			t.Errorf("after %v: floor %d, %v", c.after, floor, err)
		}
	}
	report, err := snapshot.NewReader(node, folds, 0).Verify(o.ctx, o.log)
	if err != nil || len(report.Problems) > 0 {
		t.Errorf("verify: %+v, %v", report, err)
	}
	snap, err := snapshot.NewReader(node, folds, 0).At(o.ctx, o.log, o.floor()-1)
	if err != nil || snap.Hash != o.hash(snap.Seq) {
		t.Errorf("state before the floor: %v", err)
	}
}
