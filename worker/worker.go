package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"rejoin/agent"
	"rejoin/journal"
	"rejoin/protocol"
	"rejoin/snapshot"
)

// appender is the part of journal.Writer that a session uses: the seam at which
// tests stall and fence a log. Contracts as there.
type appender interface {
	Append(e *protocol.Event, then func(error)) (protocol.Seq, error)
	AppendGroup(events []*protocol.Event, then func(error)) error
	Epoch() protocol.Epoch
	Head() protocol.Seq
	Durable() protocol.Seq
	WaitRoom(ctx context.Context) error
	Health() journal.Health
	Flush(ctx context.Context) error
	EndRecord(seq protocol.Seq)
	Await(ctx context.Context, seq protocol.Seq) error
	Close(ctx context.Context) error
}

var _ appender = (*journal.Writer)(nil)

// places is what a worker needs of its surroundings.
type places struct {
	open     func(context.Context, journal.WriterConfig) (appender, error)
	load     func(context.Context, journal.Log, protocol.Seq) (*snapshot.History, error)
	upgrade  func(*snapshot.History) (protocol.FoldUpgraded, bool)
	keep     func(l journal.Log, w snapshot.Writer, a agent.Adapter, bytesSoFar uint64) *snapshot.Keeper
	instance string // mark of this data directory's children
	bootID   string
	// among several workers
	workers func(context.Context) (entries, error) // the bucket of all workers
	runs    func(context.Context) (watched, error) // that of the sessions
	cluster string                                 // whose they are
}

// Worker owns children. Its methods are safe for concurrent use; Run is called
// once.
type Worker struct {
	cfg       Config
	log       *slog.Logger
	reg       Registry
	bus       *journal.Bus
	places    places
	offspring *offspring
	forker    *forker
	census    *census
	announcer *announcer
	owner     string    // bus address of this life of the worker
	presence  *presence // nil: it is the only worker
	counters  counters
	ops       chan struct{} // capacity protocol.WorkerRequestsMax; full: the request is refused

	wg sync.WaitGroup // ops and sessions; added to under mu while not stopping

	mu       sync.Mutex
	sessions map[protocol.Key]*session // at most Config.SessionsMax; full: the start is refused
	stopping bool
	draining bool                 // no start and no resume
	clearing map[protocol.Key]int // whose files are being removed: none of them begins
}

// New returns a worker at rest.
func New(cfg Config, node *journal.Node, reg Registry, folds *snapshot.Reader) (*Worker, error) {
	open := func(ctx context.Context, c journal.WriterConfig) (appender, error) {
		jw, err := node.OpenWriter(ctx, c)
		if err != nil {
			return nil, err
		}
		return jw, nil
	}
	keep := func(l journal.Log, w snapshot.Writer, a agent.Adapter, bytesSoFar uint64) *snapshot.Keeper {
		return cfg.Checkpoints.Keep(l, w, a, cfg.Retention, bytesSoFar)
	}
	w, err := newWorker(cfg, reg, places{
		open: open, load: folds.Load, upgrade: folds.Upgrade, keep: keep, instance: node.Instance(), bootID: node.BootID(),
		workers: func(ctx context.Context) (entries, error) { return bucketOf(ctx, node, protocol.BucketWorkers) },
		runs:    func(ctx context.Context) (watched, error) { return bucketOf(ctx, node, protocol.BucketSessions) },
		cluster: node.Cluster(),
	})
	if err != nil {
		return nil, err
	}
	w.bus = node.Bus()
	return w, nil
}

func bucketOf(ctx context.Context, node *journal.Node, name string) (*journal.Bucket, error) {
	b, err := node.Bucket(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("open the bucket %s: %w", name, err)
	}
	return b, nil
}

