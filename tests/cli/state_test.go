package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"rejoin/tests/harness"
)

// state is the answer of get_snapshot, as far as these tests look.
type state struct {
	Epoch string
	Seq   int `json:"seq"`
	State struct {
		Status  string
		Items   []struct{ Kind, Text string }
		Pending []struct{ InteractionID, Kind string }
	}
}

func snapshotOf(t *testing.T, dir, sid string, args ...string) (s state) {
	t.Helper()
	if err := json.Unmarshal([]byte(want(t, dir, append([]string{"snapshot", sid, "--json"}, args...)...)), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStateOfASession(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	sid := start(t, s.Dir, "--title", "a title")
	want(t, s.Dir, "send", sid, "count 3")
	harness.Eventually(t, "the turn ends", func() bool {
		now := snapshotOf(t, s.Dir, sid)
		return now.State.Status == "idle" && len(now.State.Items) == 2
	})
	out := want(t, s.Dir, "snapshot", sid)
	for _, part := range []string{"session " + sid + ", demo", "title: a title\n", "user\ncount 3\n", "assistant\n1 2 3"} {
		if !strings.Contains(out, part) {
			t.Errorf("%q is missing in:\n%s", part, out)
		}
	}
	if s := snapshotOf(t, s.Dir, sid, "--at", "1"); s.Seq != 1 || len(s.State.Items) != 0 {
		t.Errorf("at 1: %+v", s)
	}
	refused(t, s.Dir, 1, "states are kept from 0 to", "snapshot", sid, "--at", "99999")
	refused(t, s.Dir, 2, "--at", "snapshot", sid, "--at", "-1")
	if out := want(t, s.Dir, "verify", sid); !strings.HasSuffix(out, "0 problems\n") {
		t.Errorf("verify: %s", out)
	}
	var report struct {
		Clean  bool
		Events int
	}
	if err := json.Unmarshal([]byte(want(t, s.Dir, "verify", sid, "--json")), &report); err != nil || !report.Clean || report.Events < 5 {
		t.Errorf("verify --json: %+v, %v", report, err)
	}
	refused(t, s.Dir, 1, "no session begins with", "verify", "nosuch")
}

func TestRespond(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	sid := start(t, s.Dir)
	want(t, s.Dir, "send", sid, "tool")
	var q string
	harness.Eventually(t, "the agent asks", func() bool {
		now := snapshotOf(t, s.Dir, sid)
		if len(now.State.Pending) == 1 {
			q = now.State.Pending[0].InteractionID
		}
		return q != ""
	})
	if out := want(t, s.Dir, "snapshot", sid); !strings.Contains(out, "? "+q+" confirm: ") {
		t.Errorf("the question is not in:\n%s", out)
	}
	refused(t, s.Dir, 2, "allow, deny, answer or cancel is missing", "respond", sid, q)
	refused(t, s.Dir, 2, `"perhaps" is none of`, "respond", sid, q, "perhaps")
	refused(t, s.Dir, 2, "VALUE is not a JSON value", "respond", sid, q, "answer", "{", "--json")
	refused(t, s.Dir, 2, "unexpected argument", "respond", sid, q, "answer", "a", "b")
	refused(t, s.Dir, 1, "", "respond", sid, "1.never", "allow")
	if out := want(t, s.Dir, "respond", sid, q, "allow", "--command-id", "c1"); !strings.HasPrefix(out, "answered: event ") {
		t.Errorf("respond says %q", out)
	}
	want(t, s.Dir, "respond", sid, q, "allow", "--command-id", "c1")
	refused(t, s.Dir, 1, "allow by ", "respond", sid, q, "deny")
}

// A log is trimmed as the configuration says, and what is left is whole.
func TestRetention(t *testing.T) {
	config := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(config, []byte("agents: {cat: {adapter: jsonl, argv: [cat]}}\nretention: {maxEvents: 10}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := harness.Start(t, harness.Options{Args: []string{"--config", config}})
	sid := start(t, s.Dir)
	floor := func() int {
		var infos []struct{ ID, Floor json.RawMessage }
		if err := json.Unmarshal([]byte(want(t, s.Dir, "ls", "--json")), &infos); err != nil || len(infos) != 1 {
			t.Fatalf("%+v, %v", infos, err)
		}
		n, err := strconv.Atoi(string(infos[0].Floor))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	first := want(t, s.Dir, "send", sid, "--json", "0", "--command-id", "first")
	sent := 0
	harness.Eventually(t, "the log is trimmed", func() bool {
		for range 20 {
			sent++
			want(t, s.Dir, "send", sid, "--json", strconv.Itoa(sent))
		}
		return floor() > 4
	})
	if again := want(t, s.Dir, "send", sid, "--json", "0", "--command-id", "first"); strings.Replace(again, "sent already", "sent", 1) != first {
		t.Errorf("the first command is answered %q, then %q", first, again)
	}
	at := floor()
	if s := snapshotOf(t, s.Dir, sid, "--at", strconv.Itoa(at-1)); s.Seq != at-1 {
		t.Errorf("before the floor %d the state is %d", at, s.Seq)
	}
	if out := want(t, s.Dir, "verify", sid); !strings.HasSuffix(out, "0 problems\n") {
		t.Errorf("verify: %s", out)
	}
	want(t, s.Dir, "delete", sid)
}
