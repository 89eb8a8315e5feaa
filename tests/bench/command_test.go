package bench

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"rejoin/tests/harness"
)

// benchReport is the part of `rejoin bench --json` that is looked at.
type benchReport struct {
	Results []struct {
		Row, Durability, Void string
		Figures               []struct {
			Name  string
			Value float64
		}
		Checked struct{ Subscriptions, Lines, States int64 }
	}
}

// TestBenchCommand: every row of `rejoin bench` runs at both kinds of durability,
// compares what its clients got with what the child printed, and finds it the same.
func TestBenchCommand(t *testing.T) {
	if testing.Short() {
		t.Skip("34 servers")
	}
	dir := t.TempDir()
	run := func(args ...string) []byte {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), harness.PlainBinary(t), append([]string{"bench"}, args...)...)
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("bench %v: %v\n%s", args, err, out)
		}
		return out
	}
	var r benchReport
	if err := json.Unmarshal(run("--quick", "--json", "--durability", "always,20ms", "--dir", dir), &r); err != nil {
		t.Fatal(err)
	}
	_, list, found := strings.Cut(string(run("--help")), "Rows:\n")
	list, _, ended := strings.Cut(list, "\n\n")
	if !found || !ended {
		t.Fatal("the help has no list of rows")
	}
	var want []string
	for line := range strings.Lines(list) {
		name := strings.Fields(line)[0]
		want = append(want, name+" always", name+" 20ms")
	}
	var got []string
	for _, x := range r.Results {
		got = append(got, x.Row+" "+x.Durability)
		if x.Void != "" || len(x.Figures) == 0 {
			t.Errorf("%s at %s: %d figures, void %q", x.Row, x.Durability, len(x.Figures), x.Void)
		}
		for _, f := range x.Figures {
			if f.Value <= 0 && !strings.Contains(f.Name, "memory") { // of a few sessions, less than the heap's own ups and downs
				t.Errorf("%s at %s: %s is %v", x.Row, x.Durability, f.Name, f.Value)
			}
		}
		if x.Checked.Subscriptions == 0 && x.Checked.States == 0 {
			t.Errorf("%s at %s: nothing was compared", x.Row, x.Durability)
		}
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("rows\n%q\nwant\n%q", got, want)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}
