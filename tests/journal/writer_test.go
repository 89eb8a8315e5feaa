package journal_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"rejoin/journal"
	"rejoin/protocol"
	"rejoin/tests/logs"
)

// lastLine reads n lines and returns the last of them.
func lastLine(r io.Reader, n int) string {
	s := bufio.NewScanner(r)
	for range n {
		if !s.Scan() {
			break
		}
	}
	return s.Text()
}

// Proves I-J3: of two writers only the newer run writes, and what the older one
// had acknowledged stays.
func TestFenceBetweenWriters(t *testing.T) {
	n := start(t, small(t, t.TempDir()))
	l := logs.Of(n, "s1")
	failed := make(chan error, 1)
	cfg := logs.Begin(l, 1, logs.Epoch(0))
	cfg.Failed = func(err error) { failed <- err }
	w1 := logs.Open(t, n, cfg)
	appendEvents(t, w1, 0, 50)

	w2 := logs.Open(t, n, logs.Begin(l, 2, ""))
	told := make(chan error, 1)
	if _, err := w1.Append(logs.Event(99), func(err error) { told <- err }); err != nil {
		t.Fatal(err)
	}
	for _, c := range []chan error{told, failed} {
		select {
		case err := <-c:
			if !errors.Is(err, journal.ErrFenced) {
				t.Errorf("old writer: %v, want ErrFenced", err)
			}
		case <-logs.Context(t).Done():
			t.Fatal("the old writer was not told")
		}
	}
	appendEvents(t, w2, 50, 50)
	if got := readAll(t, n, l); len(got) != 102 || strings.Contains(strings.Join(got, ""), `{"n":99}{"n":50}`) {
		t.Errorf("%d events, want 102", len(got))
	}
	if _, err := n.OpenWriter(logs.Context(t), logs.Begin(l, 2, "")); !errors.Is(err, journal.ErrFenced) {
		t.Errorf("the same run again: %v, want ErrFenced", err)
	}
}

// Many takeovers while the owner of the moment writes: every acknowledged event
// is in the log once, in order. Proves I-J3 under races.
func TestFenceUnderLoad(t *testing.T) {
	n := start(t, small(t, t.TempDir()))
	l := logs.Of(n, "s1")
	var mu sync.Mutex
	acked := map[string]bool{}
	var wg sync.WaitGroup
	for run := protocol.Run(1); run <= 12; run++ {
		cfg := logs.Begin(l, run, "")
		if run == 1 {
			cfg.Epoch = logs.Epoch(0)
		}
		w := logs.Open(t, n, cfg)
		wg.Go(func() {
			for i := range 100000 {
				body := fmt.Sprintf(`"%d/%d"`, run, i)
				_, err := w.Append(&protocol.Event{Body: []byte(body)}, func(err error) {
					if err == nil {
						mu.Lock()
						acked[body] = true
						mu.Unlock()
					}
				})
				if err != nil || w.WaitRoom(t.Context()) != nil {
					return // fenced
				}
				if run == 12 && i == 500 {
					return
				}
			}
		})
		logs.Eventually(t, "some events of this run", func() bool { return w.Durable() > w.Head()-w.Head()/2 || w.Durable() > 200 })
	}
	wg.Wait()
	logs.Eventually(t, "the log at rest", func() bool {
		a, err := n.Tail(logs.Context(t), l)
		b, err2 := n.Tail(logs.Context(t), l)
		return err == nil && err2 == nil && a == b
	})
	seen := map[string]int{}
	for _, body := range readAll(t, n, l) {
		seen[body]++
	}
	mu.Lock()
	defer mu.Unlock()
	for body := range acked {
		if seen[body] != 1 {
			t.Errorf("acknowledged %s is in the log %d times", body, seen[body])
		}
	}
	if len(acked) == 0 {
		t.Error("nothing was acknowledged")
	}
}

// Lines of several MiB are stored whole, between small ones.
func TestLargeEvents(t *testing.T) {
	n := start(t, small(t, t.TempDir()))
	l := logs.Of(n, "s1")
	w := logs.Open(t, n, logs.Begin(l, 1, logs.Epoch(0)))
	want := []string{logs.FirstBody}
	for i, size := range []int{10, 3 << 20, 10, 5 << 20, 9 << 20, 10} {
		body := `"` + strings.Repeat(string(rune('a'+i)), size) + `"`
		want = append(want, body)
		if _, err := w.Append(&protocol.Event{Body: []byte(body)}, nil); err != nil {
			t.Fatal(err)
		}
	}
	closeWriter(t, w)
	got := readAll(t, n, l)
	if len(got) != len(want) {
		t.Fatalf("%d events, want %d", len(got), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("event %d differs: %d bytes, want %d", i+1, len(got[i]), len(want[i]))
		}
	}
}

