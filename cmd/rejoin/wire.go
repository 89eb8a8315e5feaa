package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"rejoin/agent"
	"rejoin/agent/demo"
	"rejoin/agent/jsonl"
	"rejoin/agent/lines"
	"rejoin/agent/pi"
	"rejoin/agent/rpi"
	"rejoin/broker"
	"rejoin/cmd/rejoin/internal/audit"
	"rejoin/cmd/rejoin/internal/logqueue"
	"rejoin/gateway"
	gatewaytcp "rejoin/gateway-tcp"
	"rejoin/journal"
	"rejoin/protocol"
	"rejoin/snapshot"
	"rejoin/worker"
)

const (
	workerID       = "local"         // one process on its own has one worker
	foldsKept      = 64              // folds that readers share
	journalStopMax = 2 * time.Second // for the journal to close in order
)

// server is everything that one process is made of, in the order in which it
// starts; run stops it in the opposite one. Parts of roles that it has not are nil.
type server struct {
	cfg         *settings
	log         *slog.Logger
	lines       *logqueue.Queue // where log writes; not before everything is built
	again       *reloads        // what SIGHUP reads again
	hold        *hold           // of the data directory, by a gateway among others
	node        *journal.Node
	keeps       string // what the journal's acknowledgements survive, for people
	folds       *snapshot.Reader
	checkpoints *snapshot.Store
	broker      *broker.Broker // of a gateway without the role: its desk
	worker      *worker.Worker
	gateway     *gateway.Server
	presence    *gateway.Presence // among other gateways
	audit       *audit.Log        // nil: there is none
	listeners   []*gatewaytcp.Listener
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

// build opens the journal, settles what an earlier process left, and opens the
// listeners. Nothing is accepted and no child is started yet.
func build(ctx context.Context, cfg *settings, again *reloads, log *slog.Logger) (*server, error) {
	s := &server{cfg: cfg, log: log, again: again}
	err := s.loadCertificates()
	if err == nil {
		err = s.openJournal(ctx)
	}
	if err == nil {
		err = removeReady(cfg.readyFile) // this process has the lock: it is an earlier server's
	}
	if err == nil {
		err = s.assemble(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.unbuild(ctx))
	}
	return s, nil
}

// assemble makes the parts of this process's roles over the journal.
func (s *server) assemble(ctx context.Context) error {
	s.folds = snapshot.NewReader(s.node, adapters(), foldsKept)
	s.checkpoints = snapshot.NewStore(s.node, adapters(), s.log, snapshot.StoreConfig{})
	if err := s.contain(); err != nil {
		return err
	}
	if err := s.makeBroker(); err != nil {
		return err
	}
	if err := s.makeWorker(ctx); err != nil {
		return err
	}
	if err := s.settle(ctx); err != nil {
		return err
	}
	if err := s.makeGateway(ctx); err != nil {
		return err
	}
	if s.cfg.Admin != "" {
		return s.openAdmin()
	}
	return nil
}

// retention is how much of each log is kept.
func (s *server) retention() snapshot.Retention {
	r := s.cfg.Retention
	return snapshot.Retention{MaxAge: time.Duration(r.MaxAge), MaxBytes: int64(r.MaxBytes), MaxEvents: r.MaxEvents}
}

// makeBroker makes the broker, or the desk of a gateway that is none.
func (s *server) makeBroker() error {
	if !s.cfg.is(protocol.RoleBroker) && !s.cfg.is(protocol.RoleGateway) {
		return nil
	}
	bc := s.cfg.brokerConfig()
	bc.Checkpoints, bc.Retention, bc.Logger = s.checkpoints, s.retention(), s.log
	if s.cfg.is(protocol.RoleGateway) {
		var err error
		if bc.Token, err = s.secret(); err != nil {
			return err
		}
		if _, err := os.Stat(s.cfg.Tokens); s.cfg.Tokens != "" && err != nil {
			return fmt.Errorf("token file %s: %w; `rejoin token add --tokens %[1]s` makes one", s.cfg.Tokens, cause(err))
		}
	}
	if !s.cfg.split() {
		bc.StderrTail, bc.RemoveFiles = s.seal.StderrTail, worker.RemoveFiles
	}
	var err error
	if s.broker, err = broker.New(bc, s.node, s.folds); err != nil {
		return err
	}
	if bc.TokenFile != "" {
		s.again.add("tokens", s.broker.ReloadTokens)
	}
	return nil
}

// settle ends what an earlier process left running, and only then calls its
// sessions interrupted (I-W3).
func (s *server) settle(ctx context.Context) error {
	if s.cfg.is(protocol.RoleWorker) {
		if err := s.killLeftovers(ctx); err != nil {
			return err
		}
	}
	if s.broker == nil {
		return nil
	}
	if err := s.broker.Recover(ctx); err != nil {
		return fmt.Errorf("recover sessions: %w", err)
	}
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

// closeJournal closes the journal and gives the data directory up.
func (s *server) closeJournal(ctx context.Context) error {
	if s.node == nil {
		return s.hold.release()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), journalStopMax)
	defer cancel()
	err := s.node.Close(ctx)
	if err != nil {
		err = fmt.Errorf("close the journal: %w", err)
	}
	return errors.Join(err, s.hold.release())
}

func (s *server) ready() readyData {
	r := readyData{Admin: s.admin.URL(), PID: os.Getpid(), DataDir: s.cfg.dataDir}
	if s.cfg.split() {
		r.Roles = s.cfg.roles
	}
	if s.worker != nil && s.cfg.split() {
		r.Worker = protocol.WorkerOf(s.worker.Owner())
	}
	if s.gateway != nil {
		r.TokenFile, r.Tokens = s.tokenFile, s.cfg.tokensFile()
	}
	for _, l := range s.listeners {
		r.Listeners = append(r.Listeners, readyListener{URL: l.URL(), Dialect: l.Dialect()})
	}
	return r
}
