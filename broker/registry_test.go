package broker

import (
	"context"
	"errors"
	"testing"

	"rejoin/journal"
	"rejoin/protocol"
)

// TestRegistryOrder: what arrives late, by the watch, never hides what is newer.
func TestRegistryOrder(t *testing.T) {
	var seen []string
	r := newRegistry(func(old, cur *protocol.SessionRecord) {
		from := "nothing"
		if old != nil {
			from = old.Title
		}
		seen = append(seen, from+">"+cur.Title)
	})
	rec := func(title string) *protocol.SessionRecord {
		return &protocol.SessionRecord{Workspace: "default", ID: "a", Title: title}
	}
	title := func() string {
		if c := r.record(keyA); c != nil {
			return c.Title
		}
		return "nothing"
	}
	want := func(w string) {
		t.Helper()
		if title() != w {
			t.Fatalf("record: got %s, want %s", title(), w)
		}
	}
	r.put(keyA, rec("two"), 2)
	r.put(keyA, rec("one"), 1)
	r.put(keyA, rec("two again"), 2)
	want("two")
	r.forget(keyA, 1) // an older deletion
	want("two")
	r.forget(keyA, 3)
	want("nothing")
	r.put(keyA, rec("four"), 4)
	want("four")
	// A deletion made here hides older news until its own arrives.
	r.cache[keyA] = entry{rev: 4}
	r.put(keyA, rec("four"), 4)
	want("nothing")
	r.forget(keyA, 5)
	if len(r.cache) != 0 {
		t.Error("a forgotten record is kept")
	}
	if len(seen) != 2 || seen[0] != "nothing>two" || seen[1] != "nothing>four" {
		t.Errorf("changes: %q", seen)
	}
	if _, err := r.change(context.Background(), keyA, tombstone); !errors.Is(err, journal.ErrUnavailable) {
		t.Errorf("a registry that is not open: %v", err)
	}
}

func TestClone(t *testing.T) {
	code := 1
	rec := &protocol.SessionRecord{Argv: []string{"a"}, Env: []string{"b"}, Exit: &protocol.Exit{Code: &code, Reason: "x"}, Labels: map[string]string{"l": "x"}}
	c := clone(rec)
	c.Argv[0], c.Env[0], c.Exit.Reason, c.Labels["l"] = "z", "z", "z", "z"
	if rec.Labels["l"] != "x" || rec.Argv[0] != "a" || rec.Env[0] != "b" || rec.Exit.Reason != "x" {
		t.Errorf("the copy changed the original: %+v", rec)
	}
}

func TestRegistryKey(t *testing.T) {
	if k, ok := parseRegistryKey(registryKey(keyA)); !ok || k != keyA {
		t.Errorf("%v, %v", k, ok)
	}
	for _, s := range []string{"", "a", ".a", "a.", "a.b.c", "a.b c"} {
		if k, ok := parseRegistryKey(s); ok {
			t.Errorf("%q is %v", s, k)
		}
	}
}

func TestErrNotOwnerIsFence(t *testing.T) {
	if !errors.Is(ErrNotOwner, journal.ErrFenced) {
		t.Error("a worker would not see a fence in it")
	}
}
