package gateway

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"rejoin/broker"
	"rejoin/journal"
	"rejoin/protocol"
	"rejoin/snapshot"
)

// Server is the connection core, shared by every listener. Safe for concurrent
// use.
type Server struct {
	cfg     Config
	log     *slog.Logger
	started time.Time
	backends

	census    *census
	attempts  *attempts
	counters  *counters
	buffers   buffers
	writers   sync.Pool     // of *writer
	verifying chan struct{} // capacity protocol.VerifiesMax; full: verify_session is refused
	refusing  chan struct{} // capacity protocol.RefusalsMax; full: a surplus connection is closed at once

	forget   func()         // ends the broker's callbacks
	deleting sync.WaitGroup // goroutines of sessionDeleted

	mu     sync.Mutex
	conns  map[*conn]struct{} // at most cfg.ConnectionsMax; a surplus connection is refused
	closed bool
	stop   context.CancelFunc // of ending
	ending context.Context    // ends with Close; bounds sessionDeleted
}

// New returns a Server over the given broker, hub, journal and folds. Close it
// after the last Serve has returned.
func New(cfg Config, b *broker.Broker, hub *journal.Hub, node *journal.Node, folds *snapshot.Reader) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if b == nil || hub == nil || node == nil || folds == nil {
		return nil, errors.New("gateway: a backend is missing")
	}
	if cfg.Durability == "" {
		cfg.Durability = node.Durability().String()
	}
	s := newServer(cfg, backends{
		auth: b, lifecycle: b, commands: b, sessions: brokerSessions{b}, workers: b,
		watches: hubWatches{hub}, history: nodeHistory{node}, folds: folds,
		remote: node.Remote(), durability: cfg.Durability, usage: node.Usage,
	})
	deaf, blind := b.OnDeleted(s.sessionDeleted), b.OnTokens(s.tokensChanged)
	s.forget = func() {
		deaf()
		blind()
	}
	return s, nil
}

func newServer(cfg Config, b backends) *Server {
	cfg = cfg.withDefaults()
	s := &Server{
		cfg: cfg, log: cfg.Logger, started: cfg.Now(), backends: b, counters: newCounters(), forget: func() {}, conns: make(map[*conn]struct{}),
		census: newCensus(), attempts: newAttempts(cfg.AuthFailures), verifying: make(chan struct{}, protocol.VerifiesMax),
		refusing: make(chan struct{}, protocol.RefusalsMax),
	}
	s.ending, s.stop = context.WithCancel(context.Background()) //nolint:contextcheck // the server's own life, ended by Close
	return s
}

// Close waits for what the server started by itself. Call it when no Serve runs
// any more.
func (s *Server) Close() {
	s.forget()
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.stop()
	s.deleting.Wait()
}

// Serve runs one connection until it ends, or ctx does: then what is at hand is
// sent, for at most a second. It closes the pipe and returns when nothing of the
// connection runs any more. Address is the listener's, for server_status.
func (s *Server) Serve(ctx context.Context, p Pipe, address string) {
	c := newConn(s, p, address)
	if !s.enter(c) {
		s.refuse(p)
		return
	}
	defer s.leave(c)
	c.serve(ctx)
}

//go:noinline // the reader's stack stays small: see BenchmarkIdleConnection
func (s *Server) enter(c *conn) bool {
	s.mu.Lock()
	full := len(s.conns) >= s.cfg.ConnectionsMax
	if !full {
		s.conns[c] = struct{}{}
	}
	s.mu.Unlock()
	if full {
		return false
	}
	s.counters.connected.Add(1)
	s.log.Debug("connection opened", slog.Uint64(protocol.LogConn, c.id), slog.String("peer", c.pipe.Name()))
	return true
}

//go:noinline // like enter
func (s *Server) leave(c *conn) {
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	if c.counted != nil { // nothing of the connection runs any more
		s.census.leave(*c.counted)
	}
	s.log.Debug("connection closed", slog.Uint64(protocol.LogConn, c.id), slog.Int("code", c.code), slog.String("reason", c.reason))
}

// refuse answers a connection above the limit with one error and closes it, which
// takes as long as the client needs to read it, up to a second. At most
// protocol.RefusalsMax are in work: of more the answer may be lost.
func (s *Server) refuse(p Pipe) {
	e := protocol.Errorf(protocol.ReasonOverloaded, "more than %d connections", s.cfg.ConnectionsMax).Met("ConnectionsMaxDefault")
	s.counters.failed(e)
	code := CloseOverloaded
	select {
	case s.refusing <- struct{}{}:
		defer func() { <-s.refusing }()
	default:
		s.counters.refuse("RefusalsMax")
		code = CloseDraining // to reconnect is right here, too, and nobody waits for the client
	}
	_, err := 0, p.SetWriteDeadline(time.Now().Add(drainTimeout))
	if err == nil {
		_, err = p.Write(append(protocol.AppendError(nil, nil, e), '\n'))
	}
	s.log.Warn("connection refused", slog.String("peer", p.Name()), slog.Int("connections", s.cfg.ConnectionsMax), slog.Any(protocol.LogError, err))
	if err := p.Close(code, "too many connections"); err != nil {
		s.log.Debug("close", slog.String("peer", p.Name()), slog.Any(protocol.LogError, err))
	}
}

// deletedSyncTimeout bounds the wait for the last events of a deleted session.
const deletedSyncTimeout = 5 * time.Second

// sessionDeleted ends the subscriptions of a session whose deletion is durable.
// It does not block; a goroutine waits until the hub has the last event.
func (s *Server) sessionDeleted(k protocol.Key) {
	subs := s.watchersOf(k)
	if len(subs) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.deleting.Go(func() {
		ctx, cancel := context.WithTimeout(s.ending, deletedSyncTimeout)
		defer cancel()
		if err := s.syncLog(ctx, subs[0].log); err != nil {
			s.log.Warn("end of a deleted session may not be shown", slog.String(protocol.LogSession, k.String()), slog.Any(protocol.LogError, err))
		}
		for _, sub := range s.watchersOf(k) {
			sub.c.end(sub, endDeleted)
		}
	})
}

func (s *Server) syncLog(ctx context.Context, l journal.Log) error {
	w, err := s.watches.Watch(ctx, l)
	if err != nil {
		return err
	}
	defer w.Release()
	_, err = w.Sync(ctx)
	return err
}

// open lists the connections there are now.
func (s *Server) open() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.conns))
}

// watchersOf lists the active subscriptions of a session.
func (s *Server) watchersOf(k protocol.Key) []*subscription {
	var subs []*subscription
	for _, c := range s.open() {
		c.mu.Lock()
		for _, sub := range c.subs {
			if sub.active && sub.log.Key == k {
				subs = append(subs, sub)
			}
		}
		c.mu.Unlock()
	}
	return subs
}
