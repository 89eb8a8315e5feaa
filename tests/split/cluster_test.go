package split_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"rejoin/tests/harness"
)

func TestMain(m *testing.M) { harness.Main(m, children) }

// upWithin bounds the start of nine processes and two elections on a busy machine.
const upWithin = 4 * harness.Patience

// exitsAtOnce is for children with the race detector, which waits a second at their
// exit unless it is told: as long as a stop waits until TERM.
var exitsAtOnce = []string{"GORACE=atexit_sleep_ms=0"}

// cluster is a running deploy/local-cluster.sh.
type cluster struct {
	t      *testing.T
	dir    string
	script *exec.Cmd
	ended  chan struct{}
	said   string // file with its output
	token  string
	a, b   string // URLs of the gateways
}

var gatewayLine = regexp.MustCompile(`gateway-([ab]) on +(\S+)`)

// startCluster starts the script and waits until every role is ready. At the end of
// the test it gets SIGTERM, and nothing may be left.
func startCluster(t *testing.T, args ...string) *cluster {
	t.Helper()
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	c := &cluster{t: t, dir: filepath.Join(dir, "data"), said: filepath.Join(dir, "said"), ended: make(chan struct{})}
	out, err := os.Create(c.said)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = out.Close() }() // the script has its own
	c.script = exec.Command(filepath.Join(root, "deploy", "local-cluster.sh"),
		append([]string{"--data-dir", c.dir, "--listen", "tcp://127.0.0.1:0", "--allow-argv", "--env-allow", "GORACE"}, args...)...)
	c.script.Env = append(append(os.Environ(), exitsAtOnce...), "REJOIN_BIN="+harness.Binary(t), "NATS_SERVER_BIN="+harness.NATSBinary(t))
	c.script.Stdout, c.script.Stderr = out, out
	if err := c.script.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = c.script.Wait() // the state it leaves is what the test looks at
		close(c.ended)
	}()
	t.Cleanup(c.end)
	if !harness.Within(upWithin, func() bool { return strings.Contains(c.output(), "to begin") || c.over() }) || c.over() {
		t.Fatalf("the cluster does not come up:\n%s", c.output())
	}
	for _, m := range gatewayLine.FindAllStringSubmatch(c.output(), -1) {
		switch m[1] {
		case "a":
			c.a = m[2]
		case "b":
			c.b = m[2]
		}
	}
	c.token = strings.TrimSpace(string(c.read("token")))
	return c
}

func (c *cluster) over() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

func (c *cluster) output() string {
	b, _ := os.ReadFile(c.said) // it is for messages, and looked at until it is there
	return string(b)
}

func (c *cluster) read(name ...string) []byte {
	c.t.Helper()
	b, err := os.ReadFile(filepath.Join(append([]string{c.dir}, name...)...))
	if err != nil {
		c.t.Fatal(err)
	}
	return b
}

// pid is the process of that name.
func (c *cluster) pid(name string) int {
	c.t.Helper()
	pid, err := strconv.Atoi(strings.TrimSpace(string(c.read(name + ".pid"))))
	if err != nil {
		c.t.Fatal(err)
	}
	return pid
}

// ports are those of the NATS servers.
func (c *cluster) ports() []string {
	c.t.Helper()
	first, err := strconv.Atoi(strings.TrimSpace(string(c.read("nats-port"))))
	if err != nil {
		c.t.Fatal(err)
	}
	return []string{strconv.Itoa(first), strconv.Itoa(first + 1), strconv.Itoa(first + 2)}
}

// pids are all processes that the script runs now.
func (c *cluster) pids() map[string]int {
	c.t.Helper()
	files, err := filepath.Glob(filepath.Join(c.dir, "*.pid"))
	if err != nil {
		c.t.Fatal(err)
	}
	all := map[string]int{}
	for _, path := range files {
		name := strings.TrimSuffix(filepath.Base(path), ".pid")
		all[name] = c.pid(name)
	}
	return all
}

// end stops the script and looks that it left nothing, and that no server had to
// refuse anything to a role.
func (c *cluster) end() {
	pids := c.pids()
	if !c.over() {
		if err := c.script.Process.Signal(syscall.SIGTERM); err != nil {
			c.t.Errorf("end the script: %v", err)
		}
		limit := time.NewTimer(2 * harness.Patience)
		defer limit.Stop()
		select {
		case <-c.ended:
			if code := c.script.ProcessState.ExitCode(); code != 0 {
				c.t.Errorf("the script ended with status %d", code)
			}
		case <-limit.C:
			c.t.Error("the script still runs after SIGTERM")
			_ = c.script.Process.Kill() // what it started is looked at below
			<-c.ended
		}
	}
	for name, pid := range pids {
		if harness.Living(pid) {
			c.t.Errorf("%s is left", name)
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may be gone by now
		}
	}
	c.judgeLogs()
}

// judgeLogs looks for refusals, races and errors.
func (c *cluster) judgeLogs() {
	logs, err := filepath.Glob(filepath.Join(c.dir, "log", "*.log"))
	if err != nil || len(logs) == 0 {
		c.t.Errorf("no logs: %v", err)
	}
	for _, path := range logs {
		b, err := os.ReadFile(path)
		if err != nil {
			c.t.Fatal(err)
		}
		for line := range bytes.Lines(b) {
			for _, wrong := range []string{"iolation", "panic:"} {
				if bytes.Contains(line, []byte(wrong)) {
					c.t.Errorf("%s: %s", filepath.Base(path), line)
				}
			}
		}
		for _, race := range harness.Races(string(b)) {
			c.t.Errorf("%s: %s", filepath.Base(path), race)
		}
		if c.t.Failed() {
			c.t.Logf("--- %s\n%s", filepath.Base(path), b[max(0, len(b)-4<<10):])
		}
	}
}

// dial connects to a gateway.
func (c *cluster) dial(t *testing.T, url string) *harness.Client {
	t.Helper()
	client, err := harness.Connect(harness.Context(t), "tcp", strings.TrimPrefix(url, "tcp://"), c.token)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() }) // a breach is what every call returns
	return client
}

// rejoin runs a command against both gateways and returns what it printed.
func (c *cluster) rejoin(t *testing.T, args ...string) string {
	t.Helper()
	cmd := c.command(t, args...)
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("rejoin %v: %v\n%s%s", args, err, out, errOut.Bytes())
	}
	return string(out)
}

func (c *cluster) command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), harness.Binary(t), args...)
	cmd.Env = append(os.Environ(), "REJOIN_TOKEN="+c.token, "REJOIN_SERVER="+c.a+","+c.b)
	return cmd
}

// tryRejoin is rejoin for a command that must fail.
func tryRejoin(t *testing.T, args ...string) (code int, errOut string) {
	t.Helper()
	cmd := exec.CommandContext(harness.Context(t), harness.Binary(t), args...)
	var b bytes.Buffer
	cmd.Stderr = &b
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), b.String()
}

// workers are the ids of those in a state.
func (c *cluster) workers(t *testing.T, client *harness.Client, state string) []string {
	t.Helper()
	var ids []string
	for _, w := range harness.Do[[]struct {
		ID    string `json:"id"`
		State string `json:"state"`
	}](t, client, "list_workers", nil) {
		if w.State == state {
			ids = append(ids, w.ID)
		}
	}
	slices.Sort(ids)
	return ids
}
