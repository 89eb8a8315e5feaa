package cluster_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"rejoin/journal"
	"rejoin/protocol"
	"rejoin/tests/harness"
	"rejoin/tests/logs"
)

// TestLiveAfterWatch: an event that is stored right after a watch has begun, on
// another server than the watch's, comes live: no idle check has to find it.
func TestLiveAfterWatch(t *testing.T) {
	const rounds = 120
	s := harness.NATS(t, 3)
	a := connect(t, config(t, s, "a"))
	far := make([]*journal.Node, 6) // each of their connections has a server drawn at random
	for i := range far {
		far[i] = connect(t, config(t, s, fmt.Sprintf("far%d", i)))
	}
	var took []time.Duration
	for i := range rounds {
		l := logs.Of(a, fmt.Sprintf("live%d", i))
		w := logs.Open(t, a, logs.Begin(l, 1, logs.Epoch(int64(i))))
		r := follow(t, far[i%len(far)], l)
		began := time.Now()
		write(t, w, 1)
		logs.Eventually(t, "the event comes", func() bool { return r.seq(t) == 2 })
		took = append(took, time.Since(began))
		if err := w.Close(logs.Context(t)); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(took)
	t.Logf("from append to another process: p50 %v, p90 %v, most %v", took[rounds/2], took[rounds*9/10], took[rounds-1])
}

// TestTwoOfThreeAway: with one server of three left nothing is written, what was
// read goes on being read, and when the others are back nothing is missing.
func TestTwoOfThreeAway(t *testing.T) {
	s := harness.NATS(t, 3)
	a, b := connect(t, config(t, s, "a")), connect(t, config(t, s, "b"))
	l := begin(t, a, b)
	l.goesOn(t, 20)
	s.Kill9(1)
	s.Kill9(2)
	logs.Eventually(t, "writes stall and it is said", func() bool { return a.ShardHealth(0).Refuses() && b.ShardHealth(0).Refuses() })
	for i, r := range l.readers {
		upTo := r.seq(t)
		out, last, st := r.w.Pull(nil, nil, protocol.Cursor{Epoch: r.w.Position().Epoch, Seq: upTo - 1}, 0, 1<<20, 0)
		if len(out) == 0 || last < upTo {
			t.Errorf("reader %d: the newest event is not served any more: up to %d of %d, status %d", i, last, upTo, st)
		}
	}
	s.Start(1)
	s.Start(2)
	s.AwaitReady()
	l.goesOn(t, 20)
	logs.Eventually(t, "all is well", func() bool { return a.Health().State == journal.HealthOK && b.Health().State == journal.HealthOK })
	l.judge(t, b)
}
