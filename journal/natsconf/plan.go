package natsconf

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"rejoin/protocol"
)

// Bounds of a Config.
const (
	serversMax = 64

	// clusterOffset is what the port for other servers is above the one for clients:
	// 4222 and 6222, as NATS has them.
	clusterOffset = 2000

	clientPortDefault = "4222"
	validDefault      = 5 * 365 * 24 * time.Hour
	validMin          = time.Hour
	validMax          = 20 * 365 * 24 * time.Hour
)

// Config of Write. The zero value of each field is documented.
type Config struct {
	Dir     string   // where everything is written; made if it is not there. Required
	Servers []string // host:port of each server, as roles reach it; without a port 4222. Required
	Name    string   // of the cluster; zero: rejoin
	// InstallDir is where a server finds its folder on its machine; zero: in Dir, where
	// it was written.
	InstallDir string
	// StoreDir is where a server keeps its data, in a folder of its name below it;
	// zero: /var/lib/nats.
	StoreDir string
	Shards   int                     // of the journal; zero: 8
	Combine  [][]protocol.ServerRole // roles that share a process and so a seed, besides one seed for each role
	Valid    time.Duration           // of the servers' certificates; zero: 5 years
	Now      time.Time               // zero: the time
}

// server is one of the cluster.
type server struct {
	name   string // also of its folder
	host   string
	port   int
	routes int // port for the other servers
}

// home is where a server finds its folder on its machine.
func (c Config) home(s server) string {
	if c.InstallDir != "" {
		return c.InstallDir
	}
	return filepath.Join(c.Dir, s.name)
}

// client is where roles reach it, as a URL.
func (s server) client() string { return "tls://" + net.JoinHostPort(s.host, strconv.Itoa(s.port)) }

// route is where the other servers reach it, as a URL.
func (s server) route() string { return "tls://" + net.JoinHostPort(s.host, strconv.Itoa(s.routes)) }

// at is an address to listen on: every one of the machine, unless the server is
// for this machine alone.
func (s server) at(port int) string {
	host := "0.0.0.0"
	if ip, err := netip.ParseAddr(s.host); s.host == "localhost" {
		host = "127.0.0.1"
	} else if err == nil && (ip.IsLoopback() || ip.Is6()) {
		host = "::"
		if ip.IsLoopback() {
			host = s.host
		}
	}
	return net.JoinHostPort(host, strconv.Itoa(port))
}

// withDefaults fills what was left out.
func (c Config) withDefaults() Config {
	if c.Name == "" {
		c.Name = "rejoin"
	}
	if c.StoreDir == "" {
		c.StoreDir = "/var/lib/nats"
	}
	if c.Valid == 0 {
		c.Valid = validDefault
	}
	if c.Now.IsZero() {
		c.Now = time.Now()
	}
	return c
}

// plan checks c and returns the servers. Errors name what is wrong in words of the
// command line.
func (c Config) plan() ([]server, error) {
	switch {
	case c.Dir == "":
		return nil, errors.New("a directory to write to is missing")
	case len(c.Servers) == 0:
		return nil, errors.New("there is no server: name each as host:port")
	case len(c.Servers) > serversMax:
		return nil, fmt.Errorf("%d servers: at most %d", len(c.Servers), serversMax)
	case !protocol.ValidSessionID(c.Name):
		return nil, fmt.Errorf("name %q: want up to 64 characters A-Z, a-z, 0-9, _ and -", c.Name)
	case c.InstallDir != "" && !filepath.IsAbs(c.InstallDir):
		return nil, fmt.Errorf("install directory %q: want an absolute path", c.InstallDir)
	case !filepath.IsAbs(c.StoreDir):
		return nil, fmt.Errorf("store directory %q: want an absolute path", c.StoreDir)
	case c.Valid < validMin || c.Valid > validMax:
		return nil, fmt.Errorf("certificates valid for %v: want %v to %v", c.Valid, validMin, validMax)
	}
	servers := make([]server, 0, len(c.Servers))
	for _, raw := range c.Servers {
		s, err := parseServer(raw)
		if err != nil {
			return nil, err
		}
		if i := slices.IndexFunc(servers, s.meets); i >= 0 {
			return nil, fmt.Errorf("servers %s and %s are the same, or share a port", c.Servers[i], raw)
		}
		servers = append(servers, s)
	}
	return servers, nil
}

// meets reports whether two servers cannot both be: one name, or one port on one
// host.
func (s server) meets(o server) bool {
	return s.name == o.name || s.host == o.host &&
		(s.port == o.port || s.routes == o.routes || s.port == o.routes || s.routes == o.port)
}

func parseServer(raw string) (server, error) {
	host, port, err := net.SplitHostPort(raw)
	if err != nil {
		host, port = strings.Trim(raw, "[]"), clientPortDefault
	}
	n, perr := strconv.ParseUint(port, 10, 16)
	if perr != nil || n == 0 || n+clusterOffset > 65535 {
		return server{}, fmt.Errorf("server %q: want a port from 1 to %d", raw, 65535-clusterOffset)
	}
	if _, err := netip.ParseAddr(host); err != nil && !validHost(host) {
		return server{}, fmt.Errorf("server %q: want host:port", raw)
	}
	s := server{name: fileName(host), host: host, port: int(n), routes: int(n) + clusterOffset}
	if port != clientPortDefault {
		s.name += "-" + port // several on one machine
	}
	return s, nil
}

// validHost reports whether a name may be a host's: letters, digits, hyphens and dots.
func validHost(name string) bool {
	if name == "" || len(name) > 253 || strings.Contains(name, "..") || strings.HasPrefix(name, "-") || strings.HasPrefix(name, ".") {
		return false
	}
	return !strings.ContainsFunc(name, func(r rune) bool {
		return r != '.' && r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	})
}

// fileName makes a name of a host that is one file and one word everywhere.
func fileName(host string) string {
	return strings.Map(func(r rune) rune {
		if r == '.' || r == ':' || r == '%' {
			return '-'
		}
		return r
	}, host)
}
