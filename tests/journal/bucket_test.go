package journal_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"rejoin/journal"
	"rejoin/tests/logs"
)

func bucket(t *testing.T, n *journal.Node, name string) *journal.Bucket {
	t.Helper()
	b, err := n.Bucket(logs.Context(t), name)
	if err != nil {
		t.Fatalf("Bucket(%s): %v", name, err)
	}
	return b
}

func TestBucket(t *testing.T) {
	dir := t.TempDir()
	n := start(t, small(t, dir))
	ctx := logs.Context(t)
	b := bucket(t, n, "sessions")
	bucket(t, n, "starts")
	if _, err := n.Bucket(ctx, "other"); err == nil {
		t.Error("an unknown bucket was opened")
	}

	if _, err := b.Get(ctx, "default.s1"); !errors.Is(err, journal.ErrNotFound) {
		t.Errorf("Get: %v, want ErrNotFound", err)
	}
	r1, err := b.Create(ctx, "default.s1", []byte("1"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Create(ctx, "default.s1", []byte("x")); !errors.Is(err, journal.ErrExists) {
		t.Errorf("Create again: %v, want ErrExists", err)
	}
	r2, err := b.Update(ctx, "default.s1", []byte("2"), r1)
	if err != nil || r2 <= r1 {
		t.Fatalf("Update: %d, %v", r2, err)
	}
	if _, err := b.Update(ctx, "default.s1", []byte("x"), r1); !errors.Is(err, journal.ErrRevision) {
		t.Errorf("Update of an old revision: %v, want ErrRevision", err)
	}
	if e, err := b.Get(ctx, "default.s1"); err != nil || string(e.Value) != "2" || e.Revision != r2 || e.Deleted {
		t.Errorf("Get: %+v, %v", e, err)
	}
	for range 2 { // a missing key is no error
		if err := b.Delete(ctx, "default.s1"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.Get(ctx, "default.s1"); !errors.Is(err, journal.ErrNotFound) {
		t.Errorf("Get after Delete: %v, want ErrNotFound", err)
	}
	if _, err := b.Update(ctx, "default.s1", []byte("x"), r2); !errors.Is(err, journal.ErrRevision) {
		t.Errorf("Update after Delete: %v, want ErrRevision", err)
	}
	r3, err := b.Create(ctx, "default.s1", []byte("3"))
	if err != nil || r3 <= r2 {
		t.Fatalf("Create after Delete: %d, %v", r3, err)
	}
	logs.Close(t, n)

	n = start(t, small(t, dir))
	b = bucket(t, n, "sessions")
	if e, err := b.Get(logs.Context(t), "default.s1"); err != nil || string(e.Value) != "3" || e.Revision != r3 {
		t.Errorf("Get after a restart: %+v, %v", e, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Get(ended, "default.s1"); !errors.Is(err, context.Canceled) {
		t.Errorf("Get with an ended context: %v, want context.Canceled", err)
	}
}

func TestBucketWatch(t *testing.T) {
	n := start(t, small(t, t.TempDir()))
	ctx, cancel := context.WithCancel(logs.Context(t))
	b := bucket(t, n, "sessions")
	for i := range 100 {
		if _, err := b.Create(ctx, fmt.Sprintf("default.s%d", i), fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Delete(ctx, "default.s7"); err != nil {
		t.Fatal(err)
	}
	entries := make(chan journal.Entry, 256)
	ended := make(chan error, 1)
	go func() { ended <- b.Watch(ctx, func(e journal.Entry) { entries <- e }) }()
	loaded := map[string]string{}
	for e := range entries {
		if e.Key == "" {
			break
		}
		loaded[e.Key] = string(e.Value)
	}
	if _, there := loaded["default.s7"]; len(loaded) != 99 || there || loaded["default.s42"] != "42" {
		t.Errorf("%d entries at first, deleted one there: %v", len(loaded), there)
	}
	rev, err := b.Create(ctx, "default.new", []byte("a"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Update(ctx, "default.new", []byte("b"), rev); err != nil {
		t.Fatal(err)
	}
	if err := b.Delete(ctx, "default.new"); err != nil {
		t.Fatal(err)
	}
	// The deletion comes; what it replaced may be left out.
	for e := range entries {
		if e.Key != "default.new" || !e.Deleted && string(e.Value) != "a" && string(e.Value) != "b" {
			t.Errorf("change of %s to %q", e.Key, e.Value)
		}
		if e.Deleted {
			break
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Watch: %v, want context.Canceled", err)
	}
}

// A watcher that stops in the middle of many entries leaves nothing blocked.
func TestBucketWatchStopsEarly(t *testing.T) {
	n := start(t, small(t, t.TempDir()))
	b := bucket(t, n, "sessions")
	for i := range 1000 {
		if _, err := b.Create(logs.Context(t), fmt.Sprintf("default.s%d", i), nil); err != nil {
			t.Fatal(err)
		}
	}
	for range 5 {
		ctx, cancel := context.WithCancel(logs.Context(t))
		err := b.Watch(ctx, func(journal.Entry) { cancel() })
		cancel()
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Watch: %v", err)
		}
	}
}

func TestBucketWatchEmpty(t *testing.T) {
	n := start(t, small(t, t.TempDir()))
	ctx, cancel := context.WithCancel(logs.Context(t))
	defer cancel()
	var got []string
	err := bucket(t, n, "starts").Watch(ctx, func(e journal.Entry) {
		got = append(got, e.Key)
		cancel()
	})
	if !errors.Is(err, context.Canceled) || len(got) != 1 || got[0] != "" {
		t.Errorf("got %q, %v", got, err)
	}
}
