package journal

import (
	"fmt"
	"testing"

	"rejoin/protocol"
)

func TestKnown(t *testing.T) {
	var k known
	l := Log{Key: protocol.Key{Workspace: "w", Session: "s"}}
	if p, ok := k.of(l); ok {
		t.Errorf("of nothing: %+v", p)
	}
	for _, c := range []struct{ note, want Position }{
		{Position{Epoch: "B", Head: 5}, Position{Epoch: "B", Head: 5}},
		{Position{Epoch: "B", Head: 4}, Position{Epoch: "B", Head: 5}},
		{Position{Epoch: "A", Head: 9}, Position{Epoch: "B", Head: 5}},
		{Position{Epoch: "B", Head: 6}, Position{Epoch: "B", Head: 6}},
		{Position{Epoch: "C", Head: 1}, Position{Epoch: "C", Head: 1}},
	} {
		k.note(l, c.note)
		if p, ok := k.of(l); !ok || p != c.want {
			t.Errorf("after %+v: %+v, want %+v", c.note, p, c.want)
		}
	}
	for i := range 3 * knownMax {
		k.note(Log{Shard: i}, Position{Epoch: "A", Head: 1})
		if i%(knownMax/4) == 0 {
			k.note(l, Position{Epoch: "C", Head: 1}) // whoever is looked at stays
		}
		if n := len(k.young) + len(k.old); n > knownMax {
			t.Fatalf("%d ends are remembered, more than %d", n, knownMax)
		}
	}
	if _, ok := k.of(l); !ok {
		t.Error("a log that is looked at was forgotten")
	}
	if _, ok := k.of(Log{Shard: 1}); ok {
		t.Error("a log that nobody looks at was not forgotten")
	}
}

// A small record keeps nothing of the message that it came in.
func TestRecordsAreLoose(t *testing.T) {
	for _, size := range []int{100, 10 * looseBytes} {
		r := &Record{lines: make([]byte, 0, 2*size)[:size]}
		for i := range r.lines {
			r.lines[i] = byte(i)
		}
		before := fmt.Sprintf("%x", r.lines)
		r.loosen()
		if got := fmt.Sprintf("%x", r.lines); got != before {
			t.Fatal("the lines have changed")
		}
		if loose := cap(r.lines) < 2*size; loose != (size <= looseBytes) {
			t.Errorf("%d bytes: capacity %d", size, cap(r.lines))
		}
	}
}
