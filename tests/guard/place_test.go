package guard_test

import (
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"rejoin/journal"
	"rejoin/tests/logs"
)

// refuses is a start that must fail with those words and change nothing.
func refuses(t *testing.T, how, dir, says string) {
	t.Helper()
	before := names(t, dir)
	ctx := logs.Context(t)
	n, err := journal.Start(ctx, configFor(how, dir))
	if err == nil {
		logs.Close(t, n)
		t.Fatal("it starts")
	}
	if !strings.Contains(err.Error(), says) {
		t.Errorf("%v, want %q", err, says)
	}
	if now := names(t, dir); !maps.Equal(before, now) {
		t.Errorf("before %v, now %v", before, now)
	}
}

// names are the files in guard and quarantine folders and in the streams, with their sizes.
func names(t *testing.T, dir string) map[string]int64 {
	t.Helper()
	out := map[string]int64{}
	for _, glob := range []string{"guard*", "guard/*", "quarantine/*", "jetstream/$G/streams/*/*", "jetstream/$G/streams/*/msgs/*"} {
		found, err := filepath.Glob(filepath.Join(dir, glob))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range found {
			fi, err := os.Lstat(path)
			if err != nil {
				t.Fatal(err)
			}
			out[path] = fi.Size()
		}
	}
	return out
}

// elsewhere returns a folder on another file system than dir.
func elsewhere(t *testing.T, dir string) string {
	t.Helper()
	other, err := os.MkdirTemp("/dev/shm", "rejoin-guard-") //nolint:usetesting // which is where dir is
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(other); err != nil {
			t.Error(err)
		}
	})
	var here, there unix.Stat_t
	if err := unix.Stat(dir, &here); err != nil {
		t.Fatal(err)
	}
	if err := unix.Stat(other, &there); err != nil {
		t.Fatal(err)
	}
	if here.Dev == there.Dev {
		t.Skip("/dev/shm is no other file system")
	}
	return other
}

// TestStreamsElsewhere: streams of another file system could not be put back when a
// start is killed, so they are refused before anything is changed. What such a start
// has left comes right once the streams are where they belong.
func TestStreamsElsewhere(t *testing.T) {
	dir, want := smallStore(t, "flip")
	js := filepath.Join(dir, "jetstream")
	there := filepath.Join(elsewhere(t, dir), "jetstream")
	if err := os.CopyFS(there, os.DirFS(js)); err != nil {
		t.Fatal(err)
	}
	kept := js + ".kept"
	if err := os.Rename(js, kept); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(there, js); err != nil {
		t.Fatal(err)
	}
	refuses(t, "flip", dir, js+" is on another file system than the data directory, or is mounted on its own")
	if err := os.Remove(js); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(kept, js); err != nil {
		t.Fatal(err)
	}
	if got := contents(t, "flip", dir); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestLinkedFiles: a block, a description or a stream that is a symbolic link is
// refused, and not taken for damage.
func TestLinkedFiles(t *testing.T) {
	dir := filledStore(t, "")
	for _, path := range []string{blocks(t, dir, "J0")[0], filepath.Join(streamDir(dir, "J0"), "meta.inf"), streamDir(dir, "J1")} {
		away := filepath.Join(dir, "away")
		if err := os.Rename(path, away); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(away, path); err != nil {
			t.Fatal(err)
		}
		refuses(t, "", dir, path+" is a symbolic link: put there what it leads to")
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(away, path); err != nil {
			t.Fatal(err)
		}
	}
	n := start(t, configFor("", dir))
	for k := range sessions {
		if holes, head := read(t, n, "s"+strconv.Itoa(k)); len(holes) > 0 || head < 39 {
			t.Errorf("s%d: holes %v, head %d", k, holes, head)
		}
	}
	if d := n.Damage(); len(d) > 0 {
		t.Errorf("damage %+v", d)
	}
}
