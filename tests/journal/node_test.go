package journal_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rejoin/journal"
	"rejoin/protocol"
	"rejoin/tests/logs"
)

func TestRestartKeepsEverything(t *testing.T) {
	dir := t.TempDir()
	var want []string
	var l journal.Log
	epoch := logs.Epoch(0)
	var instance string
	for run := protocol.Run(1); run <= 3; run++ {
		n := start(t, small(t, dir))
		l = logs.Of(n, "s1")
		if run == 1 {
			instance = n.Instance()
		}
		if n.Instance() != instance || n.UncleanBoot() || n.BootID() == "" {
			t.Errorf("instance %s (want %s), unclean %v, boot id %q", n.Instance(), instance, n.UncleanBoot(), n.BootID())
		}
		cfg := logs.Begin(l, run, "")
		if run == 1 {
			cfg.Epoch = epoch
		}
		w := logs.Open(t, n, cfg)
		if w.Epoch() != epoch {
			t.Errorf("run %d: epoch %s, want %s", run, w.Epoch(), epoch)
		}
		appendEvents(t, w, 0, 300)
		closeWriter(t, w)
		want = append(want, logs.FirstBody)
		for i := range 300 {
			want = append(want, fmt.Sprintf(`{"n":%d}`, i))
		}
		got := readAll(t, n, l)
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Fatalf("run %d: %d events, want %d, or they differ", run, len(got), len(want))
		}
		logs.Close(t, n)
	}
}

func TestStartRefusesMissingStream(t *testing.T) {
	for _, name := range []string{"J3", "KV_sessions"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			logs.Close(t, start(t, small(t, dir)))
			gone := filepath.Join(dir, "jetstream", "$G", "streams", name)
			if err := os.RemoveAll(gone); err != nil {
				t.Fatal(err)
			}
			refusesMissing(t, dir, name, gone)
			if _, err := os.Stat(gone); !errors.Is(err, os.ErrNotExist) {
				t.Error("the stream's directory was made anew")
			}
		})
	}
}

