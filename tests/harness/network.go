package harness

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Network is a switch with hosts on it that can lose sight of one another. Each
// host is a network namespace with a cable of its own (Linux, root). Its methods
// are for the test's goroutine.
type Network struct {
	tb     testing.TB
	bridge string
	subnet [3]byte
	hosts  []*Host
	cuts   map[[2]*Host]bool
}

// Host is where a process runs. Nil is the machine of the test itself, on which
// 127.0.0.1 serves.
type Host struct {
	Name string
	ns   string
	addr string
	mac  string
}

// networkPrefix begins the names of what a network is made of; the id of the
// test's process follows.
const networkPrefix = "rj"

// NewNetwork makes a switch, which goes with the test; why says why there can be
// none here.
func NewNetwork(tb testing.TB) (n *Network, why string) {
	tb.Helper()
	if os.Geteuid() != 0 {
		return nil, "network namespaces need root"
	}
	for _, tool := range []string{"ip", "nsenter"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, tool + " is not installed"
		}
	}
	clearNetworks()
	pid := os.Getpid()
	n = &Network{tb: tb, cuts: map[[2]*Host]bool{}}
	for i := range 26 { // networks of tests that run at the same time have subnets of their own
		n.subnet = [3]byte{10, byte(64 + (pid+i)>>8&63), byte(pid + i)}
		if taken(n.gateway()) {
			continue
		}
		n.bridge = fmt.Sprintf("%s%d%c", networkPrefix, pid, 'a'+i)
		if _, err := ip("link", "add", n.bridge, "type", "bridge"); err != nil {
			return nil, "no bridge can be made: " + err.Error()
		}
		break
	}
	tb.Cleanup(n.remove)
	n.must("addr", "add", n.gateway()+"/24", "dev", n.bridge)
	n.must("link", "set", n.bridge, "up")
	return n, ""
}

// clearNetworks removes what tests left that were killed.
func clearNetworks() {
	left := func(name string) bool {
		rest, ok := strings.CutPrefix(name, networkPrefix)
		digits := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
		if !ok || digits < 1 {
			return false
		}
		pid, err := strconv.Atoi(rest[:digits])
		return err == nil && !Living(pid)
	}
	spaces, _ := filepath.Glob("/run/netns/" + networkPrefix + "*") // the pattern is good
	for _, path := range spaces {
		if name := filepath.Base(path); left(name) {
			_, _ = ip("netns", "del", name) // another test may have done so
		}
	}
	links, err := net.Interfaces()
	if err != nil {
		return
	}
	for _, l := range links {
		if left(l.Name) {
			_, _ = ip("link", "del", l.Name) // likewise
		}
	}
}

// taken reports whether this machine has an address in the /24 of another.
func taken(addr string) bool {
	_, want, err := net.ParseCIDR(addr + "/24")
	if err != nil {
		return true
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return true
	}
	for _, a := range all {
		if have, ok := a.(*net.IPNet); ok && want.Contains(have.IP) {
			return true
		}
	}
	return false
}

func ip(args ...string) (string, error) {
	out, err := exec.Command("ip", args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}

func (n *Network) must(args ...string) string {
	n.tb.Helper()
	out, err := ip(args...)
	if err != nil {
		n.tb.Fatal(err)
	}
	return out
}

func (n *Network) address(host int) string {
	return fmt.Sprintf("%d.%d.%d.%d", n.subnet[0], n.subnet[1], n.subnet[2], host)
}

// gateway is the test's own address on the switch.
func (n *Network) gateway() string { return n.address(254) }

// Host adds a host to the switch.
func (n *Network) Host(name string) *Host {
	n.tb.Helper()
	i := len(n.hosts) + 1
	h := &Host{Name: name, ns: fmt.Sprintf("%sn%d", n.bridge, i), addr: n.address(i)}
	cable := fmt.Sprintf("%sc%d", n.bridge, i)
	n.must("netns", "add", h.ns)
	n.hosts = append(n.hosts, h)
	n.must("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", h.ns)
	n.must("link", "set", cable, "master", n.bridge, "up")
	n.must("-n", h.ns, "addr", "add", h.addr+"/24", "dev", "eth0")
	n.must("-n", h.ns, "link", "set", "lo", "up")
	n.must("-n", h.ns, "link", "set", "eth0", "up")
	_, after, _ := strings.Cut(n.must("-n", h.ns, "-o", "link", "show", "eth0"), "link/ether ")
	h.mac, _, _ = strings.Cut(after, " ")
	return h
}

// Addr is the address that the host's processes listen on.
func (h *Host) Addr() string {
	if h == nil {
		return "127.0.0.1"
	}
	return h.addr
}

// Command is a command line that runs another one on the host, as the same
// process.
func (h *Host) Command(argv ...string) []string {
	if h == nil {
		return argv
	}
	return append([]string{"nsenter", "--net=/run/netns/" + h.ns, "--"}, argv...)
}

// nobody is a hardware address that no host has.
const nobody = "02:00:00:00:de:ad"

// Cut lets nothing pass between two hosts any more, in either direction and
// without a word to either, until Heal: each takes another for its neighbour.
func (n *Network) Cut(a, b *Host) {
	n.tb.Helper()
	for _, way := range [][2]*Host{{a, b}, {b, a}} {
		n.must("-n", way[0].ns, "neigh", "replace", way[1].addr, "lladdr", nobody, "dev", "eth0", "nud", "permanent")
		n.cuts[way] = true
	}
}

// Heal ends every cut.
func (n *Network) Heal() {
	n.tb.Helper()
	for way := range n.cuts {
		n.must("-n", way[0].ns, "neigh", "replace", way[1].addr, "lladdr", way[1].mac, "dev", "eth0", "nud", "reachable")
		delete(n.cuts, way)
	}
}

func (n *Network) remove() {
	for _, h := range n.hosts {
		if _, err := ip("netns", "del", h.ns); err != nil {
			n.tb.Error(err)
		}
	}
	if _, err := ip("link", "del", n.bridge); err != nil {
		n.tb.Error(err)
	}
}
