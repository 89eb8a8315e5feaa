package full_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rejoin/tests/harness"
)

// diskBytes is the size of the small disk.
const diskBytes = 192 << 20

// smallDisk returns a directory on a file system that a test can fill: a tmpfs
// of its own where it may mount one, else /dev/shm where that is small (64 MiB in
// a container). Otherwise the test is skipped: TestWritesFail, which needs
// nothing, runs the same course.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=192m")
	if err == nil {
		t.Cleanup(func() {
			if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
				t.Errorf("unmount: %v", err)
			}
		})
		return dir
	}
	var st unix.Statfs_t
	if serr := unix.Statfs("/dev/shm", &st); serr != nil || int64(st.Blocks)*st.Bsize > diskBytes || int64(st.Bavail)*st.Bsize < 48<<20 {
		t.Skipf("no small disk to fill: mount: %v; /dev/shm is not small (%v)", err, serr)
	}
	dir, err = os.MkdirTemp("/dev/shm", "rejoin-full-") //nolint:usetesting // a memory file system, whatever TMPDIR is
	if err != nil {
		t.Skipf("no small disk to fill: %v", err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fill takes all of the disk but spare bytes.
func fill(t *testing.T, dir string, spare int64) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(dir, "filler"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }() // the space is what counts
	var have int64
	for step := int64(64 << 20); step >= 4096; {
		var st unix.Statfs_t
		if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
			t.Fatal(err)
		}
		free := int64(st.Bavail)*st.Bsize - spare
		if spare > 0 && free < step {
			step /= 2
			continue
		}
		err := unix.Fallocate(int(f.Fd()), 0, have, step)
		switch {
		case err == nil:
			have += step
		case errors.Is(err, unix.ENOSPC):
			step /= 2
		default:
			t.Fatal(err)
		}
	}
}

func unfill(t *testing.T, dir string) {
	t.Helper()
	if err := os.Remove(filepath.Join(dir, "filler")); err != nil {
		t.Fatal(err)
	}
}

// fullDisk has something else take the whole disk.
func fullDisk(dir string) fault {
	return fault{
		word: "free space", states: []string{"full", "sick"},
		strike: func(w *world) { fill(w.t, dir, 0) },
		lift:   func(w *world) { unfill(w.t, dir) },
	}
}

// TestDiskFull: something else takes all space while sessions print.
func TestDiskFull(t *testing.T) {
	for _, durability := range []string{"always", "500ms"} {
		t.Run(durability, func(t *testing.T) {
			dir := smallDisk(t)
			w := newWorld(t, harness.Options{DataDir: filepath.Join(dir, "data"), Args: []string{"--durability", durability}})
			w.outage(fullDisk(dir))
		})
	}
}

// TestStartOnFullDisk: the start is refused with a reason, changes nothing, and
// works when there is space.
func TestStartOnFullDisk(t *testing.T) {
	dir := smallDisk(t)
	w := newWorld(t, harness.Options{DataDir: filepath.Join(dir, "data")})
	s := w.start("paced", 1000)
	harness.Eventually(t, "output", func() bool { return s.seen() >= 1000 })
	w.server.Kill9()
	harness.Eventually(t, "the child is gone", func() bool { return !harness.Living(s.pid) })
	fill(t, dir, 0)
	before := contents(t, w.server.Dir)

	if err := w.server.TryRun(); err == nil {
		t.Fatal("the server started")
	}
	log := w.server.LogTail()
	if !strings.Contains(log, "is full") || !strings.Contains(log, "Free space there and start again") {
		t.Errorf("the refusal does not say what to do\n%s", log)
	}
	for name, size := range contents(t, w.server.Dir) {
		if before[name] != size {
			t.Errorf("%s had %d bytes, now %d", name, before[name], size)
		}
		delete(before, name)
	}
	for name := range before {
		t.Errorf("%s is gone", name)
	}

	unfill(t, dir)
	w.server.Run()
	w.c = harness.Dial(t, w.server)
	page := harness.Do[struct {
		Head uint64 `json:"head"`
	}](t, w.c, "read_events", map[string]any{"sessionId": s.id, "after": 0})
	if page.Head < uint64(s.seen()) {
		t.Errorf("broke I-J2: the log ends at %d, %d lines were seen", page.Head, s.seen())
	}
}

// contents are the files of the journal and their sizes.
func contents(t *testing.T, dir string) map[string]int64 {
	t.Helper()
	out := map[string]int64{}
	err := filepath.Walk(filepath.Join(dir, "jetstream"), func(path string, fi os.FileInfo, err error) error {
		if err == nil && !fi.IsDir() {
			out[path] = fi.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestStartWithLittleSpace: a server that starts in the state full can be read and
// tidied up.
func TestStartWithLittleSpace(t *testing.T) {
	dir := smallDisk(t)
	w := newWorld(t, harness.Options{DataDir: filepath.Join(dir, "data")})
	s := w.start("paced", 1000)
	harness.Eventually(t, "output", func() bool { return s.seen() >= 1000 })
	w.server.Term()
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	fill(t, dir, int64(st.Blocks)*st.Bsize/100*3)
	w.server.Run()
	w.c = harness.Dial(t, w.server)
	w.checkState("full")
	_, err := w.c.Call(harness.Context(t), "start_session", map[string]any{"argv": []string{"cat"}, "adapter": "lines"})
	if !w.refusedAs(err, "free space") {
		t.Errorf("start_session answered %v", err)
	}
	_, err = w.c.Call(harness.Context(t), "resume_session", map[string]any{"sessionId": s.id})
	if !w.refusedAs(err, "free space") {
		t.Errorf("resume_session answered %v", err)
	}
	w.history()
	harness.Do[json.RawMessage](t, w.c, "delete_session", map[string]any{"sessionId": s.id})
	unfill(t, dir)
	harness.Eventually(t, "the journal is well again", func() bool { return w.status().State == "ok" })
}

// TestPolicyWaitsForSpace: a program that crashes on a full disk is started again
// by its policy when there is space; no try is used up before.
func TestPolicyWaitsForSpace(t *testing.T) {
	dir := smallDisk(t)
	w := newWorld(t, harness.Options{DataDir: filepath.Join(dir, "data")})
	w.restart = "resume"
	s := w.start("paced", 100)
	harness.Eventually(t, "output", func() bool { return s.seen() >= 100 })
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	fill(t, dir, int64(st.Blocks)*st.Bsize/100*3)
	harness.Eventually(t, "the journal is full", func() bool { return w.status().State == "full" })
	if err := syscall.Kill(s.pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the end is recorded", func() bool { return w.info(s).State == "exited" })
	harness.Holds(t, 3*time.Second, "the restart waits", func() bool {
		now := w.info(s)
		return now.Run == 1 && now.Restarting
	})
	unfill(t, dir)
	harness.Eventually(t, "the program runs again", func() bool {
		now := w.info(s)
		return now.Run == 2 && now.State == "running"
	})
	log, err := os.ReadFile(w.server.LogPath)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(log, []byte("restart failed")) {
		t.Error("tries were used up while the journal took nothing")
	}
}
