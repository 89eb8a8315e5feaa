package main

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"rejoin/client"
	gatewaytcp "rejoin/gateway-tcp"
	"rejoin/journal"
	"rejoin/protocol"
)

// natsSettings say where the roles of several processes meet. Without servers
// there is one process with a journal of its own.
type natsSettings struct {
	Servers     []string `yaml:"servers,omitempty"`
	Creds       string   `yaml:"creds,omitempty"`       // a JWT with its seed, or the seed of an nkey
	SystemCreds string   `yaml:"systemCreds,omitempty"` // the same of a user of the system account
	CA          string   `yaml:"ca,omitempty"`
	Cert        string   `yaml:"cert,omitempty"`
	Key         string   `yaml:"key,omitempty"`
	Replicas    int      `yaml:"replicas,omitempty"`   // of new streams; zero: 3 where there are as many servers
	Durability  string   `yaml:"durability,omitempty"` // what the servers keep, where systemCreds does not tell

	AcceptDurability bool `yaml:"acceptDurability,omitempty"` // whatever it is
}

// workerSettings are those of a worker among others.
type workerSettings struct {
	ID     string            `yaml:"id,omitempty"` // empty: this machine's name and the data directory's
	Labels map[string]string `yaml:"labels,omitempty"`
}

// natsPort is that of a server whose URL has none.
const natsPort = "4222"

// replicasMax is what JetStream takes.
const replicasMax = 5

// allRoles are those that there are, and what a process is that is told nothing.
var allRoles = []protocol.ServerRole{protocol.RoleBroker, protocol.RoleGateway, protocol.RoleWorker}

// flagsOf are the flags that mean something to one role only.
var flagsOf = map[protocol.ServerRole][]string{
	protocol.RoleBroker: {"allow-argv", "env-allow", "nats-replicas"},
	protocol.RoleGateway: {
		"listen", "advertise", "token", "token-file", "tokens", "no-auth", "tls-cert", "tls-key", "tls-client-ca",
		"max-request-bytes", "auth-timeout", "write-timeout",
	},
	protocol.RoleWorker: {"worker-id", "label", "capacity", "max-event-bytes", "cgroups", "encrypt-key-file"},
}

// roleFlags adds the flags of split roles; labels takes what --label was given.
func roleFlags(cmd *cobra.Command, flags *settings, labels *[]string) {
	f := cmd.Flags()
	f.StringSliceVar(&flags.Roles, "roles", nil, "what this process is, with commas between: broker, gateway, worker (default all; fewer need --nats)")
	f.StringSliceVar(&flags.NATS.Servers, "nats", nil, "URLs of the NATS servers on which the roles meet, tls://host:port or nats://host:port, with commas between (default: none, a journal of its own)")
	f.StringVar(&flags.NATS.Creds, "nats-creds", "", "file that says who this process is there: a JWT with its seed, or the seed of an nkey")
	f.StringVar(&flags.NATS.SystemCreds, "nats-system-creds", "", "the same of a user of the system account, which reads how the servers sync")
	f.StringVar(&flags.NATS.CA, "nats-ca", "", "CA that signed the certificates of those servers, PEM (default: those of the system)")
	f.StringVar(&flags.NATS.Cert, "nats-cert", "", "certificate to show to those servers, PEM")
	f.StringVar(&flags.NATS.Key, "nats-key", "", "its private key, PEM")
	f.IntVar(&flags.NATS.Replicas, "nats-replicas", 0, "copies of each stream that is made (default 3 where there are as many servers, else 1)")
	f.StringVar(&flags.NATS.Durability, "nats-durability", "", "what those servers keep, where --nats-system-creds does not tell: always, or how often they sync")
	f.BoolVar(&flags.NATS.AcceptDurability, "accept-durability", false, "be ready whatever those servers keep, and though nobody knows")
	f.StringVar(&flags.Worker.ID, "worker-id", "", "name of this worker, which it keeps (default: the machine's name and the data directory's)")
	f.StringArrayVar(labels, "label", nil, "NAME=VALUE that sessions may ask for; repeatable")
	f.IntVar(&flags.Limits.MaxSessions, "capacity", 0, fmt.Sprintf("sessions that this worker runs at a time (default %d)", protocol.SessionsLiveDefault))
	f.StringSliceVar(&flags.Advertise, "advertise", nil, "URLs at which clients reach this gateway, for clients of others that stop (default: its listeners, where they name a host)")
}

