package journal_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rejoin/journal"
)

func TestSmoke(t *testing.T) {
	dir := t.TempDir()
	n := start(t, small(t, dir))
	w := open(t, n, writerConfig(logOf(n, "s1"), 1, newEpoch()))
	appendEvents(t, w, 0, 1000)
	if w.Durable() != 1001 {
		t.Fatal(w.Durable())
	}
	closeWriter(t, w)
	stop(t, n)
}

func TestStartRefusesMissingStream(t *testing.T) {
	dir := t.TempDir()
	n := start(t, small(t, dir))
	stop(t, n)
	gone := filepath.Join(dir, "jetstream", "$G", "streams", "J3")
	if err := os.RemoveAll(gone); err != nil {
		t.Fatal(err)
	}
	_, err := journal.Start(deadline(t), small(t, dir))
	var missing *journal.MissingStreamError
	if !errors.As(err, &missing) || missing.Stream != "J3" || missing.Dir != gone {
		t.Fatalf("Start: %v, want *MissingStreamError for J3 in %s", err, gone)
	}
	if !strings.Contains(err.Error(), gone) {
		t.Errorf("message does not name the directory: %v", err)
	}
	if _, err := os.Stat(gone); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the stream's directory was made anew")
	}
}
