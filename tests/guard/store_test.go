package guard_test

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"rejoin/journal"
	"rejoin/protocol"
	"rejoin/tests/harness"
	"rejoin/tests/logs"
)

// blocksWanted is how many blocks each shard has before its writer is killed.
const blocksWanted = 3

// killedStore lets a process write until each shard has several blocks, kills it
// in the middle of that and returns what it acknowledged.
func killedStore(t *testing.T) (dir string, acked map[string]uint64) {
	t.Helper()
	dir = t.TempDir()
	argv := harness.ChildArgv("writer", dir)
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	acked = make(map[string]uint64)
	lines := bufio.NewScanner(out)
	for n := 0; lines.Scan(); n++ {
		var a ack
		if json.Unmarshal(lines.Bytes(), &a) != nil {
			break // the kill cut it
		}
		acked[a.Session] = a.Seq
		if n%50 == 49 && len(acked) == sessions && filled(t, dir, "J0") && filled(t, dir, "J1") {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			break
		}
	}
	for lines.Scan() {
		var a ack
		if json.Unmarshal(lines.Bytes(), &a) == nil {
			acked[a.Session] = a.Seq
		}
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != -1 {
		t.Fatalf("the writer ended by itself: %v", err)
	}
	t.Logf("killed after %v", acked)
	return dir, acked
}

func streamDir(dir, stream string) string {
	return filepath.Join(dir, "jetstream", "$G", "streams", stream)
}

// blocks returns the paths of a stream's blocks, oldest first.
func blocks(t *testing.T, dir, stream string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(streamDir(dir, stream), "msgs", "*.blk"))
	if err != nil {
		t.Fatal(err)
	}
	number := func(path string) int {
		n, _ := strconv.Atoi(strings.TrimSuffix(filepath.Base(path), ".blk"))
		return n
	}
	slices.SortFunc(found, func(a, b string) int { return number(a) - number(b) })
	return found
}

// filled reports whether a stream has several blocks, the newest with many records.
func filled(t *testing.T, dir, stream string) bool {
	t.Helper()
	b := blocks(t, dir, stream)
	if len(b) < blocksWanted {
		return false
	}
	fi, err := os.Stat(b[len(b)-1])
	return err == nil && fi.Size() > 200<<10
}

// copied returns a copy of a data directory.
func copied(t *testing.T, from string) string {
	t.Helper()
	to := t.TempDir()
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(from, path)
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), data, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// change rewrites a file in place.
func change(t *testing.T, path string, f func([]byte) []byte) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, f(data), 0o600); err != nil {
		t.Fatal(err)
	}
}

// recordAt returns where the first record at or after off begins.
func recordAt(block []byte, off int) int {
	at := 0
	for at < off {
		at += int(binary.LittleEndian.Uint32(block[at:]) &^ (1 << 31))
	}
	return at
}

// start starts a node that closes with the test.
func start(t *testing.T, cfg journal.Config) *journal.Node {
	t.Helper()
	ctx := logs.Context(t)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	}
	n, err := journal.Start(ctx, cfg)
	if err != nil {
		t.Fatalf("Start: %v", err)
	}
	t.Cleanup(func() { logs.Close(t, n) })
	return n
}

// hole is events from after+1 to before-1 that are not there.
type hole struct{ after, before protocol.Seq }

// read reads all that is left of a log, checks it, and returns the holes and the
// head.
func read(t *testing.T, n *journal.Node, session string) (holes []hole, head protocol.Seq) {
	t.Helper()
	ctx := logs.Context(t)
	l := logs.Of(n, session)
	tail, err := n.Tail(ctx, l)
	if err != nil {
		t.Fatalf("Tail of %s: %v", session, err)
	}
	for at := protocol.Seq(0); at < tail.Head; {
		recs, err := n.ReadOver(ctx, l, at, 4<<20)
		if err != nil || len(recs) == 0 {
			t.Fatalf("ReadOver of %s after %d: %d records, %v", session, at, len(recs), err)
		}
		for _, r := range recs {
			if r.Base() > at+1 {
				holes = append(holes, hole{at, r.Base()})
			}
			for i := range r.Len() {
				e, err := protocol.ParseEventLine(r.Line(i))
				if err != nil {
					t.Fatalf("%s: event %d: %v", session, r.Base()+protocol.Seq(i), err)
				}
				if e.Source == protocol.SourceChild && string(e.Body) != body(session, uint64(e.Seq)) {
					t.Fatalf("%s: event %d is %.80s", session, e.Seq, e.Body)
				}
			}
			at = r.Last()
		}
	}
	return holes, tail.Head
}

// missing sums up holes.
func missing(holes []hole) (n protocol.Seq) {
	for _, h := range holes {
		n += h.before - h.after - 1
	}
	return n
}

// said returns the holes of a session that the reports tell of.
func said(damage []journal.Damage, session string) (out []hole) {
	for _, d := range damage {
		for _, s := range d.Sessions {
			if s.Session == session && s.Before != 0 {
				out = append(out, hole{s.After, s.Before})
			}
		}
	}
	return out
}

// goesOn appends to a session and restarts the node: what is there stays.
func goesOn(t *testing.T, cfg journal.Config, n *journal.Node, session string) {
	t.Helper()
	ctx := logs.Context(t)
	w, err := n.OpenWriter(ctx, logs.Begin(logs.Of(n, session), 2, logs.Epoch(0)))
	if err != nil {
		t.Fatalf("OpenWriter: %v", err)
	}
	for range 20 {
		seq := uint64(w.Head()) + 1
		if _, err := w.Append(&protocol.Event{TS: 1, Source: protocol.SourceChild, Body: []byte(body(session, seq))}, nil); err != nil {
			t.Fatalf("Append: %v", err)
		}
		if err := w.Flush(ctx); err != nil {
			t.Fatalf("Flush: %v", err)
		}
	}
	head := w.Head()
	if err := w.Close(ctx); err != nil {
		t.Fatalf("Writer.Close: %v", err)
	}
	if err := n.SettleDamage(); err != nil {
		t.Fatalf("SettleDamage: %v", err)
	}
	before, _ := read(t, n, session)
	logs.Close(t, n)
	n = start(t, cfg)
	if d := n.Damage(); len(d) != 0 {
		t.Errorf("the next start reports %+v", d)
	}
	after, now := read(t, n, session)
	if now != head || fmt.Sprint(before) != fmt.Sprint(after) {
		t.Errorf("%s after a restart: head %d, want %d; holes %v, before %v", session, now, head, after, before)
	}
	logs.Close(t, n)
}
