package journal

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"rejoin/protocol"
)

// How a connection to a cluster is kept. A server that answers nothing is given up
// within three pings; an election of streams takes longer than that.
const (
	remotePing      = 2 * time.Second
	remotePingsOut  = 2
	remoteDial      = 2 * time.Second
	remoteReconnect = 100 * time.Millisecond
	// remoteAttempt is for one request to a leader, and for a record that is not large:
	// what was on its way to one that has just gone is not answered.
	remoteAttempt = time.Second
)

// remoteBytesDefault is what the shards of a new journal may hold: servers do not
// tell of their disks, and a journal should be full before a disk is.
const remoteBytesDefault = 16 << 30

// RemoteConfig of Connect. The zero value of each field is documented.
type RemoteConfig struct {
	URLs []string // nats:// or tls:// addresses of servers. At least one, unless Member is set
	// Member embeds a server that is one of the cluster, to which this process
	// connects: URLs, Creds and TLS mean nothing then, and Dir is required.
	Member *MemberConfig
	// Creds is a file: a JWT with its seed (.creds), or the seed of an nkey. Zero: none.
	Creds string
	TLS   *tls.Config // zero: none beyond what URLs ask for
	Name  string      // of the connections, for those who look at the servers; zero: rejoin
	Inbox string      // prefix of the subjects of replies; zero: _INBOX
	// Dir belongs to this process: its lock and its instance, the mark of what it
	// starts. Zero: neither.
	Dir string
	// Create makes streams and buckets that were never made. Without it Connect waits
	// until another process has made them.
	Create     bool
	Replicas   int          // of new streams; zero: 3 in a cluster of servers, else 1
	Shards     int          // of a new journal; zero: 8, at most 64
	MaxBytes   int64        // of all shards of a new journal; zero: 16 GiB, of a member 70 % of its file system
	Durability Durability   // what the servers keep; zero: always
	Logger     *slog.Logger // zero: nothing is logged
}

func (c RemoteConfig) withDefaults() RemoteConfig {
	if c.Name == "" {
		c.Name = "rejoin"
	}
	if c.Shards == 0 {
		c.Shards = shardsDefault
	}
	if c.MaxBytes == 0 && c.Member == nil {
		c.MaxBytes = remoteBytesDefault
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c RemoteConfig) validate() error {
	switch {
	case c.Member != nil && c.Dir == "":
		return errors.New("journal: RemoteConfig.Dir is required of a member")
	case c.Member == nil && len(c.URLs) == 0:
		return errors.New("journal: RemoteConfig.URLs is required")
	case c.Shards < 1 || c.Shards > shardsMax:
		return fmt.Errorf("journal: RemoteConfig.Shards %d: must be 1 to %d", c.Shards, shardsMax)
	case c.Replicas < 0 || c.Replicas > replicasMax:
		return fmt.Errorf("journal: RemoteConfig.Replicas %d: must be 0 to %d", c.Replicas, replicasMax)
	case c.MaxBytes < 0:
		return fmt.Errorf("journal: RemoteConfig.MaxBytes %d: must not be negative", c.MaxBytes)
	case c.Member != nil:
		return c.Member.validate()
	}
	return nil
}

// remote is what a Node knows of a cluster.
type remote struct {
	cfg    RemoteConfig
	record clusterRecord
	member *member // nil: the servers are those of others

	mu    sync.Mutex
	conns []*nats.Conn // one per link
}

func (r *remote) add(nc *nats.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conns = append(r.conns, nc)
}

func (r *remote) all() []*nats.Conn {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.conns)
}

// Connect opens the journal that a cluster of NATS servers keeps. It waits for the
// servers, and for streams that it may not make, until ctx ends, and logs what it
// waits for. Streams that exist are never changed: what differs from the
// configuration is a warning. Errors: *LockedError, *FormatError,
// *MissingStreamError, *RefusedError, each with a message fit for the user; ctx's.
func Connect(ctx context.Context, cfg RemoteConfig) (_ *Node, err error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	n := newNode(ctx, Config{Durability: cfg.Durability, Shards: cfg.Shards, MaxBytes: cfg.MaxBytes, Logger: cfg.Logger})
	n.remote = &remote{cfg: cfg}
	for _, r := range []**reach{&n.pubs, &n.reads, &n.kvs, &n.lives} {
		*r = &reach{attempt: remoteAttempt}
	}
	if cfg.Member != nil {
		if n.remote.member, err = newMember(&cfg); err != nil {
			return nil, err
		}
	}
	n.snapFresh.done.Store(true) // no start of these servers cuts a block that was verified
	defer func() {
		if err != nil {
			err = errors.Join(err, n.shutdown())
		}
	}()
	if n.bootID, err = readBootID(); err != nil {
		return nil, err
	}
	if err := n.openOwnDir(cfg.Dir); err != nil {
		return nil, err
	}
	if n.remote.member != nil {
		if err := n.openMember(ctx); err != nil {
			return nil, err
		}
	}
	if err := n.connect(ctx); err != nil {
		return nil, err
	}
	if err := checkPayload(n.pub); err != nil {
		return nil, err
	}
	if err := n.openCluster(ctx); err != nil {
		return nil, err
	}
	if n.remote.member != nil {
		if err := n.settleMember(ctx); err != nil {
			return nil, err
		}
	}
	if err := n.begin(ctx); err != nil {
		return nil, err
	}
	return n, nil
}

