package full_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rejoin/journal"
	"rejoin/protocol"
	"rejoin/tests/harness"
)

// aloneEnv is set in the process that ownProcess starts.
const aloneEnv = "REJOIN_TEST_ALONE"

// ownProcess runs the calling test in a process of its own and reports how it
// ended; there it returns false. A limit of this process would hit what go test
// writes for its cache, too.
func ownProcess(t *testing.T) (done bool) {
	t.Helper()
	if os.Getenv(aloneEnv) == t.Name() {
		return false
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.count=1")
	cmd.Env = append(os.Environ(), aloneEnv+"="+t.Name())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if !bytes.Contains(out, []byte("PASS")) {
		t.Errorf("it did not pass by itself:\n%s", out)
	}
	return true
}

// writesFail makes every write of this process to a file fail, until the returned
// function is called. The test has a process of its own.
func writesFail(t *testing.T) (lift func()) {
	t.Helper()
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 0, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	lift = func() {
		once.Do(func() {
			if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &was); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(lift)
	return lift
}

// TestRestartInPlace: while the engine is sick and restarted, requests over the
// bus and reads go on without one error, watches of buckets and logs read on, and
// a writer's records come through once each.
func TestRestartInPlace(t *testing.T) {
	harness.Covers(t, "I-J2")
	harness.Covers(t, "I-J4")
	if ownProcess(t) {
		return
	}
	node, err := journal.Start(harness.Context(t), journal.Config{
		Dir: t.TempDir(), Durability: journal.Durability{Interval: 500 * time.Millisecond}, MaxBytes: 256 << 20,
	})
	if err != nil {
		t.Fatal(err)
	}
	k := protocol.Key{Workspace: protocol.DefaultWorkspace, Session: "s"}
	l := journal.Log{Key: k, Shard: node.ShardOf(k)}
	w, err := node.OpenWriter(harness.Context(t), journal.WriterConfig{
		Log: l, Run: 1, Epoch: protocol.NewEpoch(time.Now()),
		First: func(context.Context, journal.Tail, protocol.Seq) ([]*protocol.Event, error) {
			return []*protocol.Event{{Body: []byte("1")}}, nil
		},
		Deleted: func(context.Context) (bool, error) { return false, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	live, err := node.Hub().Watch(harness.Context(t), l)
	if err != nil {
		t.Fatal(err)
	}
	bucket, err := node.Bucket(harness.Context(t), "sessions")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bucket.Create(harness.Context(t), "before", []byte("1")); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	seen := watchBucket(ctx, t, &running, bucket)
	harness.Eventually(t, "the watch is loaded", func() bool { return seen("before") && seen("") })
	keepAsking(ctx, t, &running, node, l)

	lift := writesFail(t)
	for range 10 {
		if _, err := w.Append(&protocol.Event{Body: []byte(`"during"`)}, nil); err != nil {
			t.Fatal(err)
		}
	}
	harness.Eventually(t, "the journal is sick", func() bool { return node.Health().State == journal.HealthSick })
	if w.Durable() == w.Head() {
		t.Error("records became durable while writes failed")
	}
	lift()
	if err := w.Flush(harness.Context(t)); err != nil {
		t.Fatalf("the writer does not go on: %v", err)
	}
	harness.Eventually(t, "the journal is well", func() bool { return node.Health().State == journal.HealthOK })
	if _, err := bucket.Create(harness.Context(t), "after", []byte("1")); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the bucket's watch reads on", func() bool { return seen("after") })
	if _, err := w.Append(&protocol.Event{Body: []byte(`"after"`)}, nil); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the log's watch reads on", func() bool { return live.Position().Head == 12 })
	cancel()
	running.Wait()
	recs, err := node.Read(harness.Context(t), l, 0, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	var next protocol.Seq = 1
	for _, r := range recs {
		if r.Base() != next || r.Run() != 1 {
			t.Errorf("broke I-J1: a record of run %d begins at %d, want %d", r.Run(), r.Base(), next)
		}
		next = r.Last() + 1
	}
	if next != 13 {
		t.Errorf("the log ends before %d", next)
	}
	live.Release()
	if err := errors.Join(w.Close(harness.Context(t)), node.Close(harness.Context(t))); err != nil {
		t.Error(err)
	}
}

// watchBucket watches, and returns what tells whether a key was seen; "" is seen
// when everything is loaded.
func watchBucket(ctx context.Context, t *testing.T, running *sync.WaitGroup, b *journal.Bucket) func(key string) bool {
	t.Helper()
	var mu sync.Mutex
	keys := map[string]int{}
	running.Go(func() {
		err := b.Watch(ctx, func(e journal.Entry) {
			mu.Lock()
			defer mu.Unlock()
			keys[e.Key]++
			if e.Key == "" && keys[""] > 1 {
				t.Error("the watch is said to be loaded twice")
			}
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the watch of the bucket ended: %v", err)
		}
	})
	return func(key string) bool {
		mu.Lock()
		defer mu.Unlock()
		return keys[key] > 0
	}
}

// keepAsking asks over the bus, and for the head and the first event of the log,
// until ctx ends; none of it may fail.
func keepAsking(ctx context.Context, t *testing.T, running *sync.WaitGroup, node *journal.Node, l journal.Log) {
	t.Helper()
	stop, err := node.Bus().Serve("echo", func(data []byte, reply func([]byte)) { reply(data) })
	if err != nil {
		t.Fatal(err)
	}
	for what, ask := range map[string]func() error{
		"bus": func() error {
			_, err := node.Bus().Request(ctx, "echo", []byte("1"))
			return err
		},
		"tail": func() error {
			_, err := node.Tail(ctx, l)
			return err
		},
		"read": func() error {
			_, err := node.ReadBefore(ctx, l, 2, 1, 1<<10)
			return err
		},
	} {
		running.Go(func() {
			for ctx.Err() == nil {
				if err := ask(); err != nil && ctx.Err() == nil {
					t.Errorf("%s while the engine is sick or restarted: %v", what, err)
					return
				}
			}
		})
	}
	running.Go(func() {
		<-ctx.Done()
		stop()
	})
}

// TestLoweredLimit: where a shard holds more than it may, the records that end and
// delete sessions fit nevertheless.
func TestLoweredLimit(t *testing.T) {
	dir := t.TempDir()
	k := protocol.Key{Workspace: protocol.DefaultWorkspace, Session: "s"}
	epoch := protocol.NewEpoch(time.Now())
	for run, limit := range []int64{8 << 20, 1 << 20} {
		node, err := journal.Start(harness.Context(t), journal.Config{
			Dir: dir, Durability: journal.Durability{Interval: 500 * time.Millisecond}, Shards: 1, MaxBytes: limit,
		})
		if err != nil {
			t.Fatal(err)
		}
		l := journal.Log{Key: k}
		first := epoch
		if run > 0 {
			first = ""
			if h := node.Health(); h.State != journal.HealthFull {
				t.Errorf("%v with twice as much as may be", h)
			}
		}
		w, err := node.OpenWriter(harness.Context(t), journal.WriterConfig{
			Log: l, Run: protocol.Run(run + 1), Epoch: first,
			First: func(context.Context, journal.Tail, protocol.Seq) ([]*protocol.Event, error) {
				return []*protocol.Event{{Body: []byte(`"taken over"`)}}, nil
			},
			Deleted: func(context.Context) (bool, error) { return false, nil },
		})
		if err != nil {
			t.Fatalf("take over: %v", err)
		}
		if run == 0 {
			if _, err := w.Append(&protocol.Event{Body: noise(2 << 20)}, nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(harness.Context(t)); err != nil {
			t.Fatal(err)
		}
		if run > 0 {
			if err := node.Purge(harness.Context(t), l); err != nil {
				t.Fatal(err)
			}
			harness.Eventually(t, "there is room", func() bool { return node.Health().State == journal.HealthOK })
		}
		if err := node.Close(harness.Context(t)); err != nil {
			t.Fatal(err)
		}
	}
}
