package guard_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rejoin/journal"
	"rejoin/tests/harness"
	"rejoin/tests/logs"
)

// TestLostKeyFile: the file is gone without which a stream of an encrypted journal
// cannot be opened. It is put back from its copy; without a copy the start is
// refused, and no block was taken for one in clear.
func TestLostKeyFile(t *testing.T) {
	store := filledStore(t, sealed)
	want := contents(t, sealed, copied(t, store))
	lose := func(t *testing.T) (dir string, key []byte, whole [][]byte) {
		t.Helper()
		dir = copied(t, store)
		path := filepath.Join(streamDir(dir, "J0"), "meta.key")
		key, err := os.ReadFile(path)
		if err == nil {
			err = os.Remove(path)
		}
		if err != nil {
			t.Fatal(err)
		}
		return dir, key, contentsOf(t, blocks(t, dir, "J0"))
	}
	t.Run("copy", func(t *testing.T) {
		dir, _, _ := lose(t)
		if got := contents(t, sealed, dir); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%v, want %v", got, want)
		}
	})
	t.Run("no copy", func(t *testing.T) {
		dir, key, whole := lose(t)
		if err := os.RemoveAll(filepath.Join(dir, "meta")); err != nil {
			t.Fatal(err)
		}
		kept := filepath.Join(dir, "guard", "J0")
		n, err := journal.Start(harness.Context(t), configFor(sealed, dir))
		if err == nil {
			logs.Close(t, n)
		}
		if err == nil || !strings.Contains(err.Error(), "J0") || !strings.Contains(err.Error(), filepath.Dir(kept)) {
			t.Fatalf("Start: %v", err)
		}
		found, err := filepath.Glob(filepath.Join(kept, "msgs", "*.blk"))
		if err != nil || !equal(contentsOf(t, found), whole) {
			t.Errorf("the blocks that were kept are not those that were there: %v, %v", found, err)
		}
		if err := os.WriteFile(filepath.Join(kept, "meta.key"), key, 0o600); err != nil {
			t.Fatal(err)
		}
		if got := contents(t, sealed, dir); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("with the file again: %v, want %v", got, want)
		}
	})
	t.Run("record and key", func(t *testing.T) { // what is left says that the journal is encrypted
		dir, _, _ := lose(t)
		for _, path := range []string{"J1", "SNAP", "KV_sessions", "KV_starts"} {
			if err := os.Remove(filepath.Join(streamDir(dir, path), "meta.key")); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Remove(filepath.Join(dir, "encryption")); err != nil {
			t.Fatal(err)
		}
		n, err := journal.Start(harness.Context(t), config(dir, nil))
		if err == nil {
			logs.Close(t, n)
		}
		var format *journal.FormatError
		if !errors.As(err, &format) {
			t.Errorf("Start without a key: %v", err)
		}
	})
}

// contentsOf reads files.
func contentsOf(t *testing.T, paths []string) (out [][]byte) {
	t.Helper()
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, data)
	}
	if len(out) == 0 {
		t.Error("there are no blocks")
	}
	return out
}

func equal(a, b [][]byte) bool { return bytes.Equal(bytes.Join(a, nil), bytes.Join(b, nil)) }
