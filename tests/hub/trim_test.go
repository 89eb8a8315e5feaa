package hub_test

import (
	"errors"
	"testing"

	"rejoin/journal"
	"rejoin/protocol"
	"rejoin/tests/logs"
)

// floorOf checks that node and watch agree on the floor, and that nothing below
// it is read.
func checkFloor(t *testing.T, n *journal.Node, l journal.Log, w *journal.Watch, want protocol.Seq) {
	t.Helper()
	if f, err := n.Floor(logs.Context(t), l); err != nil || f != want {
		t.Fatalf("floor %d, %v; want %d", f, err, want)
	}
	if p := w.Position(); p.Floor != want {
		t.Errorf("the watch's floor is %d, want %d", p.Floor, want)
	}
	if want > 1 {
		if _, err := n.Read(logs.Context(t), l, want-2, 1); !errors.Is(err, journal.ErrTrimmed) {
			t.Errorf("read of what was trimmed: %v", err)
		}
		if _, err := n.Place(logs.Context(t), l, want-1); !errors.Is(err, journal.ErrTrimmed) {
			t.Errorf("place of what was trimmed: %v", err)
		}
	}
	recs, err := n.Read(logs.Context(t), l, want-1, 1)
	if err != nil || len(recs) == 0 || recs[0].Base() != want {
		t.Errorf("read from the floor on: %v", err)
	}
}

func TestTrim(t *testing.T) {
	n := start(t)
	l := logs.Of(n, "a")
	wr := logs.Open(t, n, logs.Begin(l, 1, logs.Epoch(0)))
	write(t, wr, 9, false) // 1 to 10, one record each
	for range 10 {         // 11 to 20 in one record
		if _, err := wr.Append(event(wr.Head()+1), nil); err != nil {
			t.Fatal(err)
		}
	}
	wr.EndRecord(wr.Head())
	write(t, wr, 20, false)
	w := watch(t, n, l)
	ctx := logs.Context(t)
	p, err := n.Place(ctx, l, 15)
	if err != nil || p.Base > 15 || p.Last < 15 || p.Aligned(15) == (p.Last != 15) {
		t.Fatalf("place %+v, %v", p, err)
	}
	for _, c := range []struct{ below, floor protocol.Seq }{
		{1, 1},
		{5, 5},
		{3, 5}, // never back
		{15, p.Base},
		{21, 21},
		{40, 40}, // the newest record
	} {
		floor, err := n.Trim(ctx, l, c.below)
		if err != nil || floor != c.floor {
			t.Fatalf("trim below %d: floor %d, %v; want %d", c.below, floor, err, c.floor)
		}
		checkFloor(t, n, l, w, c.floor)
	}
	if _, err := n.Trim(ctx, l, 41); !errors.Is(err, journal.ErrTrimmed) {
		t.Errorf("trim above the head: %v", err)
	}
	write(t, wr, 3, false) // the fence stands
	if _, err := n.Trim(ctx, logs.Of(n, "never"), 1); !errors.Is(err, journal.ErrTrimmed) {
		t.Errorf("trim of an empty log: %v", err)
	}
}

// TestTrimOfEpochsAndParts: an older epoch goes first, an event in parts as a whole.
func TestTrimOfEpochsAndParts(t *testing.T) {
	n := start(t)
	l := logs.Of(n, "a")
	ctx := logs.Context(t)
	wr := logs.Open(t, n, logs.Begin(l, 1, logs.Epoch(0)))
	write(t, wr, 5, false)
	closeWriter(t, wr)
	wr = logs.Open(t, n, logs.Begin(l, 2, logs.Epoch(1))) // 7
	big := &protocol.Event{TS: 1, Source: protocol.SourceChild, Body: append(append([]byte(`"`), make9MiB()...), '"')}
	write(t, wr, 1, false)
	if _, err := wr.Append(big, nil); err != nil { // 9
		t.Fatal(err)
	}
	logs.Flush(t, wr)
	write(t, wr, 3, false)
	w := watch(t, n, l)
	checkFloorOnly := func(want protocol.Seq) {
		t.Helper()
		if f, err := n.Floor(ctx, l); err != nil || f != want || w.Position().Floor != want {
			t.Fatalf("floor %d, watch %d, %v; want %d", f, w.Position().Floor, err, want)
		}
	}
	checkFloorOnly(7)
	for _, below := range []protocol.Seq{7, 8, 9, 10} {
		if floor, err := n.Trim(ctx, l, below); err != nil || floor != below {
			t.Fatalf("trim below %d: %d, %v", below, floor, err)
		}
		checkFloorOnly(below)
		recs, err := n.Read(ctx, l, below-1, 1<<20)
		if err != nil || recs[0].Base() != below {
			t.Fatalf("read from %d: %v", below, err)
		}
	}
}

func make9MiB() []byte {
	b := make([]byte, 9<<20)
	for i := range b {
		b[i] = 'x'
	}
	return b
}

func closeWriter(t *testing.T, w *journal.Writer) {
	t.Helper()
	if err := w.Close(logs.Context(t)); err != nil {
		t.Fatal(err)
	}
}

// TestReaderBehindTheFloor: a reader whose next event is trimmed learns it,
// whether the watch was told or finds out by reading.
func TestReaderBehindTheFloor(t *testing.T) {
	for _, told := range []bool{true, false} {
		n := start(t)
		l := logs.Of(n, "a")
		wr := logs.Open(t, n, logs.Begin(l, 1, logs.Epoch(0)))
		write(t, wr, 20000, true)
		write(t, wr, 600, false) // the ring holds nothing older
		w := watch(t, n, l)
		ctx := logs.Context(t)
		r := newReader(w, protocol.Cursor{Epoch: wr.Epoch()})
		defer r.close()
		if err := r.upTo(ctx, 10); err != nil {
			t.Fatal(err)
		}
		floor := protocol.Seq(20601)
		var err error
		if told {
			floor, err = n.Trim(ctx, l, 20500)
		} else {
			err = n.Purge(ctx, l) // as if another process had trimmed
		}
		if err != nil {
			t.Fatal(err)
		}
		r.at.Seq = 15000 // in no ring, and never read
		if told && w.Position().Floor != floor {
			t.Errorf("position %+v, floor %d", w.Position(), floor)
		}
		for {
			_, last, st := w.Pull(nil, nil, r.at, 0, 1000, 0)
			if st == journal.PullTrimmed {
				break
			}
			if st != journal.PullWait && st != journal.PullMore {
				t.Fatalf("told %t: status %d", told, st)
			}
			r.at.Seq = last
			if st == journal.PullMore {
				continue
			}
			select {
			case <-r.bell:
			case <-ctx.Done():
				t.Fatal(ctx.Err())
			}
		}
		if p := w.Position(); p.Floor != floor {
			t.Errorf("told %t: position %+v, floor %d", told, p, floor)
		}
		if f, err := n.Floor(ctx, l); err != nil || f != floor {
			t.Errorf("floor %d, %v", f, err)
		}
		r.at.Seq = floor - 1
		if err := r.upTo(ctx, 20601); err != nil {
			t.Error(err)
		}
	}
}
