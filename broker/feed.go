package broker

import (
	"container/list"
	"encoding/json"
	"log/slog"
	"reflect"
	"sync"

	"rejoin/protocol"
)

// A Watcher is told that a Feed has news. Neither method may block; what the news
// is stays in the feed, so that a watcher costs a cursor.
type Watcher interface {
	// Wake: Changes may give more.
	Wake()
	// WakeHeads: Heads may give more.
	WakeHeads()
}

// A Feed knows the sessions of a workspace as clients see them, in the order in
// which they changed last: state, not a log. Safe for concurrent use.
type Feed struct {
	records func(session string) *protocol.SessionRecord
	due     func(session string) bool // the policy is about to start it again; nil: none is

	mu       sync.Mutex
	rev      uint64                          // grows with every change
	sessions map[string]*shown               // bounded by the registry, which keeps a record of each too
	changes  *list.List                      // of *shown by rev, the newest last
	heads    *list.List                      // of those whose head moved after their last change, by headRev
	live     map[string]protocol.SessionInfo // the owners' last word, of running sessions only
	watchers map[Watcher]struct{}            // bounded by connections and protocol.WatchesMax
}

// shown is a session in a feed. Most are at rest: what is shown of them is made of
// the registry's record when somebody asks.
type shown struct {
	rec        *protocol.SessionRecord // the registry's
	live       *protocol.SessionInfo   // the owner's word, where that is shown
	restarting bool
	removed    bool
	rev        uint64        // of its last change but for head and counts
	headRev    uint64        // of its last change of those
	change     *list.Element // in Feed.changes
	head       *list.Element // in Feed.heads; nil unless a head moved since the last change
}

// info is what clients see of it.
func (s *shown) info() protocol.SessionInfo {
	switch {
	case s.removed:
		return protocol.SessionInfo{}
	case s.live != nil:
		return *s.live
	}
	info := s.rec.Info()
	info.Restarting = s.restarting
	return info
}

// A Change is the newest value of a session.
type Change struct {
	ID      string
	Removed bool
	Info    protocol.SessionInfo // unless Removed
}

// A FeedCursor is how far a watcher has read a Feed.
type FeedCursor struct{ changes, heads uint64 }

// Feed returns the feed of the principal's workspace.
func (b *Broker) Feed(p Principal) *Feed { return b.feed(p.Workspace) } // I-A1

func (b *Broker) feed(workspace string) *Feed {
	b.mu.Lock()
	defer b.mu.Unlock()
	f, ok := b.feeds[workspace]
	if !ok {
		f = newFeed(func(session string) *protocol.SessionRecord {
			return b.registry.record(protocol.Key{Workspace: workspace, Session: session})
		})
		f.due = func(session string) bool {
			rec := b.registry.record(protocol.Key{Workspace: workspace, Session: session})
			return rec != nil && b.due(rec)
		}
		b.feeds[workspace] = f
	}
	return f
}

func newFeed(records func(string) *protocol.SessionRecord) *Feed {
	return &Feed{
		records: records, sessions: make(map[string]*shown), changes: list.New(), heads: list.New(),
		live: make(map[string]protocol.SessionInfo), watchers: make(map[Watcher]struct{}),
	}
}

// announced takes an owner's word about a session of its own.
func (b *Broker) announced(data []byte) {
	var in protocol.LiveInfo
	if err := json.Unmarshal(data, &in); err != nil || !protocol.ValidSessionID(in.ID) {
		b.log.Warn("announcement not readable", slog.Int(protocol.LogBytes, len(data)), slog.Any(protocol.LogError, err))
		return
	}
	b.feed(in.Workspace).hear(in.SessionInfo)
}

// hear takes an owner's word about a session.
func (f *Feed) hear(info protocol.SessionInfo) {
	f.mu.Lock()
	if old, ok := f.live[info.ID]; ok && (old.Run > info.Run || old.Run == info.Run && old.Head > info.Head) {
		f.mu.Unlock()
		return // overtaken on the way
	}
	if rec := f.records(info.ID); rec == nil || !running(rec) || rec.Run > info.Run {
		f.mu.Unlock()
		return // its end is in the registry already
	}
	f.live[info.ID] = info
	f.lookAndWake(info.ID)
}

// look compares a session with what is shown of it.
func (f *Feed) look(session string) {
	f.mu.Lock()
	f.lookAndWake(session)
}

