package journal

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"rejoin/protocol"
)

const (
	messageBytesMax = 8 << 20  // NATS payload; a part with its header stays far below
	pendingBytesMax = 64 << 20 // of one server-side connection before it is cut
	startTimeout    = 60 * time.Second
	startLook       = 100 * time.Millisecond // between two looks at what a start came to
)

// Config of Start. The zero value of each field is documented.
type Config struct {
	Dir        string       // data directory: lock, format, boot mark, JetStream store. Required
	Durability Durability   // zero: always
	Shards     int          // zero: 8, at most 64; only at creation, later the stored number counts
	MaxBytes   int64        // of all shards together; zero: 70 % of the file system
	Key        []byte       // encrypts the journal; zero: it is not. At least KeyBytesMin; the same at every start
	Cipher     Cipher       // zero: that of the directory, chacha for a new one
	Logger     *slog.Logger // zero: nothing is logged
	// GuardFault is for tests: called at each step of the boot guard, an error of it
	// is the step's. Zero: nothing is called.
	GuardFault func(step string) error
}

func (c Config) withDefaults() Config {
	if c.Shards == 0 {
		c.Shards = shardsDefault
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) validate() error {
	switch {
	case c.Dir == "":
		return errors.New("journal: Config.Dir is required")
	case c.Shards < 1 || c.Shards > shardsMax:
		return fmt.Errorf("journal: Config.Shards %d: must be 1 to %d", c.Shards, shardsMax)
	case c.Key != nil && len(c.Key) < KeyBytesMin:
		return fmt.Errorf("journal: Config.Key has %d bytes: must have %d", len(c.Key), KeyBytesMin)
	case c.Cipher != "" && c.Cipher != CipherChaCha && c.Cipher != CipherAES:
		return fmt.Errorf("journal: Config.Cipher %q: must be %s or %s", c.Cipher, CipherChaCha, CipherAES)
	case c.MaxBytes < 0:
		return fmt.Errorf("journal: Config.MaxBytes %d: must not be negative", c.MaxBytes)
	}
	return nil
}

// Node is the embedded server with its connections, or the connections to a
// cluster of servers (Connect). Safe for concurrent use.
type Node struct {
	cfg      Config
	log      *slog.Logger
	clock    func() time.Time
	lock     *dirLock
	format   *format
	instance string          // of the data directory
	bootID   string          // of the machine
	remote   *remote         // nil: the server is embedded
	life     context.Context // ends when Close begins
	end      context.CancelFunc

	engine     atomic.Pointer[server.Server] // keeps the streams; nil while it is being restarted
	busServer  atomic.Pointer[server.Server] // of bus alone
	reach      reach                         // of the engine
	restarting atomic.Bool
	health     *healthWatch
	watching   sync.WaitGroup // for health's goroutine
	disk       *diskGate
	gates      []*gate // one per shard

	// One connection per kind of traffic, so that bulk of one does not delay another.
	pub  *nats.Conn // appends of all writers
	read *nats.Conn // direct gets and the leader API
	bus  *nats.Conn
	kv   *nats.Conn
	snap *nats.Conn // blobs of SNAP

	// Whether each can ask: all share the engine's reach, or each has its own in a cluster.
	pubs, reads, kvs, lives *reach

	js     jetstream.JetStream // on read
	kvjs   jetstream.JetStream // on kv
	snapjs jetstream.JetStream // on snap

	snapFresh freshness

	turns   []*turnstile // one per shard
	flights flights      // on pub
	rd      *reader
	hub     *Hub

	counters counters

	writing sync.WaitGroup // one for each of writers

	guard *guard // while Start runs

	mu      sync.Mutex // guards the following
	boot    *bootMark
	damage  []Damage
	writers map[*Writer]struct{} // open ones
	closed  bool
}

// Start locks cfg.Dir, checks DATA/format, verifies every block of the store and
// repairs what it can (Damage tells), starts the embedded server (no socket) and
// makes sure that every expected stream exists; it creates them at the first
// start only. Errors: *LockedError, *FormatError, *MissingStreamError,
// *KeyError, each with a message fit for the user; a context error.
func Start(ctx context.Context, cfg Config) (_ *Node, err error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cfg.Dir, err = filepath.Abs(cfg.Dir); err != nil {
		return nil, fmt.Errorf("journal: data directory: %w", err)
	}
	n := newNode(ctx, cfg)
	n.pubs, n.reads, n.kvs, n.lives = &n.reach, &n.reach, &n.reach, &n.reach
	defer func() {
		if err != nil {
			err = errors.Join(err, n.shutdown())
		}
	}()
	if err := n.openDir(ctx); err != nil {
		return nil, err
	}
	if err := n.open(ctx); err != nil {
		return nil, err
	}
	if err := n.begin(ctx); err != nil {
		return nil, err
	}
	return n, nil
}

func newNode(ctx context.Context, cfg Config) *Node {
	n := &Node{cfg: cfg, log: cfg.Logger, clock: time.Now, writers: map[*Writer]struct{}{}, disk: newDiskGate()}
	n.health = newHealthWatch(n)
	n.snapFresh.turn = make(chan struct{}, 1)
	n.life, n.end = context.WithCancel(context.WithoutCancel(ctx))
	return n
}

// begin starts what runs for as long as the node lives.
func (n *Node) begin(ctx context.Context) (err error) {
	n.rd = newReader(n, n.read, n.reads)
	if n.hub, err = newHub(ctx, n); err != nil {
		return fmt.Errorf("journal: start hub: %w", err)
	}
	n.health.look(n.life)
	n.watching.Go(func() { n.health.run(n.life) })
	return nil
}

// closeDir makes the data directory the owner's alone, if it is ours, which mark
// shows, or empty. Another one may be somebody's home: it is left as it is, and
// refused.
func (n *Node) closeDir(dir, mark string) error {
	fi, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("journal: data directory: %w", err)
	}
	if fi.Mode().Perm()&0o077 == 0 {
		return nil
	}
	if !present(mark) {
		files, err := os.ReadDir(dir)
		if err != nil {
			return fmt.Errorf("journal: data directory: %w", err)
		}
		if len(files) > 0 {
			return fmt.Errorf("the data directory %s holds other files and is open to others (mode %04o): name an empty directory, or chmod it to 0700",
				dir, fi.Mode().Perm())
		}
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		n.log.Warn("data directory is open to others", slog.String("dir", dir), slog.Any(protocol.LogError, err))
	}
	return nil
}