// roleSetters copy the flags of split roles that were given.
func roleSetters(s, flags *settings) map[string]func() {
	return map[string]func(){
		"roles":             func() { s.Roles = flags.Roles },
		"nats":              func() { s.NATS.Servers = flags.NATS.Servers },
		"nats-creds":        func() { s.NATS.Creds = flags.NATS.Creds },
		"nats-system-creds": func() { s.NATS.SystemCreds = flags.NATS.SystemCreds },
		"nats-ca":           func() { s.NATS.CA = flags.NATS.CA },
		"nats-cert":         func() { s.NATS.Cert = flags.NATS.Cert },
		"nats-key":          func() { s.NATS.Key = flags.NATS.Key },
		"nats-replicas":     func() { s.NATS.Replicas = flags.NATS.Replicas },
		"nats-durability":   func() { s.NATS.Durability = flags.NATS.Durability },
		"accept-durability": func() { s.NATS.AcceptDurability = flags.NATS.AcceptDurability },
		"worker-id":         func() { s.Worker.ID = flags.Worker.ID },
		"capacity":          func() { s.Limits.MaxSessions = flags.Limits.MaxSessions },
		"advertise":         func() { s.Advertise = flags.Advertise },
	}
}

// refuseNATS is for a member of a cluster, which keeps the journal itself.
func (s *settings) refuseNATS() error {
	for _, name := range slices.Sorted(maps.Keys(roleSetters(s, s))) {
		if s.flagged[name] && (strings.HasPrefix(name, "nats-") || name == "accept-durability") {
			return fmt.Errorf("--%s is for servers that --nats names, and there are none", name)
		}
	}
	return nil
}

// parseLabels reads NAME=VALUE words.
func parseLabels(flag string, words []string) (map[string]string, error) {
	labels := map[string]string{}
	for _, word := range words {
		name, value, ok := strings.Cut(word, "=")
		if !ok || !protocol.ValidLabel(name, value) {
			return nil, usagef("%s %q: want NAME=VALUE, each of at most %d printable ASCII characters without blanks, commas and =", flag, word, protocol.LabelBytesMax)
		}
		if _, twice := labels[name]; twice {
			return nil, usagef("%s %s is given twice", flag, name)
		}
		labels[name] = value
	}
	return labels, nil
}

// split reports whether the journal is that of NATS servers, others' or this one and
// its peers, so that other processes have roles too.
func (s *settings) split() bool { return len(s.NATS.Servers) > 0 || s.member() }

// is reports whether this process has a role: one on its own has all.
func (s *settings) is(role protocol.ServerRole) bool {
	return !s.split() || slices.Contains(s.roles, role)
}

// resolveRoles says what this process is, and refuses what cannot go together.
func (s *settings) resolveRoles() error {
	if err := s.parseRoles(); err != nil {
		return err
	}
	if err := s.resolveCluster(); err != nil {
		return err
	}
	if !s.split() {
		return s.refuseRoles()
	}
	if s.member() {
		return errors.Join(s.refuseNATS(), s.resolveWorker(), s.resolveAdvertise())
	}
	for _, role := range allRoles {
		if s.is(role) {
			continue
		}
		for _, name := range flagsOf[role] {
			if s.flagged[name] {
				return fmt.Errorf("--%s is for the role %s, and this process has only %s", name, role, strings.Join(s.Roles, ", "))
			}
		}
	}
	if len(s.child) > 0 && !s.is(protocol.RoleBroker) {
		return errors.New("the program after -- is an agent, which brokers know: this process is none")
	}
	return errors.Join(s.resolveNATS(), s.resolveWorker(), s.resolveAdvertise())
}

func (s *settings) parseRoles() error {
	s.roles = nil
	for _, name := range s.Roles {
		role := protocol.ServerRole(strings.TrimSpace(name))
		switch {
		case !slices.Contains(allRoles, role):
			return fmt.Errorf("%s: %q is no role: want broker, gateway, worker, or several with commas between", s.named("roles", "roles"), name)
		case slices.Contains(s.roles, role):
			return fmt.Errorf("%s: %s stands there twice", s.named("roles", "roles"), role)
		}
		s.roles = append(s.roles, role)
	}
	if len(s.roles) == 0 {
		s.roles = slices.Clone(allRoles)
		s.Roles = nil
	}
	return nil
}

// refuseRoles is for one process on its own.
func (s *settings) refuseRoles() error {
	if len(s.roles) < len(allRoles) {
		return fmt.Errorf("%s %s needs --nats: roles of several processes meet on NATS servers", s.named("roles", "roles"), strings.Join(s.Roles, ","))
	}
	for _, name := range slices.Sorted(maps.Keys(roleSetters(s, s))) {
		if s.flagged[name] && name != "roles" && name != "capacity" {
			return fmt.Errorf("--%s is for roles that meet on NATS servers: --nats is missing", name)
		}
	}
	if s.flagged["label"] {
		return errors.New("--label is for workers that meet others on NATS servers: --nats is missing")
	}
	return nil
}

