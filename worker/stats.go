package worker

import (
	"sync/atomic"

	"rejoin/protocol"
)

// counters are what a Worker counts.
type counters struct {
	started, killed, failed atomic.Uint64
}

// Stats is what a Worker has counted since it was made, and what it has now.
type Stats struct {
	Live    map[string]int // sessions with a child, by status: starting, idle, busy, waiting
	Started uint64         // children
	Killed  uint64         // of those, that had to be killed with what they left behind
	Failed  uint64         // starts that came to nothing
}

// Stats counts. Safe for concurrent use.
func (w *Worker) Stats() Stats {
	st := Stats{
		Live:    map[string]int{"starting": 0, "idle": 0, "busy": 0, "waiting": 0},
		Started: w.counters.started.Load(), Killed: w.counters.killed.Load(), Failed: w.counters.failed.Load(),
	}
	w.mu.Lock()
	sessions := make([]*session, 0, len(w.sessions))
	for _, s := range w.sessions {
		sessions = append(sessions, s)
	}
	w.mu.Unlock()
	for _, s := range sessions {
		if status := s.info().Status; status != protocol.StatusEnded && status != protocol.StatusInterrupted {
			st.Live[string(status)]++
		}
	}
	return st
}
