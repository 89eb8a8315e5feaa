package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"rejoin/agent"
	"rejoin/agent/demo"
	"rejoin/agent/jsonl"
	"rejoin/agent/lines"
	"rejoin/agent/pi"
	"rejoin/agent/rpi"
	"rejoin/broker"
	"rejoin/cmd/rejoin/internal/audit"
	"rejoin/gateway"
	gatewaytcp "rejoin/gateway-tcp"
	"rejoin/journal"
	"rejoin/protocol"
	"rejoin/snapshot"
	"rejoin/worker"
)

const (
	workerID       = "local"         // one process has one worker
	foldsKept      = 64              // folds that readers share
	journalStopMax = 2 * time.Second // for the journal to close in order
)

// server is everything that one process is made of, in the order in which it
// starts; run stops it in the opposite one.
type server struct {
	cfg         *settings
	log         *slog.Logger
	again       *reloads // what SIGHUP reads again
	node        *journal.Node
	broker      *broker.Broker
	worker      *worker.Worker
	gateway     *gateway.Server
	audit       *audit.Log // nil: there is none
	listeners   []*gatewaytcp.Listener
	checkpoints *snapshot.Store
	admin       *admin // nil: none
	tokenFile   string
	containment *worker.Containment      // nil: switched off
	seal        *worker.Seal             // of stderr files; nil: in clear
	certs       *gatewaytcp.Certificates // nil: no tls:// listener
}

// adapters are the agents that a worker of this program understands.
func adapters() map[string]agent.Adapter {
	m := map[string]agent.Adapter{}
	for _, a := range []agent.Adapter{jsonl.Adapter{}, lines.Adapter{}, demo.Adapter{}, pi.Adapter{}, rpi.Adapter{}} {
		m[a.Name()] = a
	}
	return m
}

// build starts the journal, settles what an earlier process left, and opens the
// listeners. Nothing is accepted and no child is started yet.
func build(ctx context.Context, cfg *settings, again *reloads, log *slog.Logger) (*server, error) {
	s := &server{cfg: cfg, log: log, again: again}
	err := s.loadCertificates()
	if err != nil {
		return nil, err
	}
	jc := journal.Config{Dir: cfg.dataDir, Durability: cfg.durability, MaxBytes: int64(cfg.Journal.MaxBytes), Cipher: cfg.Encryption.Cipher, Logger: log}
	if cfg.Encryption.KeyFile != "" {
		if jc.Key, err = readKeyFile(cfg.Encryption.KeyFile); err != nil {
			return nil, err
		}
		if s.seal, err = worker.NewSeal(jc.Key); err != nil {
			return nil, err
		}
	}
	if s.node, err = journal.Start(ctx, jc); err != nil {
		return nil, err
	}
	err = removeReady(cfg.readyFile) // this process has the lock: it is an earlier server's
	if err == nil {
		err = s.assemble(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.unbuild(ctx))
	}
	return s, nil
}

func (s *server) loadCertificates() (err error) {
	if !slices.ContainsFunc(s.cfg.listeners, func(e gatewaytcp.Endpoint) bool { return e.Scheme == gatewaytcp.SchemeTLS }) {
		return nil
	}
	if s.certs, err = gatewaytcp.LoadCertificates(gatewaytcp.TLSFiles(s.cfg.TLS)); err != nil {
		return fmt.Errorf("tls: %w", err)
	}
	s.again.add("certificates", s.certs.Reload)
	return nil
}

// unbuild gives back what build opened.
func (s *server) unbuild(ctx context.Context) error {
	err := errors.Join(s.stopAccepting(), s.admin.close())
	if s.gateway != nil {
		s.gateway.Close()
	}
	if s.audit != nil {
		err = errors.Join(err, s.audit.Close())
	}
	return errors.Join(err, s.containment.Close(), s.closeJournal(ctx))
}

func (s *server) closeJournal(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), journalStopMax)
	defer cancel()
	if err := s.node.Close(ctx); err != nil {
		return fmt.Errorf("close the journal: %w", err)
	}
	return nil
}

