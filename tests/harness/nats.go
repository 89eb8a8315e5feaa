package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// natsServer is the binary of the NATS server that go.mod names.
var natsServer binary

// NATSServers are real nats-server processes that keep JetStream streams, with
// directories and ports of their own that outlast a restart. Its methods are for
// the test's goroutine.
type NATSServers struct {
	tb    testing.TB
	nodes []*natsNode
}

type natsNode struct {
	host                   *Host
	name                   string
	client, route, monitor int // ports
	conf, out              string
	cmd                    *exec.Cmd     // nil while it does not run
	ended                  chan struct{} // closed when the process has ended
}

// NATS starts n servers, one alone or a cluster, and waits until JetStream is
// ready on all of them; they end with the test. Every write is synced before it is
// acknowledged. more are further lines of each configuration.
func NATS(tb testing.TB, n int, more ...string) *NATSServers {
	tb.Helper()
	return NATSOn(tb, make([]*Host, n), more...)
}

// NATSOn is NATS with a server on each of some hosts.
func NATSOn(tb testing.TB, hosts []*Host, more ...string) *NATSServers {
	tb.Helper()
	s := &NATSServers{tb: tb}
	dir := tb.TempDir()
	for i, host := range hosts {
		name := "n" + strconv.Itoa(i)
		s.nodes = append(s.nodes, &natsNode{
			host: host, name: name, client: freePort(tb), route: freePort(tb), monitor: freePort(tb),
			conf: filepath.Join(dir, name+".conf"), out: filepath.Join(dir, name+".log"),
		})
	}
	for _, node := range s.nodes {
		if err := os.WriteFile(node.conf, s.config(node, dir, more), 0o600); err != nil {
			tb.Fatalf("write configuration of NATS server: %v", err)
		}
	}
	tb.Cleanup(s.end)
	for i := range s.nodes {
		s.Start(i)
	}
	s.AwaitReady()
	return s
}

func (s *NATSServers) config(node *natsNode, dir string, more []string) []byte {
	var b bytes.Buffer
	at := node.host.Addr()
	fmt.Fprintf(&b, "server_name: %s\nlisten: %s:%d\nhttp: %s:%d\n", node.name, at, node.client, at, node.monitor)
	fmt.Fprintf(&b, "lame_duck_grace_period: 1s\nlame_duck_duration: 30s\nmax_payload: 8MB\njetstream { store_dir: %q, max_file_store: 100GB, sync_interval: always }\n", filepath.Join(dir, node.name))
	if len(s.nodes) > 1 {
		var routes []string
		for _, o := range s.nodes {
			if o != node {
				routes = append(routes, fmt.Sprintf("nats-route://%s:%d", o.host.Addr(), o.route))
			}
		}
		fmt.Fprintf(&b, "cluster { name: test, listen: \"%s:%d\", routes: [%s], no_advertise: true, ping_interval: \"3s\" }\n", at, node.route, strings.Join(routes, ", "))
	}
	for _, line := range more {
		b.WriteString(line + "\n")
	}
	return b.Bytes()
}

// freePort returns a port that nobody listens on, outside the range that the
// system gives to outgoing connections.
func freePort(tb testing.TB) int {
	tb.Helper()
	for range 1000 {
		port := 10000 + rand.N(20000)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			_ = l.Close() // it was to see that nobody else has it
			return port
		}
	}
	tb.Fatal("no free port")
	return 0
}

// NATSBinary returns the path of the NATS server that go.mod names, built once.
func NATSBinary(tb testing.TB) string {
	tb.Helper()
	return natsServer.made(tb, func() (string, error) {
		return buildPackage(false, "nats-server", "github.com/nats-io/nats-server/v2")
	})
}

// Start starts server i; AwaitReady waits for it.
func (s *NATSServers) Start(i int) {
	s.tb.Helper()
	node := s.nodes[i]
	path := NATSBinary(s.tb)
	out, err := os.OpenFile(node.out, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		s.tb.Fatalf("log of NATS server: %v", err)
	}
	defer func() { _ = out.Close() }() // the process has its own
	argv := node.host.Command(path, "-c", node.conf)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		s.tb.Fatalf("start NATS server: %v", err)
	}
	ended := make(chan struct{})
	node.cmd, node.ended = cmd, ended
	go func() {
		defer close(ended)
		_ = cmd.Wait() // most of them are killed
	}()
}

// AwaitReady waits until every server that runs says it is healthy, streams
// included.
func (s *NATSServers) AwaitReady() {
	s.tb.Helper()
	for _, node := range s.nodes {
		if node.cmd != nil && !Within(2*Patience, func() bool { return node.get("/healthz", nil) == nil }) {
			text, _ := os.ReadFile(node.out) // it is for the message
			s.tb.Fatalf("NATS server %s does not get ready:\n%s", node.name, text)
		}
	}
}

