package journal

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"rejoin/protocol"
)

// TestEndRecord: where a record was asked to end, one ends; a group still shares
// one record.
func TestEndRecord(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	f := newFakeLog()
	w := openFake(t, f, testConfig(1))
	ends := map[protocol.Seq]bool{}
	ask := func(seq protocol.Seq) {
		w.EndRecord(seq)
		ends[seq] = true
	}
	f.gate, f.arrived = make(chan struct{}), make(chan struct{}, 4096)
	for i := range 400 {
		if i%7 == 3 {
			ask(w.Head() + 1) // before its Append
		}
		put(t, w, fmt.Sprintf(`"%d"`, i))
		if i%7 == 5 || rnd.IntN(9) == 0 {
			ask(w.Head()) // after it
		}
		if i%50 == 20 {
			group := []*protocol.Event{{Body: []byte(`"g"`)}, {Body: []byte(`"g"`)}, {Body: []byte(`"g"`)}}
			first := w.Head() + 1
			w.EndRecord(first) // in vain
			if err := w.AppendGroup(group, nil); err != nil {
				t.Fatal(err)
			}
			ask(group[2].Seq)
			delete(ends, first)
		}
	}
	w.EndRecord(3) // long gone: it does nothing
	close(f.gate)
	if err := w.Flush(testContext(t)); err != nil {
		t.Fatal(err)
	}
	f.check(t)
	got := map[protocol.Seq]bool{}
	for _, r := range f.recs {
		got[r.Last()] = true
	}
	for seq := range ends {
		if !got[seq] {
			t.Errorf("no record ends at %d", seq)
		}
	}
	if len(f.recs) > len(ends)+20 {
		t.Errorf("%d records for %d ends", len(f.recs), len(ends))
	}
}

// TestFormatGains: a directory made before a stream existed gains it in two
// steps; once it has it, its loss is one.
func TestFormatGains(t *testing.T) {
	dir := t.TempDir()
	old := &format{Layout: 1, Shards: 1, Ready: true, Expect: []string{"J0", "KV_sessions", "KV_starts"}}
	if err := old.write(dir); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second start finds the first one's crash
		f, err := openFormat(dir, 8)
		if err != nil || len(f.Adding) != 1 || f.Adding[0] != snapStream || len(f.Expect) != 3 {
			t.Fatalf("format %+v, %v", f, err)
		}
		if !f.mayCreate(snapStream) || f.mayCreate("J0") {
			t.Error("what may be made")
		}
	}
	f, err := openFormat(dir, 8)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.made().write(dir); err != nil {
		t.Fatal(err)
	}
	f, err = openFormat(dir, 8)
	if err != nil || len(f.Adding) != 0 || len(f.Expect) != 4 || f.mayCreate(snapStream) {
		t.Errorf("format %+v, %v", f, err)
	}
}