// openOwnDir takes the directory of this process into use, if it has one.
func (n *Node) openOwnDir(dir string) (err error) {
	if dir == "" {
		return nil
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return fmt.Errorf("journal: data directory: %w", err)
	}
	if present(formatFile(dir)) {
		return &FormatError{Path: formatFile(dir), Reason: "the directory holds a journal of its own: name another one, or start without servers to connect to"}
	}
	m := n.remote.member
	if m == nil && present(memberPath(dir)) {
		return notAlone(dir)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("journal: make data directory: %w", err)
	}
	if err := n.closeDir(dir, filepath.Join(dir, "instance")); err != nil {
		return err
	}
	if n.lock, err = lockDir(dir); err != nil {
		return err
	}
	if m != nil {
		if err := m.openFile(dir); err != nil {
			return err
		}
		if n.remote.cfg.MaxBytes == 0 {
			disk, err := diskSpace(dir)
			if err != nil {
				return err
			}
			n.remote.cfg.MaxBytes = disk.size / 10 * 7
		}
	}
	n.instance, err = openInstance(dir, n.clock())
	return err
}

// notAlone refuses the directory of a member to a start that is to be none.
func notAlone(dir string) error {
	return &FormatError{Path: memberPath(dir), Reason: "the directory holds the store of a cluster's member: name another one, or start it as that member"}
}

// dialRemote connects to the cluster, however long it takes.
func (n *Node) dialRemote(ctx context.Context, l link, opts []nats.Option) (*nats.Conn, error) {
	cfg := &n.remote.cfg
	auth, err := n.remote.proof(&n.engine)
	if err != nil {
		return nil, err
	}
	opts = append(opts, auth...)
	opts = append(opts, nats.Name(cfg.Name+"-"+l.name), nats.Timeout(remoteDial), nats.ReconnectWait(remoteReconnect),
		nats.PingInterval(remotePing), nats.MaxPingsOutstanding(remotePingsOut),
		nats.IgnoreAuthErrorAbort(), // a server that is told of its users late is no reason to end
		nats.LameDuckModeHandler(func(nc *nats.Conn) { n.leaveServer(l, nc) }))
	if cfg.TLS != nil {
		opts = append(opts, nats.Secure(cfg.TLS))
	}
	if cfg.Inbox != "" {
		opts = append(opts, nats.CustomInboxPrefix(cfg.Inbox))
	}
	l.reach.begin(n.life)
	l.reach.found()
	for try := 0; ; try++ {
		nc, err := nats.Connect(strings.Join(cfg.URLs, ","), opts...)
		switch {
		case err == nil:
			if n.remote.member == nil { // which has its own server alone
				n.remote.add(nc)
				l.reach.leave = func() { n.leaveDeaf(nc) }
			}
			return nc, nil
		case refused(err):
			return nil, &RefusedError{"the NATS servers refuse the connection: " + err.Error()}
		case try == 0:
			n.log.Warn("waiting for the NATS servers", slog.String("name", l.name), slog.Any(protocol.LogError, err))
		}
		if err := pause(ctx, try); err != nil {
			return nil, fmt.Errorf("journal: connect to the NATS servers: %w", err)
		}
	}
}

// leaveServer goes to another server before this one, which is about to end, cuts
// the connection.
func (n *Node) leaveServer(l link, nc *nats.Conn) {
	n.log.Info("a NATS server is about to end: going to another", slog.String("name", l.name))
	if err := nc.ForceReconnect(); err != nil { // closed meanwhile
		n.log.Debug("journal connection", slog.String("name", l.name), slog.Any(protocol.LogError, err))
	}
}

// proof are the options that say where the servers are, if not in URLs, and who one is.
func (r *remote) proof(engine *atomic.Pointer[server.Server]) ([]nats.Option, error) {
	if r.member == nil {
		auth, err := credentials(r.cfg.Creds)
		if err != nil {
			return nil, &RefusedError{err.Error()}
		}
		return auth, nil
	}
	who, err := proof(r.member.user)
	return []nats.Option{nats.InProcessServer(lifeline{engine}), who}, err
}

// leaveDeaf takes every connection to a server over which nothing is answered to
// another one.
func (n *Node) leaveDeaf(deaf *nats.Conn) {
	at := deaf.ConnectedUrl()
	if at == "" {
		return // it is on its way already
	}
	n.log.Info("a NATS server answers nothing: going to another", slog.String("server", at))
	for _, nc := range n.remote.all() {
		if nc.ConnectedUrl() != at {
			continue
		}
		if err := nc.ForceReconnect(); err != nil { // closed meanwhile
			n.log.Debug("journal connection", slog.Any(protocol.LogError, err))
		}
	}
}

// refused reports that another attempt to connect would end the same.
func refused(err error) bool {
	for _, e := range []error{
		nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired,
		nats.ErrSecureConnRequired, nats.ErrSecureConnWanted, nats.ErrNkeysNotSupported,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	var cert *tls.CertificateVerificationError
	return errors.As(err, &cert)
}
