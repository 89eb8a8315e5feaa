package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"rejoin/journal"
	"rejoin/protocol"
)

const (
	// beatsUntilGone is how many beats of this gateway another one may miss before
	// it is nobody's destination.
	beatsUntilGone = 3
	// beatsUntilForgotten is how many until its entry is removed: ten minutes.
	beatsUntilForgotten = 60
	// leaveTimeout bounds how long a gateway that stops tries to say so.
	leaveTimeout = time.Second
	// watchPause is the wait after a watch that broke.
	watchPause = time.Second
)

// entries is the bucket of gateways: journal.Bucket.
type entries interface {
	Get(ctx context.Context, key string) (journal.Entry, error)
	PutOver(ctx context.Context, key string, value []byte, rev uint64) (uint64, error)
	Delete(ctx context.Context, key string) error
	Watch(ctx context.Context, f func(journal.Entry)) error
}

var _ entries = (*journal.Bucket)(nil)

// PresenceConfig of a Presence.
type PresenceConfig struct {
	// ID of the gateway, one token: no two that run have the same. Required.
	ID string
	// URLs at which clients reach it; none: it is nobody's destination.
	URLs []string
	// Version that others see.
	Version string
	// Logger; nil discards.
	Logger *slog.Logger
}

// A Presence is one gateway among those of an installation: it says where it
// serves and knows where the others do. It needs no clock that others agree with:
// an entry is old when it stayed the same while beats of this gateway came back
// through the same watch, so that nobody grows old while the journal is away. Safe
// for concurrent use.
type Presence struct {
	cfg     PresenceConfig
	log     *slog.Logger
	entries entries

	rev  uint64 // Run's: of the own entry; 0: to be read
	beat uint64 // Run's

	mu     sync.Mutex
	own    uint64 // newest revision of the own entry that was seen
	beats  uint64 // own beats that came back
	others map[string]*neighbour
}

// neighbour is another gateway as last seen.
type neighbour struct {
	entry protocol.GatewayEntry
	rev   uint64
	seen  uint64 // beats of this gateway at the time
}

// NewPresence returns a Presence at rest over the bucket protocol.BucketGateways.
func NewPresence(cfg PresenceConfig, b *journal.Bucket) (*Presence, error) {
	if b == nil {
		return nil, errors.New("gateway: the bucket of gateways is missing")
	}
	return newPresence(cfg, b)
}

