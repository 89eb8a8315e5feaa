package full_test

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rejoin/tests/harness"
)

// quota writes a configuration with the least journal that there may be.
func quota(t *testing.T) []string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rejoin.yaml")
	if err := os.WriteFile(path, []byte("journal: {maxBytes: 256MiB}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"--config", path}
}

// TestShardNearItsLimit: from 85 % of a shard its sessions' output waits, their
// commands are taken, other shards go on; what a delete frees is used by itself.
func TestShardNearItsLimit(t *testing.T) {
	harness.Covers(t, "I-W2")
	harness.Covers(t, "I-W4")
	const shard = 3
	w := newWorld(t, harness.Options{Args: quota(t)})
	ballast := w.startAs(idIn(shard), "fast", 30_000) // about 18 MiB of the 32 of its shard
	harness.Eventually(t, "ballast", func() bool { return ballast.seen() >= 30_000 })
	flood := w.startAs(idIn(shard), "fast", 40_000) // over the rest

	harness.Eventually(t, "the shard is tight", func() bool { return w.status().Shards[shard].State == "tight" })
	harness.Eventually(t, "the session says so", func() bool { return w.info(flood).Blocked != "" })
	stalled := flood.seen()
	harness.Eventually(t, "output stands still", func() bool {
		was := stalled
		stalled = flood.seen()
		return was == stalled
	})
	for range 20 {
		if err := w.command(flood); err != nil {
			t.Fatalf("a command to a session of a tight shard: %v", err)
		}
	}
	harness.Eventually(t, "the commands are in the log", func() bool {
		flood.mu.Lock()
		defer flood.mu.Unlock()
		return len(flood.admits) == 20
	})
	harness.Holds(t, 2*time.Second, "output waits", func() bool { return flood.seen() <= stalled+1024 })
	now := w.status()
	if used := now.Shards[shard]; used.UsedBytes < used.QuotaBytes/100*84 || used.UsedBytes > used.QuotaBytes/100*95 {
		t.Errorf("the shard holds %d of %d bytes", used.UsedBytes, used.QuotaBytes)
	}
	other := w.startAs(idIn(shard+1), "paced", 2000)
	harness.Eventually(t, "another shard goes on", func() bool { return other.seen() > 500 })
	if b := w.info(other).Blocked; b != "" {
		t.Errorf("a session of another shard is blocked: %s", b)
	}

	if out := w.rejoin("ls"); !strings.Contains(out, "waits: journal tight") || !strings.Contains(out, "near its limit") {
		t.Errorf("rejoin ls does not show why sessions wait:\n%s", out)
	}
	said := w.attach(flood)
	harness.Eventually(t, "rejoin attach says why the session waits", func() bool { return strings.Contains(said(), "the session waits: journal tight") })

	harness.Do[json.RawMessage](t, w.c, "delete_session", map[string]any{"sessionId": ballast.id})
	w.sessions = w.sessions[1:]
	harness.Eventually(t, "output goes on to its end", func() bool { return flood.seen() >= 40_000 })
	harness.Eventually(t, "the session is not blocked", func() bool { return w.info(flood).Blocked == "" })
	harness.Eventually(t, "rejoin attach says that it goes on", func() bool { return strings.Contains(said(), "the session goes on") })
	lines, commands := w.check()
	t.Logf("%d lines, %d acknowledged commands", lines, commands)
	if n := w.restarts(); n != 0 {
		t.Errorf("the engine was restarted %d times", n)
	}
}

// rejoin runs a command of the command line and returns what it says.
func (w *world) rejoin(args ...string) string {
	w.t.Helper()
	cmd := exec.CommandContext(harness.Context(w.t), harness.Binary(w.t), append(args, "--data-dir", w.server.Dir)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.t.Fatalf("rejoin %s: %v\n%s", args, err, out)
	}
	return string(out)
}

// attach runs rejoin attach for the rest of the test and returns what tells what
// it has said besides events.
func (w *world) attach(s *session) func() string {
	w.t.Helper()
	said, err := os.Create(filepath.Join(w.t.TempDir(), "said"))
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, harness.Binary(w.t), "attach", "--plain", s.id, "--data-dir", w.server.Dir)
	cmd.Stderr = said
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was killed, or the session has ended
		_ = said.Close()
	})
	return func() string {
		b, err := os.ReadFile(said.Name())
		if err != nil {
			w.t.Fatal(err)
		}
		return string(b)
	}
}

// idIn makes up a session id that is in that shard.
func idIn(shard int) string {
	for i := 0; ; i++ {
		id := fmt.Sprintf("s%d-%d", shard, i)
		h := fnv.New64a()
		_, _ = h.Write([]byte("default/" + id)) // a hash never fails
		if int(h.Sum64()%shards) == shard && !given[id] {
			given[id] = true
			return id
		}
	}
}

var given = map[string]bool{}

const shards = 8
