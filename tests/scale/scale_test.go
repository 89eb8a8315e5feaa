package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rejoin/tests/harness"
)

var update = flag.Bool("update", false, "write the tables into docs/scale.md")

const (
	tablesBegin = "<!-- the tables of `go run ./tests/scale`; `go test ./tests/scale -update` writes them -->\n"
	tablesEnd   = "<!-- end of the tables -->\n"
)

// TestDocIsCurrent: what docs/scale.md says is what the simulation says, with the
// costs that were measured.
func TestDocIsCurrent(t *testing.T) {
	c, err := readCosts()
	if err != nil {
		t.Fatal(err)
	}
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(root, "docs", "scale.md")
	doc, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(doc), tablesBegin)
	have, after, ok2 := strings.Cut(rest, tablesEnd)
	if !ok || !ok2 {
		t.Fatal("docs/scale.md lacks the marks of the tables")
	}
	want := "\n" + tables(c) + "\n"
	if have == want {
		return
	}
	if !*update {
		t.Fatalf("docs/scale.md is not what `go run ./tests/scale` prints; go test ./tests/scale -update writes\n%s", want)
	}
	if err := os.WriteFile(path, []byte(before+tablesBegin+want+tablesEnd+after), 0o644); err != nil { //nolint:gosec // a document
		t.Fatal(err)
	}
}

// TestSimulation holds what is played against what can be said without playing it.
func TestSimulation(t *testing.T) {
	c, err := readCosts()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			r := simulate(c, s)
			sessions, observers := float64(s.sessions/s.cells), s.observers/s.cells
			near(t, "records", r.records, sessions*turnShare*eventsPerSecond)
			near(t, "deliveries", r.deliveries, r.records*float64(observers)/sessions)
			near(t, "processors of NATS servers", r.server.mean()*float64(s.servers), r.records*(c.NATSR3+r.copies*c.Watch)/1e6)
			near(t, "processors of workers", r.worker.mean()*float64(s.workers), r.records*c.Worker/1e6)
			near(t, "processors of gateways", r.gateway.mean()*float64(s.gateways), (r.records*r.copies*c.Hub+r.deliveries*c.Delivery)/1e6)
			clients := 0
			for _, n := range r.connections {
				clients += n
			}
			if clients != observers {
				t.Errorf("%d clients have a gateway, want %d", clients, observers)
			}
			// The plan has room for more than what is drawn here.
			for what, load := range map[string]float64{
				"workers": r.worker.busiest() / s.workerCores, "gateways": r.gateway.busiest() / s.gatewayCores,
				"NATS servers": r.server.busiest() / s.serverCores, "shards": r.shard.busiest(),
			} {
				if load > 0.7 {
					t.Errorf("%s: the busiest is at %.0f %%", what, 100*load)
				}
			}
		})
	}
}

// near allows for what is drawn by chance.
func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if got < 0.9*want || got > 1.1*want {
		t.Errorf("%s: %.2f, want about %.2f", what, got, want)
	}
}

// TestPlacementBySession: clients of a session on one gateway save copies, and load
// no gateway beyond its share.
func TestPlacementBySession(t *testing.T) {
	c, err := readCosts()
	if err != nil {
		t.Fatal(err)
	}
	s := scenarios[0]
	s.place = anywhere
	spread := simulate(c, s)
	s.place = bySession
	together := simulate(c, s)
	if together.copies > 1.2 || spread.copies < 2 {
		t.Errorf("%.2f copies by session, %.2f anywhere", together.copies, spread.copies)
	}
	share := s.observers/s.gateways + 1
	for g, n := range together.connections {
		if n > share+share/10 {
			t.Errorf("gateway %d has %d clients, its share is %d", g, n, share)
		}
	}
}