// A stream whose description is broken is mended, not refused and not made
// without its records: from the copy of it, and without one from what every
// stream of its name is.
func TestStartMendsDescription(t *testing.T) {
	for _, copied := range []bool{true, false} {
		t.Run(fmt.Sprintf("copied=%v", copied), func(t *testing.T) {
			dir := t.TempDir()
			n := start(t, small(t, dir))
			l := logs.Of(n, "s1")
			w := logs.Open(t, n, logs.Begin(l, 1, logs.Epoch(0)))
			appendEvents(t, w, 0, 50)
			closeWriter(t, w)
			b, err := n.Bucket(logs.Context(t), "sessions")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := b.Create(logs.Context(t), "default.s1", []byte(`{"id":"s1"}`)); err != nil {
				t.Fatal(err)
			}
			logs.Close(t, n)
			for _, name := range []string{fmt.Sprintf("J%d", l.Shard), "SNAP", "KV_sessions"} {
				stream := filepath.Join(dir, "jetstream", "$G", "streams", name)
				if err := os.WriteFile(filepath.Join(stream, "meta.inf"), []byte("rubbish"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if !copied {
				if err := os.RemoveAll(filepath.Join(dir, "meta")); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 {
				n = start(t, small(t, dir))
				if got := readAll(t, n, l); len(got) != 51 {
					t.Errorf("%d events, want 51", len(got))
				}
				if b, err = n.Bucket(logs.Context(t), "sessions"); err != nil {
					t.Fatal(err)
				}
				if _, err := b.Get(logs.Context(t), "default.s1"); err != nil {
					t.Errorf("Get: %v", err)
				}
				if d := n.Damage(); len(d) != 1 || len(d[0].Streams) != 3 || len(d[0].Sessions) != 0 {
					t.Errorf("damage %+v", d)
				}
				logs.Close(t, n)
			}
		})
	}
}

func refusesMissing(t *testing.T, dir, name, path string) {
	t.Helper()
	_, err := journal.Start(logs.Context(t), small(t, dir))
	var missing *journal.MissingStreamError
	if !errors.As(err, &missing) || missing.Stream != name || missing.Dir != path {
		t.Fatalf("Start: %v, want *MissingStreamError of %s in %s", err, name, path)
	}
	for _, word := range []string{name, path, "backup"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("message lacks %q: %v", word, err)
		}
	}
}

// A crash between the two writes of DATA/format is finished by the next start.
func TestFirstStartIsFinished(t *testing.T) {
	dir := t.TempDir()
	logs.Close(t, start(t, small(t, dir)))
	format := filepath.Join(dir, "format")
	b, err := os.ReadFile(format)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(format, bytes.Replace(b, []byte(`"ready":true`), []byte(`"ready":false`), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"J7", "KV_starts"} {
		if err := os.RemoveAll(filepath.Join(dir, "jetstream", "$G", "streams", name)); err != nil {
			t.Fatal(err)
		}
	}
	n := start(t, small(t, dir))
	if after, err := os.ReadFile(format); err != nil || !bytes.Equal(after, b) {
		t.Errorf("format %s, want %s (%v)", after, b, err)
	}
	logs.Close(t, n)
}

func TestStartRefusesNewerLayout(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "format"), []byte(`{"layout":2,"shards":8,"ready":true,"expect":[]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := journal.Start(logs.Context(t), small(t, dir))
	var format *journal.FormatError
	if !errors.As(err, &format) {
		t.Fatalf("Start: %v, want *FormatError", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "jetstream")); !errors.Is(err, os.ErrNotExist) {
		t.Error("a refused directory was touched")
	}
}

func TestSecondServerIsRefused(t *testing.T) {
	dir := t.TempDir()
	n := start(t, small(t, dir))
	_, err := journal.Start(logs.Context(t), small(t, dir))
	var locked *journal.LockedError
	if !errors.As(err, &locked) || locked.PID != os.Getpid() || locked.Dir != dir {
		t.Fatalf("Start: %v, want *LockedError of %d", err, os.Getpid())
	}
	if want := fmt.Sprintf("data directory %s is in use by process %d", dir, os.Getpid()); err.Error() != want {
		t.Errorf("message %q, want %q", err, want)
	}
	logs.Close(t, n)
	logs.Close(t, start(t, small(t, dir)))
}

func TestFileModes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "data")
	logs.Close(t, start(t, small(t, dir)))
	for name, want := range map[string]os.FileMode{".": 0o700, "format": 0o600, "boot": 0o600, "instance": 0o600, "lock": 0o600} {
		fi, err := os.Stat(filepath.Join(dir, name))
		if err != nil || fi.Mode().Perm() != want {
			t.Errorf("%s: %v, %v; want %v", name, fi.Mode(), err, want)
		}
	}
}

// The server listens nowhere: the process has no socket at all.
func TestNoSocket(t *testing.T) {
	n := start(t, small(t, t.TempDir()))
	w := logs.Open(t, n, logs.Begin(logs.Of(n, "s1"), 1, logs.Epoch(0)))
	appendEvents(t, w, 0, 10)
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skipf("no /proc: %v", err)
	}
	for _, fd := range fds {
		target, err := os.Readlink("/proc/self/fd/" + fd.Name())
		if err == nil && strings.HasPrefix(target, "socket:") {
			t.Errorf("descriptor %s is a %s", fd.Name(), target)
		}
	}
	closeWriter(t, w)
	logs.Close(t, n)
}

func TestCloseLeavesNoGoroutines(t *testing.T) {
	n := start(t, small(t, t.TempDir()))
	w := logs.Open(t, n, logs.Begin(logs.Of(n, "s1"), 1, logs.Epoch(0)))
	appendEvents(t, w, 0, 10)
	closeWriter(t, w)
	logs.Close(t, n)
	if left := leaked(); left != "" {
		t.Errorf("left after Close:\n%s", left)
	}
}

// Close ends a writer that was left open: no call of it hangs.
func TestCloseEndsWriters(t *testing.T) {
	n := start(t, small(t, t.TempDir()))
	cfg := logs.Begin(logs.Of(n, "s1"), 1, logs.Epoch(0))
	cfg.Failed = func(err error) { t.Errorf("Failed(%v)", err) }
	w := logs.Open(t, n, cfg)
	appendEvents(t, w, 0, 10)
	logs.Close(t, n)
	if _, err := w.Append(logs.Event(1), nil); !errors.Is(err, journal.ErrClosed) {
		t.Errorf("Append: %v, want ErrClosed", err)
	}
	if _, err := n.OpenWriter(logs.Context(t), logs.Begin(logs.Of(n, "s2"), 1, logs.Epoch(0))); !errors.Is(err, journal.ErrClosed) {
		t.Errorf("OpenWriter: %v, want ErrClosed", err)
	}
	if err := n.Close(logs.Context(t)); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

// An unclean boot is reported until it is settled, whatever stops in between.
func TestUncleanBootUntilSettled(t *testing.T) {
	dir := t.TempDir()
	logs.Close(t, start(t, small(t, dir)))
	lost := `{"bootId":"00000000-0000-0000-0000-000000000000","clean":false,"durability":"20ms"}`
	if err := os.WriteFile(filepath.Join(dir, "boot"), []byte(lost), 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		n := start(t, small(t, dir))
		if !n.UncleanBoot() {
			t.Fatalf("start %d: not reported", i)
		}
		if i == 1 {
			if err := n.SettleBoot(); err != nil || n.UncleanBoot() {
				t.Fatalf("SettleBoot: %v, still unclean: %v", err, n.UncleanBoot())
			}
		}
		logs.Close(t, n)
	}
	if n := start(t, small(t, dir)); n.UncleanBoot() {
		t.Error("reported after SettleBoot")
	}
}

func TestConfigIsChecked(t *testing.T) {
	for name, cfg := range map[string]journal.Config{
		"no dir":       {},
		"shards":       {Dir: t.TempDir(), Shards: 65},
		"max bytes":    {Dir: t.TempDir(), MaxBytes: -1},
		"not possible": {Dir: "/dev/null/x"},
	} {
		if n, err := journal.Start(logs.Context(t), cfg); err == nil {
			logs.Close(t, n)
			t.Errorf("%s: no error", name)
		}
	}
}

// killedEnv makes the test binary the server that TestKillKeepsAcknowledged kills.
const killedEnv = "REJOIN_TEST_KILLED_DIR"

// Proves I-J2 for a process crash, at both kinds of level: what was
// acknowledged before SIGKILL is there after it, under the same epoch.
func TestKillKeepsAcknowledged(t *testing.T) {
	if dir := os.Getenv(killedEnv); dir != "" {
		appendUntilKilled(t, dir)
		return
	}
	for _, level := range []string{"always", "10m"} {
		t.Run(level, func(t *testing.T) {
			dir := t.TempDir()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKillKeepsAcknowledged$")
			cmd.Env = append(os.Environ(), killedEnv+"="+dir, "REJOIN_TEST_LEVEL="+level)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			acked := lastLine(out, 400)
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // killed, as it should be
			var seq protocol.Seq
			var epoch protocol.Epoch
			if _, err := fmt.Sscan(acked, &seq, &epoch); err != nil || seq < 400 {
				t.Fatalf("child said %q: %v", acked, err)
			}
			n := start(t, small(t, dir))
			tail, err := n.Tail(logs.Context(t), logs.Of(n, "s1"))
			if err != nil || tail.Head < seq || tail.Epoch != epoch || n.UncleanBoot() {
				t.Errorf("tail %+v, %v, unclean %v; acknowledged up to %d of %s", tail, err, n.UncleanBoot(), seq, epoch)
			}
			if got := readAll(t, n, logs.Of(n, "s1")); len(got) < int(seq) {
				t.Errorf("%d events readable, %d acknowledged", len(got), seq)
			}
			logs.Close(t, n)
		})
	}
}

// appendUntilKilled prints the seq of each event once it is acknowledged.
func appendUntilKilled(t *testing.T, dir string) {
	t.Helper()
	d, err := journal.ParseDurability(os.Getenv("REJOIN_TEST_LEVEL"))
	if err != nil {
		t.Fatal(err)
	}
	cfg := small(t, dir)
	cfg.Durability = d
	n := start(t, cfg)
	w := logs.Open(t, n, logs.Begin(logs.Of(n, "s1"), 1, logs.Epoch(0)))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for i := 0; ctx.Err() == nil; i++ {
		if err := w.WaitRoom(ctx); err != nil {
			t.Fatal(err)
		}
		var seq protocol.Seq
		_, err := w.Append(logs.Event(protocol.Seq(i)), func(err error) {
			if err == nil {
				fmt.Println(w.Durable(), w.Epoch())
			}
		})
		if err != nil {
			t.Fatalf("append after %d: %v", seq, err)
		}
	}
}
