package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
)

// A log that lost acknowledged records gets them again, byte for byte, as long as
// they join what is left and the registry names their writer.
func TestRestore(t *testing.T) {
	for _, lost := range []int{1, 3, 6, 7} {
		t.Run(fmt.Sprint(lost), func(t *testing.T) {
			f := newFakeLog()
			cfg := testConfig(1)
			asked := 0
			cfg.Repair = func(context.Context) error { asked++; return nil }
			w := openFake(t, f, cfg)
			for i := range 6 {
				if err := await(t, put(t, w, fmt.Sprint(i))); err != nil {
					t.Fatal(err)
				}
			}
			before := slices.Clone(f.attempts)
			f.truncate(lost)
			f.faults = []fault{pass, loseAck} // the refused one, and the first that is stored again
			if err := await(t, put(t, w, "6")); err != nil {
				t.Fatal(err)
			}
			if bodies := f.check(t); len(bodies) != 8 || asked == 0 {
				t.Errorf("%d events in the log, %d questions", len(bodies), asked)
			}
			for _, again := range f.attempts[len(before):] {
				if !slices.ContainsFunc(before, func(b []byte) bool { return bytes.Equal(b, again) }) && !bytes.Contains(again, []byte(`"event":6`)) {
					t.Error("a record is stored in another form")
				}
			}
		})
	}
}

func TestRestoreRefused(t *testing.T) {
	newer := errors.New("newer run")
	for name, tc := range map[string]struct {
		repair func(context.Context) error
		keep   time.Duration
		want   error
	}{
		"no repair": {nil, time.Hour, ErrRolledBack},
		"fenced":    {func(context.Context) error { return errors.Join(newer, ErrFenced) }, time.Hour, ErrFenced},
		"too old":   {func(context.Context) error { return nil }, -1, ErrRolledBack},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeLog()
			f.keep = tc.keep
			cfg := testConfig(1)
			cfg.Repair = tc.repair
			w := openFake(t, f, cfg)
			for i := range 3 {
				if err := await(t, put(t, w, fmt.Sprint(i))); err != nil {
					t.Fatal(err)
				}
			}
			f.truncate(2)
			if err := await(t, put(t, w, "3")); !errors.Is(err, tc.want) {
				t.Errorf("then: %v, want %v", err, tc.want)
			}
			if len(f.recs) != 2 {
				t.Errorf("%d records after the writer gave up", len(f.recs))
			}
		})
	}
}

// What is retained is bounded.
func TestRetainedLimits(t *testing.T) {
	var r retained
	data := make([]byte, 100<<10)
	for i := range 3000 {
		n := len(data)
		if i >= 1000 {
			n = 10
		}
		r.add(&header{part: 1}, data[:n], chainHash{}, int64(i), time.Hour)
		if r.bytes > retainedBytesMax || len(r.list) > retainedRecordsMax {
			t.Fatalf("%d bytes in %d records", r.bytes, len(r.list))
		}
	}
	r.expire(int64(2*time.Hour), time.Hour)
	if r.bytes != 0 || r.list != nil {
		t.Errorf("%d bytes in %d records are kept for too long", r.bytes, len(r.list))
	}
}
