package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"rejoin/journal"
	"rejoin/protocol"
)

// clusterSettings make the server of this process a member of a cluster of its peers,
// which keep the journal together. Without a name it is none.
type clusterSettings struct {
	Name       string   `yaml:"name,omitempty"`
	Routes     []string `yaml:"routes,omitempty"`     // of the peers; its own may be among them
	Listen     string   `yaml:"listen,omitempty"`     // host:port for peers
	SecretFile string   `yaml:"secretFile,omitempty"` // what peers show each other
	CA         string   `yaml:"ca,omitempty"`         // mutual TLS between peers
	Cert       string   `yaml:"cert,omitempty"`
	Key        string   `yaml:"key,omitempty"`
}

const (
	// clusterPort is that of a route whose URL has none.
	clusterPort = "6222"
	// clusterListenDefault is where peers on other machines are waited for.
	clusterListenDefault = "0.0.0.0:" + clusterPort
)

// clusterName is what names of clusters are made of: NATS has them in subjects.
var clusterName = regexp.MustCompile(fmt.Sprintf(`^[A-Za-z0-9_-]{1,%d}$`, protocol.ClusterNameBytesMax))

// clusterFlags adds the flags of a member.
func clusterFlags(cmd *cobra.Command, flags *settings) {
	f := cmd.Flags()
	f.StringVar(&flags.Cluster.Name, "cluster-name", "", "name of the cluster of three servers like this one, which keep the journal together (default: none)")
	f.StringSliceVar(&flags.Cluster.Routes, "cluster-routes", nil, "nats-route://host:port of the others, with commas between; this one's own may be among them")
	f.StringVar(&flags.Cluster.Listen, "cluster-listen", "", "host:port on which the others reach this one (default "+clusterListenDefault+")")
	f.StringVar(&flags.Cluster.SecretFile, "cluster-secret-file", "", "file with the secret that members show each other, the same on all; mode 0600")
	f.StringVar(&flags.Cluster.CA, "cluster-ca", "", "CA that signed the certificates of all members, PEM")
	f.StringVar(&flags.Cluster.Cert, "cluster-cert", "", "certificate that this member shows the others, PEM")
	f.StringVar(&flags.Cluster.Key, "cluster-key", "", "its private key, PEM")
}

// clusterSetters copy the flags of a member that were given.
func clusterSetters(s, flags *settings) map[string]func() {
	return map[string]func(){
		"cluster-name":        func() { s.Cluster.Name = flags.Cluster.Name },
		"cluster-routes":      func() { s.Cluster.Routes = flags.Cluster.Routes },
		"cluster-listen":      func() { s.Cluster.Listen = flags.Cluster.Listen },
		"cluster-secret-file": func() { s.Cluster.SecretFile = flags.Cluster.SecretFile },
		"cluster-ca":          func() { s.Cluster.CA = flags.Cluster.CA },
		"cluster-cert":        func() { s.Cluster.Cert = flags.Cluster.Cert },
		"cluster-key":         func() { s.Cluster.Key = flags.Cluster.Key },
	}
}

// member reports whether the server of this process keeps the journal with its peers.
func (s *settings) member() bool { return s.Cluster.Name != "" }

// resolveCluster checks how this process is a member.
func (s *settings) resolveCluster() error {
	c := &s.Cluster
	if !s.member() {
		if len(c.Routes) > 0 || c.Listen != "" || c.SecretFile != "" || c.CA != "" || c.Cert != "" || c.Key != "" {
			return errors.New("cluster.name (--cluster-name) is missing: without it this server is no member of a cluster")
		}
		return nil
	}
	switch {
	case len(s.NATS.Servers) > 0:
		return errors.New("--nats names servers that keep the journal, and --cluster-name has this one keep it with its peers: they exclude each other")
	case len(s.roles) < len(allRoles):
		return fmt.Errorf("%s %s: a member of a cluster has all roles; fewer need --nats", s.named("roles", "roles"), strings.Join(s.Roles, ","))
	case !clusterName.MatchString(c.Name):
		return fmt.Errorf("%s %q: want up to %d characters A-Z, a-z, 0-9, _ and -", s.named("cluster-name", "cluster.name"), c.Name, protocol.ClusterNameBytesMax)
	case len(c.Routes) < protocol.ClusterMembers-1:
		return fmt.Errorf("%s: want those of both other members", s.named("cluster-routes", "cluster.routes"))
	case (c.Cert == "") != (c.Key == "") || (c.Cert == "") != (c.CA == ""):
		return errors.New("cluster.ca, cluster.cert and cluster.key (--cluster-ca, --cluster-cert, --cluster-key) go together: members show each other certificates")
	case s.Encryption.KeyFile != "":
		return errors.New("encryption.keyFile (--encrypt-key-file): the store of a member is not encrypted, as its blocks are verified at each start; encrypt the disk")
	}
	for i, raw := range c.Routes {
		full, err := routeURL(raw)
		if err != nil {
			return fmt.Errorf("%s %q: %w", s.named("cluster-routes", "cluster.routes"), raw, err)
		}
		c.Routes[i] = full
	}
	orDefault(&c.Listen, clusterListenDefault)
	if err := s.mayListenPeers(); err != nil {
		return fmt.Errorf("%s %w", s.named("cluster-listen", "cluster.listen"), err)
	}
	return nil
}

