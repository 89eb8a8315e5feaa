package journal

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"
)

// deposed is a cluster whose leader was replaced: until it is well again it answers
// with what it had, and refuses what it does not know.
type deposed struct {
	*fakeLog
	has   int // records that it knows
	asked atomic.Int64
	until func(asked int64) bool // it is still the one who answers
	time  atomic.Int64           // ns, of the writer's clock
}

func (d *deposed) last(ctx context.Context, l Log) (lastRecord, error) {
	n := d.asked.Add(1)
	if !d.until(n) {
		return d.fakeLog.last(ctx, l)
	}
	d.time.Add(int64(confirmFor) / 4)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.has == 0 {
		return lastRecord{}, nil
	}
	return lastRecord{rec: d.recs[d.has-1]}, nil
}

func (d *deposed) publish(ctx context.Context, subject string, data []byte, expect uint64) (uint64, error) {
	if d.until(d.asked.Load() + 1) {
		return 0, &apiError{Code: 400, ErrCode: apiWrongLast, Description: "wrong last sequence"}
	}
	return d.fakeLog.publish(ctx, subject, data, expect)
}

// openDeposed opens a writer of a cluster on d; what it retains is soon too old.
func openDeposed(t *testing.T, d *deposed, cfg WriterConfig) (*Writer, error) {
	t.Helper()
	st := d.store()
	st.publish, st.last, st.confirm, st.keep = d.publish, d.last, confirmFor, time.Nanosecond
	st.clock = func() time.Time { return time.Unix(0, d.time.Add(1)) }
	life, abort := context.WithCancel(context.Background())
	w, err := newWriter(st, cfg, abort)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.open(testContext(t), life, func() {}); err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		abort()
		<-w.done
	})
	return w, nil
}

// TestDeposedLeader: a leader that was replaced says that acknowledged records are
// not there; the writer asks on until another answers, and its record is stored.
func TestDeposedLeader(t *testing.T) {
	for name, has := range map[string]int{"shorter": 2, "empty": 0} {
		t.Run(name, func(t *testing.T) {
			away := false
			d := &deposed{fakeLog: newFakeLog(), has: has}
			d.until = func(asked int64) bool { return away && asked <= 3 }
			w, err := openDeposed(t, d, testConfig(1))
			if err != nil {
				t.Fatal(err)
			}
			for range 3 {
				if err := await(t, put(t, w, `"x"`)); err != nil {
					t.Fatal(err)
				}
			}
			d.asked.Store(0)
			away = true
			if err := await(t, put(t, w, `"y"`)); err != nil {
				t.Fatalf("the record behind a deposed leader: %v", err)
			}
			if asked := d.asked.Load(); asked < 3 {
				t.Errorf("asked %d times: the deposed leader was not met", asked)
			}
			if got := len(d.check(t)); got != 5 {
				t.Errorf("%d events, want 5", got)
			}
		})
	}
}

// TestLossIsBelieved: when leaders have said so for long enough, the writer gives a
// log up that lost more than it retains.
func TestLossIsBelieved(t *testing.T) {
	away := false
	d := &deposed{fakeLog: newFakeLog(), has: 2}
	d.until = func(int64) bool { return away }
	cfg := testConfig(1)
	failed := make(chan error, 1)
	cfg.Failed = func(err error) { failed <- err }
	w, err := openDeposed(t, d, cfg)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := await(t, put(t, w, `"x"`)); err != nil {
			t.Fatal(err)
		}
	}
	d.asked.Store(0)
	away = true
	put(t, w, `"y"`)
	if err := await(t, failed); !errors.Is(err, ErrRolledBack) {
		t.Errorf("got %v, want ErrRolledBack", err)
	}
	if asked := d.asked.Load(); asked < 4 {
		t.Errorf("believed after %d answers, a quarter of the time each", asked)
	}
}

// TestDeposedLeaderAtTakeover: the log seems to end before what is known to be
// durable; the takeover waits for a better answer.
func TestDeposedLeaderAtTakeover(t *testing.T) {
	f := newFakeLog()
	first := openFake(t, f, testConfig(1))
	for range 4 {
		if err := await(t, put(t, first, `"x"`)); err != nil {
			t.Fatal(err)
		}
	}
	for name, has := range map[string]int{"shorter": 2, "empty": 0} {
		t.Run(name, func(t *testing.T) {
			d := &deposed{fakeLog: f, has: has, until: func(asked int64) bool { return asked <= 2 }}
			head := first.Head()
			cfg := testConfig(first.at.run + 1)
			cfg.Epoch, cfg.MinHead = "", head
			w, err := openDeposed(t, d, cfg)
			if err != nil {
				t.Fatalf("take over behind a deposed leader: %v", err)
			}
			if w.Durable() != head+1 {
				t.Errorf("took over at %d, want %d", w.Durable(), head+1)
			}
			first = w
		})
	}
}
