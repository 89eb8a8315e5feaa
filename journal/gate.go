package journal

import (
	"context"
	"errors"
	"sync"
)

// messageOverhead is about what a message takes in its stream besides its data:
// subject, headers and the engine's own frame.
const messageOverhead = 192

// JetStream's codes of servers without room (NATS server, errors.json).
const (
	apiAccountLimit = 10002
	apiNoResources  = 10023
	apiNoStorage    = 10047
)

// gate is how a shard is. Writers count into it what they store, so that it
// closes in time; the health watch corrects the count and opens it again. Safe
// for concurrent use; waiters are bounded by the writers of the shard.
type gate struct {
	disk *diskGate
	term *term // of the shard's leader; nil: the server is embedded

	mu      sync.Mutex
	used    int64 // bytes as of the last measurement
	added   int64 // and since
	stale   bool  // something was removed since
	quota   int64
	silent  bool // the stream of a cluster does not answer
	limited bool // the servers of a cluster have no room, whatever the quota
	health  Health
	changed chan struct{} // closed at the next change; nil when nobody waits
	soon    func()        // has the health watch look; must not block
}

// diskGate is what all shards share.
type diskGate struct {
	mu      sync.Mutex
	health  Health
	changed chan struct{} // closed at the next change
}

func newDiskGate() *diskGate { return &diskGate{changed: make(chan struct{})} }

func (d *diskGate) get() (Health, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.health, d.changed
}

// set reports whether anything changed.
func (d *diskGate) set(h Health) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.health == h {
		return false
	}
	d.health = h
	close(d.changed)
	d.changed = make(chan struct{})
	return true
}

// await blocks until ok holds of the health that all shards share. The only
// error is ctx's.
func (d *diskGate) await(ctx context.Context, ok func(Health) bool) error {
	for {
		h, changed := d.get()
		if ok(h) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// stored counts a message of n bytes of data.
func (g *gate) stored(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.limited, g.silent = false, false
	g.added += int64(n) + messageOverhead
	if g.judge() {
		g.soon()
	}
}

// refused takes the error of an attempt to store: the server says that a stream
// is full before the count does where messages are many and small.
func (g *gate) refused(err error) {
	var api *apiError
	if !errors.As(err, &api) {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if api.ErrCode == apiNoResources || api.ErrCode == apiAccountLimit || api.ErrCode == apiNoStorage {
		g.limited = true
		g.judge()
		return
	}
	if api.ErrCode != apiMaxBytes {
		return
	}
	if g.health.State < HealthFull {
		g.used, g.added, g.stale = g.quota, 0, true
		g.judge()
		g.soon()
	}
}

// removed says that the count is too high now.
func (g *gate) removed() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stale = true
}

// begin starts a measurement, if there may be anything new. What is stored while
// it runs may be counted twice, until the next one.
func (g *gate) begin() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.added == 0 && !g.stale {
		return false
	}
	g.used, g.added, g.stale = g.used+g.added, 0, false
	return true
}

// measured sets what the shard holds.
func (g *gate) measured(used int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.used = used
	g.judge()
}

// looked sets what a stream of a cluster says, or that it says nothing. What is
// refused for want of room in the servers is found again by the next attempt.
func (g *gate) looked(used, quota int64, silent bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.silent = silent; !silent {
		g.used, g.added, g.quota, g.limited, g.stale = used, 0, quota, false, false
	}
	g.judge()
}

// judge is called with mu held, and reports a new state.
func (g *gate) judge() bool {
	h := shardHealth(g.health.State, g.used+g.added, g.quota)
	if g.limited {
		h = h.worse(Health{HealthFull, reasonServersFull})
	}
	if g.silent {
		h = Health{HealthSick, reasonSilent}
	}
	if h == g.health {
		return false
	}
	g.health = h
	if g.changed != nil {
		close(g.changed)
		g.changed = nil
	}
	return true
}

// own is the state of the shard itself.
func (g *gate) own() ShardUsage {
	g.mu.Lock()
	defer g.mu.Unlock()
	return ShardUsage{Health: g.health, Used: g.used + g.added, Quota: g.quota}
}

// Health is the worse of the shard's and the disk's.
func (g *gate) Health() Health {
	h, _ := g.disk.get()
	return h.worse(g.own().Health)
}

// awaitRoom blocks while output has to wait, at most until ended is closed. The
// only error is ctx's.
func (g *gate) awaitRoom(ctx context.Context, ended <-chan struct{}) error {
	for {
		all, allChanged := g.disk.get()
		g.mu.Lock()
		if !all.Holds() && !g.health.Holds() {
			g.mu.Unlock()
			return nil
		}
		if g.changed == nil {
			g.changed = make(chan struct{})
		}
		changed := g.changed
		g.mu.Unlock()
		select {
		case <-allChanged:
		case <-changed:
		case <-ended:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// awaitServer blocks while nothing can be written: asking a sick server again
// and again helps nobody. The only error is ctx's.
func (g *gate) awaitServer(ctx context.Context) error {
	return g.disk.await(ctx, func(h Health) bool { return h.State < HealthSick })
}
