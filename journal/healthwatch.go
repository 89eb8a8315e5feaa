package journal

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"rejoin/protocol"
)

const (
	healthEvery = time.Second      // between two looks at disk and server
	probeEvery  = 30 * time.Second // between two write probes while all is well
)

// healthWatch looks at the disk, the embedded server and the shards, says what
// the journal can do, and brings a server back whose write error is sticky. One
// goroutine, from start to the node's end.
type healthWatch struct {
	n    *Node
	poke chan struct{} // capacity 1: look now

	// Owned by the goroutine (by Start before it runs).
	probed time.Time // the last write probe that went well
	pace   pace
	lost   error               // why the server must not be restarted again
	told   map[int]HealthState // of shards, as logged
	remote remoteLook

	mu     sync.Mutex // guards the following
	space  space
	detail string
}

// trouble is why nothing can be written.
type trouble struct {
	detail string   // for operators
	server bool     // the embedded server has to be restarted
	sick   []string // streams that it names
}

func newHealthWatch(n *Node) *healthWatch {
	return &healthWatch{n: n, poke: make(chan struct{}, 1), probed: n.clock(), told: map[int]HealthState{}}
}

// run looks until ctx ends.
func (w *healthWatch) run(ctx context.Context) {
	tick := time.NewTicker(healthEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-w.poke:
		case <-ctx.Done():
			return
		}
		w.look(ctx)
	}
}

// soon has the watch look now.
func (w *healthWatch) soon() {
	select {
	case w.poke <- struct{}{}:
	default:
	}
}

// look takes one look at everything.
func (w *healthWatch) look(ctx context.Context) {
	if w.n.remote != nil {
		w.lookRemote(ctx)
		return
	}
	s, err := diskSpace(w.n.cfg.Dir)
	t := w.trouble()
	if err != nil {
		t.detail = err.Error()
	}
	if t.detail != "" && w.heal(ctx, t, s, err) {
		t = w.trouble()
	}
	was, _ := w.n.disk.get()
	now := diskHealth(was.State, s)
	if t.detail != "" {
		now = Health{HealthSick, w.reason(t, s)}
	}
	w.mu.Lock()
	w.space, w.detail = s, t.detail
	w.mu.Unlock()
	if w.n.disk.set(now) {
		w.tell(was, now, t.detail, s)
	}
	if now.State < HealthSick {
		w.measure(ctx)
	}
}

func (w *healthWatch) reason(t trouble, s space) string {
	switch {
	case w.lost != nil:
		return reasonRestart
	case s.size > 0 && s.free < s.fullBelow():
		return reasonDiskFull
	case !t.server || len(t.sick) > 0:
		return reasonWrite
	}
	return reasonRestart
}

// tell logs that the state has changed: once, and never again while it lasts.
func (w *healthWatch) tell(was, now Health, detail string, s space) {
	level := slog.LevelInfo
	if now.State > was.State {
		level = slog.LevelError
	}
	attrs := []slog.Attr{
		slog.String("state", now.State.String()), slog.String("was", was.State.String()), slog.String("reason", now.Reason),
		slog.Int64("free", s.free), slog.Int64("size", s.size),
	}
	if detail != "" {
		attrs = append(attrs, slog.String("detail", detail))
	}
	w.n.log.LogAttrs(context.Background(), level, "state of the journal", attrs...) //nolint:contextcheck // the watch's own words, no request's
}

// trouble asks the server how it is, and now and then the disk.
func (w *healthWatch) trouble() trouble {
	if w.lost != nil {
		return trouble{detail: w.lost.Error(), server: true}
	}
	srv := w.n.engine.Load()
	if srv == nil {
		return trouble{detail: errNoServer.Error(), server: true}
	}
	if t := serverTrouble(srv, w.n.format.Expect); t.detail != "" {
		return t
	}
	h, _ := w.n.disk.get()
	if h.State < HealthSick && w.n.clock().Sub(w.probed) < probeEvery {
		return trouble{}
	}
	if err := probe(w.n.cfg.Dir); err != nil {
		return trouble{detail: err.Error()}
	}
	w.probed = w.n.clock()
	return trouble{}
}

