package split_test

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"rejoin/tests/harness"
)

// children are what sessions of these tests run.
var children = harness.Children{
	// echo prints every line back, and its name to stderr at the start.
	"echo": func(args []string) int {
		fmt.Fprintln(os.Stderr, "echo", args)
		in := bufio.NewScanner(os.Stdin)
		for in.Scan() {
			fmt.Println(in.Text())
		}
		return 0
	},
	"flood": flood,
}

type session struct {
	SessionID string `json:"sessionId"`
}

// start starts an echo.
func start(t *testing.T, c *harness.Client, more map[string]any) string {
	t.Helper()
	params := map[string]any{"argv": harness.ChildArgv("echo"), "cwd": t.TempDir()}
	for k, v := range more {
		params[k] = v
	}
	return harness.Do[session](t, c, "start_session", params).SessionID
}

// TestLocalCluster: what deploy/local-cluster.sh starts is one system, and a client of
// a gateway that is killed goes on at another one. Proves I-R1.
func TestLocalCluster(t *testing.T) {
	c := startCluster(t, "--write-timeout", "1h") // a stalled reader stays
	t.Run("roles", func(t *testing.T) { testRoles(t, c) })
	t.Run("doctor", func(t *testing.T) { testDoctor(t, c) })
	t.Run("two gateways", func(t *testing.T) { testTwoGateways(t, c) })
	t.Run("same transcript", func(t *testing.T) { testSameTranscript(t, c) })
	t.Run("worker", func(t *testing.T) { testWorkers(t, c) })
	t.Run("stalled readers", func(t *testing.T) { testStalledReaders(t, c) })
	t.Run("broker dies", func(t *testing.T) { testBrokerDies(t, c) })
	t.Run("gateway dies", func(t *testing.T) { testGatewayDies(t, c) }) // the last: gateway-a is gone then
}

// testRoles: server_status counts what there is.
func testRoles(t *testing.T, c *cluster) {
	for _, url := range []string{c.a, c.b} {
		client := c.dial(t, url)
		type status struct {
			Durability string `json:"durability"`
			Cluster    struct {
				Roles                                []string
				Brokers, Workers, Gateways, Replicas int
			} `json:"cluster"`
		}
		var is status
		ok := func() bool {
			is = harness.Do[status](t, client, "server_status", nil)
			n := is.Cluster
			return n.Brokers == 2 && n.Workers == 2 && n.Gateways == 2
		}
		if !harness.Within(harness.Patience, ok) || is.Cluster.Replicas != 3 || !slices.Equal(is.Cluster.Roles, []string{"gateway"}) {
			t.Errorf("%s says %+v", url, is)
		}
		if is.Durability != "always" { // what the servers told the system account
			t.Errorf("durability is %q", is.Durability)
		}
		if got := c.workers(t, client, "live"); !slices.Equal(got, []string{"worker-a", "worker-b"}) {
			t.Errorf("workers are %q", got)
		}
	}
}

// testTwoGateways: a session goes through all its life over two gateways, each of
// which knows at once what the other did.
func testTwoGateways(t *testing.T, c *cluster) {
	a, b := c.dial(t, c.a), c.dial(t, c.b)
	ctx := harness.Context(t)
	sid := start(t, a, map[string]any{"title": "one"})
	stream, err := b.Subscribe(ctx, sid, map[string]any{"from": "start"})
	if err != nil {
		t.Fatal(err)
	}
	for i, client := range []*harness.Client{a, b} {
		harness.Do[session](t, client, "send", map[string]any{"sessionId": sid, "command": map[string]any{"n": i}})
	}
	said := 0
	if _, err := stream.Until(ctx, func(e harness.Event) bool {
		if e.Source == "child" {
			said++
		}
		return said == 2
	}); err != nil {
		t.Fatal(err)
	}
	harness.Do[session](t, b, "set_title", map[string]any{"sessionId": sid, "title": "two"})
	if got := harness.Do[struct{ Title string }](t, b, "get_session", map[string]any{"sessionId": sid}).Title; got != "two" {
		t.Errorf("the title is %q", got)
	}
	text := harness.Do[struct{ Text string }](t, b, "read_stderr", map[string]any{"sessionId": sid}).Text
	if !strings.Contains(text, "echo") {
		t.Errorf("stderr, of another process, is %q", text)
	}
	harness.Do[session](t, b, "stop_session", map[string]any{"sessionId": sid})
	harness.Do[session](t, b, "resume_session", map[string]any{"sessionId": sid})
	harness.Do[session](t, a, "send", map[string]any{"sessionId": sid, "command": map[string]any{"n": 2}})
	harness.Do[session](t, a, "delete_session", map[string]any{"sessionId": sid})
	if end, err := stream.End(ctx); err != nil || end.Reason != "deleted" {
		t.Errorf("the subscription ends with %+v, %v", end, err)
	}
	harness.Eventually(t, "the files of the deleted session are gone", func() bool {
		left, err := filepath.Glob(filepath.Join(c.dir, "worker-*", "stderr", "*"+sid+"*"))
		if err != nil {
			t.Fatal(err)
		}
		more, err := filepath.Glob(filepath.Join(c.dir, "worker-*", "stderr", "*", "*"+sid+"*"))
		return err == nil && len(left)+len(more) == 0
	})
}