func newPresence(cfg PresenceConfig, b entries) (*Presence, error) {
	if !protocol.ValidSessionID(cfg.ID) { // the same rule: one token of a subject
		return nil, fmt.Errorf("gateway: PresenceConfig.ID %q is not a name", cfg.ID)
	}
	if len(cfg.URLs) > protocol.ReconnectURLsMax {
		return nil, fmt.Errorf("gateway: PresenceConfig.URLs has more than %d", protocol.ReconnectURLsMax)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Presence{cfg: cfg, log: cfg.Logger, entries: b, others: make(map[string]*neighbour)}, nil
}

// Run writes the gateway's entry every protocol.GatewayEvery and follows the
// others until ctx ends; then it marks the entry as draining and returns nil. End it
// before the connections, so that nobody is sent here any more.
func (p *Presence) Run(ctx context.Context) error {
	var watching sync.WaitGroup
	watching.Go(func() { p.watch(ctx) })
	tick := time.NewTicker(protocol.GatewayEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		if err := p.write(ctx, false); err != nil && ctx.Err() == nil {
			p.log.Warn("entry of this gateway not written", slog.Any(protocol.LogError, err))
		}
		p.forget(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	watching.Wait()
	leave, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	if err := p.write(leave, true); err != nil {
		p.log.Warn("other gateways do not know that this one stops", slog.Any(protocol.LogError, err))
	}
	return nil
}

// write makes the own entry the newest, whatever is there.
func (p *Presence) write(ctx context.Context, draining bool) error {
	within, cancel := context.WithTimeout(ctx, protocol.GatewayEvery)
	defer cancel()
	p.beat++
	e := protocol.GatewayEntry{
		ID: p.cfg.ID, URLs: p.cfg.URLs, Draining: draining, Version: p.cfg.Version, Beat: p.beat, At: time.Now().UnixMilli(),
	}
	value, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("gateway: encode its entry: %w", err)
	}
	known := p.rev != 0
	for {
		rev, err := p.put(within, value)
		if err == nil {
			p.rev = rev
			return nil
		}
		p.rev = 0 // lost to somebody, or nobody knows: it is read before the next
		if !errors.Is(err, journal.ErrRevision) && !errors.Is(err, journal.ErrExists) || within.Err() != nil {
			return err
		}
		if known {
			p.log.Warn("another process writes the entry of this gateway", slog.String("id", p.cfg.ID))
			known = false
		}
	}
}

// put is one attempt at the own entry.
func (p *Presence) put(ctx context.Context, value []byte) (uint64, error) {
	rev := p.rev
	if rev == 0 {
		old, err := p.entries.Get(ctx, p.cfg.ID)
		if err != nil && !errors.Is(err, journal.ErrNotFound) {
			return 0, err
		}
		rev = old.Revision
	}
	return p.entries.PutOver(ctx, p.cfg.ID, value, rev)
}

// watch follows the bucket until ctx ends.
func (p *Presence) watch(ctx context.Context) {
	for {
		err := p.entries.Watch(ctx, p.see)
		if ctx.Err() != nil {
			return
		}
		p.log.Warn("watch of the gateways broke", slog.Any(protocol.LogError, err))
		t := time.NewTimer(watchPause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
		}
	}
}

// see takes one entry as the watch tells it; one may come again.
func (p *Presence) see(e journal.Entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case e.Key == "": // all are loaded
	case e.Deleted:
		delete(p.others, e.Key)
	case e.Key == p.cfg.ID:
		if e.Revision > p.own {
			p.own = e.Revision
			p.beats++
		}
	default:
		p.learn(e)
	}
}

// learn takes the entry of another gateway; mu is held.
func (p *Presence) learn(e journal.Entry) {
	n := p.others[e.Key]
	switch {
	case n != nil && n.rev == e.Revision:
		return
	case n == nil && len(p.others) >= protocol.GatewaysKnownMax:
		return // it serves its clients all the same, nobody is sent to it from here
	}
	var entry protocol.GatewayEntry
	if err := json.Unmarshal(e.Value, &entry); err != nil {
		p.log.Warn("entry of a gateway is none", slog.String("id", e.Key), slog.Any(protocol.LogError, err))
		return
	}
	p.others[e.Key] = &neighbour{entry: entry, rev: e.Revision, seen: p.beats}
}

// forget removes the entries of gateways that have long been gone. One that comes
// back finds its entry gone and makes it anew.
func (p *Presence) forget(ctx context.Context) {
	p.mu.Lock()
	var gone []string
	for id, n := range p.others {
		if p.beats-n.seen > beatsUntilForgotten {
			gone = append(gone, id)
		}
	}
	p.mu.Unlock()
	for _, id := range gone {
		within, cancel := context.WithTimeout(ctx, protocol.GatewayEvery)
		err := p.entries.Delete(within, id)
		cancel()
		if err != nil {
			p.log.Warn("entry of a gateway that is gone not removed", slog.String("id", id), slog.Any(protocol.LogError, err))
			return // the next beat tries again
		}
	}
}

// Others lists the other gateways that serve, by id.
func (p *Presence) Others() []protocol.GatewayEntry {
	p.mu.Lock()
	defer p.mu.Unlock()
	var live []protocol.GatewayEntry
	for _, id := range slices.Sorted(maps.Keys(p.others)) {
		if n := p.others[id]; !n.entry.Draining && p.beats-n.seen <= beatsUntilGone {
			live = append(live, n.entry)
		}
	}
	return live
}

// Elsewhere names where a client of this gateway may go: the URLs of the others,
// beginning with another one for each seed, at most protocol.ReconnectURLsMax.
func (p *Presence) Elsewhere(seed uint64) []string {
	live := p.Others()
	urls := []string{}
	for i := range live {
		next := live[(seed%uint64(len(live))+uint64(i))%uint64(len(live))]
		urls = append(urls, next.URLs...)
	}
	return urls[:min(len(urls), protocol.ReconnectURLsMax)]
}
