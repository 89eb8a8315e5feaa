package broker

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"rejoin/journal"
	"rejoin/protocol"
	"rejoin/snapshot"
)

// A Broker decides who owns each session. Every exported method is safe for
// concurrent use. Methods that touch sessions wait until Recover is through;
// their errors are *protocol.Error, or internal ones that are no client's
// business.
type Broker struct {
	cfg      Config
	node     *journal.Node
	folds    *snapshot.Reader
	log      *slog.Logger
	registry *Registry
	locks    *locks
	starts   *starts
	ledgers  *ledgers
	restarts *restarts
	tokens   *tokens
	quota    *quota
	settling *agenda // ends of sessions that are not on disk yet
	deleting *agenda // deletes that are not finished
	stuck    *agenda // with Discover: sessions between two owners, for when the broker at it is gone
	moving   *agenda // with Discover: sessions that leave a worker that drains
	roster   *roster // the workers; nil: those of the configuration
	look     poke    // wakes tend

	restarted atomic.Uint64 // restarts that came about

	ready  chan struct{} // closed by Recover
	opened sync.Once     // for ready
	loaded bool          // registry and roster are in memory: open's

	mu      sync.Mutex
	deleted map[int]func(protocol.Key) // OnDeleted
	feeds   map[string]*Feed           // by workspace; bounded by the workspaces that have sessions
	works   map[int]context.CancelFunc // operations that outlive their caller; cancelled when Run ends
	ended   bool                       // Run has returned
	next    int                        // last key given out in deleted and works
}

// New returns a Broker over the node's journal. It does nothing until Recover.
func New(cfg Config, node *journal.Node, folds *snapshot.Reader) (*Broker, error) {
	cfg = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	b := &Broker{
		cfg: cfg, node: node, folds: folds, log: cfg.Logger,
		locks: newLocks(), starts: newStarts(), ledgers: newLedgers(folds),
		restarts: newRestarts(cfg.Now), settling: newAgenda(cfg.Now), deleting: newAgenda(cfg.Now),
		stuck: newAgenda(cfg.Now), moving: newAgenda(cfg.Now), look: newPoke(),
		ready:   make(chan struct{}),
		deleted: make(map[int]func(protocol.Key)), works: make(map[int]context.CancelFunc),
		feeds: make(map[string]*Feed),
	}
	var err error
	if b.tokens, err = newTokens(cfg); err != nil {
		return nil, err
	}
	b.registry = newRegistry(b.changed)
	b.registry.deciding = b.decide
	switch {
	case cfg.Desk:
		b.registry.deciding = nil
		b.roster = newRoster("", func() {})
	case cfg.Discover:
		b.roster = newRoster(canaryPrefix+cfg.ID, b.look.poke)
	}
	b.quota = newQuota(cfg.SessionsPerToken, cfg.SessionsKept, b.registry)
	folds.Know(b.origin)
	return b, nil
}

// origin tells what the registry knows of a session's beginning.
func (b *Broker) origin(k protocol.Key) (snapshot.Origin, bool) {
	rec := b.registry.record(k)
	if rec == nil {
		return snapshot.Origin{}, false
	}
	return snapshot.Origin{Agent: rec.Agent, Adapter: rec.Adapter, Title: rec.Title}, true
}

// Registry is the session registry that a worker tells about its sessions.
func (b *Broker) Registry() *Registry { return b.registry }

// OnDeleted registers f to be called, without blocking, when a session is
// tombstoned and its session_deleted record is durable.
func (b *Broker) OnDeleted(f func(protocol.Key)) (cancel func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.next++
	n := b.next
	b.deleted[n] = f
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.deleted, n)
	}
}

func (b *Broker) tellDeleted(k protocol.Key) {
	b.mu.Lock()
	fs := make([]func(protocol.Key), 0, len(b.deleted))
	for _, f := range b.deleted {
		fs = append(fs, f)
	}
	b.mu.Unlock()
	for _, f := range fs {
		f(k)
	}
}

// await holds a request until Recover is through.
func (b *Broker) await(ctx context.Context) error {
	select {
	case <-b.ready:
		return nil
	default:
	}
	select {
	case <-b.ready:
		return nil
	case <-ctx.Done():
		return outward(ctx.Err())
	}
}

// find returns the record of a session that p may see. The workspace is the
// principal's, so another one's session does not exist.
func (b *Broker) find(ctx context.Context, p Principal, session string) (*protocol.SessionRecord, error) { // I-A1
	if err := b.await(ctx); err != nil {
		return nil, err
	}
	k := protocol.Key{Workspace: p.Workspace, Session: session}
	rec := b.registry.record(k)
	if rec == nil && b.cfg.split() && protocol.ValidSessionID(session) { // it may have been started elsewhere just now
		var err error
		if rec, err = b.registry.Record(ctx, k); err != nil {
			return nil, outward(err)
		}
	}
	if rec == nil || rec.Deleting || rec.Deleted {
		return nil, protocol.ErrSessionNotFound(session)
	}
	return rec, nil
}

// latest returns the record of k as it is: that of the copy in memory where nobody
// else writes the registry, else the bucket's; nil when there is none.
func (b *Broker) latest(ctx context.Context, k protocol.Key) (*protocol.SessionRecord, error) {
	if !b.cfg.split() {
		return b.registry.record(k), nil
	}
	return b.registry.Record(ctx, k)
}

// freshen takes in what an owner has just written of k, where it is another process
// that did; else the watch tells, a moment later.
func (b *Broker) freshen(ctx context.Context, k protocol.Key) {
	if !b.cfg.split() {
		return
	}
	if _, err := b.registry.Record(ctx, k); err != nil {
		b.log.Debug("session not read back", slog.String(protocol.LogSession, k.String()), slog.Any(protocol.LogError, err))
	}
}

// findLatest is find that does not trust the copy in memory.
func (b *Broker) findLatest(ctx context.Context, p Principal, session string) (*protocol.SessionRecord, error) { // I-A1
	rec, err := b.latest(ctx, protocol.Key{Workspace: p.Workspace, Session: session})
	if err != nil {
		return nil, outward(err)
	}
	if rec == nil || rec.Deleting || rec.Deleted {
		return nil, protocol.ErrSessionNotFound(session)
	}
	return rec, nil
}

// work returns a context for an operation that must not be left half done when
// its caller goes away. It ends after timeout, or when Run does.
func (b *Broker) work(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		cancel()
		return ctx, cancel
	}
	b.next++
	n := b.next
	b.works[n] = cancel
	return ctx, func() {
		b.mu.Lock()
		delete(b.works, n)
		b.mu.Unlock()
		cancel()
	}
}

// end cancels the operations in work and refuses new ones.
func (b *Broker) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	for _, cancel := range b.works {
		cancel()
	}
}

// logOf names the log of a session.
func logOf(rec *protocol.SessionRecord) journal.Log {
	return journal.Log{Key: rec.Key(), Shard: rec.Shard}
}

// running reports whether the registry says that the session has an owner.
func running(rec *protocol.SessionRecord) bool {
	return rec.Status.State() == "running" && !rec.Deleted
}

// nowMs is the wall clock of records and events.
func (b *Broker) nowMs() int64 { return b.cfg.Now().UnixMilli() }
