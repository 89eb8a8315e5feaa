package journal

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"rejoin/protocol"
)

// loseLive makes the hub lose a tenth of the live records from here on. The
// test stands here and not under tests/ because only this package can reach
// between the connection and the feeders.
func loseLive(t *testing.T, h *Hub) {
	t.Helper()
	f := h.feed
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	lossy := &liveFeed{nc: f.nc}
	var lost atomic.Int64
	for i, sf := range f.shards {
		between := newShardFeed(i)
		ch, to := between.ch, sf.ch
		lossy.shards = append(lossy.shards, between)
		rnd := rand.New(rand.NewPCG(uint64(i), 1))
		wg.Go(func() {
			for {
				select {
				case m := <-ch:
					if rnd.IntN(10) == 0 {
						lost.Add(1)
						continue
					}
					select {
					case to <- m:
					case <-ctx.Done():
						return
					}
				case <-ctx.Done():
					return
				}
			}
		})
	}
	h.subscribe = lossy.subscribe
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		t.Logf("%d live records lost", lost.Load())
		if lost.Load() == 0 {
			t.Error("no live record was lost: nothing was tested")
		}
	})
}

type bell chan struct{}

func (b bell) Wake() {
	select {
	case b <- struct{}{}:
	default:
	}
}

// Proves I-J4. A hundred readers under load, a tenth of the live records lost:
// nobody misses an event or gets one twice.
func TestTenthOfLiveIsLost(t *testing.T) {
	const logs, perLog, events = 10, 10, 1500
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	n, err := Start(ctx, Config{Dir: t.TempDir(), Durability: Durability{Interval: 500 * time.Millisecond}, MaxBytes: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := n.Close(ctx); err != nil {
			t.Error(err)
		}
	}()
	loseLive(t, n.Hub())
	var wg sync.WaitGroup
	for i := range logs {
		k := protocol.Key{Workspace: "w", Session: fmt.Sprint("s", i)}
		l := Log{Key: k, Shard: n.ShardOf(k)}
		w, err := n.Hub().Watch(ctx, l)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Release()
		for r := range perLog {
			wg.Go(func() {
				if err := lossyReader(ctx, w, events, 200<<(r%8)); err != nil {
					t.Errorf("reader %d of %s: %v", r, k, err)
				}
			})
		}
		wg.Go(func() {
			if err := lossyWriter(ctx, n, l, w, events); err != nil {
				t.Errorf("writer of %s: %v", k, err)
			}
		})
	}
	wg.Wait()
}

// lossyWriter writes events in records of one to four, and checks now and then
// that Sync reaches what was acknowledged.
func lossyWriter(ctx context.Context, n *Node, l Log, w *Watch, events int) error {
	first := func(context.Context, Tail, protocol.Seq) ([]*protocol.Event, error) {
		return []*protocol.Event{{Body: []byte(`{}`)}}, nil
	}
	wr, err := n.OpenWriter(ctx, WriterConfig{
		Log: l, Run: 1, Epoch: protocol.NewEpoch(time.Unix(1764500000, 0)), First: first,
		Deleted: func(context.Context) (bool, error) { return false, nil },
	})
	if err != nil {
		return err
	}
	for i := 1; i < events; i++ {
		seq, err := wr.Append(&protocol.Event{Body: fmt.Appendf(nil, `{"pad":"%050d"}`, i)}, nil)
		if err != nil {
			return err
		}
		if i%4 == 0 {
			if err := wr.Flush(ctx); err != nil {
				return err
			}
		}
		if i%100 == 0 {
			if p, err := w.Sync(ctx); err != nil || p.Head < seq {
				return fmt.Errorf("acknowledged %d, Sync = %+v, %w", seq, p, err)
			}
		}
	}
	return wr.Close(ctx)
}

// lossyReader pulls all events; validate judges what it saw.
func lossyReader(ctx context.Context, w *Watch, events, max int) error {
	var history []step
	b := make(bell, 1)
	w.Add(b)
	defer w.Remove(b)
	var c protocol.Cursor
	var buf []byte
	for c.Seq < protocol.Seq(events) {
		out, last, st := w.Pull(buf[:0], nil, c, 0, max, 0)
		buf = out
		for len(out) > 0 {
			end := 0
			for out[end] != '\n' {
				end++
			}
			e, err := protocol.ParseEventLine(out[:end])
			if err != nil {
				return err
			}
			history = append(history, step{seq: e.Seq})
			out = out[end+1:]
		}
		c.Seq = last
		if st == PullMore || c.Seq == protocol.Seq(events) {
			continue
		}
		if st != PullIdle && st != PullWait && st != PullFailed {
			return fmt.Errorf("status %d at %d", st, c.Seq)
		}
		select {
		case <-b:
		case <-ctx.Done():
			return fmt.Errorf("at %d: %w", c.Seq, ctx.Err())
		}
	}
	return validate(history, protocol.Seq(events))
}
