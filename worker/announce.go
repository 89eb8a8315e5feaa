package worker

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"rejoin/protocol"
)

// headsEvery is how often a session whose head alone has moved is announced.
const headsEvery = time.Second

// announcer tells whoever listens on protocol.ChangesSubject how sessions are: at
// once when status or title change, else when the head or what blocks it has
// changed, once in headsEvery. What the registry holds (pid, run, exit) is not its business.
// Announcements may be lost.
type announcer struct {
	wake chan struct{} // capacity one: a second poke says nothing more

	mu     sync.Mutex
	urgent map[*session]struct{} // at most Config.SessionsMax, and those that have just ended
}

func newAnnouncer() *announcer {
	return &announcer{wake: make(chan struct{}, 1), urgent: make(map[*session]struct{})}
}

// told is what was last announced of a session; guarded by session.mu.
type told struct {
	status  protocol.Status
	title   string
	head    protocol.Seq
	blocked string
}

// look has s announced if it changed in a way that is told at once. S.mu is held.
func (a *announcer) look(s *session) {
	if s.told.status == s.state.Status && s.told.title == s.state.Title {
		return
	}
	s.told.status, s.told.title = s.state.Status, s.state.Title
	a.mu.Lock()
	a.urgent[s] = struct{}{}
	a.mu.Unlock()
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// take returns who is to be announced at once.
func (a *announcer) take() map[*session]struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := a.urgent
	a.urgent = make(map[*session]struct{})
	return out
}

// announce tells about the worker's sessions until ctx ends.
func (w *Worker) announce(ctx context.Context) {
	tick := time.NewTicker(headsEvery)
	defer tick.Stop()
	for {
		select {
		case <-w.announcer.wake:
			for s := range w.announcer.take() {
				w.tellAll(s)
			}
		case <-tick.C:
			for _, s := range w.moved() {
				w.tellAll(s)
			}
		case <-ctx.Done():
			return
		}
	}
}

// moved returns the sessions whose durable head, or whose block, is not the one last told.
func (w *Worker) moved() []*session {
	list := w.list()
	out := list[:0]
	for _, s := range list {
		s.mu.Lock()
		if s.journal != nil && (s.journal.Durable() != s.told.head || s.blocked() != s.told.blocked) {
			out = append(out, s)
		}
		s.mu.Unlock()
	}
	return out
}

// tellAll announces a session.
func (w *Worker) tellAll(s *session) {
	if !s.begun() {
		return
	}
	info := s.info()
	s.mu.Lock()
	s.told.head, s.told.blocked = info.Head, info.Blocked
	s.mu.Unlock()
	data, err := json.Marshal(protocol.LiveInfo{Workspace: s.key.Workspace, SessionInfo: info})
	if err == nil {
		err = w.bus.Publish(protocol.ChangesSubject(s.key), data)
	}
	if err != nil {
		s.log.Debug("session not announced", slog.Any(protocol.LogError, err))
	}
}
