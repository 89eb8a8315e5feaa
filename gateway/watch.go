package gateway

import (
	"context"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"rejoin/broker"
	"rejoin/protocol"
)

const (
	// headsEvery is how often a watch is told of heads and counts, at most.
	headsEvery = time.Second
	// newsBatch is how many sessions of a watch go into one look at it.
	newsBatch = 16
)

// feed is broker.Feed.
type feed interface {
	Add(w broker.Watcher) broker.FeedCursor
	Remove(w broker.Watcher)
	Changes(c *broker.FeedCursor, limit int) (out []broker.Change, more bool)
	Heads(c *broker.FeedCursor, limit int) (out []broker.Change, more bool)
}

var _ feed = (*broker.Feed)(nil)

// A sessionWatch is a cursor in the feed of a workspace's sessions. Like a
// subscription it carries nothing: the connection's writer takes what is newest.
type sessionWatch struct {
	c     *conn
	id    uint64
	space *space // its workspace's share
	feed  feed
	heads bool        // it wants to know of heads and counts, too
	woken atomic.Bool // set by Wake until the writer looks

	// Guarded by c.mu.
	cursor   broker.FeedCursor
	active   bool        // its response is queued: changes may follow
	gone     bool        // unsubscribed
	queued   bool        // in c.news
	headsDue bool        // the writer is to look at heads
	headsAt  time.Time   // when it last did
	timer    *time.Timer // makes headsDue; nil: not armed
}

var _ broker.Watcher = (*sessionWatch)(nil)

// Wake tells that there are changes. It marks, and does not block.
func (w *sessionWatch) Wake() {
	if w.woken.Swap(true) {
		return
	}
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	w.c.enqueueWatch(w)
}

// WakeHeads tells that heads have moved: they are looked at headsEvery after the
// last look.
func (w *sessionWatch) WakeHeads() {
	if !w.heads {
		return
	}
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	if w.timer != nil || w.gone || w.headsDue {
		return
	}
	w.timer = time.AfterFunc(time.Until(w.headsAt.Add(headsEvery)), func() {
		w.c.mu.Lock()
		defer w.c.mu.Unlock()
		w.timer, w.headsDue = nil, true
		w.c.enqueueWatch(w)
	})
}

// enqueueWatch puts w where the writer looks. Callers hold c.mu.
func (c *conn) enqueueWatch(w *sessionWatch) {
	if w.queued || w.gone || !w.active {
		return
	}
	w.queued = true
	c.news = append(c.news, w) // at most protocol.WatchesMax
	c.stir()
}

func watchSessions(ctx context.Context, c *conn, r *request) (reply, error) {
	heads, _, err := r.params.Bool("heads")
	if err != nil {
		return reply{}, err
	}
	own := c.srv.census.space(r.who.Workspace)
	w := &sessionWatch{c: c, id: own.lastID.Add(1), space: own, feed: c.srv.sessions.Feed(r.who), heads: heads}
	if !c.addWatch(w) {
		return reply{}, protocol.Errorf(protocol.ReasonOverloaded, "more than %d watches on this connection", protocol.WatchesMax).Met("WatchesMax")
	}
	cursor := w.feed.Add(w) // before the list: what changes meanwhile is told again
	list, err := c.srv.sessions.List(ctx, r.who, broker.ListParams{})
	var rep reply
	if err == nil {
		rep, err = encode(struct {
			SubscriptionID uint64                 `json:"subscriptionId"`
			Sessions       []protocol.SessionInfo `json:"sessions"`
		}{w.id, born(list)})
	}
	if err != nil {
		c.dropWatch(w)
		return reply{}, err
	}
	rep.then = func() {
		w.cursor, w.active = cursor, true
		w.headsDue = w.heads
		c.enqueueWatch(w)
	}
	return rep, nil
}

// born leaves out the sessions whose first start is under way: one that fails
// has never been.
func born(list []protocol.SessionInfo) []protocol.SessionInfo {
	out := make([]protocol.SessionInfo, 0, len(list))
	for _, s := range list {
		if s.Status != protocol.StatusStarting || s.Run > 1 {
			out = append(out, s)
		}
	}
	return out
}

// addWatch makes w known to its connection; false when it may not have another.
func (c *conn) addWatch(w *sessionWatch) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.watching) >= protocol.WatchesMax {
		return false
	}
	if c.watching == nil {
		c.watching = make(map[uint64]*sessionWatch)
	}
	c.watching[w.id] = w
	w.space.subscriptions.Add(1)
	return true
}

// dropWatch ends a watch; nothing of it follows what the writer has taken.
func (c *conn) dropWatch(w *sessionWatch) {
	c.mu.Lock()
	had := c.removeWatch(w)
	c.mu.Unlock()
	if had {
		w.feed.Remove(w)
	}
}

// removeWatch takes w from its connection; the caller takes it from its feed when
// true. Callers hold c.mu.
func (c *conn) removeWatch(w *sessionWatch) bool {
	if w.gone {
		return false
	}
	w.gone = true
	if w.timer != nil {
		w.timer.Stop()
	}
	delete(c.watching, w.id)
	c.retired.add(w.id)
	w.space.subscriptions.Add(-1)
	c.stir() // it may have been the last reason to stay
	return true
}

// releaseWatches is the connection's end.
func (c *conn) releaseWatches() {
	c.mu.Lock()
	list := make([]*sessionWatch, 0, len(c.watching))
	for _, w := range c.watching {
		list = append(list, w)
	}
	c.mu.Unlock()
	for _, w := range list {
		c.dropWatch(w)
	}
}

// takeNews appends what is new to one watch, up to newsBatch sessions; one with
// more waits for its next turn. Callers hold c.mu.
func (w *writer) takeNews() {
	c := w.c
	if len(c.news) == 0 {
		return
	}
	s := c.news[0]
	if c.news = c.news[1:]; len(c.news) == 0 {
		c.news = nil
	}
	s.queued = false
	if s.gone {
		return
	}
	s.woken.Store(false)
	changes, more := s.feed.Changes(&s.cursor, newsBatch)
	if s.headsDue && !more {
		moved, rest := s.feed.Heads(&s.cursor, newsBatch)
		changes, more = append(changes, moved...), rest
		if !rest {
			s.headsDue, s.headsAt = false, time.Now()
		}
	}
	for i := range changes {
		w.buf.b = c.appendChange(w.buf.b, s, &changes[i])
	}
	if more {
		c.enqueueWatch(s)
	}
}

// appendChange appends a session_changed or session_removed notification.
func (c *conn) appendChange(dst []byte, s *sessionWatch, ch *broker.Change) []byte {
	method := "session_changed"
	if ch.Removed {
		method = "session_removed"
	}
	mark := len(dst)
	dst = append(dst, `{"jsonrpc":"2.0","method":"`...)
	dst = append(dst, method...)
	dst = append(dst, `","params":{"subscriptionId":`...)
	dst = strconv.AppendUint(dst, s.id, 10)
	if ch.Removed {
		dst = append(dst, `,"sessionId":`...)
		dst = protocol.AppendString(dst, ch.ID)
		return append(dst, "}}\n"...)
	}
	info, err := encode(&ch.Info)
	if err != nil {
		c.srv.log.Error("session not shown", slog.String(protocol.LogSession, ch.ID), slog.Any(protocol.LogError, err))
		return dst[:mark]
	}
	dst = append(dst, `,"session":`...)
	dst = append(dst, info.result...)
	return append(dst, "}}\n"...)
}
