package hub_test

import (
	"bytes"
	"errors"
	"testing"

	"rejoin/journal"
	"rejoin/protocol"
	"rejoin/tests/logs"
)

func watch(tb testing.TB, n *journal.Node, l journal.Log) *journal.Watch {
	tb.Helper()
	w, err := n.Hub().Watch(logs.Context(tb), l)
	if err != nil {
		tb.Fatalf("Watch: %v", err)
	}
	tb.Cleanup(w.Release)
	return w
}

func TestReplayThenLive(t *testing.T) {
	n := start(t)
	l := logs.Of(n, "a")
	wr := logs.Open(t, n, logs.Begin(l, 1, logs.Epoch(0)))
	write(t, wr, 2000, false)
	w := watch(t, n, l)
	if p := w.Position(); p.Head != 2001 || p.Floor != 1 || p.Epoch != wr.Epoch() {
		t.Fatalf("Position = %+v", p)
	}
	r := newReader(w, protocol.Cursor{Epoch: wr.Epoch()})
	defer r.close()
	if err := r.upTo(logs.Context(t), 2001); err != nil {
		t.Fatal(err)
	}
	write(t, wr, 5000, true)
	if err := r.upTo(logs.Context(t), 7001); err != nil {
		t.Fatal(err)
	}
}

// A watch of a log that does not exist yet serves it from its first event.
func TestWatchEmptyLog(t *testing.T) {
	n := start(t)
	l := logs.Of(n, "a")
	w := watch(t, n, l)
	r := newReader(w, protocol.Cursor{})
	defer r.close()
	wr := logs.Open(t, n, logs.Begin(l, 1, logs.Epoch(0)))
	write(t, wr, 10, false)
	if err := r.upTo(logs.Context(t), 11); err != nil {
		t.Fatal(err)
	}
	if p := w.Position(); p.Epoch != wr.Epoch() || p.Floor != 1 {
		t.Fatalf("Position = %+v", p)
	}
}

func TestRangesBothWays(t *testing.T) {
	n := start(t)
	l, other := logs.Of(n, "a"), logs.Of(n, "b")
	other.Shard = l.Shard
	wr, wo := logs.Open(t, n, logs.Begin(l, 1, logs.Epoch(0))), logs.Open(t, n, logs.Begin(other, 1, logs.Epoch(1)))
	for range 300 {
		write(t, wr, 1, false)
		write(t, wo, 2, false)
	}
	head := wr.Head()
	ctx := logs.Context(t)
	if f, err := n.Floor(ctx, l); err != nil || f != 1 {
		t.Fatalf("Floor = %d, %v", f, err)
	}
	for after := protocol.Seq(0); after <= head; after++ {
		recs, err := n.Read(ctx, l, after, 2000)
		if err != nil {
			t.Fatalf("Read(%d): %v", after, err)
		}
		if after == head {
			if len(recs) != 0 {
				t.Fatalf("Read(head) = %d records", len(recs))
			}
			continue
		}
		if recs[0].Base() > after+1 || recs[0].Last() < after+1 {
			t.Fatalf("Read(%d) begins at %d", after, recs[0].Base())
		}
		before := after + 2
		recs, err = n.ReadBefore(ctx, l, before, 5, 1<<20)
		if err != nil {
			t.Fatalf("ReadBefore(%d): %v", before, err)
		}
		if last := recs[len(recs)-1]; last.Last() < before-1 || last.Base() > before-1 {
			t.Fatalf("ReadBefore(%d) ends at %d", before, last.Last())
		}
		if want := max(1, int(before)-5); recs[0].Base() != protocol.Seq(want) {
			t.Fatalf("ReadBefore(%d) begins at %d, want %d", before, recs[0].Base(), want)
		}
	}
}

