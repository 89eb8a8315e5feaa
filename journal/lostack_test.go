package journal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"rejoin/protocol"
)

// faultyStore is the node's own store behind a link that loses requests, loses
// answers and delivers requests twice.
func faultyStore(n *Node, l Log, rnd *rand.Rand) store {
	st := store{publish: n.publish, last: n.last, noted: n.noteRecord, turn: n.turns[l.Shard], gate: n.gates[l.Shard], clock: time.Now, log: slog.New(slog.DiscardHandler)}
	st.publish = func(ctx context.Context, subject string, data []byte, expect uint64) (uint64, error) {
		switch rnd.IntN(8) {
		case 0:
			return 0, errLost
		case 1: // stored, the answer is lost
			if _, err := n.publish(ctx, subject, data, expect); err != nil && !isWrongLast(err) {
				return 0, err
			}
			return 0, errLost
		case 2: // delivered twice, the second answer counts
			if _, err := n.publish(ctx, subject, data, expect); err != nil && !isWrongLast(err) {
				return 0, err
			}
		}
		return n.publish(ctx, subject, data, expect)
	}
	return st
}

// Lost requests, lost answers and repeated requests against the real server
// lose no event and store none twice. The test stands here and not under
// tests/ because only this package can reach between a writer and the server.
// Proves I-J1, I-J2.
func TestLostAnswers(t *testing.T) {
	ctx := testContext(t)
	n := startNode(ctx, t)
	var want []string
	for run := protocol.Run(1); run <= 5; run++ {
		cfg := testConfig(run)
		if run > 1 {
			cfg.Epoch = ""
		}
		life, abort := context.WithCancel(context.WithoutCancel(ctx))
		w, err := newWriter(faultyStore(n, testLog, rand.New(rand.NewPCG(uint64(run), 7))), cfg, abort)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.open(ctx, life, func() {}); err != nil {
			t.Fatal(err)
		}
		want = append(want, `"first"`)
		for i := range 60 {
			body := fmt.Sprintf(`"%d of run %d"`, i, run)
			want = append(want, body)
			if err := await(t, put(t, w, body)); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(ctx); err != nil {
			t.Fatal(err)
		}
	}
	var after protocol.Seq
	for int(after) < len(want) {
		recs, err := n.Read(ctx, testLog, after, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range recs {
			for i := range r.Len() {
				e, err := protocol.ParseEventLine(r.Line(i))
				if err != nil || e.Seq != after+1 || string(e.Body) != want[after] {
					t.Fatalf("event %d is %q, want %d %q (%v)", e.Seq, e.Body, after+1, want[after], err)
				}
				after++
			}
		}
	}
	if tail, err := n.Tail(ctx, testLog); err != nil || int(tail.Head) != len(want) {
		t.Errorf("tail %+v, %v; want head %d", tail, err, len(want))
	}
	if _, err := n.OpenWriter(ctx, testConfig(5)); !errors.Is(err, ErrFenced) {
		t.Errorf("a run used twice: %v, want ErrFenced", err)
	}
}
