package gateway

import (
	"context"
	"log/slog"
	"strconv"
	"time"

	"rejoin/protocol"
	"rejoin/snapshot"
)

const (
	fetchRetryMin = 100 * time.Millisecond
	fetchRetryMax = 2 * time.Second
)

// fetchFor has the snapshot fetched that s wants: one at a time per connection,
// from the start of the fetch until the writer has taken it, so that many
// subscriptions cost no more memory than one. Callers hold c.mu.
func (c *conn) fetchFor(sc scope, s *subscription) {
	if c.fetcher != nil {
		if c.fetcher != s && !s.waiting {
			s.waiting = true
			c.waiters = append(c.waiters, s)
		}
		return
	}
	c.fetcher = s
	f := fetch{s: s, gen: s.gen, reason: s.want, atLeast: s.cursor.Seq}
	if s.syncDue {
		f.atLeast = max(f.atLeast, s.syncAt)
	}
	if s.later {
		f.beyond = s.cursor
	} else {
		f.atLeast = s.syncAt // the cursor may lie beyond every event
	}
	c.jobs.Go(func() { c.fetch(sc.reads, f) })
}

// freeFetcher gives the place of s to the next subscription that waits for it.
// Callers hold c.mu.
func (c *conn) freeFetcher(s *subscription) {
	if c.fetcher != s {
		return
	}
	c.fetcher = nil
	for len(c.waiters) > 0 {
		next := c.waiters[0]
		c.waiters = c.waiters[1:]
		next.waiting = false
		if !next.gone && next.want != "" {
			c.enqueue(next)
			return
		}
	}
	c.waiters = nil
}

// A fetch is one snapshot on its way to a subscription.
type fetch struct {
	s       *subscription
	gen     uint64 // of s; when it has changed nobody wants the snapshot
	reason  string
	atLeast protocol.Seq
	beyond  protocol.Cursor // set: a snapshot at this very cursor leads nowhere
}

// fetch folds until it has a snapshot that leads on, or nobody wants it.
func (c *conn) fetch(ctx context.Context, f fetch) {
	wait := fetchRetryMin
	for {
		snap, err := c.srv.folds.Latest(ctx, f.s.log, f.atLeast)
		stuck := err == nil && snap.Epoch == f.beyond.Epoch && snap.Seq <= f.beyond.Seq
		if err == nil && !stuck {
			c.deliver(f, appendSnapshot(nil, f.s, f.reason, snap), protocol.Cursor{Epoch: snap.Epoch, Seq: snap.Seq})
			return
		}
		if ctx.Err() != nil || !c.wanted(f) {
			break
		}
		c.srv.log.Warn("snapshot delayed", slog.String(protocol.LogSession, f.s.log.Key.String()), slog.Uint64(protocol.LogConn, c.id),
			slog.Bool("stuck", stuck), slog.Any(protocol.LogError, err))
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
		}
		wait = min(2*wait, fetchRetryMax)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.abandon(f)
}

// wanted reports that s still waits for this very snapshot.
func (c *conn) wanted(f fetch) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return f.s.gen == f.gen && f.s.ending == ""
}

func (c *conn) deliver(f fetch, b []byte, at protocol.Cursor) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.s.gen != f.gen {
		c.abandon(f)
		return
	}
	f.s.note = &note{bytes: b, cursor: at}
	c.enqueue(f.s)
}

// abandon gives the fetcher's place up; s may want another snapshot by now.
// Callers hold c.mu.
func (c *conn) abandon(f fetch) {
	c.freeFetcher(f.s)
	if f.s.want != "" {
		c.enqueue(f.s)
	}
}

// appendSnapshot appends the notification; the state's bytes are used as they are.
func appendSnapshot(dst []byte, s *subscription, reason string, snap snapshot.Snapshot) []byte {
	if dst == nil {
		dst = make([]byte, 0, len(snap.State)+512)
	}
	dst = appendHead(dst, "snapshot", s)
	dst = append(dst, ',')
	dst = appendSnapshotMembers(dst, snap)
	if snap.Damaged {
		reason = reasonDamaged // whatever it was asked for
	}
	dst = append(dst, `,"reason":`...)
	dst = protocol.AppendString(dst, reason)
	dst = append(dst, `,"state":`...)
	dst = append(dst, snap.State...)
	return append(dst, "}}\n"...)
}

// appendSnapshotMembers appends what get_snapshot and the notification share.
func appendSnapshotMembers(dst []byte, snap snapshot.Snapshot) []byte {
	dst = append(dst, `"epoch":`...)
	dst = protocol.AppendString(dst, string(snap.Epoch))
	dst = append(dst, `,"seq":`...)
	dst = strconv.AppendUint(dst, uint64(snap.Seq), 10)
	dst = append(dst, `,"stateHash":`...)
	dst = protocol.AppendString(dst, snap.Hash)
	dst = append(dst, `,"fold":{"adapter":`...)
	dst = protocol.AppendString(dst, snap.Fold.Adapter)
	dst = append(dst, `,"version":`...)
	dst = strconv.AppendInt(dst, int64(snap.Fold.Version), 10)
	return append(dst, '}')
}
