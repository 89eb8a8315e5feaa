package journal

import (
	"testing"
)

// TestReplicaThatIsSilent: what no replica says, the leader is asked for: the log is
// read whole, in batches and one by one.
func TestReplicaThatIsSilent(t *testing.T) {
	s := newScribe(t)
	s.whole(40)
	r := newReader(s.n, s.n.kv, s.n.kvs)
	r.cluster = true
	newest, err := r.newest(s.ctx, s.l)
	if err != nil {
		t.Fatal(err)
	}
	s.n.read.Close() // direct gets find nobody
	for name, maxBytes := range map[string]int{"one by one": 1 << 10, "in batches": 1 << 20} {
		t.Run(name, func(t *testing.T) {
			var prev *Record
			for {
				recs, err := r.follow(s.ctx, s.l, prev, maxBytes)
				if err != nil {
					t.Fatal(err)
				}
				if len(recs) == 0 {
					break
				}
				prev = recs[len(recs)-1]
			}
			if prev == nil || prev.Last() != newest.Last() {
				t.Errorf("read up to %v, want %d", prev, newest.Last())
			}
		})
	}
	if floor, err := r.floorOf(s.ctx, s.l, newest); err != nil || floor != 1 {
		t.Errorf("floor %d, %v", floor, err)
	}
	if p, err := r.prior(s.ctx, s.l, newest); err != nil || p == nil || p.Last() != 39 {
		t.Errorf("before the newest: %v, %v", p, err)
	}
}
