package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"rejoin/journal"
	"rejoin/protocol"
	"rejoin/tests/harness"
	"rejoin/tests/logs"
)

func bucket(tb testing.TB, n *journal.Node, name string) *journal.Bucket {
	tb.Helper()
	b, err := n.Bucket(logs.Context(tb), name)
	if err != nil {
		tb.Fatalf("Bucket(%s): %v", name, err)
	}
	return b
}

// mirror is what a watch has told.
type mirror struct {
	mu     sync.Mutex
	loaded int
	have   map[string]string
	ended  chan error
}

// watch mirrors a bucket until the test ends.
func watch(tb testing.TB, b *journal.Bucket) *mirror {
	tb.Helper()
	m := &mirror{have: map[string]string{}, ended: make(chan error, 1)}
	ctx, cancel := context.WithCancel(tb.Context())
	go func() { m.ended <- b.Watch(ctx, m.take) }()
	tb.Cleanup(func() {
		cancel()
		if err := <-m.ended; !errors.Is(err, context.Canceled) {
			tb.Errorf("Watch: %v", err)
		}
	})
	logs.Eventually(tb, "the watch has loaded", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.loaded > 0
	})
	return m
}

func (m *mirror) take(e journal.Entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case e.Key == "":
		m.loaded++
	case e.Deleted:
		delete(m.have, e.Key)
	default:
		m.have[e.Key] = string(e.Value)
	}
}

func (m *mirror) is(want map[string]string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.have) != len(want) {
		return false
	}
	for k, v := range want {
		if m.have[k] != v {
			return false
		}
	}
	return true
}

func TestBuckets(t *testing.T) {
	servers(t, func(t *testing.T, s *harness.NATSServers) {
		a, b := connect(t, config(t, s, "a")), connect(t, config(t, s, "b"))
		for _, name := range []string{"sessions", "starts", protocol.BucketWorkers, protocol.BucketGateways} {
			bucket(t, a, name)
		}
		if _, err := a.Bucket(logs.Context(t), "other"); err == nil {
			t.Error("a bucket that is not expected opens")
		}
		ours, theirs := bucket(t, a, "sessions"), bucket(t, b, "sessions")
		ctx := logs.Context(t)
		rev, err := ours.Create(ctx, "default/s1", []byte("one"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := theirs.Create(ctx, "default/s1", []byte("two")); !errors.Is(err, journal.ErrExists) {
			t.Errorf("Create again: %v, want ErrExists", err)
		}
		e, err := theirs.Get(ctx, "default/s1")
		if err != nil || string(e.Value) != "one" || e.Revision != rev {
			t.Errorf("Get: %q at %d, %v", e.Value, e.Revision, err)
		}
		next, err := theirs.Update(ctx, "default/s1", []byte("two"), rev)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ours.Update(ctx, "default/s1", []byte("three"), rev); !errors.Is(err, journal.ErrRevision) {
			t.Errorf("Update of an old revision: %v, want ErrRevision", err)
		}
		for range 200 { // one after the other, as fast as they are answered
			if next, err = ours.Update(ctx, "default/s1", []byte("more"), next); err != nil {
				t.Fatal(err)
			}
		}
		if err := ours.Delete(ctx, "default/s1"); err != nil {
			t.Fatal(err)
		}
		if _, err := theirs.Get(ctx, "default/s1"); !errors.Is(err, journal.ErrNotFound) {
			t.Errorf("Get of a deleted key: %v, want ErrNotFound", err)
		}
		if _, err := theirs.Create(ctx, "default/s1", []byte("again")); err != nil {
			t.Errorf("Create of a deleted key: %v", err)
		}
		if _, err := ours.Get(ctx, "no good"); err == nil || errors.Is(err, journal.ErrUnavailable) {
			t.Errorf("a bad key: %v", err)
		}
	})
}

func TestBucketWatch(t *testing.T) {
	servers(t, func(t *testing.T, s *harness.NATSServers) {
		a, b := connect(t, config(t, s, "a")), connect(t, config(t, s, "b"))
		ours := bucket(t, a, "sessions")
		ctx := logs.Context(t)
		want := map[string]string{}
		revs := map[string]uint64{}
		put := func(key, value string) {
			t.Helper()
			var err error
			if revs[key] == 0 {
				revs[key], err = ours.Create(ctx, key, []byte(value))
			} else {
				revs[key], err = ours.Update(ctx, key, []byte(value), revs[key])
			}
			if err != nil {
				t.Fatal(err)
			}
			want[key] = value
		}
		remove := func(key string) {
			t.Helper()
			if err := ours.Delete(ctx, key); err != nil {
				t.Fatal(err)
			}
			delete(want, key)
			delete(revs, key)
		}
		for i := range 300 {
			put(fmt.Sprintf("default/s%d", i), "x")
		}
		remove("default/s7")
		put("default/s8", "y")
		m := watch(t, bucket(t, b, "sessions"))
		if !m.is(want) {
			t.Error("what was there before is not all told when the watch says it is")
		}
		for i := range 50 {
			put(fmt.Sprintf("default/t%d", i), "z")
			put(fmt.Sprintf("default/t%d", i), "zz")
		}
		remove("default/s9")
		remove("default/t3")
		logs.Eventually(t, "the changes come", func() bool { return m.is(want) })
	})
}