// lookAndWake is look for a caller that holds mu; it lets go of it.
func (f *Feed) lookAndWake(session string) {
	changed, head := f.update(session)
	var wake []Watcher
	if changed || head {
		wake = make([]Watcher, 0, len(f.watchers))
		for w := range f.watchers {
			wake = append(wake, w)
		}
	}
	f.mu.Unlock()
	for _, w := range wake {
		if changed {
			w.Wake()
		} else {
			w.WakeHeads()
		}
	}
}

// update reports what of a session differs from what is shown. Mu is held.
func (f *Feed) update(session string) (changed, head bool) {
	rec := f.records(session)
	if rec == nil || unborn(rec) {
		return false, false
	}
	if !running(rec) || rec.Deleting {
		delete(f.live, session)
	}
	now := shown{rec: rec, removed: rec.Deleting || rec.Deleted, restarting: f.due != nil && terminal(rec.Status) && f.due(session)}
	if live, ok := f.live[session]; ok && live.Run >= rec.Run {
		live.Floor = max(live.Floor, rec.Floor)
		now.live = &live
	}
	s, known := f.sessions[session]
	if !known {
		s = new(shown)
		s.change = f.changes.PushBack(s)
		f.sessions[rec.ID] = s // the record's string, which is kept anyway
	}
	if known && s.removed && now.removed {
		s.rec = rec
		return false, false
	}
	info := now.info()
	var old protocol.SessionInfo
	if known {
		old = s.info()
	}
	switch {
	case !known, s.removed != now.removed, !sameButHead(&old, &info):
		changed = true
		f.rev++
		s.rev = f.rev
		f.changes.MoveToBack(s.change)
		if s.head != nil {
			f.heads.Remove(s.head)
			s.head = nil
		}
	case old.Head != info.Head:
		head = true
		f.rev++
		s.headRev = f.rev
		if s.head != nil {
			f.heads.Remove(s.head)
		}
		s.head = f.heads.PushBack(s)
	}
	s.rec, s.live, s.restarting, s.removed = now.rec, now.live, now.restarting, now.removed
	return changed, head
}

// unborn reports whether a session's first start is still under way: if that
// fails, the session has never been.
func unborn(r *protocol.SessionRecord) bool {
	return r.Status == protocol.StatusStarting && r.Run == 1 && !r.Deleting && !r.Deleted
}

// sameButHead compares all that is told at once.
func sameButHead(x, y *protocol.SessionInfo) bool {
	a, b := *x, *y
	a.Head, a.EventCount, a.UpdatedAt = b.Head, b.EventCount, b.UpdatedAt
	return reflect.DeepEqual(a, b)
}

// Add registers w and returns where the feed is now.
func (f *Feed) Add(w Watcher) FeedCursor {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watchers[w] = struct{}{}
	return FeedCursor{changes: f.rev, heads: f.rev}
}

// Remove ends what Add began; a call that is under way may still come.
func (f *Feed) Remove(w Watcher) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.watchers, w)
}

func (f *Feed) watched() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.watchers) > 0
}

// Changes returns up to limit sessions that changed after the cursor, the oldest
// change first, and moves the cursor past them; more says that there are others.
func (f *Feed) Changes(c *FeedCursor, limit int) (out []Change, more bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return collect(f.changes, &c.changes, limit, func(s *shown) uint64 { return s.rev })
}

// Heads is Changes for the sessions of which only head and counts changed.
func (f *Feed) Heads(c *FeedCursor, limit int) (out []Change, more bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return collect(f.heads, &c.heads, limit, func(s *shown) uint64 { return s.headRev })
}

// collect takes from l, which is ordered by rev, what lies beyond the cursor.
func collect(l *list.List, cursor *uint64, limit int, rev func(*shown) uint64) (out []Change, more bool) {
	e := l.Back()
	for e != nil && rev(e.Value.(*shown)) > *cursor {
		e = e.Prev()
	}
	if e == nil {
		e = l.Front()
	} else {
		e = e.Next()
	}
	for ; e != nil; e = e.Next() {
		s := e.Value.(*shown) //nolint:forcetypeassert // nothing else is in the lists
		if len(out) == limit {
			return out, true
		}
		*cursor = rev(s)
		out = append(out, Change{ID: s.rec.ID, Removed: s.removed, Info: s.info()})
	}
	return out, false
}
