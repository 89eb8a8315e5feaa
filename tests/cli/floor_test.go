package cli_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rejoin/tests/harness"
)

// Events that are asked for and not kept are named, the rest is printed, and the
// exit code tells a script that it has not got all.
func TestEventsBehindTheFloor(t *testing.T) {
	config := filepath.Join(t.TempDir(), "rejoin.yaml")
	if err := os.WriteFile(config, []byte("retention: {maxEvents: 20}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := harness.Start(t, harness.Options{Args: []string{"--config", config}})
	sid := start(t, s.Dir)
	want(t, s.Dir, "send", sid, "flood 500")
	want(t, s.Dir, "send", sid, "exit")
	var info struct {
		State       string
		Floor, Head int
	}
	harness.Eventually(t, "the log is trimmed at the end", func() bool {
		var all []json.RawMessage
		if err := json.Unmarshal([]byte(want(t, s.Dir, "ls", "--json")), &all); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(all[0], &info); err != nil {
			t.Fatal(err)
		}
		return info.State != "running" && info.Floor > 50 && info.Head-info.Floor < 20
	})
	for _, asJSON := range [][]string{nil, {"--json"}} {
		all := want(t, s.Dir, append([]string{"events", sid}, asJSON...)...)
		if n := strings.Count(all, "\n"); n != info.Head-info.Floor+1 {
			t.Fatalf("%v: %d events, kept are %d to %d", asJSON, n, info.Floor, info.Head)
		}
		for after, says := range map[int]string{
			3:              fmt.Sprintf("events 4 to %d are not kept\n", info.Floor-1),
			info.Floor - 2: fmt.Sprintf("event %d is not kept\n", info.Floor-1),
		} {
			r := run(t, s.Dir, append([]string{"events", sid, "--after", fmt.Sprint(after)}, asJSON...)...)
			if r.code != 1 || r.out != all || r.err != says {
				t.Errorf("%v after %d: exit code %d, stderr %q, stdout\n%s", asJSON, after, r.code, r.err, r.out)
			}
		}
		if out := want(t, s.Dir, append([]string{"events", sid, "--after", fmt.Sprint(info.Floor - 1)}, asJSON...)...); out != all {
			t.Errorf("%v from the floor on:\n%s", asJSON, out)
		}
	}
	for _, form := range []string{"--json", "--plain"} {
		r := run(t, s.Dir, "attach", sid, form, "--after", "3")
		says := fmt.Sprintf("events 4 to %d are not kept; continuing at %d; `rejoin events %s --after %d` shows %[5]d to %[2]d\n",
			info.Floor-1, info.Head, sid, info.Floor-1, info.Floor)
		if !strings.HasPrefix(r.err, says) {
			t.Errorf("attach %s: exit code %d, stderr %q, want %q", form, r.code, r.err, says)
		}
	}
}
