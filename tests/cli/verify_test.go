package cli_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"rejoin/tests/harness"
)

// TestVerify: the exit status tells whether all is well, of one session and of
// all; the chain's head is printed for whoever keeps it.
func TestVerify(t *testing.T) {
	config := filepath.Join(t.TempDir(), "rejoin.yaml")
	if err := os.WriteFile(config, []byte("retention: {maxEvents: 20}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := harness.Start(t, harness.Options{Args: []string{"--config", config}})
	one, two := start(t, s.Dir), start(t, s.Dir)
	want(t, s.Dir, "send", one, "count 100")
	harness.Eventually(t, "the log is trimmed", func() bool {
		var info struct{ Floor, Head int }
		for line := range strings.Lines(want(t, s.Dir, "ls", "--json")) {
			var all []struct {
				ID          string
				Floor, Head int
			}
			if err := json.Unmarshal([]byte(line), &all); err != nil {
				t.Fatal(err)
			}
			for _, i := range all {
				if i.ID == one {
					info.Floor, info.Head = i.Floor, i.Head
				}
			}
		}
		return info.Floor > 50 && info.Head-info.Floor < 20
	})
	want(t, s.Dir, "stop", one)
	want(t, s.Dir, "stop", two)
	if out := want(t, s.Dir, "verify", "--all"); !strings.Contains(out, one+": events ") || !strings.Contains(out, two+": events ") || !strings.HasSuffix(out, "\n2 sessions, 0 with problems\n") {
		t.Errorf("verify --all: %s", out)
	}
	head := want(t, s.Dir, "verify", "--head", one)
	if !regexp.MustCompile(`^[0-9A-Z]{26} \d+ [0-9a-f]{64}\n$`).MatchString(head) {
		t.Errorf("verify --head: %q", head)
	}
	var report struct{ Epoch, Chain string }
	if err := json.Unmarshal([]byte(want(t, s.Dir, "verify", one, "--json")), &report); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(head, report.Epoch+" ") || !strings.HasSuffix(head, " "+report.Chain+"\n") {
		t.Errorf("head %q, report %+v", head, report)
	}
	part := strings.Fields(head)
	if r := run(t, s.Dir, "verify", one, "--expect-head", part[0]+" 1 "+part[2]); r.code != 1 || !strings.Contains(r.out, "kept head: event 1 is not kept any more") {
		t.Errorf("a head that was trimmed: %d, %s%s", r.code, r.out, r.err)
	}
	refused(t, s.Dir, 2, "", "verify")
	refused(t, s.Dir, 2, "", "verify", "--all", one)
	refused(t, s.Dir, 2, "--head", "verify", "--all", "--head")

	// All checkpoints are lost while the server is down.
	s.Term()
	msgs := filepath.Join(s.Dir, "jetstream", "$G", "streams", "SNAP", "msgs")
	files, err := os.ReadDir(msgs)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if err := os.Remove(filepath.Join(msgs, f.Name())); err != nil {
			t.Fatal(err)
		}
	}
	s.Run()
	if r := run(t, s.Dir, "verify", one); r.code != 1 || !strings.Contains(r.out, "no checkpoint for the state at") {
		t.Errorf("verify of a session without its checkpoints: %d, %s%s", r.code, r.out, r.err)
	}
	if r := run(t, s.Dir, "verify", "--all"); r.code != 1 || !strings.HasSuffix(r.out, "2 sessions, 1 with problems\n") {
		t.Errorf("verify --all: %d, %s%s", r.code, r.out, r.err)
	}
	if r := run(t, s.Dir, "verify", "--all", "--json"); r.code != 1 || strings.Count(r.out, "\n") != 2 || !strings.Contains(r.out, `"clean":false`) {
		t.Errorf("verify --all --json: %d, %s%s", r.code, r.out, r.err)
	}
	if out := want(t, s.Dir, "snapshot", one, "--json"); !strings.Contains(out, `"damaged":true`) {
		t.Errorf("snapshot: %.300s", out)
	}
	c, ctx := harness.Dial(t, s), harness.Context(t)
	for _, p := range []map[string]any{{"from": "snapshot"}, {"after": 0}} {
		sub, err := c.Subscribe(ctx, one, p)
		if err != nil {
			t.Fatal(err)
		}
		if snap, err := sub.Snapshot(ctx, 0); err != nil || snap.Reason != "damaged" {
			t.Errorf("subscribe %v: a snapshot because of %q, %v", p, snap.Reason, err)
		}
		if err := c.Unsubscribe(ctx, sub); err != nil {
			t.Fatal(err)
		}
	}
	want(t, s.Dir, "resume", one)
	want(t, s.Dir, "send", one, "count 100")
	harness.Eventually(t, "all is well again", func() bool { return run(t, s.Dir, "verify", one).code == 0 })
	want(t, s.Dir, "stop", one)
	if out := want(t, s.Dir, "verify", one); !strings.HasSuffix(out, "0 problems\n") {
		t.Errorf("verify: %s", out)
	}
}

// TestExpectHead: a head of the chain that somebody kept is found again however much
// has come since, and any other one is not.
func TestExpectHead(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	one, two := start(t, s.Dir), start(t, s.Dir)
	want(t, s.Dir, "stop", one)
	old := strings.TrimSpace(want(t, s.Dir, "verify", "--head", one))
	kept := filepath.Join(t.TempDir(), "head")
	if err := os.WriteFile(kept, []byte(old+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		want(t, s.Dir, "verify", one, "--expect-head", kept)
		want(t, s.Dir, "verify", one, "--expect-head", old, "--json")
		want(t, s.Dir, "resume", one)
		want(t, s.Dir, "stop", one)
		if now := strings.TrimSpace(want(t, s.Dir, "verify", "--head", one)); now == old {
			t.Fatal("the log has not grown")
		}
	}
	part := strings.Fields(old)
	for _, c := range []struct{ session, expect, says string }{
		{one, part[0] + " " + part[1] + " " + strings.Repeat("0", 64), "kept head: the record that ends with event " + part[1] + " has another hash, " + part[2]},
		{one, strings.Repeat("0", 26) + " " + part[1] + " " + part[2], "kept head: event " + part[1] + " of epoch 000"},
		{one, part[0] + " 999999 " + part[2], "kept head: the log ends before event 999999"},
		{one, part[0] + " 0 " + part[2], "kept head: event 0 is none"},
		{two, kept, "kept head: "},
	} {
		if r := run(t, s.Dir, "verify", c.session, "--expect-head", c.expect); r.code != 1 || !strings.Contains(r.out, c.says) {
			t.Errorf("--expect-head %s: %d, want %q\n%s%s", c.expect, r.code, c.says, r.out, r.err)
		}
	}
	refused(t, s.Dir, 2, "neither EPOCH SEQ SHA256 nor a file", "verify", one, "--expect-head", "nowhere")
	refused(t, s.Dir, 2, "want EPOCH SEQ SHA256", "verify", one, "--expect-head", part[0]+" x "+part[2])
	refused(t, s.Dir, 1, "64 hex digits", "verify", one, "--expect-head", part[0]+" 7 beef")
	refused(t, s.Dir, 2, "one session", "verify", "--all", "--expect-head", old)
}

// TestLostEnd: a log lost its end while the server was down. It goes on in a new
// epoch, above every seq that was known, from the newest checkpoint.
func TestLostEnd(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	sid := start(t, s.Dir)
	want(t, s.Dir, "send", sid, "count 30")
	harness.Eventually(t, "the turn ends", func() bool { return snapshotOf(t, s.Dir, sid).State.Status == "idle" })
	want(t, s.Dir, "stop", sid)
	before := snapshotOf(t, s.Dir, sid)
	s.Term()
	streams := filepath.Join(s.Dir, "jetstream", "$G", "streams")
	for shard := range 8 {
		msgs := filepath.Join(streams, fmt.Sprintf("J%d", shard), "msgs")
		block := filepath.Join(msgs, "1.blk")
		b, err := os.ReadFile(block)
		if err != nil || len(b) < 2000 {
			continue
		}
		if err := os.WriteFile(block, b[:len(b)-700], 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(filepath.Join(msgs, "index.db")); err != nil {
			t.Fatal(err)
		}
	}
	s.Run()
	c, ctx := harness.Dial(t, s), harness.Context(t)
	if _, err := c.Call(ctx, "resume_session", map[string]any{"sessionId": sid}); err != nil {
		t.Fatal(err)
	}
	now := snapshotOf(t, s.Dir, sid)
	if now.Epoch == before.Epoch || now.Seq <= before.Seq || len(now.State.Items) < len(before.State.Items) {
		t.Errorf("before: epoch %s, %d, %d items; now: epoch %s, %d, %d items", before.Epoch, before.Seq, len(before.State.Items), now.Epoch, now.Seq, len(now.State.Items))
	}
	sub, err := c.Subscribe(ctx, sid, map[string]any{"after": before.Seq - 3, "epoch": before.Epoch})
	if err != nil {
		t.Fatal(err)
	}
	if snap, err := sub.Snapshot(ctx, 0); err != nil || snap.Reason != "epoch" {
		t.Errorf("an old cursor: a snapshot because of %q, %v", snap.Reason, err)
	}
	if out := want(t, s.Dir, "events", sid, "--json"); !strings.Contains(out, `"reason":"rolled_back"`) {
		t.Errorf("events: %.600s", out)
	}
}
