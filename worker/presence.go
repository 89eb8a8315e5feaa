package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"rejoin/journal"
	"rejoin/protocol"
)

// Presence makes a worker one of several: it tells brokers of itself in the bucket
// protocol.BucketWorkers, under its id. The newest process of an id is that worker.
type Presence struct {
	Labels  map[string]string // what sessions may ask for
	Version string            // shown to people
	Dir     string            // working directory of this process, which children have for whom nobody names one
}

// ErrSuperseded says that a newer process runs as this worker. Every child was killed.
// It is journal.ErrFenced; a retry of this process cannot help.
var ErrSuperseded = fmt.Errorf("worker: another process runs as this worker: %w", journal.ErrFenced)

// Times of a presence, besides protocol.HeartbeatEvery and WorkerFreezeAfter.
const (
	beatAgain  = 500 * time.Millisecond // after a heartbeat that did not go through
	confirmMax = 10 * time.Second       // for a look at the newest runs of all sessions: below WorkerFreezeAfter
	leaveMax   = time.Second            // for the last entry, after the sessions' end: within the time of a server stop
)

// entries is the part of journal.Bucket that a presence uses. Contracts as there.
type entries interface {
	Get(ctx context.Context, key string) (journal.Entry, error)
	PutOver(ctx context.Context, key string, value []byte, rev uint64) (uint64, error)
}

var _ entries = (*journal.Bucket)(nil)

// charges are the sessions that a presence answers for: the seam at which tests see
// what it decides.
type charges interface {
	// live counts them.
	live() int
	// freeze stops the processes of those that a broker may start elsewhere. Again:
	// those that have come since.
	freeze()
	// confirm asks the registry for the newest run of all, or only of the frozen: a
	// session that has a newer one is killed, a frozen one that has not goes on. The
	// error is of one that nothing is known of.
	confirm(ctx context.Context, all bool) error
}

// presence keeps a worker's entry. Run's goroutine owns what mu does not guard.
type presence struct {
	id, owner string
	labels    map[string]string
	dir       string
	capacity  int
	version   string
	open      func(context.Context) (entries, error)
	charges   charges
	log       *slog.Logger
	now       func() time.Time     // for people
	clock     func() time.Duration // goes on in a suspended machine

	bucket   entries
	rev      uint64        // of the newest entry that is known
	beat     uint64        // of the newest entry that was written, or may have been
	unsure   bool          // rev may not be the newest: read before writing
	taken    bool          // the entry has been this life's: anybody else's in it is newer
	lost     bool          // a broker has given this life up
	since    time.Duration // clock, when the newest entry that went through was sent
	troubled bool          // that heartbeats fail is in the log

	frozen atomic.Bool   // what runs here may run elsewhere: nothing is begun
	poke   chan struct{} // capacity one: a second poke says nothing more

	mu       sync.Mutex
	draining bool
	stopping bool
	moving   bool
	told     drain         // what the entry in the bucket says of it
	changed  chan struct{} // closed when told may have changed
	unheard  chan struct{} // nil while heartbeats go through; closed when they do again
}

// drain is what a worker says of taking no new sessions.
type drain struct {
	on, move bool // move: what runs here is to go on elsewhere
}

// wanted is what the entry is to say. Mu is held.
func (p *presence) wanted() drain { return drain{on: p.draining || p.stopping, move: p.moving} }

// newPresence returns a presence at rest: its entry is not written.
func newPresence(cfg *Config, owner string, open func(context.Context) (entries, error), c charges, log *slog.Logger) *presence {
	return &presence{
		id: cfg.ID, owner: owner, labels: cfg.Presence.Labels, dir: cfg.Presence.Dir, capacity: cfg.SessionsMax, version: cfg.Presence.Version,
		open: open, charges: c, log: log, now: cfg.Now, clock: sinceBoot, unsure: true, poke: make(chan struct{}, 1), changed: make(chan struct{}),
	}
}

// run keeps the entry until ctx ends, whose error it returns, or somebody else is
// this worker: ErrSuperseded.
func (p *presence) run(ctx context.Context) error {
	p.since = p.clock()
	for {
		err := p.step(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, ErrSuperseded) {
			return err
		}
		p.note(err)
		wait := time.NewTimer(p.bounded(pauseAfter(err)))
		select {
		case <-wait.C:
		case <-p.poke:
			wait.Stop()
		case <-ctx.Done():
			wait.Stop()
			return ctx.Err()
		}
	}
}

func pauseAfter(err error) time.Duration {
	switch {
	case err == nil:
		return protocol.HeartbeatEvery
	case errors.Is(err, journal.ErrRevision), errors.Is(err, journal.ErrExists):
		return registryPause
	}
	return beatAgain
}

// bounded is d, but not beyond the moment at which sessions have to be stopped.
func (p *presence) bounded(d time.Duration) time.Duration {
	if p.frozen.Load() {
		return d
	}
	return min(d, protocol.WorkerFreezeAfter-(p.clock()-p.since))
}

