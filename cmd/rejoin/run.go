package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"rejoin/journal"
	"rejoin/protocol"
)

// run serves until ctx ends or a part fails, then stops in order. ready is called
// once everything runs.
func (s *server) run(ctx context.Context, ready func() error) error {
	c := crew{failed: make(chan error, len(s.listeners)+5)} // room for every part
	p := s.start(ctx, &c)
	err := s.awaitWorker(ctx, &c)
	for _, l := range s.listeners {
		p.listeners = append(p.listeners, c.start(ctx, l.URL(), func(ctx context.Context) error { return l.Serve(ctx, s.gateway) }))
	}
	if s.presence != nil { // now: others send clients here
		p.presence = append(p.presence, c.start(ctx, "gateway among others", s.presence.Run))
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
	return s.end(ctx, &c, p, err)
}

// parts are those of the roles that the process has.
type parts struct{ audit, worker, broker, admin, listeners, presence []*part }

// start starts everything but what lets clients in.
func (s *server) start(ctx context.Context, c *crew) *parts {
	p := &parts{}
	if s.audit != nil {
		p.audit = append(p.audit, c.start(ctx, "audit log", s.audit.Run))
	}
	if s.worker != nil {
		p.worker = append(p.worker, c.start(ctx, "worker", s.worker.Run))
	}
	if s.broker != nil {
		p.broker = append(p.broker, c.start(ctx, "broker", s.broker.Run))
	}
	if s.admin != nil { // the last to go: a stop can be watched
		p.admin = append(p.admin, c.start(ctx, "admin", func(ctx context.Context) error { return s.admin.serve(ctx, s.log) }))
	}
	return p
}

// end stops everything in order; err is why.
func (s *server) end(ctx context.Context, c *crew, p *parts, err error) error {
	s.admin.setReady(false)
	stop(p.presence...) // nobody is sent here any more
	err = errors.Join(err, s.stopAccepting())
	if s.gateway != nil {
		err = errors.Join(err, retract(s.cfg.dataDir))
	}
	stop(p.worker...)    // children end; their last events still reach clients
	stop(p.listeners...) // connections
	if s.gateway != nil {
		s.gateway.Close()
	}
	stop(p.broker...)
	stop(p.admin...)
	stop(p.audit...) // nobody records any more
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

// workerPoll is how often a worker that does not serve yet is asked; one among
// others is asked for over the network.
const (
	workerPoll      = 2 * time.Millisecond
	workerPollAmong = 50 * time.Millisecond
)

// awaitWorker returns when the worker serves, so that the first request of the
// first client finds it; or when a part has failed.
func (s *server) awaitWorker(ctx context.Context, c *crew) error {
	if s.worker == nil {
		return nil
	}
	serves, every := s.workerAnswers, workerPoll
	if s.cfg.split() {
		serves, every = s.workerIsKnown, workerPollAmong
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if is, err := serves(ctx); err != nil || is {
			return err
		}
		select {
		case <-tick.C:
		case err := <-c.failed:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// workerAnswers asks the only worker there is.
func (s *server) workerAnswers(ctx context.Context) (bool, error) {
	ask, err := json.Marshal(protocol.WorkerRequest{Op: protocol.OpInfo})
	if err != nil {
		return false, fmt.Errorf("ask the worker: %w", err)
	}
	within, cancel := context.WithTimeout(ctx, protocol.DispatchTimeout)
	defer cancel()
	_, err = s.node.Bus().Request(within, protocol.WorkerSubject(s.worker.Owner()), ask)
	if errors.Is(err, journal.ErrNoOwner) {
		return false, nil
	}
	return err == nil, err
}

// workerIsKnown looks whether brokers can know this life of the worker: it serves by
// then. An answer that does not come is waited for.
func (s *server) workerIsKnown(ctx context.Context) (bool, error) {
	within, cancel := context.WithTimeout(ctx, protocol.DispatchTimeout)
	defer cancel()
	b, err := s.node.Bucket(within, protocol.BucketWorkers)
	if err != nil {
		return false, ctx.Err()
	}
	e, err := b.Get(within, protocol.WorkerOf(s.worker.Owner()))
	if err != nil {
		return false, ctx.Err()
	}
	var entry protocol.WorkerEntry
	if err := json.Unmarshal(e.Value, &entry); err != nil {
		return false, fmt.Errorf("read the worker's own entry: %w", err)
	}
	return entry.Owner == s.worker.Owner(), nil
}
