package bench

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"rejoin/tests/harness"
)

// TestCurves: every point of every curve is measured and compared, of rejoin and of
// the raw log beside it.
func TestCurves(t *testing.T) {
	if testing.Short() {
		t.Skip("20 servers")
	}
	dir := t.TempDir()
	peers, out := filepath.Join(dir, "peers"), filepath.Join(dir, "points.jsonl")
	if b, err := exec.CommandContext(t.Context(), "go", "build", "-o", peers, "rejoin/cmd/rejoin/internal/bench/peers").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	if err := os.Symlink(harness.PlainBinary(t), filepath.Join(dir, "rejoin")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), peers, "-bin", dir, "-dir", dir, "-curves", "all", "-peers", "rejoin,raw", "-n", "1", "-quick", "-json", out)
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	points := map[string]int{}
	for line := range bytes.Lines(b) {
		var p struct {
			Curve, Peer string
			X           int
			Figures     []struct{ Name string }
		}
		if err := json.Unmarshal(line, &p); err != nil {
			t.Fatal(err)
		}
		if p.X == 0 || len(p.Figures) == 0 {
			t.Errorf("a point without a size or figures: %s", line)
		}
		points[p.Curve+" "+p.Peer]++
	}
	for _, curve := range []string{"observers", "rate", "connections"} {
		if points[curve+" rejoin"] != 2 || points[curve+" raw"] != 2 {
			t.Errorf("%s: %v, want two points of each", curve, points)
		}
	}
	for _, curve := range []string{"sessions", "history"} {
		if points[curve+" rejoin"] != 2 || points[curve+" raw"] != 0 {
			t.Errorf("%s: %v, want two points of rejoin's alone", curve, points)
		}
	}
}
