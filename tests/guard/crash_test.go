package guard_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"rejoin/journal"
	"rejoin/protocol"
	"rejoin/tests/harness"
	"rejoin/tests/logs"
)

// starter starts a node and kills itself at the step whose number it is given;
// it prints the steps it passes.
func starter(args []string) int {
	at, err := strconv.Atoi(args[1])
	if err != nil {
		return 2
	}
	step := 0
	cfg := configFor(args[2], args[0])
	cfg.GuardFault = func(name string) error {
		if step++; step == at {
			fmt.Println("killed at", name)
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // until it arrives
		}
		return sabotage(args[2], args[0], name)
	}
	n, err := journal.Start(context.Background(), cfg)
	if err != nil {
		fmt.Println("not started:", err)
		return 1
	}
	fmt.Println("started")
	if err := n.Close(context.Background()); err != nil {
		return 1
	}
	return 0
}

// sabotage plays a server that loses a stream while it opens it, once.
func sabotage(how, dir, step string) error {
	if how != "lose" || step != "opening" {
		return nil
	}
	marker := filepath.Join(dir, "lost-once")
	if _, err := os.Stat(marker); err == nil {
		return nil
	}
	if err := os.WriteFile(marker, nil, 0o600); err != nil {
		return err
	}
	return os.RemoveAll(streamDir(dir, "J0"))
}

// sealed is the variant of a test whose store is encrypted.
const sealed = "sealed"

// configFor is config for a variant of a test.
func configFor(how, dir string) journal.Config {
	cfg := config(dir, nil)
	if how == sealed {
		cfg.Key = bytes.Repeat([]byte("k"), journal.KeyBytesMin)
	}
	return cfg
}

// filledStore is a store of a few records, stopped in order.
func filledStore(t *testing.T, how string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	n := start(t, configFor(how, dir))
	for k := range sessions {
		name := "s" + strconv.Itoa(k)
		ctx := harness.Context(t)
		w, err := n.OpenWriter(ctx, logs.Begin(logs.Of(n, name), 1, logs.Epoch(0)))
		if err != nil {
			t.Fatal(err)
		}
		for i := uint64(2); i < 40; i++ {
			if _, err := w.Append(&protocol.Event{TS: 1, Source: protocol.SourceChild, Body: []byte(body(name, i))}, nil); err != nil {
				t.Fatal(err)
			}
			if err := w.Flush(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(ctx); err != nil {
			t.Fatal(err)
		}
	}
	logs.Close(t, n)
	return dir
}

// smallStore is a filledStore with damage in it, and what is left of it once it
// is repaired. The records of an encrypted one stay whole: no guard can mend them.
func smallStore(t *testing.T, how string) (dir string, want map[string]string) {
	t.Helper()
	dir = filledStore(t, how)
	spoiled := []string{"SNAP"}
	if how == sealed {
		spoiled = []string{"SNAP", "J0", "KV_sessions"}
	} else {
		for _, stream := range []string{"J0", "J1"} {
			flip(t, blocks(t, dir, stream)[0], func(b []byte) int { return recordAt(b, len(b)/2) + 100 })
		}
	}
	for _, stream := range spoiled {
		if err := os.WriteFile(filepath.Join(streamDir(dir, stream), "meta.sum"), []byte("rubbish"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	healthy := copied(t, dir)
	return dir, contents(t, how, healthy)
}

// contents starts a store and says what every session has.
func contents(t *testing.T, how, dir string) map[string]string {
	t.Helper()
	n := start(t, configFor(how, dir))
	out := make(map[string]string)
	lost := 0
	for k := range sessions {
		name := "s" + strconv.Itoa(k)
		holes, head := read(t, n, name)
		out[name] = fmt.Sprint(head, holes)
		lost += len(holes)
		if got := fmt.Sprint(said(n.Damage(), name)); got != fmt.Sprint(holes) {
			t.Errorf("%s: holes %v, told of %s", name, holes, got)
		}
	}
	holes := 2 // one in each shard
	if how == sealed {
		holes = 0
	}
	if lost != holes {
		t.Errorf("%d holes, want %d: %v", lost, holes, out)
	}
	logs.Close(t, n)
	return out
}

// TestKilledGuard: a start that is killed at any step of the guard leaves a store
// from which the next one makes the same, and tells the same.
func TestKilledGuard(t *testing.T) {
	for _, how := range []string{"repair", "lose", sealed} {
		t.Run(how, func(t *testing.T) {
			store, want := smallStore(t, how)
			var steps []string
			for at := 1; ; at++ {
				dir := copied(t, store)
				argv := harness.ChildArgv("starter", dir, strconv.Itoa(at), how)
				out, err := exec.CommandContext(t.Context(), argv[0], argv[1:]...).Output()
				said := strings.TrimSpace(string(out))
				if err == nil && said == "started" {
					break
				}
				step, killed := strings.CutPrefix(said, "killed at ")
				if !killed {
					t.Fatalf("step %d: %s, %v", at, said, err)
				}
				steps = append(steps, step)
				if got := contents(t, how, dir); fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("killed at step %d, %s: %v, want %v", at, step, got, want)
				}
				for _, left := range []string{"guard", "guard.new", "guard.old"} {
					if _, err := os.Lstat(filepath.Join(dir, left)); err == nil {
						t.Errorf("killed at step %d, %s: %s is left", at, step, left)
					}
				}
				if t.Failed() {
					return
				}
			}
			t.Logf("%d steps: %s", len(steps), strings.Join(steps, " "))
			wanted := []string{"kept", "reported", "mended", "written", "replaced", "unindexed", "guarded", "opened", "verified", "released"}
			switch how {
			case "lose":
				wanted = append(wanted, "copied", "put")
			case sealed: // no block is rewritten
				wanted = []string{"reported", "moved", "mended", "guarded", "opened", "verified", "released"}
			}
			for _, s := range wanted {
				if !strings.Contains(strings.Join(steps, " "), s) {
					t.Errorf("no start was killed at %q", s)
				}
			}
		})
	}
}

// A server that loses a stream while it opens it is stopped, and the stream put
// back; one that does so each time is refused, and nothing is lost.
func TestServerLosesStream(t *testing.T) {
	store, want := smallStore(t, "repair")
	dir := copied(t, store)
	cfg := config(dir, nil)
	cfg.GuardFault = func(step string) error {
		if step == "opening" {
			return os.RemoveAll(streamDir(dir, "J0"))
		}
		return nil
	}
	_, err := journal.Start(harness.Context(t), cfg)
	if err == nil || !strings.Contains(err.Error(), "J0") || !strings.Contains(err.Error(), filepath.Join(dir, "guard")) {
		t.Fatalf("Start: %v", err)
	}
	if got := contents(t, "repair", dir); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("after a refusal: %v, want %v", got, want)
	}
}
