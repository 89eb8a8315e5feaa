package journal

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"rejoin/protocol"
)

const (
	memberLayout = 1
	// membersOf is how many members a cluster of embedded servers has: as many as
	// there are copies of each stream, so that each of them has everything.
	membersOf = protocol.ClusterMembers
	// memberSystem is the account over which the servers of a cluster talk.
	memberSystem = "$SYS"
	// memberRouteUser goes with the secret that members show each other.
	memberRouteUser = "rejoin"
	// memberTellEvery: of so many attempts to reach a peer, one a second, one is told.
	memberTellEvery = 60
)

// MemberConfig of an embedded server that keeps the journal together with its peers,
// which are embedded in other processes.
type MemberConfig struct {
	Cluster string   // the cluster's name. Required
	Name    string   // of this member, which it keeps. Required, of one word
	Listen  string   // host:port on which peers reach it. Required
	Routes  []string // nats-route://host:port of the peers; its own may be among them. At least two
	Secret  string   // that peers must show; zero: none
	TLS     *tls.Config
}

func (c *MemberConfig) validate() error {
	switch {
	case c.Cluster == "" || c.Name == "":
		return errors.New("journal: MemberConfig.Cluster and Name are required")
	case len(c.Routes) < membersOf-1:
		return fmt.Errorf("journal: MemberConfig.Routes: at least %d", membersOf-1)
	}
	return nil
}

// memberFile is DATA/member: whose store the directory holds, and what must be in it.
type memberFile struct {
	Layout  int    `json:"layout"`
	Cluster string `json:"cluster"`
	Name    string `json:"name"`
	// Ready says that the journal was made and this member had all of it. Before
	// that nothing was acknowledged that this member has to keep.
	Ready   bool              `json:"ready"`
	Streams map[string]string `json:"streams,omitempty"` // name: its Raft group
	// Filling are streams that were moved aside and are not yet whole again: the
	// member has their log, perhaps, but not what it is about.
	Filling []string `json:"filling,omitempty"`
}

func memberPath(dir string) string { return filepath.Join(dir, "member") }

// member is the embedded server of one that is among peers.
type member struct {
	cfg    MemberConfig
	dir    string
	log    *slog.Logger
	level  Durability
	fresh  bool          // the directory was empty
	user   nkeys.KeyPair // of this process's connections: nobody else has it
	system nkeys.KeyPair // the same in the system account
	calls  *nats.Conn    // answers other members
	admin  *nats.Conn    // in the system account

	mu   sync.Mutex // guards file
	file memberFile
}

func newMember(cfg *RemoteConfig) (*member, error) {
	m := &member{cfg: *cfg.Member, log: cfg.Logger, level: cfg.Durability}
	for _, k := range []*nkeys.KeyPair{&m.user, &m.system} {
		var err error
		if *k, err = nkeys.CreateUser(); err != nil {
			return nil, fmt.Errorf("journal: make a key: %w", err)
		}
	}
	return m, nil
}

// openFile reads whose store the directory holds. Errors: *FormatError.
func (m *member) openFile(dir string) error {
	m.dir = dir
	path := memberPath(dir)
	data, err := os.ReadFile(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		if present(filepath.Join(dir, "jetstream")) {
			return &FormatError{Path: path, Reason: "the file is missing although the directory holds streams; put it back from a backup"}
		}
		m.fresh = true
		m.file = memberFile{Layout: memberLayout, Cluster: m.cfg.Cluster, Name: m.cfg.Name}
		return nil
	case err != nil:
		return fmt.Errorf("journal: %w", err)
	}
	f := memberFile{}
	if err := json.Unmarshal(data, &f); err != nil {
		return &FormatError{Path: path, Reason: "not readable: " + err.Error()}
	}
	switch {
	case f.Layout < 1 || f.Layout > memberLayout:
		return &FormatError{Path: path, Reason: fmt.Sprintf("layout %d: this version knows up to %d", f.Layout, memberLayout)}
	case f.Cluster != m.cfg.Cluster || f.Name != m.cfg.Name:
		return &FormatError{Path: path, Reason: fmt.Sprintf("the directory is that of the member %s of the cluster %s, and this is to be %s of %s: "+
			"give it its own name, or another directory", f.Name, f.Cluster, m.cfg.Name, m.cfg.Cluster)}
	}
	m.file = f
	return nil
}

// change writes the file as f leaves it.
func (m *member) change(f func(*memberFile)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	next := m.file
	f(&next)
	data, err := json.Marshal(next)
	if err == nil {
		err = writeFile(memberPath(m.dir), append(data, '\n'))
	}
	if err != nil {
		return fmt.Errorf("journal: write %s: %w", memberPath(m.dir), err)
	}
	m.file = next
	return nil
}

// says is what a member tells the others of itself.
func (m *member) says() memberSays {
	m.mu.Lock()
	defer m.mu.Unlock()
	return memberSays{Name: m.cfg.Name, New: !m.file.Ready, Filling: m.file.Filling}
}