// assemble makes the parts over the journal.
func (s *server) assemble(ctx context.Context) error {
	token, err := s.secret()
	if err != nil {
		return err
	}
	if _, err := os.Stat(s.cfg.Tokens); s.cfg.Tokens != "" && err != nil {
		return fmt.Errorf("token file %s: %w; `rejoin token add --tokens %[1]s` makes one", s.cfg.Tokens, cause(err))
	}
	folds := snapshot.NewReader(s.node, adapters(), foldsKept)
	bc := s.cfg.brokerConfig()
	s.checkpoints = snapshot.NewStore(s.node, adapters(), s.log, snapshot.StoreConfig{})
	kept := snapshot.Retention{MaxAge: time.Duration(s.cfg.Retention.MaxAge), MaxBytes: int64(s.cfg.Retention.MaxBytes), MaxEvents: s.cfg.Retention.MaxEvents}
	bc.Checkpoints, bc.Retention = s.checkpoints, kept
	bc.Token, bc.StderrTail, bc.RemoveFiles, bc.Logger = token, s.seal.StderrTail, worker.RemoveFiles, s.log
	if err := s.contain(); err != nil {
		return err
	}
	s.broker, err = broker.New(bc, s.node, folds)
	if err != nil {
		return err
	}
	if s.cfg.tokensFile() != "" {
		s.again.add("tokens", s.broker.ReloadTokens)
	}
	s.worker, err = worker.New(worker.Config{
		ID: workerID, DataDir: s.cfg.dataDir, StderrSeal: s.seal, Adapters: adapters(), Checkpoints: s.checkpoints,
		Retention: kept, EventBytesMax: int(s.cfg.Limits.MaxEventBytes), SessionsMax: s.cfg.Limits.MaxSessions, Subreaper: true, Containment: s.containment, Logger: s.log,
	}, s.node, s.broker.Registry(), folds)
	if err != nil {
		return err
	}
	if err := s.settle(ctx); err != nil {
		return err
	}
	var record func(gateway.AuditEntry)
	if path := s.cfg.auditFile(); path != "" {
		if s.audit, err = audit.Open(audit.Config{Path: path, Logger: s.log}); err != nil {
			return err
		}
		record = s.audit.Record
	}
	s.gateway, err = gateway.New(gateway.Config{
		Audit:           record,
		RequestBytesMax: int(s.cfg.Limits.MaxRequestBytes), AuthTimeout: time.Duration(s.cfg.Limits.AuthTimeout),
		WriteTimeout: time.Duration(s.cfg.Limits.WriteTimeout), ConnectionsMax: s.cfg.Limits.MaxConnections,
		ConnectionsPerToken: s.cfg.Limits.ConnectionsPerToken, AuthFailures: s.cfg.Limits.AuthFailures,
		RequestsPerSecond: s.cfg.Limits.RequestsPerSecond,
		ServerID:          s.node.Instance(), Version: version(), Containment: s.containment.Status, Logger: s.log,
	}, s.broker, s.node.Hub(), s.node, folds)
	if err != nil {
		return err
	}
	return s.listen()
}

// contain finds out what the system can do about what children start, and says
// which configured limits it cannot enforce.
func (s *server) contain() (err error) {
	if s.cfg.Cgroups != cgroupsOff {
		if s.containment, err = worker.OpenContainment(s.cfg.dataDir, s.node.Instance(), s.log); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.cfg.Agents)) {
		l := s.cfg.Agents[name].Limits.Record()
		err := s.containment.Prepare(l)
		switch {
		case err == nil:
		case l.Enforce == protocol.EnforcePreferred:
			s.log.Warn("agent runs without its limits", slog.String("agent", name), slog.Any(protocol.LogError, err))
		default:
			s.log.Error("agent cannot start", slog.String("agent", name), slog.Any(protocol.LogError, err))
		}
	}
	is := s.containment.Status()
	s.log.Info("containment of children", slog.Int("cgroups", is.Cgroups), slog.String("group", is.Group),
		slog.String("why", is.Why), slog.Any("limits", is.Limits))
	return nil
}

// settle ends what an earlier process left running, and only then calls its
// sessions interrupted (I-W3).
func (s *server) settle(ctx context.Context) error {
	contained, err := s.containment.KillLeftovers(ctx)
	if err != nil {
		return fmt.Errorf("end the programs of an earlier server: %w", err)
	}
	killed, err := worker.KillOrphans(ctx, s.node.Instance(), s.log)
	if err != nil {
		return fmt.Errorf("end the programs of an earlier server: %w", err)
	}
	killed += contained
	if killed > 0 {
		s.log.Warn("ended programs that an earlier server left behind", slog.Int("processes", killed))
	}
	if err := s.broker.Recover(ctx); err != nil {
		return fmt.Errorf("recover sessions: %w", err)
	}
	return nil
}

// secret is the token that clients must give; empty for none.
func (s *server) secret() (string, error) {
	switch {
	case s.cfg.noAuth:
		return "", nil
	case s.cfg.token != "":
		return s.cfg.token, nil
	case s.cfg.tokenFile != "":
		s.tokenFile = s.cfg.tokenFile
		return readToken(s.cfg.tokenFile)
	}
	s.tokenFile = tokenFile(s.cfg.dataDir)
	return ensureToken(s.cfg.dataDir)
}

func (s *server) ready() readyData {
	r := readyData{Admin: s.admin.URL(), PID: os.Getpid(), TokenFile: s.tokenFile, Tokens: s.cfg.tokensFile(), DataDir: s.cfg.dataDir}
	for _, l := range s.listeners {
		r.Listeners = append(r.Listeners, readyListener{URL: l.URL(), Dialect: l.Dialect()})
	}
	return r
}

