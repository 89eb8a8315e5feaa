package journal

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"rejoin/protocol"
)

// slowLeader answers each question for the newest record when it is let, with what
// the log had when it was asked.
type slowLeader struct {
	modelLog
	asked atomic.Int64
	let   chan struct{}
}

func (s *slowLeader) newest(ctx context.Context, l Log) (*Record, error) {
	rec, err := s.modelLog.newest(ctx, l)
	if s.asked.Add(1) == 1 { // the watch is opened
		return rec, err
	}
	select {
	case <-s.let:
		return rec, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// questioned is a watch of a log with one event whose leader answers when it is let.
func questioned(t *testing.T) (*slowLeader, *Hub, *Watch) {
	t.Helper()
	src := &slowLeader{let: make(chan struct{})}
	src.append(1, 0)
	h := newStillHub(t.Context(), src, hubBytes, time.Now, slog.New(slog.DiscardHandler))
	w, err := h.Watch(t.Context(), Log{Key: protocol.Key{Workspace: "w", Session: "s"}})
	if err != nil {
		t.Fatal(err)
	}
	src.asked.Store(1)
	return src, h, w
}

type synced struct {
	at  Position
	err error
}

func syncs(ctx context.Context, w *Watch, n int) chan synced {
	out := make(chan synced, n)
	for range n {
		go func() {
			at, err := w.Sync(ctx)
			out <- synced{at, err}
		}()
	}
	synctest.Wait()
	return out
}

// However many sync at once, the leader is asked twice, and nobody is answered by a
// question that was asked before he came: each finds what was there then.
func TestSyncsShareQuestions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, h, w := questioned(t)
		first := syncs(t.Context(), w, 1)
		w.offer(src.append(1, 0)) // seq 2, after the first question was asked
		rest := syncs(t.Context(), w, 199)
		if n := src.asked.Load(); n != 2 {
			t.Fatalf("%d questions while the first is on its way, want the one of the opening and that", n)
		}
		w.offer(src.append(1, 0)) // seq 3, before the second one
		src.let <- struct{}{}
		if r := <-first; r.err != nil || r.at.Head < 1 {
			t.Errorf("the first: %+v", r)
		}
		synctest.Wait()
		if n := src.asked.Load(); n != 3 || len(rest) != 0 {
			t.Fatalf("%d questions, %d were answered by the first", n, len(rest))
		}
		late := syncs(t.Context(), w, 5)
		src.let <- struct{}{}
		for range 199 {
			if r := <-rest; r.err != nil || r.at.Head < 2 {
				t.Fatalf("one of the rest: %+v", r)
			}
		}
		synctest.Wait()
		if n := src.asked.Load(); n != 4 || len(late) != 0 {
			t.Errorf("%d questions, %d of the late ones were answered before theirs", n, len(late))
		}
		src.let <- struct{}{}
		for range 5 {
			if r := <-late; r.err != nil || r.at.Head < 3 {
				t.Errorf("one of the late ones: %+v", r)
			}
		}
		if n := h.asked.Load(); n != 3 {
			t.Errorf("%d questions are counted", n)
		}
		w.Release()
		h.close()
	})
}

// Who gives up does not take the answer from the others, not even who came first.
func TestSyncThatGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, h, w := questioned(t)
		ctx, cancel := context.WithCancel(t.Context())
		first := syncs(ctx, w, 1)
		second := syncs(ctx, w, 1)
		third := syncs(t.Context(), w, 1)
		cancel()
		for _, c := range []chan synced{first, second} {
			if r := <-c; !errors.Is(r.err, context.Canceled) {
				t.Errorf("gave up: %+v", r)
			}
		}
		src.let <- struct{}{}
		src.let <- struct{}{}
		if r := <-third; r.err != nil || r.at.Head != 1 {
			t.Errorf("the one who stayed: %+v", r)
		}
		w.Release()
		h.close()
	})
}

// A hub that closes ends the questions under way, and takes no new ones.
func TestSyncWhileTheHubCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, h, w := questioned(t)
		waiting := syncs(t.Context(), w, 3)
		h.close()
		late := syncs(t.Context(), w, 2)
		for i := range 5 {
			c := waiting
			if i >= 3 {
				c = late
			}
			if r := <-c; !errors.Is(r.err, ErrClosed) {
				t.Errorf("%d: %+v", i, r)
			}
		}
		w.Release()
	})
}