// mayListenPeers refuses what would let everybody into the cluster: beyond loopback
// there is a secret or TLS, or --insecure.
func (s *settings) mayListenPeers() error {
	c := &s.Cluster
	host, port, err := net.SplitHostPort(c.Listen)
	if n, bad := strconv.Atoi(port); err != nil || bad != nil || n < 1 || n > 65535 {
		return fmt.Errorf("%q: want host:port", c.Listen)
	}
	ip := net.ParseIP(host)
	if host == "localhost" || ip != nil && ip.IsLoopback() || c.SecretFile != "" || c.CA != "" || s.insecure {
		return nil
	}
	return fmt.Errorf("%s: everyone who can reach it could join the cluster and read and write every session; give all members the same --cluster-secret-file, "+
		"or certificates with --cluster-ca, --cluster-cert and --cluster-key, or listen on 127.0.0.1, or allow it with --insecure", c.Listen)
}

// routeURL completes the URL of a peer.
func routeURL(raw string) (string, error) {
	full := strings.TrimSpace(raw)
	if !strings.Contains(full, "://") {
		full = "nats-route://" + full
	}
	u, err := url.Parse(full)
	switch {
	case err != nil:
		return "", errors.New("is no URL")
	case u.Scheme != "nats-route":
		return "", fmt.Errorf("unknown scheme %q: want nats-route://", u.Scheme)
	case u.Hostname() == "" || u.Path != "" && u.Path != "/" || u.RawQuery != "":
		return "", errors.New("want nats-route://host:port")
	case u.User != nil:
		return "", errors.New("a password in a URL can be seen by all: use --cluster-secret-file")
	}
	port := u.Port()
	if port == "" {
		port = clusterPort
	}
	return "nats-route://" + net.JoinHostPort(u.Hostname(), port), nil
}

// memberConfig reads the files that make this process a member.
func (s *settings) memberConfig() (*journal.MemberConfig, error) {
	c := &s.Cluster
	m := &journal.MemberConfig{Cluster: c.Name, Name: s.Worker.ID, Listen: c.Listen, Routes: c.Routes}
	if m.Name == "" {
		m.Name = machineName()
	}
	if c.SecretFile != "" {
		secret, err := readSecret(c.SecretFile)
		if err != nil {
			return nil, err
		}
		m.Secret = secret
	}
	if c.CA == "" {
		return m, nil
	}
	secure, err := natsSettings{CA: c.CA, Cert: c.Cert, Key: c.Key}.tls()
	if err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	secure.ClientCAs, secure.ClientAuth = secure.RootCAs, tls.RequireAndVerifyClientCert
	m.TLS = secure
	return m, nil
}

// readSecret reads what members show each other.
func readSecret(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("secret of the cluster %s: %w", path, cause(err))
	}
	if err := privateFile(info); err != nil {
		return "", fmt.Errorf("secret of the cluster %s %w", path, err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("secret of the cluster %s: %w", path, cause(err))
	}
	secret := strings.TrimSpace(string(b))
	if len(secret) < protocol.ClusterSecretBytesMin {
		return "", fmt.Errorf("secret of the cluster %s holds %d characters: want %d or more", path, len(secret), protocol.ClusterSecretBytesMin)
	}
	return secret, nil
}