func newWorker(cfg Config, reg Registry, p places) (*Worker, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	o := newOffspring(p.instance)
	w := &Worker{
		cfg: cfg, owner: cfg.ID, log: cfg.Logger.With(slog.String(protocol.LogWorker, cfg.ID)), reg: reg, places: p,
		offspring: o, forker: newForker(o, cfg.Logger), census: newCensus(p.instance), announcer: newAnnouncer(),
		ops: make(chan struct{}, protocol.WorkerRequestsMax), sessions: make(map[protocol.Key]*session),
		clearing: make(map[protocol.Key]int),
	}
	if cfg.Presence != nil {
		w.owner = protocol.OwnerName(cfg.ID, string(protocol.NewEpoch(cfg.Now())))
		w.presence = newPresence(&cfg, w.owner, p.workers, w, w.log)
		w.places.open = func(ctx context.Context, c journal.WriterConfig) (appender, error) {
			a, err := p.open(ctx, c)
			if err != nil {
				return nil, err
			}
			return heard{a, w.presence}, nil
		}
	}
	return w, nil
}

// Owner returns the worker's bus address: protocol.WorkerSubject of it is served
// while Run runs. Among several workers it is this life's alone.
func (w *Worker) Owner() string { return w.owner }

// tenure is the two lives that work in a worker may have, both of one Run.
type tenure struct {
	life context.Context // ends when what is not durable yet is given up
	ops  context.Context // ends, earlier, when the server stops: nothing new is begun
}

// Run serves protocol.WorkerSubject(Owner()) until ctx ends, then ends every child by
// the kill ladder (all at once, GraceServerStop), waits for their last records
// (at most recordWait, and serverStopMax in all) and returns. Errors: when the subject
// cannot be served; ErrSuperseded, among several workers.
func (w *Worker) Run(ctx context.Context) error {
	life, endLife := context.WithCancel(context.WithoutCancel(ctx))
	defer endLife()
	ops, endOps := context.WithCancel(life)
	defer endOps()
	t := tenure{life: life, ops: ops}

	w.forker.start()
	defer w.forker.stop() // I-W3: its thread outlives every child
	if w.cfg.Subreaper {
		quit := make(chan struct{})
		adopting := inBackground(func() { w.adoptOrphans(quit) })
		defer func() {
			close(quit)
			<-adopting
		}()
	}
	subject := protocol.WorkerSubject(w.owner)
	stopServing, err := w.bus.Serve(subject, func(data []byte, reply func([]byte)) { w.handle(t, data, reply) })
	if err != nil {
		return fmt.Errorf("serve %s: %w", subject, err)
	}
	talk, hush := context.WithCancel(life)
	quiet := inBackground(func() { w.announce(talk) })
	defer func() {
		hush()
		<-quiet
	}()
	end := func() {
		stopServing()
		w.stopAll(endOps, endLife)
	}
	if w.presence != nil {
		return w.serveAmong(ctx, life, end)
	}
	<-ctx.Done()
	end()
	return nil
}

// stopAll ends every session and waits for all that the worker has in hand.
func (w *Worker) stopAll(endOps, endLife context.CancelFunc) {
	w.mu.Lock()
	w.stopping = true
	w.mu.Unlock()
	live := w.list() // nothing joins them any more
	endOps()
	for _, s := range live {
		s.requestStop(endServerStop, protocol.GraceServerStop)
	}
	idle := make(chan struct{})
	go func() {
		w.wg.Wait()
		close(idle)
	}()
	if !awaitIdle(live, idle) {
		w.log.Warn("server stop: records of some sessions are not durable, the next start settles them")
		endLife()
		<-idle
	}
}

// awaitIdle waits for the children's death, then recordWait for their last
// records, and reports whether all was done within serverStopMax.
func awaitIdle(live []*session, idle <-chan struct{}) bool {
	limit := time.NewTimer(serverStopMax)
	defer limit.Stop()
	for _, s := range live {
		select {
		case <-s.dead:
		case <-limit.C:
			return false
		}
	}
	records := time.NewTimer(recordWait)
	defer records.Stop()
	select {
	case <-idle:
		return true
	case <-records.C:
	case <-limit.C:
	}
	return false
}