// testWorkers: labels choose, a drained worker gets nothing, and what may move does.
func testWorkers(t *testing.T, c *cluster) {
	client := c.dial(t, c.a)
	_, err := client.Call(harness.Context(t), "start_session", map[string]any{"labels": map[string]string{"repo": "a"}})
	if err == nil || !strings.Contains(err.Error(), "no worker with label repo=a is running") {
		t.Errorf("a label that nobody has: %v", err)
	}
	sid := start(t, client, map[string]any{"restart": "resume"})
	from := "worker-a"
	pidOf := func() int {
		return harness.Do[struct{ PID int }](t, client, "get_session", map[string]any{"sessionId": sid}).PID
	}
	before := pidOf()
	if slices.Contains(harness.MarkedBy("REJOIN_INSTANCE", strings.TrimSpace(string(c.read("worker-b", "instance")))), before) {
		from = "worker-b"
	}
	c.rejoin(t, "worker", "drain", from, "--resume")
	harness.Eventually(t, "the session runs elsewhere", func() bool { now := pidOf(); return now != 0 && now != before })
	if got := c.workers(t, client, "draining"); !slices.Equal(got, []string{from}) {
		t.Errorf("draining are %q", got)
	}
	if table := c.rejoin(t, "workers"); !strings.Contains(table, from+"  draining") {
		t.Errorf("rejoin workers prints\n%s", table)
	}
	c.rejoin(t, "worker", "drain", from, "--undo")
	if got := c.workers(t, client, "live"); len(got) != 2 {
		t.Errorf("after --undo only %q are live", got)
	}
	harness.Do[session](t, client, "stop_session", map[string]any{"sessionId": sid})
}

// testBrokerDies: what runs goes on, and the other broker grants runs.
func testBrokerDies(t *testing.T, c *cluster) {
	client := c.dial(t, c.a)
	sid := start(t, client, nil)
	if err := syscall.Kill(c.pid("broker-a"), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	harness.Do[session](t, client, "send", map[string]any{"sessionId": sid, "command": map[string]any{"n": 1}})
	harness.Insist[session](t, client, "stop_session", map[string]any{"sessionId": sid})
	harness.Insist[session](t, client, "start_session", map[string]any{"argv": harness.ChildArgv("echo"), "cwd": t.TempDir(), "commandId": "after-it"})
}

// testGatewayDies: `rejoin attach`, given both gateways, goes on at the other one.
func testGatewayDies(t *testing.T, c *cluster) {
	sid := strings.TrimSpace(c.rejoin(t, "start", "--no-wait"))
	out := filepath.Join(t.TempDir(), "tail.txt")
	file, err := os.Create(out)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }() // the command has its own
	tail := c.command(t, "attach", "--json", "--after", "0", sid)
	tail.Stdout = file
	if err := tail.Start(); err != nil {
		t.Fatal(err)
	}
	c.rejoin(t, "send", sid, "count 500")
	harness.Eventually(t, "the client sees it count", func() bool {
		b, err := os.ReadFile(out)
		return err == nil && strings.Contains(string(b), `"delta":"50 "`)
	})
	if err := syscall.Kill(c.pid("gateway-a"), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	c.rejoin(t, "send", sid, "exit")
	if err := tail.Wait(); err != nil {
		t.Errorf("attach: %v", err)
	}
	got, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	if want := c.rejoin(t, "events", "--json", sid); string(got) != want {
		t.Errorf("the client saw %d bytes, the journal has %d", len(got), len(want))
	}
}
