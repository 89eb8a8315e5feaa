package journal

import (
	"context"
	"errors"
	"testing"

	"rejoin/protocol"
)

func TestTakeover(t *testing.T) {
	f := newFakeLog()
	w1 := openFake(t, f, testConfig(1))
	if err := await(t, put(t, w1, `"1"`)); err != nil {
		t.Fatal(err)
	}
	cfg := testConfig(2)
	cfg.Epoch = "" // continue
	var got Tail
	var base protocol.Seq
	cfg.First = func(_ context.Context, tail Tail, b protocol.Seq) ([]*protocol.Event, error) {
		got, base = tail, b
		return []*protocol.Event{{Body: []byte(`"a"`)}, {Body: []byte(`"b"`)}}, nil
	}
	w2 := openFake(t, f, cfg)
	if want := (Tail{Epoch: logEpoch, Run: 1, Head: 2}); got != want || base != 3 {
		t.Errorf("First got %+v base %d, want %+v base 3", got, base, want)
	}
	if w2.Epoch() != logEpoch || w2.Head() != 4 || w2.Durable() != 4 {
		t.Errorf("epoch %s head %d durable %d", w2.Epoch(), w2.Head(), w2.Durable())
	}
	f.check(t)
}

// Row 6: a record of the predecessor that was on its way while its successor
// read the log is read and counted.
func TestTakeoverMeetsLateRecord(t *testing.T) {
	f := newFakeLog()
	w1 := openFake(t, f, testConfig(1))
	cfg := testConfig(2)
	cfg.Epoch = ""
	calls := 0
	cfg.First = func(_ context.Context, tail Tail, base protocol.Seq) ([]*protocol.Event, error) {
		if calls++; calls == 1 {
			if err := await(t, put(t, w1, `"late"`)); err != nil {
				return nil, err
			}
		}
		if tail.Head != protocol.Seq(calls) || base != tail.Head+1 {
			t.Errorf("call %d: head %d base %d", calls, tail.Head, base)
		}
		return []*protocol.Event{{Body: []byte(`"second"`)}}, nil
	}
	openFake(t, f, cfg)
	if calls != 2 {
		t.Errorf("First called %d times, want 2", calls)
	}
	if bodies := f.check(t); len(bodies) != 3 || string(bodies[1]) != `"late"` || string(bodies[2]) != `"second"` {
		t.Errorf("log %q", bodies)
	}
	if err := await(t, put(t, w1, `"zombie"`)); !errors.Is(err, ErrFenced) {
		t.Errorf("former owner: %v, want ErrFenced", err)
	}
}

func TestTakeoverLostAck(t *testing.T) {
	f := newFakeLog()
	f.faults = []fault{loseAck, drop}
	w := openFake(t, f, testConfig(1))
	if err := await(t, put(t, w, "1")); err != nil || len(f.check(t)) != 2 {
		t.Errorf("%v, %d events", err, len(f.recs))
	}
}

func TestTakeoverRefuses(t *testing.T) {
	boom := errors.New("boom")
	for _, tc := range []struct {
		name   string
		empty  bool
		change func(*WriterConfig)
		want   error
	}{
		{"older run", false, func(c *WriterConfig) { c.Run = 4 }, ErrFenced},
		{"the same run again", false, func(c *WriterConfig) { c.Run = 5 }, ErrFenced},
		{"empty log of a deleted session", true, func(c *WriterConfig) {
			c.Deleted = func(context.Context) (bool, error) { return true, nil }
		}, ErrFenced},
		{"empty log that should not be", true, func(*WriterConfig) {}, ErrDamaged},
		{"log shorter than known", false, func(c *WriterConfig) { c.MinHead = 9 }, ErrRolledBack},
		{"First fails", false, func(c *WriterConfig) {
			c.First = func(context.Context, Tail, protocol.Seq) ([]*protocol.Event, error) { return nil, boom }
		}, boom},
		{"first event too large", false, func(c *WriterConfig) {
			c.First = func(context.Context, Tail, protocol.Seq) ([]*protocol.Event, error) {
				return []*protocol.Event{{Body: make([]byte, protocol.PartBytesMax)}}, nil
			}
		}, ErrEventTooLarge},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFakeLog()
			if !tc.empty {
				w := openFake(t, f, testConfig(5))
				if err := w.Close(testContext(t)); err != nil {
					t.Fatal(err)
				}
			}
			cfg := testConfig(6)
			cfg.Epoch = ""
			tc.change(&cfg)
			if _, err := tryOpen(t, f, cfg); !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
		})
	}
}

func TestNewEpoch(t *testing.T) {
	f := newFakeLog()
	openFake(t, f, testConfig(1))
	cfg := testConfig(2)
	cfg.Epoch, cfg.MinHead = "01ARZ3NDEKTSV4RRFFQ69G5FAW", 9
	var base protocol.Seq
	first := cfg.First
	cfg.First = func(ctx context.Context, tail Tail, b protocol.Seq) ([]*protocol.Event, error) {
		base = b
		return first(ctx, tail, b)
	}
	w := openFake(t, f, cfg)
	if base != 10 || w.Head() != 10 || w.Epoch() != cfg.Epoch {
		t.Errorf("base %d head %d epoch %s", base, w.Head(), w.Epoch())
	}
	if r := f.recs[1]; r.Epoch() != cfg.Epoch || r.base != 10 || r.prev != f.recs[0].sum {
		t.Errorf("record of epoch %s, base %d, or the chain is broken", r.Epoch(), r.base)
	}
}

func TestTakeoverEndsWithContext(t *testing.T) {
	f := newFakeLog()
	f.lastErr = func() error { return ErrUnavailable }
	life, abort := context.WithCancel(context.Background())
	w, err := newWriter(f.store(), testConfig(1), abort)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ended := false
	if err := w.open(ctx, life, func() { ended = true }); !errors.Is(err, context.Canceled) || !ended {
		t.Errorf("got %v, ended %v", err, ended)
	}
}