// A full shard stalls its writers, loses nothing, and lets them go on when
// there is room.
func TestFullShard(t *testing.T) {
	cfg := small(t, t.TempDir())
	cfg.Shards, cfg.MaxBytes = 1, 4<<20
	n := start(t, cfg)
	hog, victim := logs.Of(n, "hog"), logs.Of(n, "victim")
	w := logs.Open(t, n, logs.Begin(victim, 1, logs.Epoch(0)))
	h := logs.Open(t, n, logs.Begin(hog, 1, logs.Epoch(0)))
	noise := []byte(`"` + noise(60<<10) + `"`)
	for i := 0; ; i++ {
		if _, err := h.Append(&protocol.Event{Body: noise}, nil); err != nil {
			t.Fatal(err)
		}
		logs.Eventually(t, "an outcome", func() bool { return h.Durable() == h.Head() || h.Stalled() })
		if h.Durable() < h.Head() {
			break // full
		}
		if i > 100 {
			t.Fatal("6 MB fit in 4 MiB")
		}
	}
	told := make(chan error, 1)
	if _, err := w.Append(&protocol.Event{Body: noise}, func(err error) { told <- err }); err != nil {
		t.Fatal(err)
	}
	logs.Eventually(t, "Stalled", w.Stalled)
	if w.Durable() != 1 {
		t.Errorf("durable %d while full", w.Durable())
	}
	if err := n.Purge(logs.Context(t), hog); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-told:
		if err != nil || w.Durable() != 2 {
			t.Errorf("after the purge: %v, durable %d", err, w.Durable())
		}
	case <-logs.Context(t).Done():
		t.Fatal("the writer did not go on")
	}
	logs.Eventually(t, "not Stalled", func() bool { return !w.Stalled() })
	if got := readAll(t, n, victim); len(got) != 2 {
		t.Errorf("%d events of the victim, want 2", len(got))
	}
}

// noise is n characters that do not compress well.
func noise(n int) string {
	var b strings.Builder
	x := uint64(88172645463325252)
	for b.Len() < n {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b.WriteByte(' ' + 3 + byte(x%56)) // printable, no quote, no backslash
	}
	return b.String()
}

// A larger MaxBytes takes effect at the next start.
func TestLimitFollowsConfig(t *testing.T) {
	cfg := small(t, t.TempDir())
	cfg.Shards, cfg.MaxBytes = 1, 1<<20
	for round, limit := range []int64{1 << 20, 8 << 20} {
		cfg.MaxBytes = limit
		n := start(t, cfg)
		wc := logs.Begin(logs.Of(n, "s1"), protocol.Run(round+1), "")
		if round == 0 {
			wc.Epoch = logs.Epoch(0)
		}
		w := logs.Open(t, n, wc)
		big := []byte(`"` + noise(400<<10) + `"`)
		stored := 0
		for range 8 {
			if _, err := w.Append(&protocol.Event{Body: big}, func(err error) {
				if err == nil {
					stored++
				}
			}); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(logs.Context(t))
		if round == 0 {
			logs.Eventually(t, "full", w.Stalled)
			cancel()
		}
		err := w.Close(ctx)
		cancel()
		if full := round == 0; full != errors.Is(err, journal.ErrClosed) || full == (stored == 8) {
			t.Errorf("limit %d: %d stored, Close: %v", limit, stored, err)
		}
		logs.Close(t, n)
	}
}

func TestOpenWriterChecksNames(t *testing.T) {
	n := start(t, small(t, t.TempDir()))
	for _, l := range []journal.Log{
		{Key: protocol.Key{Workspace: "default", Session: "a.b"}},
		{Key: protocol.Key{Workspace: "", Session: "a"}},
		{Key: protocol.Key{Workspace: "default", Session: "a>"}},
		{Key: protocol.Key{Workspace: "default", Session: "a"}, Shard: 8},
		{Key: protocol.Key{Workspace: "default", Session: "a"}, Shard: -1},
	} {
		if _, err := n.OpenWriter(logs.Context(t), logs.Begin(l, 1, logs.Epoch(0))); err == nil {
			t.Errorf("%+v: no error", l)
		}
	}
}
