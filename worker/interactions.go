package worker

import (
	"log/slog"
	"slices"
	"time"

	"rejoin/journal"
	"rejoin/protocol"
)

// noteDeadline remembers until when the agent waits for an answer, if e was its
// question. The monotonic clock decides, whatever is done to the wall clock. Mu is
// held; at most protocol.InteractionsMax are open.
func (s *session) noteDeadline(e *protocol.Event) {
	n := len(s.state.Pending)
	if n == 0 || s.state.Pending[n-1].Seq != e.Seq {
		return
	}
	i := &s.state.Pending[n-1]
	if i.Deadline == 0 {
		return
	}
	s.deadlines[i.InteractionID] = time.Now().Add(time.Duration(i.Deadline-e.TS) * time.Millisecond)
	select {
	case s.expiry <- struct{}{}:
	default: // the supervisor looks at all of them anyway
	}
}

// expire resolves what the agent waits for no longer, and returns how long it is
// until the next such moment; false: there is none.
func (s *session) expire() (time.Duration, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase != phaseLive || s.failed != nil {
		return 0, false
	}
	now := time.Now()
	var next time.Duration
	more := false
	for _, i := range slices.Clone(s.state.Pending) {
		at, ok := s.deadlines[i.InteractionID]
		if !ok {
			continue
		}
		if left := at.Sub(now); left > 0 {
			if !more || left < next {
				next, more = left, true
			}
			continue
		}
		s.resolve(i.InteractionID, protocol.InteractionExpired)
	}
	return next, more
}

// resolve records that nobody's answer ends an interaction. Mu is held.
func (s *session) resolve(id, outcome string) {
	delete(s.deadlines, id)
	body := protocol.InteractionResolved{
		Type: protocol.TypeInteraction, InteractionID: id, ResolvedBy: protocol.ClientRejoin, Outcome: outcome,
	}
	if _, err := s.addBroker(body, "", nil); err != nil {
		s.log.Warn("end of an interaction is not recorded", slog.Any(protocol.LogError, err))
	}
}

// partMax is how long the last words to a child may take to be durable and
// written before its stdin is closed all the same.
const partMax = 250 * time.Millisecond

// part cancels the child's open questions and interrupts it, before its stdin is
// closed. What is not durable and written within partMax, or by the time of TERM,
// is left out: stopping never waits for the journal.
func (s *session) part() {
	gone := s.sayLast()
	if gone == nil {
		return
	}
	_, _, termAt, _ := s.stops.times()
	limit := time.NewTimer(min(partMax, time.Until(termAt)))
	defer limit.Stop()
	select {
	case <-gone:
	case <-s.child.exited:
	case <-limit.C:
	}
}

// sayLast records and queues the driver's last inputs; the channel is closed when
// the child has got them. Nil: there are none.
func (s *session) sayLast() <-chan struct{} {
	_, why, _, _ := s.stops.times()
	s.mu.Lock()
	defer s.mu.Unlock()
	if why == endFenced || s.failed != nil || s.journal.Health().State == journal.HealthSick || s.stdin.broken() {
		return nil
	}
	effects := s.driver.Stop(s.state)
	if len(effects) == 0 {
		return nil
	}
	s.parting, s.gone = make(map[string]bool), make(chan struct{})
	for i := range effects {
		if in := effects[i].Input; in != nil {
			s.parting[in.ID] = true
			s.sayLocked(in)
		}
	}
	return s.gone
}

// parted notes what became of one of the last inputs. Mu is held.
func (s *session) parted(id string) {
	if !s.parting[id] {
		return
	}
	if delete(s.parting, id); len(s.parting) == 0 {
		close(s.gone)
	}
}

// interruptAll closes every question that the child leaves open. Mu is held.
func (s *session) interruptAll() {
	for _, i := range slices.Clone(s.state.Pending) {
		s.resolve(i.InteractionID, protocol.InteractionInterrupted)
	}
}