// resolveNATS checks where the roles meet.
func (s *settings) resolveNATS() (err error) {
	n := &s.NATS
	for i, raw := range n.Servers {
		if n.Servers[i], err = natsURL(raw); err != nil {
			return fmt.Errorf("%s %q: %w", s.named("nats", "nats.servers"), raw, err)
		}
	}
	switch {
	case (n.Cert == "") != (n.Key == ""):
		return errors.New("nats.cert (--nats-cert) and nats.key (--nats-key) go together")
	case n.Replicas < 0 || n.Replicas > replicasMax:
		return fmt.Errorf("nats.replicas (--nats-replicas) must be 1 to %d", replicasMax)
	case n.Durability != "" && n.SystemCreds != "":
		return errors.New("nats.durability (--nats-durability) is for where nats.systemCreds (--nats-system-creds) does not tell: they exclude each other")
	case n.Durability == "" && n.SystemCreds == "" && !n.AcceptDurability:
		return errors.New("nobody knows what the NATS servers keep when power fails: name credentials of their system account with --nats-system-creds, " +
			"say it with --nats-durability, or accept whatever it is with --accept-durability")
	case s.flagged["encrypt-cipher"]:
		return errors.New("--encrypt-cipher is for a journal of its own: this one is the NATS servers', who encrypt it or not")
	}
	if !s.is(protocol.RoleWorker) {
		s.Encryption = encryption{} // a file of all roles: the key is for what workers keep besides the journal
	}
	if n.Durability != "" {
		if s.durability, err = journal.ParseDurability(n.Durability); err != nil {
			return fmt.Errorf("nats.%w", err)
		}
	}
	return nil
}

// natsURL completes the URL of a server.
func natsURL(raw string) (string, error) {
	full := strings.TrimSpace(raw)
	if !strings.Contains(full, "://") {
		full = "nats://" + full
	}
	u, err := url.Parse(full)
	switch {
	case err != nil:
		return "", errors.New("is no URL")
	case u.Scheme != "nats" && u.Scheme != "tls":
		return "", fmt.Errorf("unknown scheme %q: want nats:// or tls://", u.Scheme)
	case u.Hostname() == "" || u.Path != "" && u.Path != "/" || u.RawQuery != "":
		return "", fmt.Errorf("want %s://host:port", u.Scheme)
	case u.User != nil:
		return "", errors.New("a password in a URL can be seen by all: use --nats-creds")
	}
	port := u.Port()
	if port == "" {
		port = natsPort
	}
	return u.Scheme + "://" + net.JoinHostPort(u.Hostname(), port), nil
}

// resolveWorker checks a worker's name and labels.
func (s *settings) resolveWorker() error {
	w := s.Worker
	if w.ID != "" && !protocol.ValidSessionID(w.ID) {
		return fmt.Errorf("%s %q: want up to %d characters A-Z, a-z, 0-9, _ and -", s.named("worker-id", "worker.id"), w.ID, protocol.SessionIDBytesMax)
	}
	if len(w.Labels) > protocol.LabelsMax {
		return fmt.Errorf("%s: at most %d", s.named("label", "worker.labels"), protocol.LabelsMax)
	}
	for name, value := range w.Labels {
		if !protocol.ValidLabel(name, value) {
			return fmt.Errorf("worker.labels: %q=%q: want a name and a value of at most %d printable ASCII characters without blanks, commas and =", name, value, protocol.LabelBytesMax)
		}
	}
	return nil
}

// resolveAdvertise checks where a gateway says that it is.
func (s *settings) resolveAdvertise() error {
	if len(s.Advertise) > protocol.ReconnectURLsMax {
		return fmt.Errorf("%s: at most %d URLs", s.named("advertise", "advertise"), protocol.ReconnectURLsMax)
	}
	for _, raw := range s.Advertise {
		if _, _, err := client.ParseURL(raw); err != nil {
			return fmt.Errorf("%s: %w", s.named("advertise", "advertise"), err)
		}
	}
	return nil
}

// advertised are the URLs at which clients on other machines reach this gateway:
// those that it was told, else those of its listeners that name one host.
func (s *settings) advertised(listening []string) []string {
	if len(s.Advertise) > 0 {
		return s.Advertise
	}
	var urls []string
	for _, raw := range listening {
		e, err := gatewaytcp.ParseURL(raw)
		if err != nil || e.Scheme == gatewaytcp.SchemeUnix {
			continue
		}
		host, _, err := net.SplitHostPort(e.Address)
		if ip := net.ParseIP(host); err == nil && host != "" && (ip == nil || !ip.IsUnspecified()) {
			urls = append(urls, raw)
		}
	}
	return urls[:min(len(urls), protocol.ReconnectURLsMax)]
}
