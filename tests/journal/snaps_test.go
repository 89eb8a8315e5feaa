package journal_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rejoin/journal"
	"rejoin/tests/logs"
)

func random(n int) []byte {
	rnd := rand.New(rand.NewPCG(uint64(n), 1))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rnd.Uint32())
	}
	return b
}

func TestSnaps(t *testing.T) {
	n := start(t, small(t, t.TempDir()))
	s, ctx := n.Snaps(), logs.Context(t)
	a, b := logs.Of(n, "a"), logs.Of(n, "ab")
	want := map[string][]byte{"1": {}, "20": random(1000), "l0": random(4 << 20), "300": random(4<<20 + 1), "9": random(13 << 20)}
	for name, data := range want {
		if err := s.Put(ctx, a, name, random(10)); err != nil {
			t.Fatal(err)
		}
		if err := s.Put(ctx, a, name, data); err != nil {
			t.Fatalf("put %s: %v", name, err)
		}
		if err := s.Put(ctx, b, name, random(3)); err != nil {
			t.Fatal(err)
		}
	}
	for name, data := range want {
		if got, err := s.Get(ctx, a, name); err != nil || !bytes.Equal(got, data) {
			t.Errorf("get %s: %d bytes, %v", name, len(got), err)
		}
	}
	names, err := s.List(ctx, a)
	slices.Sort(names)
	if err != nil || !slices.Equal(names, []string{"1", "20", "300", "9", "l0"}) {
		t.Errorf("list %v, %v", names, err)
	}
	if err := s.Delete(ctx, a, "300", "never"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(ctx, a, "300"); !errors.Is(err, journal.ErrNoBlob) {
		t.Errorf("get what was deleted: %v", err)
	}
	for range 2 {
		if err := s.DeleteAll(ctx, a); err != nil {
			t.Fatal(err)
		}
		if names, err := s.List(ctx, a); err != nil || len(names) != 0 {
			t.Errorf("list %v, %v", names, err)
		}
	}
	if names, err := s.List(ctx, b); err != nil || len(names) != len(want) {
		t.Errorf("list of the other %v, %v", names, err)
	}
	for _, name := range []string{"", "a.b", "*", ">", "a b", strings.Repeat("x", 65)} {
		if err := s.Put(ctx, a, name, nil); err == nil && name != "*" && name != ">" {
			t.Errorf("the name %q is taken", name)
		}
	}
}

// TestOldDirectoryGainsSnaps: a data directory of before gets the stream; then
// it must have it.
func TestOldDirectoryGainsSnaps(t *testing.T) {
	dir := t.TempDir()
	n := start(t, small(t, dir))
	l := logs.Of(n, "s")
	w := logs.Open(t, n, logs.Begin(l, 1, logs.Epoch(0)))
	appendEvents(t, w, 0, 10)
	closeWriter(t, w)
	logs.Close(t, n)
	format := filepath.Join(dir, "format")
	b, err := os.ReadFile(format)
	if err != nil {
		t.Fatal(err)
	}
	old := bytes.Replace(b, []byte(`,"SNAP"`), nil, 1)
	if bytes.Equal(old, b) {
		t.Fatalf("format %s", b)
	}
	snap := filepath.Join(dir, "jetstream", "$G", "streams", "SNAP")
	if err := errors.Join(os.WriteFile(format, old, 0o600), os.RemoveAll(snap)); err != nil {
		t.Fatal(err)
	}
	n = start(t, small(t, dir))
	if after, err := os.ReadFile(format); err != nil || !bytes.Equal(after, b) {
		t.Errorf("format %s, want %s (%v)", after, b, err)
	}
	if err := n.Snaps().Put(logs.Context(t), l, "1", []byte("x")); err != nil {
		t.Error(err)
	}
	if bodies := readAll(t, n, l); len(bodies) != 11 {
		t.Errorf("%d events", len(bodies))
	}
	logs.Close(t, n)
	n = start(t, small(t, dir))
	if got, err := n.Snaps().Get(logs.Context(t), l, "1"); err != nil || string(got) != "x" {
		t.Errorf("after a restart: %q, %v", got, err)
	}
	logs.Close(t, n)
	if err := os.RemoveAll(snap); err != nil {
		t.Fatal(err)
	}
	refusesMissing(t, dir, "SNAP", snap)
}