// A new epoch ends the cursors of the old one; only the new one is read.
func TestEpochStart(t *testing.T) {
	n := start(t)
	l := logs.Of(n, "a")
	wr := logs.Open(t, n, logs.Begin(l, 1, logs.Epoch(0)))
	write(t, wr, 100, false)
	w := watch(t, n, l)
	old := newReader(w, protocol.Cursor{Epoch: wr.Epoch(), Seq: 90})
	defer old.close()
	if err := old.upTo(logs.Context(t), 101); err != nil {
		t.Fatal(err)
	}
	next := logs.Open(t, n, logs.Begin(l, 2, logs.Epoch(9)))
	write(t, next, 100, false)
	if _, err := w.Sync(logs.Context(t)); err != nil {
		t.Fatal(err)
	}
	if p := w.Position(); p != (journal.Position{Epoch: next.Epoch(), Floor: 102, Head: 202}) {
		t.Fatalf("Position = %+v", p)
	}
	if _, _, st := w.Pull(nil, nil, old.at, 0, 1000, 0); st != journal.PullEpoch {
		t.Fatalf("old cursor: %v", st)
	}
	if _, _, st := w.Pull(nil, nil, protocol.Cursor{Epoch: next.Epoch(), Seq: 50}, 0, 1000, 0); st != journal.PullTrimmed {
		t.Fatalf("below the floor: %v", st)
	}
	r := newReader(w, protocol.Cursor{Epoch: next.Epoch(), Seq: 101})
	defer r.close()
	if err := r.upTo(logs.Context(t), 202); err != nil {
		t.Fatal(err)
	}
	ctx := logs.Context(t)
	if f, err := n.Floor(ctx, l); err != nil || f != 102 {
		t.Fatalf("Floor = %d, %v", f, err)
	}
	if _, err := n.Read(ctx, l, 100, 1000); !errors.Is(err, journal.ErrTrimmed) {
		t.Fatalf("Read below the floor: %v", err)
	}
	if recs, err := n.Read(ctx, l, 101, 1000); err != nil || recs[0].Base() != 102 {
		t.Fatalf("Read at the floor: %v", err)
	}
	if recs, err := n.ReadBefore(ctx, l, 105, 1000, 1<<20); err != nil || recs[0].Base() != 102 {
		t.Fatalf("ReadBefore: %v", err)
	}
}

// An event over 4 MiB is stored in parts and read as one.
func TestBigLine(t *testing.T) {
	n := start(t)
	l := logs.Of(n, "a")
	wr := logs.Open(t, n, logs.Begin(l, 1, logs.Epoch(0)))
	w := watch(t, n, l)
	write(t, wr, 3, false)
	body := append(append([]byte(`"`), bytes.Repeat([]byte("x"), 9<<20)...), '"')
	if _, err := wr.Append(&protocol.Event{Source: protocol.SourceChild, Body: body}, nil); err != nil {
		t.Fatal(err)
	}
	logs.Flush(t, wr)
	write(t, wr, 3, false)
	r := newReader(w, protocol.Cursor{Epoch: wr.Epoch()})
	defer r.close()
	if err := r.upTo(logs.Context(t), 8); err != nil {
		t.Fatal(err)
	}
	ctx := logs.Context(t)
	recs, err := n.Read(ctx, l, 4, 1)
	if err != nil || len(recs) != 1 || recs[0].Base() != 5 || len(recs[0].Line(0)) < 9<<20 {
		t.Fatalf("Read: %d records, %v", len(recs), err)
	}
	recs, err = n.ReadBefore(ctx, l, 9, 8, 1<<30)
	if err != nil || len(recs) != 8 || len(recs[4].Line(0)) < 9<<20 {
		t.Fatalf("ReadBefore: %d records, %v", len(recs), err)
	}
}

func TestPurgeKeepsNewest(t *testing.T) {
	n := start(t)
	l := logs.Of(n, "a")
	wr := logs.Open(t, n, logs.Begin(l, 1, logs.Epoch(0)))
	write(t, wr, 100, false)
	w := watch(t, n, l)
	ctx := logs.Context(t)
	for range 2 {
		if err := n.Purge(ctx, l); err != nil {
			t.Fatal(err)
		}
		tail, err := n.Tail(ctx, l)
		if err != nil || tail.Head != 101 {
			t.Fatalf("Tail = %+v, %v", tail, err)
		}
		if f, err := n.Floor(ctx, l); err != nil || f != 101 {
			t.Fatalf("Floor = %d, %v", f, err)
		}
	}
	r := newReader(w, protocol.Cursor{Epoch: wr.Epoch()})
	defer r.close()
	for {
		_, _, st := w.Pull(nil, nil, r.at, 0, 1000, 0)
		if st == journal.PullTrimmed {
			break
		}
		if st != journal.PullWait {
			t.Fatalf("status %d", st)
		}
		select {
		case <-r.bell:
		case <-ctx.Done():
			t.Fatal(ctx.Err())
		}
	}
	write(t, wr, 1, false) // the fence still stands
}
