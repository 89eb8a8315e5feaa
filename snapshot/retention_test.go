package snapshot

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"rejoin/journal"
	"rejoin/protocol"
)

// shelfOf makes headers of checkpoints at seqs, each event of 10 bytes and 1 s.
func shelfOf(seqs ...protocol.Seq) []header {
	var list []header
	for _, seq := range seqs {
		list = append(list, header{seq: seq, bytes: uint64(seq) * 10, ts: int64(seq) * 1000, place: journal.Place{Base: 1, Last: seq}})
	}
	return list
}

func TestTarget(t *testing.T) {
	kept := shelfOf(100, 200, 300, 400, 500)
	crooked := shelfOf(100, 200, 300, 400, 500)
	crooked[2].place.Last++ // 300 is not the last of its record
	for _, tt := range []struct {
		name string
		r    Retention
		kept []header
		now  int64
		want protocol.Seq // 0: none
	}{
		{"no bound is reached", Retention{MaxEvents: 500}, kept, 0, 0},
		{"events", Retention{MaxEvents: 250}, kept, 0, 300},
		{"events, exactly", Retention{MaxEvents: 300}, kept, 0, 200},
		{"fewer events than the newest two", Retention{MaxEvents: 10}, kept, 0, 400},
		{"bytes", Retention{MaxBytes: 2500}, kept, 0, 300},
		{"age", Retention{MaxAge: 100 * time.Second}, kept, 350_000, 200},
		{"age, nothing is old", Retention{MaxAge: 100 * time.Second}, kept, 150_000, 0},
		{"age, everything is", Retention{MaxAge: time.Second}, kept, 9_000_000, 400},
		{"the strictest counts", Retention{MaxAge: time.Hour, MaxEvents: 250, MaxBytes: 3500}, kept, 0, 300},
		{"records stay whole", Retention{MaxEvents: 250}, crooked, 0, 200},
		{"one checkpoint is none to trim to", Retention{MaxEvents: 1}, shelfOf(100), 0, 0},
		{"nothing", Retention{MaxEvents: 1}, nil, 0, 0},
		{"the default", Retention{}.withDefaults(), kept, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			i, got := tt.r.target(tt.kept, tt.now), protocol.Seq(0)
			if i >= 0 {
				got = tt.kept[i].seq
			}
			if got != tt.want {
				t.Errorf("trim to %d, want %d", got, tt.want)
			}
		})
	}
}

// TestThin grows a shelf as a session does, with a floor that moves now and then.
func TestThin(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	var seqs []protocol.Seq
	floor, head := protocol.Seq(1), protocol.Seq(0)
	for range 3000 {
		head += protocol.Seq(rnd.IntN(20000) + 1)
		seqs = append(seqs, head)
		if rnd.IntN(200) == 0 && len(seqs) > 2 {
			floor = seqs[rnd.IntN(len(seqs)-1)] + 1
		}
		gone := thin(seqs, floor)
		var left []protocol.Seq
		for i, seq := range seqs {
			if !slices.Contains(gone, i) {
				left = append(left, seq)
			}
		}
		if floor > 1 && (len(left) == 0 || !slices.Contains(seqs, floor-1) || left[0] != floor-1) {
			t.Fatalf("floor %d: the anchor is gone: %v", floor, left[:min(3, len(left))])
		}
		if len(left) > 1+thinnedKept+newestKept {
			t.Fatalf("%d are left", len(left))
		}
		if n := min(newestKept, len(seqs)); !slices.Equal(left[max(0, len(left)-n):], seqs[len(seqs)-n:]) && left[0] != seqs[len(seqs)-1] {
			t.Fatal("the newest are gone")
		}
		seqs = left
	}
	widest := protocol.Seq(0)
	for i := 1; i < len(seqs); i++ {
		widest = max(widest, seqs[i]-seqs[i-1])
	}
	if share := (head - floor) / widest; share < 8 {
		t.Errorf("of %d events %d lie between two checkpoints", head-floor, widest)
	}
	if thin(nil, 1) != nil && len(thin(nil, 1)) > 0 {
		t.Error("something of nothing is gone")
	}
}