// spend runs f in a goroutine that Run waits for.
func (w *Worker) spend(f func()) error {
	select {
	case w.ops <- struct{}{}:
	default:
		return protocol.Errorf(protocol.ReasonOverloaded, "more than %d requests are in work", protocol.WorkerRequestsMax).Met("WorkerRequestsMax")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopping {
		<-w.ops
		return errStopping()
	}
	w.wg.Go(func() {
		defer func() { <-w.ops }()
		f()
	})
	return nil
}

func errStopping() *protocol.Error {
	e := protocol.Errorf(protocol.ReasonSessionUnavailable, "server is stopping")
	e.Retryable = true
	return e
}

// list returns the sessions that are here.
func (w *Worker) list() []*session {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make([]*session, 0, len(w.sessions))
	for _, s := range w.sessions {
		out = append(out, s)
	}
	return out
}

func (w *Worker) session(k protocol.Key) *session {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sessions[k]
}

// claim makes room for a session that is about to start or resume. Where the key
// is taken by the same run it returns that session and false.
func (w *Worker) claim(ctx context.Context, s *session) (*session, bool, error) {
	for {
		w.mu.Lock()
		old := w.sessions[s.key]
		if err := w.refusal(s, old); err != nil {
			w.mu.Unlock()
			return nil, false, err
		}
		if old == nil {
			w.sessions[s.key] = s
			w.mu.Unlock()
			return s, true, nil
		}
		w.mu.Unlock()
		if old.rec.Run == s.rec.Run {
			return old, false, nil
		}
		if old.rec.Run > s.rec.Run {
			return nil, false, ErrNotOwner
		}
		old.requestStop(endFenced, fenceGrace) // a no-op when it is at its end already
		select {
		case <-old.done:
		case <-ctx.Done():
			return nil, false, protocol.Errorf(protocol.ReasonJournalUnavailable, "the last run of session %s is not settled yet", s.key.Session)
		}
	}
}

// refusal is why a session cannot begin; old is an earlier run of it that is here, or
// the same. Mu is held.
func (w *Worker) refusal(s, old *session) error {
	switch {
	case w.stopping:
		return errStopping()
	case old != nil && old.rec.Run == s.rec.Run: // it has begun
		return nil
	case w.draining:
		return errDraining(w.cfg.ID)
	case old != nil: // it leaves first
		return nil
	case w.presence.away():
		return errJournal()
	case w.clearing[s.key] > 0:
		return errClearing(s.key.Session)
	case len(w.sessions) >= w.cfg.SessionsMax:
		return protocol.Errorf(protocol.ReasonOverloaded, "limit of %d live sessions is reached (limits.maxSessions)", w.cfg.SessionsMax).Met("SessionsLiveDefault")
	}
	return nil
}

// forget takes a session out. Only then may another of its key begin.
func (w *Worker) forget(s *session) {
	w.mu.Lock()
	if w.sessions[s.key] == s {
		delete(w.sessions, s.key)
	}
	w.mu.Unlock()
	close(s.done)
}

// asError makes a protocol.Error of whatever an operation failed with; a cause
// that clients must not see goes to the log under a correlation id.
func (w *Worker) asError(err error, k protocol.Key) *protocol.Error {
	if e, ok := protocol.AsError(err); ok {
		return e
	}
	if errors.Is(err, journal.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return protocol.Errorf(protocol.ReasonJournalUnavailable, "journal is not available")
	}
	if errors.Is(err, journal.ErrDamaged) || errors.Is(err, journal.ErrRolledBack) {
		w.log.Error("log is damaged", slog.String(protocol.LogSession, k.String()), slog.Any(protocol.LogError, err))
		return protocol.Errorf(protocol.ReasonDamaged, "the log of session %s is damaged", k.Session)
	}
	e := protocol.Errorf(protocol.ReasonInternal, "internal error")
	e.ID = string(protocol.NewEpoch(w.cfg.Now()))
	w.log.Error("request failed", slog.String("id", e.ID), slog.String(protocol.LogSession, k.String()), slog.Any(protocol.LogError, err))
	return e
}
