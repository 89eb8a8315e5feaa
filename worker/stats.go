package worker

import (
	"maps"
	"sync"
	"sync/atomic"

	"rejoin/protocol"
)

// counters are what a Worker counts.
type counters struct {
	started, killed, failed atomic.Uint64
	outOfMemory             atomic.Uint64

	mu      sync.Mutex
	limited map[string]uint64 // by name of the limit; the limits are named in the code
}

// met counts that a child met a limit.
func (c *counters) met(limit string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.limited == nil {
		c.limited = make(map[string]uint64)
	}
	c.limited[limit]++
}

// Stats is what a Worker has counted since it was made, and what it has now.
type Stats struct {
	Live    map[string]int // sessions with a child, by status: starting, idle, busy, waiting
	Started uint64         // children
	Killed  uint64         // of those, that had to be killed with what they left behind
	Frozen  int            // of those, that are stopped until the worker is heard again
	Failed  uint64         // programs that could not be started

	OutOfMemory uint64            // runs that ended at their control group's limit of memory
	Limited     map[string]uint64 // what of children met a limit, by its name
}

// Stats counts. Safe for concurrent use.
func (w *Worker) Stats() Stats {
	st := Stats{
		Live:    map[string]int{"starting": 0, "idle": 0, "busy": 0, "waiting": 0},
		Started: w.counters.started.Load(), Killed: w.counters.killed.Load(), Failed: w.counters.failed.Load(),
		OutOfMemory: w.counters.outOfMemory.Load(), Limited: make(map[string]uint64),
	}
	w.counters.mu.Lock()
	maps.Copy(st.Limited, w.counters.limited)
	w.counters.mu.Unlock()
	for _, s := range w.list() {
		if s.frozen() {
			st.Frozen++
		}
		if status := s.info().Status; status != protocol.StatusEnded && status != protocol.StatusInterrupted {
			st.Live[string(status)]++
		}
	}
	return st
}