// serverTrouble says what keeps a server from writing: it disabled JetStream, or
// a stream has met a write error, which it keeps until it is opened anew.
func serverTrouble(srv *server.Server, expect []string) trouble {
	if !srv.JetStreamEnabled() {
		return trouble{detail: "JetStream has been disabled", server: true}
	}
	var t trouble
	for _, e := range srv.Healthz(&server.HealthzOptions{Details: true}).Errors {
		if !slices.Contains(expect, e.Stream) {
			continue
		}
		t.server = true
		t.sick = append(t.sick, e.Stream)
		if t.detail == "" {
			t.detail = firstLine(e.Error)
		}
	}
	return t
}

// heal restarts a server that will not write again by itself, once the disk
// takes writes, and not faster than the pace allows. It reports that it did.
func (w *healthWatch) heal(ctx context.Context, t trouble, s space, unknown error) bool {
	if !t.server || w.lost != nil || unknown != nil || !above(s.free, s.fullBelow()) {
		return false
	}
	now := w.n.clock()
	if !w.pace.due(now) || probe(w.n.cfg.Dir) != nil {
		return false
	}
	w.probed = now
	w.pace.tried(now)
	began := time.Now()
	w.n.log.Warn("restarting the journal's engine", slog.String("detail", t.detail), slog.String("streams", strings.Join(t.sick, " ")))
	err := w.n.restart(ctx, t.sick)
	switch {
	case err == nil:
		w.n.log.Info("the journal's engine is back", slog.Duration("took", time.Since(began)))
	case ctx.Err() != nil:
		return false
	default:
		if isMissingStream(err) {
			w.lost = err
		}
		w.n.log.Error("the journal's engine does not come back", slog.Any(protocol.LogError, err))
	}
	return true
}

// measure asks how full the shards are in which something has changed.
func (w *healthWatch) measure(ctx context.Context) {
	for i, g := range w.n.gates {
		if g.begin() {
			used, err := w.n.shardBytes(ctx, i)
			if err == nil {
				g.measured(used)
			} else {
				g.removed() // the next look asks again; a server that does not answer at all is another one's finding
			}
		}
		w.noticeShard(i, g)
	}
}

// noticeShard logs a shard's state when it has changed.
func (w *healthWatch) noticeShard(i int, g *gate) {
	if now := g.own(); now.State != w.told[i] {
		w.tellShard(i, w.told[i], now)
		w.told[i] = now.State
	}
}

func (w *healthWatch) tellShard(i int, was HealthState, now ShardUsage) {
	level := slog.LevelInfo
	if now.State > was {
		level = slog.LevelWarn
	}
	//nolint:contextcheck // the watch's own words, no request's
	w.n.log.LogAttrs(context.Background(), level, "state of a shard of the journal", slog.Int("shard", i),
		slog.String("state", now.State.String()), slog.String("was", was.String()), slog.String("reason", now.Reason),
		slog.Int64("used", now.Used), slog.Int64("quota", now.Quota))
}

// shardBytes asks the server what a shard holds.
func (n *Node) shardBytes(ctx context.Context, shard int) (int64, error) {
	info, found, err := n.streamInfo(ctx, shardStream(shard))
	if err == nil && !found {
		err = fmt.Errorf("%w: stream %s is missing", ErrUnavailable, shardStream(shard))
	}
	return info.State.Bytes, err
}

// freed tells the watch that records of a shard went.
func (n *Node) freed(shard int) {
	n.gates[shard].removed()
	n.health.soon()
}

// ShardHealth says what the shard of a log can still do.
func (n *Node) ShardHealth(shard int) Health {
	if shard < 0 || shard >= len(n.gates) {
		return Health{}
	}
	return n.gates[shard].Health()
}

// Usage returns how full the journal is, and how well: as well as its worst part.
func (n *Node) Usage() Usage {
	n.health.mu.Lock()
	u := Usage{Free: n.health.space.free, Detail: n.health.detail}
	n.health.mu.Unlock()
	u.Health, _ = n.disk.get()
	for _, g := range n.gates {
		own := g.own()
		u.Health = u.worse(own.Health)
		u.Used += own.Used
		u.Quota += own.Quota
		u.Shards = append(u.Shards, own)
	}
	return u
}

// Health is the Health of Usage.
func (n *Node) Health() Health { return n.Usage().Health }
