package worker

import (
	"log/slog"
	"sync"
	"syscall"
	"time"

	"rejoin/protocol"
)

// frost is the processes of a run that are stopped, because the run may go on
// elsewhere.
type frost struct {
	mu   sync.Mutex       // held while processes are stopped: the ladder, which reaps the leader, waits for it
	over bool             // the ladder has begun: nothing is stopped any more
	held map[int]*process // who was stopped, the leader too; nil: nobody
	tree *tree            // that held is of
	runs bool             // at the last look somebody did not stop
}

// freeze stops the child and everything that belongs to it, by SIGSTOP. Who was
// stopped before is left alone, now and later. A child that is being ended has no
// more time for it. Again, it looks once whether somebody runs all the same: who did
// not stop the first time, or was let go on by others.
func (s *session) freeze() {
	s.mu.Lock()
	phase := s.phase
	s.mu.Unlock()
	switch phase {
	case phaseStopping:
		s.stops.ask(endStopped, fenceGrace)
		return
	case phaseStarting, phaseEnded, phaseLost:
		return
	case phaseLive:
	}
	s.frost.mu.Lock()
	defer s.frost.mu.Unlock()
	f := &s.frost
	if f.over {
		return
	}
	if f.held != nil {
		ran := f.runs
		f.runs = !f.tree.stop(f.held, time.Now())
		switch {
		case f.runs && !ran:
			s.log.Warn("processes of a stopped session run", slog.Int(protocol.LogPID, s.child.pid))
		case ran && !f.runs:
			s.log.Info("all processes of the session are stopped", slog.Int("processes", len(f.held)))
		}
		return
	}
	f.held, f.tree = make(map[int]*process), s.newTree()
	f.runs = !f.tree.stop(f.held, time.Now().Add(sweepMax))
	s.log.Warn("session is stopped until its worker is heard again", slog.Int("processes", len(f.held)))
	if f.runs {
		s.log.Error("processes of the session do not stop", slog.Int(protocol.LogPID, s.child.pid))
	}
}

// frozen reports whether the session's processes are stopped.
func (s *session) frozen() bool {
	s.frost.mu.Lock()
	defer s.frost.mu.Unlock()
	return s.frost.held != nil
}

// thaw lets the processes go on that freeze stopped.
func (s *session) thaw() {
	s.frost.mu.Lock()
	defer s.frost.mu.Unlock()
	if s.frost.held != nil {
		s.log.Info("session goes on")
	}
	s.thawLocked()
}

// thawLocked is thaw with frost.mu held. The leader is last: what waits for its
// children finds them as they were.
func (s *session) thawLocked() {
	for pid, p := range s.frost.held {
		if pid != s.child.pid {
			s.goOn(p)
		}
	}
	if p := s.frost.held[s.child.pid]; p != nil {
		s.goOn(p)
	}
	s.frost.held, s.frost.tree = nil, nil
}

func (s *session) goOn(p *process) {
	if err := signalProcess(p, syscall.SIGCONT); err != nil {
		s.log.Warn("process does not go on", slog.Int(protocol.LogPID, p.pid), slog.Any(protocol.LogError, err))
	}
}

// endFrost is the end of stopping: from now on the ladder has the processes. They go
// on, but for those of a run that another owner has: they stay as they are until they
// are killed, which it reports.
func (s *session) endFrost() (staysStopped bool) {
	_, why, _, _ := s.stops.times()
	s.frost.mu.Lock()
	defer s.frost.mu.Unlock()
	s.frost.over = true
	if s.frost.held == nil {
		return false
	}
	if why == endFenced {
		return true
	}
	s.thawLocked()
	return false
}

// stop sends STOP to the leader and every member until a look finds none that runs,
// and adds to held whom it stopped. It reports false when the deadline came first.
func (t *tree) stop(held map[int]*process, deadline time.Time) (all bool) {
	for {
		restless := false
		for _, p := range t.everybody() {
			if p.stopped || p.waits && held[p.pid] != nil { // one that waits in the kernel stops before it is back
				continue
			}
			restless = true
			held[p.pid] = p
			if err := signalProcess(p, syscall.SIGSTOP); err != nil {
				t.log.Warn("stop a process", slog.Int(protocol.LogPID, p.pid), slog.Any(protocol.LogError, err))
			}
		}
		if !restless {
			return true
		}
		wait := min(sweepEvery, time.Until(deadline))
		if wait <= 0 {
			return false
		}
		again := time.NewTimer(wait)
		<-again.C
	}
}

// everybody is the living members of a look, and the leader.
func (t *tree) everybody() []*process {
	t.look()
	out := make([]*process, 0, len(t.known)+1)
	if p, ok := readStat(t.leader.pid); ok && !p.dead && p.start == t.leader.start {
		out = append(out, p)
	}
	for _, p := range t.known {
		out = append(out, p)
	}
	return out
}
