package broker

import (
	"sync"
	"sync/atomic"
	"time"

	"rejoin/protocol"
)

// restartDelays are the pauses before the restarts inside one window.
var restartDelays = [protocol.RestartsPerWindowMax]time.Duration{time.Second, 5 * time.Second, 30 * time.Second}

// restarts decides whether and when the policy starts a session again: at most
// RestartsPerWindowMax times in RestartWindow. A session it has planned is
// wanted until it runs, or until somebody stops or deletes it.
type restarts struct {
	refused atomic.Uint64 // plans for which the window had no room
	agenda  *agenda

	mu     sync.Mutex
	tries  map[protocol.Key][]time.Time  // planned restarts inside the window, oldest first
	wanted map[protocol.Key]bool         // planned, and neither carried out nor called off
	after  map[protocol.Key]protocol.Run // of planRun: the run that the wanted one is to follow
	trying map[protocol.Key]bool         // being carried out; at most restartParallel
}

func newRestarts(now func() time.Time) *restarts {
	return &restarts{
		agenda: newAgenda(now), tries: make(map[protocol.Key][]time.Time), wanted: make(map[protocol.Key]bool),
		trying: make(map[protocol.Key]bool), after: make(map[protocol.Key]protocol.Run),
	}
}

// plan makes the next restart of k, after the pause that is due to it, or at
// once; false when the window has had its share.
func (r *restarts) plan(k protocol.Key, atOnce bool) bool {
	now := r.agenda.now()
	r.mu.Lock()
	if r.wanted[k] {
		r.mu.Unlock()
		return true
	}
	r.forget(now)
	n := len(r.tries[k])
	if n >= len(restartDelays) {
		r.mu.Unlock()
		r.refused.Add(1)
		return false
	}
	at := now
	if !atOnce {
		at = now.Add(restartDelays[n])
	}
	r.tries[k] = append(r.tries[k], at)
	r.wanted[k] = true
	r.mu.Unlock()
	r.agenda.set(k, at)
	return true
}

// room reports whether the window has a restart of k left.
func (r *restarts) room(k protocol.Key) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(r.agenda.now())
	return len(r.tries[k]) < len(restartDelays)
}

// again moves a planned restart that could not even be tried.
func (r *restarts) again(k protocol.Key, after time.Duration) {
	if r.scheduled(k) {
		r.agenda.set(k, r.agenda.now().Add(after))
	}
}

// done ends the plan for k: it was carried out, or called off.
func (r *restarts) done(k protocol.Key) {
	r.mu.Lock()
	delete(r.wanted, k)
	delete(r.after, k)
	r.mu.Unlock()
	r.agenda.cancel(k)
}

// planRun plans the run of k that follows run, after a pause; a plan for an earlier
// one is forgotten. Whether the window has room is the caller's to know.
func (r *restarts) planRun(k protocol.Key, run protocol.Run, pause time.Duration) {
	r.mu.Lock()
	known := r.wanted[k] && r.after[k] == run
	r.wanted[k], r.after[k] = true, run
	r.mu.Unlock()
	if !known {
		r.agenda.set(k, r.agenda.now().Add(pause))
	}
}

// planned returns the run that the planned one of k is to follow.
func (r *restarts) planned(k protocol.Key) (protocol.Run, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	run, ok := r.after[k]
	return run, ok && r.wanted[k]
}

// try ends the plan for k because it is carried out now, until tried.
func (r *restarts) try(k protocol.Key) {
	r.mu.Lock()
	r.trying[k] = true
	r.mu.Unlock()
	r.done(k)
}

// tried ends what try began.
func (r *restarts) tried(k protocol.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.trying, k)
}

// due reports whether k is about to be started again, or is being started.
func (r *restarts) due(k protocol.Key) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.wanted[k] || r.trying[k]
}

// scheduled reports whether k is going to be started again.
func (r *restarts) scheduled(k protocol.Key) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.wanted[k]
}

// forget drops what is older than the window.
func (r *restarts) forget(now time.Time) {
	for k, times := range r.tries {
		for len(times) > 0 && now.Sub(times[0]) >= protocol.RestartWindow {
			times = times[1:]
		}
		if len(times) == 0 {
			delete(r.tries, k)
			continue
		}
		r.tries[k] = times
	}
}
