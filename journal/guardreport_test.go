package journal

import (
	"os"
	"path/filepath"
	"testing"
)

// TestReadDamage: what is in the quarantine and no report of a start does not keep the
// server from starting.
func TestReadDamage(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(dir, quarantineDir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("notes.txt", "seen by me")
	write("copies/1.blk", "x")
	write("20261130T000000Z/"+reportFile, `{"settled":true}`)
	got, err := readDamage(dir)
	if err != nil || len(got) != 1 || !got[0].Settled {
		t.Errorf("got %+v, %v", got, err)
	}
}
