package agent_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"

	"rejoin/agent"
	"rejoin/agent/demo"
	"rejoin/agent/jsonl"
	"rejoin/agent/lines"
	"rejoin/agent/pi"
	"rejoin/agent/rpi"
	"rejoin/protocol"
)

// TestGolden fails when the same events add up to another state: the adapter's
// FoldVersion must change then, and the hash here with it. Checkpoints that were
// made by the fold before are told apart by nothing else.
func TestGolden(t *testing.T) {
	if testing.Short() {
		t.Skip("the same hash comes out of every run: the long one looks at it")
	}
	files, err := filepath.Glob(filepath.Join("pi", "testdata", "traces", "*.jsonl"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no traces: %v", err)
	}
	for _, c := range []struct {
		adapter agent.Adapter
		version int
		hash    string
	}{
		{pi.Adapter{}, 3, "8f7e25cef16c39ce5c135eb23b06f04c58159258ba5696c24629f224e16e74de"},
		{demo.Adapter{}, 3, "55dd591dc2d0283a51d3bdbf3d975b6e97d95f5d6aa8ddc95fe315868f0fcab2"},
		{rpi.Adapter{}, 5, "69fd3017451b0f5a3bca00728281461031b49d33dfc997e386ecbe511d7dc4c5"},
		{lines.Adapter{}, 1, "07b0756f066e00ec2384e00baffed16cd0c9d88dae4467d6ccd1d7e973914246"},
		{jsonl.Adapter{}, 1, "fcfd06aebb3c9b76833e67e31b4107273e07864768852b57ef026e01c090c5bf"},
	} {
		sum := sha256.New()
		add := func(all []move) {
			s := newState(c.adapter)
			for _, m := range all {
				play(c.adapter, s, m)
				if len(s.Items) < 50 { // each state of a short one, the last of a long one
					sum.Write(encode(t, s))
				}
			}
			sum.Write(encode(t, s))
		}
		for _, h := range histories {
			add(moves([]byte(h), 300))
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			var all []move
			for line := range bytes.Lines(text) {
				all = append(all, move{body: bytes.TrimSpace(line)})
				if len(all)%9 == 0 {
					all = append(all, move{source: protocol.SourceBroker, body: []byte(`{"type":"output","text":"o"}`)})
				}
			}
			add(append(all, move{source: protocol.SourceBroker, end: true}))
		}
		if h := hex.EncodeToString(sum.Sum(nil)); h != c.hash || c.adapter.FoldVersion() != c.version {
			t.Errorf("%s: hash %s of version %d, want %s of version %d", c.adapter.Name(), h, c.adapter.FoldVersion(), c.hash, c.version)
		}
	}
}