// get asks a server's monitoring endpoint.
func (n *natsNode) get(path string, answer any) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s:%d%s", n.host.Addr(), n.monitor, path), nil)
	if err != nil {
		return err
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // it was read
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, resp.Status)
	}
	if answer == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(answer)
}

// URLs are the addresses for clients, of all servers.
func (s *NATSServers) URLs() []string {
	var urls []string
	for i := range s.nodes {
		urls = append(urls, s.URL(i))
	}
	return urls
}

// URL is the address for clients of server i.
func (s *NATSServers) URL(i int) string { return "nats://" + s.Addr(i) }

// Addr is where server i listens for clients.
func (s *NATSServers) Addr(i int) string {
	return net.JoinHostPort(s.nodes[i].host.Addr(), strconv.Itoa(s.nodes[i].client))
}

// Monitor is the URL of server i's monitoring endpoint.
func (s *NATSServers) Monitor(i int) string {
	return fmt.Sprintf("http://127.0.0.1:%d", s.nodes[i].monitor)
}

// Dir holds what all servers store.
func (s *NATSServers) Dir() string { return filepath.Dir(s.nodes[0].conf) }

// List is URLs as a flag takes them.
func (s *NATSServers) List() string { return strings.Join(s.URLs(), ",") }

// PID is the process of server i.
func (s *NATSServers) PID(i int) int { return s.nodes[i].cmd.Process.Pid }

// Alive reports whether server i runs.
func (s *NATSServers) Alive(i int) bool { return s.nodes[i].cmd != nil }

// Log is what server i has written.
func (s *NATSServers) Log(i int) string {
	text, _ := os.ReadFile(s.nodes[i].out) // it is for messages
	return string(text)
}

// jsz is what a server says of its streams.
type jsz struct {
	Accounts []struct {
		Streams []struct {
			Name    string `json:"name"`
			Cluster *struct {
				Leader string `json:"leader"`
			} `json:"cluster"`
		} `json:"stream_detail"`
	} `json:"account_details"`
}

// Leader returns which server leads a stream, -1 while nobody says so of one that
// runs.
func (s *NATSServers) Leader(stream string) int {
	for _, node := range s.nodes {
		var told jsz
		if node.cmd == nil || node.get("/jsz?streams=true", &told) != nil {
			continue
		}
		for _, a := range told.Accounts {
			for _, st := range a.Streams {
				if st.Name != stream || st.Cluster == nil {
					continue
				}
				if i := s.index(st.Cluster.Leader); i >= 0 && s.nodes[i].cmd != nil {
					return i
				}
			}
		}
	}
	return -1
}

// AwaitLeader waits until a server that runs leads a stream, and returns it.
func (s *NATSServers) AwaitLeader(stream string) int {
	s.tb.Helper()
	leader := -1
	Eventually(s.tb, "stream "+stream+" has a leader", func() bool {
		leader = s.Leader(stream)
		return leader >= 0
	})
	return leader
}

func (s *NATSServers) index(name string) int {
	for i, n := range s.nodes {
		if n.name == name {
			return i
		}
	}
	return -1
}

// Kill9 kills server i and waits for its end; Start begins it again.
func (s *NATSServers) Kill9(i int) { s.finish(i, syscall.SIGKILL) }

// Stop ends server i in order, which hands its streams to others, and waits for it.
func (s *NATSServers) Stop(i int) { s.finish(i, syscall.SIGTERM) }

// Drain ends server i as lame duck: it hands its streams to others, takes no new
// client and tells those it has, before it closes their connections and ends.
func (s *NATSServers) Drain(i int) { s.finish(i, syscall.SIGUSR2) }

func (s *NATSServers) finish(i int, sig syscall.Signal) {
	s.tb.Helper()
	node := s.nodes[i]
	if node.cmd == nil {
		s.tb.Fatalf("NATS server %s does not run", node.name)
	}
	_ = node.cmd.Process.Signal(sig) // it may just have ended
	<-node.ended
	node.cmd = nil
}

// Pause stops server i without ending it.
func (s *NATSServers) Pause(i int) { s.signal(i, syscall.SIGSTOP) }

// Continue ends a Pause.
func (s *NATSServers) Continue(i int) { s.signal(i, syscall.SIGCONT) }

func (s *NATSServers) signal(i int, sig syscall.Signal) {
	s.tb.Helper()
	if err := s.nodes[i].cmd.Process.Signal(sig); err != nil {
		s.tb.Fatalf("signal NATS server %s: %v", s.nodes[i].name, err)
	}
}

// end kills what runs. Their directories go with the test.
func (s *NATSServers) end() {
	for i, node := range s.nodes {
		if node.cmd != nil {
			s.Kill9(i)
		}
	}
}
