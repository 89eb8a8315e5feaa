package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// tables are what stands between the marks in docs/scale.md.
func tables(c costs) string {
	var b strings.Builder
	costTable(&b, c)
	for _, s := range scenarios {
		scenarioTable(&b, c, s, simulate(c, s))
	}
	firstTable(&b, c)
	return b.String()
}

func costTable(b *strings.Builder, c costs) {
	fmt.Fprintf(b, "Measured %s. Events of %d bytes.\n\n", c.Measured, c.EventBytes)
	b.WriteString("| unit | cost |\n|---|---|\n")
	for _, row := range []struct {
		unit, cost string
	}{
		{"an event into a journal of one process, one per record, `always`", micros(c.OneProcess)},
		{"the same in a burst (about 400 per record)", micros(c.OneProcessBurst)},
		{"a record in one NATS server (R1), `always`", micros(c.NATSR1)},
		{"a record in three NATS servers (R3), `always`, all three together", micros(c.NATSR3)},
		{"a record in a worker, from the child's pipe to the acknowledgement", micros(c.Worker)},
		{"of that the way to NATS and back", micros(c.Client)},
		{"a record that a gateway takes from NATS", micros(c.Hub)},
		{"a copy of a record for one more gateway, in the servers (within the noise)", micros(c.Watch)},
		{"an event to a client, alone in its write", micros(c.Delivery)},
		{"a client that comes: connection without TLS, authentication, subscription", micros(c.Connect)},
		{"a live session, in its worker", fmt.Sprintf("%.0f KiB", c.SessionKiB)},
		{"an idle connection with a subscription", fmt.Sprintf("%.0f KiB", c.ConnectionKiB)},
		{"a watched session, in its gateway (besides the ring: at most 32 MiB for all)", fmt.Sprintf("%.0f KiB", c.WatchKiB)},
		{"a session in the mirror of the registry, in every gateway and broker (not measured)", fmt.Sprintf("%.0f KiB", c.RegistryKiB)},
		{"an event on disk, one per record, one copy", fmt.Sprintf("%.0f B", c.DiskRecord)},
		{"the same in a burst of text that does not shrink", fmt.Sprintf("%.0f B", c.DiskBurst)},
		{"a record on the disks of three servers, Raft's log before it is compacted included", fmt.Sprintf("%.0f B", c.DiskR3)},
		{"messages per record at R3: into servers, out of servers (publish, two copies, two answers, acknowledgement)", fmt.Sprintf("%.1f, %.1f", c.MessagesIn, c.MessagesOut)},
		{"messages more for each gateway that watches: into servers, out of servers", fmt.Sprintf("%.1f, %.1f", c.WatchIn, c.WatchOut)},
	} {
		fmt.Fprintf(b, "| %s | %s |\n", row.unit, row.cost)
	}
}

func micros(v float64) string { return fmt.Sprintf("%.1f µs", v) }

func scenarioTable(b *strings.Builder, c costs, s scenario, r result) {
	perCell := s.sessions / s.cells
	fmt.Fprintf(b, "\n**%s**: %d cell%s of %s sessions and %s observers; clients placed %s.\n\n", s.name, s.cells, plural(s.cells), group(perCell), group(s.observers/s.cells), s.place)
	b.WriteString("| of one cell | machines × processors | processors in use: mean | busiest, p99 | load of the busiest | memory of each |\n|---|---|---|---|---|---|\n")
	registry := float64(perCell) * c.RegistryKiB
	gatewayKiB := float64(slices.Max(r.connections))*c.ConnectionKiB + float64(r.watches)/float64(s.gateways)*c.WatchKiB + registry + 32*1024
	machineRow(b, "workers, without their agents", s.workers, s.workerCores, r.worker, float64(perCell)/float64(s.workers)*c.SessionKiB)
	machineRow(b, "gateways", s.gateways, s.gatewayCores, r.gateway, gatewayKiB)
	machineRow(b, "NATS servers", s.servers, s.serverCores, r.server, math.NaN())
	fmt.Fprintf(b, "| shards | %d of 64 at most | | | %.0f %% of what one takes | |\n", s.shards, 100*r.shard.busiest())
	fmt.Fprintf(b, "\n| of one cell | a second |\n|---|---|\n")
	messages := r.records * (c.MessagesIn + r.copies*c.WatchIn)
	for _, row := range []struct {
		what, figure string
	}{
		{"records", group(int(r.records))},
		{"deliveries", group(int(r.deliveries))},
		{"copies of a record, to gateways", fmt.Sprintf("%.2f", r.copies)},
		{"messages into NATS servers", group(int(messages))},
		{"watches (subscriptions of gateways at NATS)", group(r.watches) + " in all"},
		{"onto the disk of each NATS server", fmt.Sprintf("%.0f MB", r.records*c.DiskR3/float64(s.servers)/1e6)},
		{"kept after a day without retention, one copy", fmt.Sprintf("%.1f TB", r.records*c.DiskRecord*86400/1e12)},
		{fmt.Sprintf("a NATS server lost for %.0f s: events that wait, and the records they become", outage.Seconds()), group(r.lost) + " → " + group(r.backlog)},
		{"a gateway lost: its clients come to the others, processor time of each", fmt.Sprintf("%.1f s", float64(slices.Max(r.connections))/float64(s.gateways-1)*c.Connect/1e6)},
	} {
		fmt.Fprintf(b, "| %s | %s |\n", row.what, row.figure)
	}
}

func machineRow(b *strings.Builder, name string, machines int, cores float64, g *gauge, kib float64) {
	memory := "page cache"
	if !math.IsNaN(kib) {
		memory = fmt.Sprintf("%.0f MiB", kib/1024)
	}
	fmt.Fprintf(b, "| %s | %d × %.0f | %.2f | %.2f | %.0f %% | %s |\n", name, machines, cores, g.mean(), g.busiest(), 100*g.busiest()/cores, memory)
}

// firstTable says where one cell ends: what is used up first when it grows.
func firstTable(b *strings.Builder, c costs) {
	perSession := turnShare * eventsPerSecond
	b.WriteString("\n| what ends first, in one cell | at | sessions |\n|---|---|---|\n")
	for _, row := range []struct {
		what, at string
		sessions float64
	}{
		{"8 shards, the default", fmt.Sprintf("60 %% of %s records/s each", group(int(c.shardMax()))), 8 * 0.6 * c.shardMax() / perSession},
		{"three NATS servers of 16 processors", "60 % of them", 3 * 16 * 0.6 * 1e6 / c.NATSR3 / perSession},
		{"64 shards, the most there can be", "60 % of each", 64 * 0.6 * c.shardMax() / perSession},
		{"the mirror of the registry in every gateway and broker", "1 GiB", 1 << 20 / c.RegistryKiB},
	} {
		fmt.Fprintf(b, "| %s | %s | %s |\n", row.what, row.at, group(int(row.sessions)))
	}
}

func plural(n int) string {
	if n == 1 {
		return ""
	}
	return "s"
}

// group writes a number with commas.
func group(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
