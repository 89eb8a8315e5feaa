package worker

import (
	"log/slog"
	"sync"
	"syscall"
	"time"

	"rejoin/protocol"
)

// Times of the kill ladder.
const (
	termAfterMax = time.Second     // TERM comes at min(termAfterMax, grace/4) after stdin was closed
	fenceGrace   = time.Second     // of a session that another owner has
	orphanGrace  = 2 * time.Second // descendants, from TERM to KILL, after the leader's exit
	sweepMax     = 2 * time.Second // KILL is repeated until all are dead, or so long: what then lives cannot be killed
	sweepEvery   = 20 * time.Millisecond
	drainKilled  = time.Second     // stdout is read that long after the last KILL
	drainExited  = 5 * time.Second // and that long after the leader's exit
	stderrLinger = 500 * time.Millisecond
)

// endWhy says who ended a run: whoever asked first, but a lost log overrules, and
// somebody's stop the end that the policy brings the session back after.
type endWhy uint8

const (
	endExited     endWhy = iota // the child by itself
	endStopped                  // stop_session, delete_session
	endServerStop               // the worker's own end, or a move to another one
	endFenced                   // another owner, or a journal that failed
)

// ending is how a run ended.
type ending struct {
	why        endWhy
	code       *int
	signal     *string
	detail     string    // what more is known of it
	gone       bool      // every process that is known to belong to the child is dead
	drainUntil time.Time // stdout is read until then
}

func (e ending) reason() string {
	if e.why == endExited {
		return protocol.EndExited
	}
	return protocol.EndStopped
}

// stops is what has been asked of a run's ladder: concurrent stops share it, the
// nearest times win. Safe for concurrent use.
type stops struct {
	mu     sync.Mutex
	why    endWhy
	asked  bool
	termAt time.Time
	killAt time.Time
	wake   chan struct{} // capacity one: a second token says nothing new
}

func (s *stops) ask(why endWhy, grace time.Duration) {
	now := time.Now()
	termAt, killAt := now.Add(min(termAfterMax, grace/4)), now.Add(grace)
	s.mu.Lock()
	if !s.asked || termAt.Before(s.termAt) {
		s.termAt = termAt
	}
	if !s.asked || killAt.Before(s.killAt) {
		s.killAt = killAt
	}
	if !s.asked || why == endFenced || why == endStopped && s.why == endServerStop {
		s.why = why
	}
	s.asked = true
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *stops) times() (asked bool, why endWhy, termAt, killAt time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked, s.why, s.termAt, s.killAt
}

// requestStop starts the ladder, or shortens it. From now on no command is
// admitted. It never blocks.
func (s *session) requestStop(why endWhy, grace time.Duration) {
	s.mu.Lock()
	if s.phase == phaseLive {
		s.phase = phaseStopping
	}
	s.mu.Unlock()
	s.stops.ask(why, grace)
}

// ladder waits for the child's exit or for a stop, then sees to it that the
// child and all its descendants are dead. It never waits for the journal.
func (s *session) ladder() ending {
	c, tree := s.child, s.newTree()
	why := endExited
	exited := s.awaitExitOrStop()
	doomed := s.endFrost()
	if !exited {
		if !doomed {
			s.part()
			s.stdin.close()
			s.step(tree)
		}
		_, why, _, _ = s.stops.times()
	}
	tree.resign()
	var end ending
	if c.hasExited() && !doomed {
		end.gone = s.endDescendants(tree)
	}
	if !end.gone {
		s.w.counters.killed.Add(1)
		end.gone = tree.kill(time.Now().Add(sweepMax))
	}
	end.why = why
	end.drainUntil = c.exitTime().Add(drainExited)
	if k := tree.lastKill; !k.IsZero() && k.Add(drainKilled).Before(end.drainUntil) {
		end.drainUntil = k.Add(drainKilled)
	}
	end.code, end.signal = c.reap()
	if c.group != nil && c.group.OOMKills() > 0 {
		end.detail = protocol.DetailOOM
		s.w.counters.outOfMemory.Add(1)
	}
	if !end.gone {
		s.log.Error("processes of the session cannot be killed", slog.Int(protocol.LogPID, c.pid))
	}
	return end
}

// watchDeadlines closes questions that the agent has stopped to ask, until the
// child exits or a stop is asked for.
func (s *session) watchDeadlines() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-s.child.exited:
			return
		case <-s.stops.wake:
			return
		case <-s.expiry:
		case <-timer.C:
		}
		if left, ok := s.expire(); ok {
			timer.Reset(left)
		}
	}
}

// awaitExitOrStop reports whether the child exited by itself. Either way no
// command is admitted from here on.
func (s *session) awaitExitOrStop() (exited bool) {
	s.watchDeadlines()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase == phaseLive {
		s.phase = phaseStopping
	}
	return s.child.hasExited()
}

// step goes down the ladder of a stop until the leader has exited or the grace
// is over.
func (s *session) step(tree *tree) {
	tree.look() // descendants are known before anything that hides them dies
	termed := false
	for !s.child.hasExited() {
		_, _, termAt, killAt := s.stops.times()
		now := time.Now()
		next := killAt
		switch {
		case !now.Before(killAt):
			return
		case !termed && !now.Before(termAt):
			tree.signal(syscall.SIGTERM)
			termed = true
			continue
		case !termed && termAt.Before(killAt):
			next = termAt
		}
		limit := time.NewTimer(next.Sub(now))
		select {
		case <-s.child.exited:
		case <-s.stops.wake:
		case <-limit.C:
		}
		limit.Stop()
	}
}

// endDescendants asks what the leader left behind to end, and reports whether it
// did in time.
func (s *session) endDescendants(tree *tree) bool {
	if tree.look() == 0 {
		return true
	}
	tree.signal(syscall.SIGTERM)
	orphansUntil := time.Now().Add(orphanGrace)
	for {
		until := orphansUntil
		if asked, _, _, killAt := s.stops.times(); asked && killAt.Before(until) {
			until = killAt
		}
		if !time.Now().Before(until) {
			return false
		}
		limit := time.NewTimer(min(sweepEvery, time.Until(until)))
		select {
		case <-limit.C:
		case <-s.stops.wake: // killAt may be nearer now
		}
		limit.Stop()
		if tree.look() == 0 {
			return true
		}
	}
}