// listen opens every listener; those that are open when one fails are closed by
// unbuild.
func (s *server) listen() error {
	limits := gatewaytcp.Limits{
		RequestBytesMax: int(s.cfg.Limits.MaxRequestBytes), Certificates: s.certs,
		HandshakeTimeout: time.Duration(s.cfg.Limits.AuthTimeout), Logger: s.log,
	}
	for _, e := range s.cfg.listeners {
		ln, err := gatewaytcp.Listen(e.URL, limits)
		if err != nil {
			return fmt.Errorf("listen on %s: %w", e.URL, err)
		}
		s.listeners = append(s.listeners, ln)
		if err := s.cfg.keptPromise(e, ln); err != nil {
			return err
		}
	}
	if s.cfg.Admin != "" {
		return s.openAdmin()
	}
	return nil
}

// keptPromise refuses a name of this machine that leads elsewhere: nothing has
// been accepted yet.
func (s *settings) keptPromise(e gatewaytcp.Endpoint, at interface{ Loopback() bool }) error {
	if !e.Loopback() || at.Loopback() {
		return nil
	}
	e.Address = "" // no promise any more
	if err := s.mayListen(e); err != nil {
		return fmt.Errorf("listen on %w (the name does not lead to this machine alone)", err)
	}
	return nil
}

// stopAccepting closes the listeners; connections go on.
func (s *server) stopAccepting() error {
	var errs []error
	for _, l := range s.listeners {
		if err := l.Close(); !errors.Is(err, net.ErrClosed) { // a listener that failed is closed already
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// run serves until ctx ends or a part fails, then stops in order. ready is called
// once everything runs.
func (s *server) run(ctx context.Context, ready func() error) error {
	c := crew{failed: make(chan error, len(s.listeners)+4)} // room for every part
	var a []*part
	if s.audit != nil {
		a = append(a, c.start(ctx, "audit log", s.audit.Run))
	}
	w := c.start(ctx, "worker", s.worker.Run)
	b := c.start(ctx, "broker", s.broker.Run)
	var look []*part // the last to go: a stop can be watched
	if s.admin != nil {
		look = append(look, c.start(ctx, "admin", func(ctx context.Context) error { return s.admin.serve(ctx, s.log) }))
	}
	err := s.awaitWorker(ctx)
	ls := make([]*part, 0, len(s.listeners))
	for _, l := range s.listeners {
		ls = append(ls, c.start(ctx, l.URL(), func(ctx context.Context) error { return l.Serve(ctx, s.gateway) }))
	}
	if err == nil {
		err = ready()
	}
	if err == nil {
		s.admin.setReady(true)
		select {
		case <-ctx.Done():
		case err = <-c.failed:
		}
	}
	if err != nil && ctx.Err() == nil {
		s.log.Error("stopping because a part failed", slog.Any(protocol.LogError, err))
	}
	s.admin.setReady(false)
	err = errors.Join(err, s.stopAccepting(), retract(s.cfg.dataDir))
	stop(w)     // children end; their last events still reach clients
	stop(ls...) // connections
	s.gateway.Close()
	stop(b)
	stop(look...)
	stop(a...) // nobody records any more
	c.wg.Wait()
	if cerr := s.containment.Close(); cerr != nil { // the next start removes them
		s.log.Warn("control groups are not removed", slog.Any(protocol.LogError, cerr))
	}
	if err = errors.Join(err, s.closeJournal(ctx)); err == nil {
		s.log.Info("stopped")
	}
	return err
}

// crew is the goroutines of a running server.
type crew struct {
	wg     sync.WaitGroup
	failed chan error
}

// part is one of them, with what ends it.
type part struct {
	end  context.CancelFunc
	done chan struct{}
}

// start runs f until its part is ended; an error before that goes to failed. The
// end of ctx does not end it: parts end in order.
func (c *crew) start(ctx context.Context, name string, f func(context.Context) error) *part {
	ctx, end := context.WithCancel(context.WithoutCancel(ctx))
	p := &part{end: end, done: make(chan struct{})}
	c.wg.Go(func() {
		defer close(p.done)
		if err := f(ctx); err != nil && ctx.Err() == nil {
			c.failed <- fmt.Errorf("%s: %w", name, err)
		}
	})
	return p
}

// stop ends parts together and waits for them.
func stop(parts ...*part) {
	for _, p := range parts {
		p.end()
	}
	for _, p := range parts {
		<-p.done
	}
}

// workerPoll is how often a worker that does not serve yet is asked.
const workerPoll = 2 * time.Millisecond

// awaitWorker returns when the worker serves, so that the first request of the
// first client finds it.
func (s *server) awaitWorker(ctx context.Context) error {
	ask, err := json.Marshal(protocol.WorkerRequest{Op: protocol.OpInfo})
	if err != nil {
		return fmt.Errorf("ask the worker: %w", err)
	}
	tick := time.NewTicker(workerPoll)
	defer tick.Stop()
	for {
		within, cancel := context.WithTimeout(ctx, protocol.DispatchTimeout)
		_, err := s.node.Bus().Request(within, protocol.WorkerSubject(workerID), ask)
		cancel()
		if !errors.Is(err, journal.ErrNoOwner) {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