// step is one heartbeat, and what follows from it.
func (p *presence) step(ctx context.Context) error {
	if p.clock()-p.since >= protocol.WorkerFreezeAfter {
		if p.frozen.CompareAndSwap(false, true) {
			p.log.Warn("no heartbeat goes through: sessions that could be started elsewhere are stopped, the output of all waits")
		}
		p.silence()
		p.charges.freeze()
	}
	if err := p.refresh(ctx); err != nil {
		return err
	}
	if p.lost {
		p.log.Warn("a broker has given this worker up: its sessions are looked at")
		if err := p.confirm(ctx, true); err != nil {
			return err
		}
	}
	if err := p.write(ctx, false); err != nil {
		return err
	}
	if !p.frozen.Load() {
		return nil
	}
	if err := p.confirm(ctx, false); err != nil {
		return err
	}
	p.frozen.Store(false)
	p.log.Info("heartbeats go through again: sessions that are still this worker's go on")
	return nil
}

func (p *presence) confirm(ctx context.Context, all bool) error {
	ctx, cancel := context.WithTimeout(ctx, p.bounded(confirmMax))
	defer cancel()
	return p.charges.confirm(ctx, all)
}

// note logs the first of several failures, and their end.
func (p *presence) note(err error) {
	switch {
	case err != nil && !p.troubled:
		p.troubled = true
		p.log.Warn("heartbeat failed", slog.Any(protocol.LogError, err))
	case err == nil && p.troubled:
		p.troubled = false
		p.log.Info("heartbeat is back")
	}
}

// refresh reads the entry where the newest one may be another than is known.
func (p *presence) refresh(ctx context.Context) error {
	if !p.unsure {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, p.bounded(protocol.HeartbeatEvery))
	defer cancel()
	if p.bucket == nil {
		b, err := p.open(ctx)
		if err != nil {
			return err
		}
		p.bucket = b
	}
	e, err := p.bucket.Get(ctx, p.id)
	switch {
	case errors.Is(err, journal.ErrNotFound):
		p.rev, p.unsure, p.lost = 0, false, false
		return nil
	case err != nil:
		return err
	case e.Revision < p.rev:
		return fmt.Errorf("entry of worker %s: an old answer: %w", p.id, journal.ErrRevision)
	}
	var cur protocol.WorkerEntry
	if err := json.Unmarshal(e.Value, &cur); err != nil && p.taken {
		return fmt.Errorf("entry of worker %s: %w", p.id, err)
	}
	mine := cur.Owner == p.owner
	if p.taken && !mine {
		return fmt.Errorf("%w: %s", ErrSuperseded, cur.Owner)
	}
	p.rev, p.unsure, p.taken, p.lost = e.Revision, false, mine, mine && cur.Lost
	return nil
}

// write stores the next entry over the newest one that is known.
func (p *presence) write(ctx context.Context, left bool) error {
	ctx, cancel := context.WithTimeout(ctx, p.bounded(protocol.HeartbeatEvery))
	defer cancel()
	p.mu.Lock()
	says := p.wanted()
	p.mu.Unlock()
	p.beat++
	value, err := json.Marshal(protocol.WorkerEntry{
		ID: p.id, Owner: p.owner, Labels: p.labels, Dir: p.dir, Capacity: p.capacity, Sessions: p.charges.live(), Draining: says.on,
		Moving: says.move, Left: left, Version: p.version, Beat: p.beat, At: p.now().UnixMilli(),
	})
	if err != nil {
		return fmt.Errorf("encode worker entry: %w", err)
	}
	sent := p.clock()
	rev, err := p.bucket.PutOver(ctx, p.id, value, p.rev)
	if err != nil {
		p.unsure = true
		return err
	}
	if !p.taken {
		p.log.Info("worker is known to brokers", slog.String("owner", p.owner))
	}
	p.rev, p.taken, p.lost, p.since = rev, true, false, sent
	p.mu.Lock()
	p.told = says
	close(p.changed)
	p.changed = make(chan struct{})
	if p.unheard != nil {
		close(p.unheard)
		p.unheard = nil
	}
	p.mu.Unlock()
	return nil
}

// away reports that what runs here may run elsewhere. Safe for concurrent use; nil is
// never away.
func (p *presence) away() bool { return p != nil && p.frozen.Load() }

// soon has the next heartbeat come at once.
func (p *presence) soon() {
	select {
	case p.poke <- struct{}{}:
	default:
	}
}

// drain begins or ends a drain, and returns when the entry says so. A drain whose
// sessions move does so until it ends. Safe for concurrent use.
func (p *presence) drain(ctx context.Context, d drain) error {
	p.mu.Lock()
	p.draining, p.moving = d.on, d.on && (d.move || p.moving)
	p.mu.Unlock()
	for {
		p.soon()
		p.mu.Lock()
		told, changed := p.told == p.wanted(), p.changed
		p.mu.Unlock()
		if told {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// stop has brokers choose other workers from now on.
func (p *presence) stop() {
	p.mu.Lock()
	p.stopping = true
	p.mu.Unlock()
	p.soon()
}

// leave writes that nothing runs here any more. Run has returned.
func (p *presence) leave(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, leaveMax)
	defer cancel()
	p.frozen.Store(true) // nothing is left to stop in time
	for {
		err := p.refresh(ctx)
		if err == nil {
			err = p.write(ctx, true)
		}
		if !errors.Is(err, journal.ErrRevision) && !errors.Is(err, journal.ErrExists) {
			return err
		}
	}
}
