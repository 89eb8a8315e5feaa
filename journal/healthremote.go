package journal

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"rejoin/protocol"
)

const (
	// remoteLookEvery is between two looks at every shard of a cluster.
	remoteLookEvery = 5 * time.Second
	// remoteAwayAfter is how long the servers may not be reached before commands are
	// refused: another server is found sooner.
	remoteAwayAfter = 3 * time.Second
	// remoteSilentAfter is how long a shard may not answer before commands of its
	// sessions are refused: an election takes 4 to 9 s, and a request waits for that.
	remoteSilentAfter = 15 * time.Second
)

// remoteLook is what a client of a cluster knows of it: the disks are others' to
// watch. Owned by the health watch.
type remoteLook struct {
	next  time.Time   // of the next look at every shard
	away  time.Time   // since when the servers are not reached; zero: they are
	heard []time.Time // when each shard last answered
	ended bool        // a member's own store has, which was told
}

// lookRemote takes one look at the connections, and at the shards when it is time
// or a writer found one full.
func (w *healthWatch) lookRemote(ctx context.Context) {
	now := w.n.clock()
	w.lookMember()
	detail := w.lookAway(now)
	was, _ := w.n.disk.get()
	health := Health{}
	if detail != "" {
		health = Health{HealthSick, reasonAway}
	}
	w.mu.Lock()
	w.detail = detail
	w.mu.Unlock()
	if w.n.disk.set(health) {
		w.tell(was, health, detail, space{})
	}
	if w.remote.away.IsZero() && !now.Before(w.remote.next) {
		w.remote.next = now.Add(remoteLookEvery)
		w.lookShards(ctx)
	}
}

// lookAway says why nothing can be written, once it is so for remoteAwayAfter.
func (w *healthWatch) lookAway(now time.Time) string {
	for _, nc := range []*nats.Conn{w.n.pub, w.n.read} {
		if nc.IsConnected() {
			continue
		}
		if w.remote.away.IsZero() {
			w.remote.away = now
		}
		if now.Sub(w.remote.away) < remoteAwayAfter {
			return ""
		}
		if err := nc.LastError(); err != nil {
			return firstLine(err.Error())
		}
		return "not connected"
	}
	w.remote.back(now)
	return ""
}

// back ends a time without connections, in which no shard could be asked: it does
// not count as silence, what was before it does. A server that is left because it
// is silent (reach.leave) is not the end of the silence.
func (r *remoteLook) back(now time.Time) {
	if r.away.IsZero() {
		return
	}
	for i := range r.heard {
		r.heard[i] = r.heard[i].Add(now.Sub(r.away))
	}
	r.away, r.next = time.Time{}, now
}

// lookShards asks every shard at once how full it is.
func (w *healthWatch) lookShards(ctx context.Context) {
	n, r := w.n, &w.remote
	if r.heard == nil {
		r.heard = make([]time.Time, len(n.gates))
		for i := range r.heard {
			r.heard[i] = n.clock()
		}
	}
	infos, errs := make([]streamInfo, len(n.gates)), make([]error, len(n.gates))
	var asking sync.WaitGroup
	for i := range n.gates {
		asking.Go(func() {
			var found bool
			if infos[i], found, errs[i] = n.streamInfo(ctx, shardStream(i)); errs[i] == nil && !found {
				errs[i] = fmt.Errorf("%w: stream %s is missing", ErrUnavailable, shardStream(i))
			}
		})
	}
	asking.Wait()
	now := n.clock()
	for i, g := range n.gates {
		if errs[i] == nil {
			r.heard[i] = now
			g.looked(infos[i].State.Bytes, max(shardQuota(infos[i].Config.MaxBytes), 1), false)
		} else if ctx.Err() == nil && now.Sub(r.heard[i]) > remoteSilentAfter {
			if !g.own().Refuses() {
				n.log.Warn("a shard does not answer", slog.Int("shard", i), slog.Any(protocol.LogError, errs[i]))
			}
			g.looked(0, 0, true)
			r.next = now.Add(healthEvery)
		}
		w.noticeShard(i, g)
	}
}
