package worker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"rejoin/journal"
	"rejoin/protocol"
)

// supervise is a live run from its first byte to its last record.
func (s *session) supervise(life context.Context) {
	out := s.newStdout(life)
	stdinDone := inBackground(s.stdin.run)
	stderrDone := inBackground(s.readStderr)
	outDone := inBackground(out.run)
	exitDone := inBackground(s.child.watch)

	end := s.ladder()
	s.stdin.close()
	<-stdinDone
	close(s.dead)
	s.drain(out, outDone, end)
	s.endStderr(stderrDone)
	s.releaseChild()
	<-exitDone
	s.stderr.close()
	s.record(end, out.truncated)
	s.leave(life)
}

// inBackground runs f and returns a channel that is closed after it.
func inBackground(f func()) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	return done
}

// drain reads stdout to its end, for as long as the ladder allows.
func (s *session) drain(out *stdout, done <-chan struct{}, end ending) {
	if end.gone {
		out.noWait() // what is left in the pipe is finite: it need not wait for the journal
	}
	limit := time.NewTimer(time.Until(end.drainUntil))
	defer limit.Stop()
	select {
	case <-done:
	case <-limit.C:
		out.cut()
		<-done
	}
}

// record appends what ends the run, in this order: what was cut off, the outcome
// of every open command, the end of every open question, the end itself. A fenced run writes nothing.
func (s *session) record(end ending, truncated bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.exit = &protocol.Exit{Code: end.code, Signal: end.signal, Reason: end.reason(), Detail: end.detail, StderrTail: s.stderr.tail(protocol.StderrExitBytes)}
	if s.failed != nil {
		s.phase = phaseLost
		return
	}
	if truncated {
		if _, err := s.add(protocol.SourceBroker, "", errorBody("output truncated"), nil); err != nil {
			s.log.Warn("truncation is not recorded", slog.Any(protocol.LogError, err))
		}
	}
	if end.why == endServerStop && s.rec.Restart == protocol.RestartResume {
		s.exit = nil
		s.endLocked(protocol.SessionInterrupted{Type: protocol.TypeSessionInterrupted, Reason: protocol.InterruptedStop})
		return
	}
	s.endLocked(protocol.SessionEnd{Type: protocol.TypeSessionEnd, Reason: end.reason(), ExitCode: end.code, Signal: end.signal, Detail: end.detail})
}

// endLocked settles every open command, closes every open question and appends
// the last event. Mu is held.
func (s *session) endLocked(last any) {
	for _, id := range s.ledger.Open() {
		known, _ := s.ledger.Lookup(id)
		switch {
		case known.Held: // and no release of it was recorded: nothing of it was written
			s.settleLocked(id, protocol.OutcomeDiscarded, nil)
		case s.inherited[id]: // an owner before this run took it; what came of it is not known
			s.settleLocked(id, protocol.OutcomeInterrupted, nil)
		case s.driver.Told(id):
			s.settleLocked(id, protocol.OutcomeInterrupted, nil)
		case s.stdin != nil && s.stdin.wasPartly(id):
			s.settleLocked(id, protocol.OutcomeInterrupted, resultError("written in part"))
		default:
			s.settleLocked(id, protocol.OutcomeFailed, resultError("not written"))
		}
	}
	s.interruptAll()
	if _, err := s.addBroker(last, "", nil); err != nil {
		s.log.Warn("end of the run is not recorded", slog.Any(protocol.LogError, err))
	}
	s.phase = phaseEnded
}

// leave waits until the last record is durable, tells the registry and takes the
// session out. While the journal is away it stays here, ended, up to the end of
// the worker's life.
func (s *session) leave(life context.Context) {
	s.mu.Lock()
	failed := s.failed
	s.mu.Unlock()
	if failed == nil {
		if err := s.journal.Flush(life); err != nil {
			s.log.Warn("last records are not durable", slog.Any(protocol.LogError, err))
		}
	}
	told := s.keeper.Floor()
	s.tellEnd(life)
	s.closeKeeper(life)
	if floor := s.keeper.Floor(); failed == nil && floor > told { // the last checkpoint let more of the log go
		s.tell(life, func(r *protocol.SessionRecord) { r.Floor = max(r.Floor, floor) })
	}
	s.closeJournal(life, s.journal)
	s.w.forget(s)
	s.log.Info("session has left")
}

// tellEnd brings the end of the run into the registry, unless it is another
// owner's business by now.
func (s *session) tellEnd(life context.Context) {
	s.mu.Lock()
	failed, exit, status := s.failed, s.exit, s.state.Status
	head := s.journal.Durable()
	durable := head == s.journal.Head()
	s.mu.Unlock()
	switch {
	case errors.Is(failed, journal.ErrFenced):
		return
	case failed != nil: // ours still, but its log takes no more
		status, exit = protocol.StatusInterrupted, nil
	case !durable:
		return // the next start finds the session live in the registry and settles it
	}
	s.tell(life, func(r *protocol.SessionRecord) {
		r.Status, r.Exit, r.Head = status, exit, head
		r.Floor = max(r.Floor, s.keeper.Floor())
		r.Owner, r.PID, r.PIDStart, r.BootID = "", 0, 0, ""
		r.UpdatedAt = s.w.cfg.Now().UnixMilli()
	})
}

// tell updates the registry, again and again until it worked, the run is not the
// newest any more or life ends; an error that is not the journal's absence ends it
// after registryGiveUp.
func (s *session) tell(life context.Context, change func(*protocol.SessionRecord)) {
	giveUp := time.Now().Add(registryGiveUp)
	pause, warned := registryPause, false
	for {
		ctx, cancel := context.WithTimeout(life, registryTry)
		err := s.w.reg.Update(ctx, s.key, s.rec.Run, change)
		cancel()
		switch {
		case err == nil, errors.Is(err, journal.ErrFenced):
			return
		case life.Err() != nil || !away(err) && time.Now().After(giveUp):
			s.log.Error("registry does not take the end of the run", slog.Any(protocol.LogError, err))
			return
		}
		if !warned {
			warned = true
			s.log.Warn("registry update is retried", slog.Any(protocol.LogError, err))
		}
		wait := time.NewTimer(pause)
		select {
		case <-wait.C:
		case <-life.Done():
			wait.Stop()
		}
		pause = min(2*pause, registryTry)
	}
}

// away reports that the journal did not answer.
func away(err error) bool {
	return errors.Is(err, journal.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
}

// closeKeeper takes the exit's checkpoint.
func (s *session) closeKeeper(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, recordWait)
	defer cancel()
	if err := s.keeper.Close(ctx); err != nil {
		s.log.Warn("last checkpoint is not taken", slog.Any(protocol.LogError, err))
	}
}

func (s *session) closeJournal(ctx context.Context, j appender) {
	ctx, cancel := context.WithTimeout(ctx, recordWait)
	defer cancel()
	if err := j.Close(ctx); err != nil && !errors.Is(err, journal.ErrClosed) && !errors.Is(err, journal.ErrFenced) {
		s.log.Warn("close the journal writer", slog.Any(protocol.LogError, err))
	}
}