// openDir takes the data directory into use.
func (n *Node) openDir(ctx context.Context) (err error) {
	dir := n.cfg.Dir
	if _, err := checkKey(&n.cfg); err != nil { // before anything is touched
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("journal: make data directory: %w", err)
	}
	if present(memberPath(dir)) {
		return notAlone(dir)
	}
	if err := n.closeDir(dir, formatFile(dir)); err != nil {
		return err
	}
	if n.lock, err = lockDir(dir); err != nil {
		return err
	}
	if err := checkSpace(dir); err != nil {
		return err
	}
	if err := n.openEncryption(); err != nil {
		return err
	}
	if n.format, err = openFormat(dir, n.cfg.Shards); err != nil {
		return err
	}
	if n.guard, err = n.guardFiles(ctx); err != nil {
		return err
	}
	if err := n.format.checkStreams(dir); err != nil {
		return err
	}
	if n.instance, err = openInstance(dir, n.clock()); err != nil {
		return err
	}
	if n.bootID, err = readBootID(); err != nil {
		return err
	}
	n.boot, err = openBoot(dir, n.bootID, n.cfg.Durability)
	return err
}

func (n *Node) startServer(ctx context.Context) error {
	if err := n.startEngine(ctx); err != nil {
		return err
	}
	if err := n.startBus(ctx); err != nil {
		return err
	}
	if err := n.connect(ctx); err != nil {
		return err
	}
	n.reach.found()
	return nil
}

