package fault_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"rejoin/tests/harness"
)

// The processes of a system. NATS servers are three, so that one may go.
const (
	natsServers = 3
	ofEachRole  = 2
	token       = "a-token-of-the-fault-suite"
	eventLimit  = 1 << 20 // --max-event-bytes of the workers
	gatewayPort = 9777    // on a host of its own
)

// member is one process of a role.
type member struct {
	name   string
	role   string // broker, worker, gateway
	host   *harness.Host
	server *harness.Server
	links  []*harness.Proxy // to each NATS server; none where it has a host of its own
}

// system is the whole of them.
type system struct {
	t        *testing.T
	network  *harness.Network // nil: all on this machine, cut by proxies
	why      string           // there is none
	natsHost []*harness.Host
	nats     *harness.NATSServers
	brokers  []*member
	workers  []*member
	gateways []*member

	mu       sync.Mutex
	linkedTo []link // that clients made
}

// newSystem starts everything and waits until it serves.
func newSystem(t *testing.T) *system {
	t.Helper()
	s := &system{t: t, natsHost: make([]*harness.Host, natsServers)}
	if s.why = "FAULT_NETWORK=proxies"; os.Getenv("FAULT_NETWORK") != "proxies" {
		s.network, s.why = harness.NewNetwork(t)
	}
	if s.network != nil {
		for i := range s.natsHost {
			s.natsHost[i] = s.network.Host("n" + strconv.Itoa(i))
		}
	}
	s.nats = harness.NATSOn(t, s.natsHost)
	s.brokers = s.members("broker", nil)
	s.workers = s.members("worker", []string{"--max-event-bytes", strconv.Itoa(eventLimit)})
	s.gateways = s.members("gateway", []string{"--token", token, "--insecure", "--write-timeout", "20s"})
	for _, m := range s.all() {
		m.server.Run()
		if m.role == "gateway" {
			m.server.Use(token)
		}
	}
	return s
}

func (s *system) members(role string, args []string) (all []*member) {
	s.t.Helper()
	for i := range ofEachRole {
		m := &member{name: fmt.Sprintf("%s%d", role, i), role: role}
		urls := s.nats.URLs()
		if s.network != nil {
			m.host = s.network.Host(m.name)
		} else {
			for i := range urls {
				p := harness.NewProxy(s.t, s.nats.Addr(i))
				m.links, urls[i] = append(m.links, p), "nats://"+p.Addr()
			}
		}
		o := harness.Options{Roles: role, Host: m.host, Env: []string{"GOTRACEBACK=all"}}
		o.Args = append([]string{"--nats", strings.Join(urls, ","), "--nats-durability", "always"}, args...)
		switch role {
		case "worker":
			o.Args = append(o.Args, "--worker-id", m.name, "--label", "place="+m.name)
		case "gateway":
			o.Listen = []string{harness.FixedPort(s.t)}
			if m.host != nil {
				o.Listen = []string{fmt.Sprintf("tcp://%s:%d", m.host.Addr(), gatewayPort)}
			}
		}
		m.server = harness.New(s.t, o)
		all = append(all, m)
	}
	return all
}

// all are the processes of roles.
func (s *system) all() (all []*member) {
	return append(append(append(all, s.brokers...), s.workers...), s.gateways...)
}

// cut takes a process's way to every NATS server, without a word to either side.
func (s *system) cut(m *member) {
	s.t.Helper()
	for _, h := range s.natsHost {
		if s.network != nil {
			s.network.Cut(m.host, h)
		}
	}
	for _, p := range m.links {
		p.Stall()
	}
}

// isolate takes a NATS server's way to the other two.
func (s *system) isolate(i int) {
	s.t.Helper()
	for j, h := range s.natsHost {
		if j != i {
			s.network.Cut(s.natsHost[i], h)
		}
	}
}

// heal ends every cut.
func (s *system) heal() {
	s.t.Helper()
	if s.network != nil {
		s.network.Heal()
	}
	for _, m := range s.all() {
		for _, p := range m.links {
			p.Flow()
		}
	}
}

// kill ends a process by SIGKILL; pids are the processes that it leaves to its next
// life.
func (m *member) kill(t *testing.T) (pids []int) {
	t.Helper()
	if m.role == "worker" {
		pids = harness.Marked(m.server.Dir)
	}
	m.server.Kill9()
	return pids
}

// start starts a process again; of what its earlier life left nothing lives when it
// is ready (I-W3).
func (m *member) start(t *testing.T, pids []int) {
	t.Helper()
	m.server.Run()
	for _, pid := range pids {
		if harness.Living(pid) {
			t.Errorf("broke I-W3: %s is ready, and process %d of its earlier life lives", m.name, pid)
		}
	}
}

// stop ends a process in order.
func (m *member) stop(t *testing.T) {
	t.Helper()
	if code := m.server.Term(); code != 0 {
		t.Fatalf("%s ended with status %d\n%s", m.name, code, m.server.LogTail())
	}
}

func (m *member) freeze() { m.server.Signal(syscall.SIGSTOP) }
func (m *member) wake()   { m.server.Signal(syscall.SIGCONT) }
