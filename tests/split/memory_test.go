package split_test

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"rejoin/tests/harness"
)

const (
	floodLines = 2000
	floodBytes = 20_000 // each: 40 MB in all
	stalled    = 20     // readers: 800 MB if each were given a copy
	growth     = 300 << 20
	rcvbuf     = 64 << 10 // of a stalled reader, in the kernel
)

// flood prints, once it is told to, all that a stalled reader must not cost.
func flood([]string) int {
	in := bufio.NewScanner(os.Stdin)
	if !in.Scan() {
		return 1
	}
	out := bufio.NewWriter(os.Stdout)
	pad := strings.Repeat("z", floodBytes)
	for i := range floodLines {
		fmt.Fprintf(out, "{\"n\":%d,\"pad\":%q}\n", i+1, pad)
	}
	if err := out.Flush(); err != nil {
		return 1
	}
	in.Scan() // until stdin ends
	return 0
}

// rss is what all roles hold together.
func (c *cluster) rss(t *testing.T) (sum int64) {
	t.Helper()
	roles := 0
	for name, pid := range c.pids() {
		if strings.HasPrefix(name, "nats-") {
			continue
		}
		one, err := harness.RSS(pid)
		if err != nil {
			t.Fatalf("memory of %s: %v", name, err)
		}
		roles, sum = roles+1, sum+one
	}
	if roles != 6 {
		t.Fatalf("%d roles run", roles)
	}
	return sum
}

// testStalledReaders: readers that do not read, at both gateways, cost all roles
// together bounded memory and the one that reads nothing, while a child floods; they
// are told everything when they read again. Proves I-J5.
func testStalledReaders(t *testing.T, c *cluster) {
	if harness.RaceDetector {
		t.Skip("it measures memory")
	}
	ctx := harness.Context(t)
	client := c.dial(t, c.a)
	sid := harness.Do[session](t, client, "start_session", map[string]any{"argv": harness.ChildArgv("flood"), "cwd": t.TempDir()}).SessionID
	all := make([]*harness.Stream, stalled)
	clients := make([]*harness.Client, stalled)
	for i := range all {
		at := strings.TrimPrefix([]string{c.a, c.b}[i%2], "tcp://")
		var err error
		if clients[i], err = harness.ConnectBuffer(ctx, "tcp", at, c.token, rcvbuf); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = clients[i].Close() }) // a breach ends its stream
		all[i] = follow(t, clients[i], sid, nil)
		clients[i].Pause()
	}
	var lines atomic.Int64
	live := follow(t, client, sid, &lines)
	before := c.rss(t)
	harness.Do[session](t, client, "send", map[string]any{"sessionId": sid, "command": map[string]any{"go": true}})
	peak := before
	harness.Eventually(t, "the reader that reads has every line", func() bool {
		peak = max(peak, c.rss(t))
		return lines.Load() == floodLines
	})
	_, head := live.Cursor()
	for i, s := range all {
		if _, at := s.Cursor(); head-at < floodLines/2 {
			t.Errorf("stalled reader %d has come to %d of %d", i, at, head)
		}
		clients[i].Resume()
	}
	for i, s := range all {
		harness.Eventually(t, fmt.Sprintf("reader %d has every line", i), func() bool {
			if err := clients[i].Breach(); err != nil {
				t.Fatal(err)
			}
			peak = max(peak, c.rss(t))
			_, at := s.Cursor()
			return at >= head
		})
	}
	fmt.Printf("%d stalled readers beside a flood of %d MB: all roles held %d MiB, then at most %d MiB\n",
		stalled, floodLines*floodBytes/1_000_000, before>>20, peak>>20)
	if peak-before > growth {
		t.Errorf("the roles grew by %d MiB, want at most %d", (peak-before)>>20, growth>>20)
	}
	harness.Do[session](t, client, "stop_session", map[string]any{"sessionId": sid})
}

// follow subscribes from the start and counts what the child printed.
func follow(t *testing.T, client *harness.Client, sid string, lines *atomic.Int64) *harness.Stream {
	t.Helper()
	stream, err := client.SubscribeFunc(harness.Context(t), sid, map[string]any{"from": "start"}, func(e harness.Event) {
		if lines != nil && e.Source == "child" {
			lines.Add(1)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return stream
}