// bootServer starts the server that keeps the streams.
func (n *Node) bootServer(ctx context.Context) (*server.Server, error) {
	d := n.cfg.Durability
	opts := &server.Options{
		ServerName: "rejoin", DontListen: true, NoSigs: true,
		JetStream: true, StoreDir: n.cfg.Dir,
		// What bounds the store is MaxBytes of the streams; a lower limit of the
		// server would make it refuse to load streams it already has.
		JetStreamMaxStore: 1 << 60, JetStreamMaxMemory: 64 << 20,
		MaxPayload: messageBytesMax, MaxPending: pendingBytesMax,
		SyncAlways: d.always(), SyncInterval: d.Interval,
		DisableJetStreamBanner: true,
	}
	n.encrypt(opts)
	return n.runServer(ctx, opts)
}

// runServer starts a server and returns it when it is ready.
func (n *Node) runServer(ctx context.Context, opts *server.Options) (_ *server.Server, err error) {
	srv, err := server.NewServer(opts)
	if err != nil {
		return nil, fmt.Errorf("journal: configure server: %w", err)
	}
	bridge := &logBridge{log: n.log, wrong: n.health.soon}
	srv.SetLoggerV2(bridge, false, false, false)
	srv.Start()
	defer func() {
		if err != nil {
			srv.Shutdown()
			srv.WaitForShutdown()
		}
	}()
	if text := bridge.fatal.Load(); text != nil {
		return nil, fmt.Errorf("journal: start server: %s", *text)
	}
	for began := time.Now(); !srv.ReadyForConnections(startLook); {
		if text := bridge.fatal.Load(); text != nil {
			return nil, fmt.Errorf("journal: start server: %s", *text)
		}
		if ctx.Err() != nil || time.Since(began) > startTimeout {
			return nil, errors.Join(errors.New("journal: server did not get ready"), ctx.Err())
		}
	}
	if opts.JetStream && !srv.JetStreamEnabled() {
		return nil, errors.New("journal: server did not get ready")
	}
	return srv, nil
}

// connect makes the connections but the hub's.
func (n *Node) connect(ctx context.Context) (err error) {
	for _, c := range []struct {
		link
		to **nats.Conn
	}{
		{link{name: "pub", reach: n.pubs}, &n.pub},
		{link{name: "read", reach: n.reads}, &n.read},
		{link{name: "bus", srv: &n.busServer, reach: new(reach)}, &n.bus},
		{link{name: "kv", reach: n.kvs}, &n.kv},
		{link{name: "snap", reach: new(reach)}, &n.snap},
	} {
		if c.srv == nil {
			c.srv = &n.engine
		}
		if *c.to, err = n.dial(ctx, c.link); err != nil {
			return err
		}
	}
	if n.js, err = jetstream.New(n.read); err != nil {
		return fmt.Errorf("journal: open JetStream: %w", err)
	}
	if n.kvjs, err = jetstream.New(n.kv); err != nil {
		return fmt.Errorf("journal: open JetStream: %w", err)
	}
	if n.snapjs, err = jetstream.New(n.snap); err != nil {
		return fmt.Errorf("journal: open JetStream: %w", err)
	}
	return nil
}

// Close stops in order: writers that were left open (they fail with ErrClosed),
// hub, connections, server; then it syncs, writes the clean-stop mark and
// unlocks. Close is idempotent. The clean mark is written only when all of it
// succeeded before ctx ended.
func (n *Node) Close(ctx context.Context) error {
	n.mu.Lock()
	closed := n.closed
	n.closed = true
	for w := range n.writers {
		w.abort()
	}
	n.mu.Unlock()
	if closed {
		return nil
	}
	n.end()
	n.watching.Wait()
	n.writing.Wait()
	n.stopTraffic()
	if n.remote != nil {
		return n.shutdown()
	}
	if err := syncFS(n.cfg.Dir); err != nil {
		return errors.Join(fmt.Errorf("journal: sync data directory: %w", err), n.shutdown())
	}
	if err := ctx.Err(); err != nil {
		return errors.Join(err, n.shutdown())
	}
	n.mu.Lock()
	n.boot.Clean = true
	err := n.boot.write(n.cfg.Dir)
	n.mu.Unlock()
	return errors.Join(err, n.shutdown())
}