// options of a server of the cluster.
func (m *member) options(name string) (*server.Options, error) {
	host, port, err := net.SplitHostPort(m.cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("journal: MemberConfig.Listen: %w", err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		return nil, fmt.Errorf("journal: MemberConfig.Listen: %w", err)
	}
	system := server.NewAccount(memberSystem)
	opts := &server.Options{
		// Without a listener for clients nats-server opens none for routes either.
		// Who connects to it must have a key that only this process has.
		ServerName: name, Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true,
		MaxPayload: messageBytesMax, MaxPending: pendingBytesMax,
		Accounts: []*server.Account{system}, SystemAccount: memberSystem,
		ReconnectErrorReports: memberTellEvery,
		Cluster: server.ClusterOpts{
			Name: m.cfg.Cluster, Host: host, Port: number, NoAdvertise: true, TLSConfig: m.cfg.TLS, PingInterval: RoutePing,
		},
	}
	for _, k := range []struct {
		pair    nkeys.KeyPair
		account *server.Account // nil: the streams'
	}{{m.user, nil}, {m.system, system}} {
		key, err := k.pair.PublicKey()
		if err != nil {
			return nil, fmt.Errorf("journal: make a key: %w", err)
		}
		opts.Nkeys = append(opts.Nkeys, &server.NkeyUser{Nkey: key, Account: k.account})
	}
	for _, raw := range m.cfg.Routes {
		u, err := url.Parse(raw)
		if err != nil {
			return nil, fmt.Errorf("journal: MemberConfig.Routes: %w", err)
		}
		if m.cfg.Secret != "" {
			u.User = url.UserPassword(memberRouteUser, m.cfg.Secret)
		}
		opts.Routes = append(opts.Routes, u)
	}
	if m.cfg.Secret != "" {
		opts.Cluster.Username, opts.Cluster.Password = memberRouteUser, m.cfg.Secret
	}
	return opts, nil
}

// proof is the option that makes a connection one of pair's user.
func proof(pair nkeys.KeyPair) (nats.Option, error) {
	key, err := pair.PublicKey()
	if err != nil {
		return nil, fmt.Errorf("journal: make a key: %w", err)
	}
	return nats.Nkey(key, pair.Sign), nil
}

// dial connects to the server that provider leads to.
func (m *member) dial(name string, pair nkeys.KeyPair, provider nats.InProcessConnProvider) (*nats.Conn, error) {
	who, err := proof(pair)
	if err != nil {
		return nil, err
	}
	nc, err := nats.Connect("", nats.InProcessServer(provider), nats.Name("rejoin-"+name), nats.MaxReconnects(-1), who)
	if err != nil {
		return nil, fmt.Errorf("journal: connect %s: %w", name, err)
	}
	return nc, nil
}

// openMember makes the store fit to be a member's, and starts the server on it.
func (n *Node) openMember(ctx context.Context) error {
	m := n.remote.member
	lost, err := m.scan(ctx)
	if err != nil {
		return fmt.Errorf("journal: verify the store: %w", err)
	}
	for _, l := range lost {
		l.tell(n.log)
	}
	if m.fresh || len(lost) > 0 {
		if err := n.askMembers(ctx, lost); err != nil {
			return err
		}
		if err := m.setAside(lost, n.clock()); err != nil {
			return fmt.Errorf("journal: %w", err)
		}
	}
	opts, err := m.options(m.cfg.Name)
	if err != nil {
		return err
	}
	opts.JetStream, opts.StoreDir, opts.DisableJetStreamBanner = true, m.dir, true
	opts.JetStreamMaxStore, opts.JetStreamMaxMemory = 1<<60, 64<<20 // as in bootServer
	opts.SyncAlways, opts.SyncInterval = m.level.always(), m.level.Interval
	srv, err := n.runServer(ctx, opts)
	if err != nil {
		return err
	}
	n.engine.Store(srv)
	if m.calls, err = m.dial("members", m.user, lifeline{&n.engine}); err != nil {
		return err
	}
	if m.admin, err = m.dial("system", m.system, lifeline{&n.engine}); err != nil {
		return err
	}
	return m.answer(m.calls, nil)
}

// settleMember waits until this member has all that the others have, and notes that
// from here on it must have it.
func (n *Node) settleMember(ctx context.Context) error {
	m := n.remote.member
	groups := map[string]string{}
	for _, name := range append([]string{bucketStream(bucketCluster)}, n.remote.record.Expect...) {
		group, err := n.awaitFilled(ctx, name)
		if err != nil {
			return err
		}
		groups[name] = group
	}
	k, err := collect(ctx, m.admin)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		n.log.Warn("the other members do not say how they sync", slog.Any(protocol.LogError, err))
	case k.Level != m.level:
		n.log.Warn("a member syncs less often than this one: what all of them survive is its level", slog.String("level", k.Level.String()))
		n.cfg.Durability = k.Level
	}
	if len(m.file.Filling) > 0 {
		n.log.Info("what was moved aside is filled again from the other members", slog.Any("streams", m.file.Filling))
	}
	return m.change(func(f *memberFile) { f.Ready, f.Streams, f.Filling = true, groups, nil })
}

// alone reports whether this is a member that no other one is connected to.
func (n *Node) alone() bool {
	srv := n.engine.Load()
	return n.remote.member != nil && srv != nil && srv.NumRoutes() == 0
}

// end closes what is the member's own.
func (m *member) end() {
	for _, nc := range []*nats.Conn{m.calls, m.admin} {
		if nc != nil {
			nc.Close()
		}
	}
}

// stopMember leaves the cluster: leaderships move before the server ends.
func (n *Node) stopMember() {
	n.remote.member.end()
	if srv := n.engine.Load(); srv != nil {
		srv.LameDuckShutdown()
		srv.WaitForShutdown()
	}
}

// lookMember says, once, that the server of this process keeps nothing any more:
// its store failed. The other members go on, and so do the sessions here.
func (w *healthWatch) lookMember() {
	srv := w.n.engine.Load() // of a member: the servers of others are theirs to look after
	if srv == nil || w.remote.ended || srv.JetStreamEnabled() {
		return
	}
	w.remote.ended = true
	w.n.log.Error("the store of this member has ended after an error; the other members go on without it: " +
		"mend the disk or make room, then start this server again")
}

// memberNames are the streams that a member has to have, in order.
func (f *memberFile) names() []string {
	names := make([]string, 0, len(f.Streams))
	for name := range f.Streams {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
