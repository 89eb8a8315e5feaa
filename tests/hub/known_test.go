package hub_test

import (
	"testing"

	"rejoin/journal"
	"rejoin/tests/harness"
	"rejoin/tests/logs"
)

// What a watch has seen of a log is known as long as it is watched, and after that.
func TestKnownEnds(t *testing.T) {
	n := start(t)
	l := logs.Of(n, "s")
	epoch := logs.Epoch(1)
	w := logs.Open(t, n, logs.Begin(l, 1, epoch))
	write(t, w, 4, false)
	wants := func(what string, head int) {
		t.Helper()
		p, ok := n.Hub().Known(l)
		if ok != (head > 0) || int(p.Head) != head || ok && p.Epoch != epoch {
			t.Errorf("%s: %+v, %v; want %d", what, p, ok, head)
		}
	}
	wants("nobody has looked", 0)
	watch, err := n.Hub().Watch(logs.Context(t), l)
	if err != nil {
		t.Fatal(err)
	}
	wants("it is watched", 5)
	write(t, w, 2, false)
	harness.Eventually(t, "the watch follows", func() bool { return watch.Position().Head == 7 })
	wants("it has grown", 7)
	watch.Release()
	write(t, w, 1, false)
	wants("it is watched no more", 7)
	if p, ok := n.Hub().Known(journal.Log{Key: l.Key, Shard: l.Shard + 1}); ok {
		t.Errorf("of another log: %+v", p)
	}
}