// stopTraffic ends hub, connections and server, whatever of them exists.
func (n *Node) stopTraffic() {
	if n.hub != nil {
		n.hub.close()
	}
	for _, c := range []*nats.Conn{n.pub, n.read, n.bus, n.kv, n.snap} {
		if c != nil {
			c.Close()
		}
	}
	if n.remote != nil && n.remote.member != nil {
		n.stopMember()
		return
	}
	for _, p := range []*atomic.Pointer[server.Server]{&n.engine, &n.busServer} {
		if srv := p.Load(); srv != nil {
			srv.Shutdown()
			srv.WaitForShutdown()
		}
	}
}

// shutdown undoes what Start did so far, without the clean mark.
func (n *Node) shutdown() error {
	n.end()
	n.watching.Wait()
	n.stopTraffic()
	if n.lock == nil {
		return nil
	}
	return n.lock.release()
}

// ShardOf returns the shard of a new session's log. It is stored with the
// session and never computed again.
func (n *Node) ShardOf(k protocol.Key) int {
	h := fnv.New64a()
	_, _ = h.Write([]byte(k.String())) // a hash.Hash never fails
	return int(h.Sum64() % uint64(n.format.Shards))
}

// UncleanBoot reports that an earlier process ended without the clean-stop
// mark, under another boot and below always, and that SettleBoot has not been
// called since: acknowledged events may be lost.
func (n *Node) UncleanBoot() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.boot != nil && n.boot.Unclean
}

// SettleBoot records that everything an unclean boot asks for is done and
// durable. Until then every later start reports UncleanBoot again.
func (n *Node) SettleBoot() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.boot == nil || !n.boot.Unclean {
		return nil
	}
	m := *n.boot
	m.Unclean = false
	if err := m.write(n.cfg.Dir); err != nil {
		return err
	}
	n.boot = &m
	return nil
}

// Logger returns what the node logs to.
func (n *Node) Logger() *slog.Logger { return n.log }

// Life returns a context that ends when the node is closed, for work that
// outlives the call it began in.
func (n *Node) Life() context.Context { return n.life }

// BootID returns the machine's boot id.
func (n *Node) BootID() string { return n.bootID }

// Instance returns the ULID of the data directory, made once; empty without one.
func (n *Node) Instance() string { return n.instance }

// Cluster returns the ULID of the journal: of the cluster's format record, or of
// the data directory where the server is embedded.
func (n *Node) Cluster() string {
	if n.remote != nil {
		return n.remote.record.Instance
	}
	return n.instance
}

// Remote reports whether the journal is kept by servers of other processes, so
// that any other process may write to it too.
func (n *Node) Remote() bool { return n.remote != nil }

// Durability returns the sync level in force.
func (n *Node) Durability() Durability { return n.cfg.Durability }

// Hub returns the node's watch hub.
func (n *Node) Hub() *Hub { return n.hub }

// Bus returns the node's request bus.
func (n *Node) Bus() *Bus { return &Bus{nc: n.bus, log: n.log} }

// quota returns the bytes that all shards together may hold. It does not depend
// on what else is on the disk now: that is the free-space watch's business, and a
// quota that came out small would stay so when the space is back.
func (n *Node) quota() (int64, error) {
	if n.cfg.MaxBytes > 0 {
		return n.cfg.MaxBytes, nil
	}
	disk, err := diskSpace(n.cfg.Dir)
	if err != nil {
		return 0, err
	}
	return disk.size / 10 * 7, nil
}
