package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"rejoin/journal"
	"rejoin/protocol"
	"rejoin/snapshot"
)

// launch starts or resumes a session and returns when its first record and its
// registry entry are durable. The same run again gives the same session. When it
// fails nothing is left here, and no child.
func (w *Worker) launch(t tenure, rec *protocol.SessionRecord, resume bool) (*session, error) {
	adapter := w.cfg.Adapters[rec.Adapter]
	if adapter == nil {
		return nil, protocol.Errorf(protocol.ReasonInvalidParams, "unknown adapter %s", rec.Adapter)
	}
	ctx, cancel := context.WithTimeout(t.ops, startMax)
	defer cancel()
	s, mine, err := w.claim(ctx, w.newSession(rec, adapter))
	if err != nil {
		return nil, err
	}
	if !mine {
		return s, s.awaitReady(ctx)
	}
	if resume {
		err = s.resume(ctx)
	} else {
		err = s.start(ctx)
	}
	if err != nil {
		s.abandon(t, err)
		return nil, err
	}
	w.wg.Go(func() { s.supervise(t.life) })
	return s, nil
}

// awaitReady waits for a start that another request has begun.
func (s *session) awaitReady(ctx context.Context) error {
	select {
	case <-s.ready:
	case <-ctx.Done():
		return ctx.Err()
	}
	if s.lost() {
		return ErrNotOwner
	}
	return nil
}

// start spawns first: the id has no rival, and a program that cannot start
// leaves nothing behind.
func (s *session) start(ctx context.Context) error {
	if err := s.spawn(ctx, s.rec.Argv); err != nil {
		return err
	}
	first := func(_ context.Context, t journal.Tail, base protocol.Seq) ([]*protocol.Event, error) {
		if !t.Empty {
			return nil, protocol.Errorf(protocol.ReasonConflict, "session id %s was used before", s.key.Session)
		}
		return s.firstEvents(&snapshot.History{State: snapshot.New(s.rec.ID), Ledger: snapshot.NewLedger()}, s.rec.Epoch, base, protocol.SessionStart{
			Type: protocol.TypeSessionStart, Agent: s.rec.Agent, Adapter: s.rec.Adapter, PID: s.child.pid, Run: s.rec.Run, Title: s.rec.Title,
		}), nil
	}
	if err := s.open(ctx, s.rec.Epoch, first); err != nil {
		return err
	}
	return s.goLive(ctx)
}

// resume takes the log over first: its record is acknowledged before the child
// exists, so that two owners never have one each.
func (s *session) resume(ctx context.Context) error {
	first := func(ctx context.Context, t journal.Tail, base protocol.Seq) ([]*protocol.Event, error) {
		if t.Empty || base != t.Head+1 {
			return nil, fmt.Errorf("log of %s ends at %d, the registry knows %d: %w", s.key, t.Head, s.rec.Head, journal.ErrDamaged)
		}
		h, err := s.w.places.load(ctx, s.at(), t.Head)
		if err != nil {
			return nil, fmt.Errorf("load history: %w", err)
		}
		var bodies []any
		if upgraded, ok := s.w.places.upgrade(h); ok {
			bodies = append(bodies, upgraded)
		}
		bodies = append(bodies, protocol.SessionResumed{Type: protocol.TypeSessionResumed, Run: s.rec.Run})
		if h.Lost { // whoever reads the log later finds a state that its events do not add up to
			bodies = append(bodies, json.RawMessage(errorBody("history damaged: the state is what could be read, command ids may be unknown")))
		}
		return s.firstEvents(h, t.Epoch, base, bodies...), nil
	}
	if err := s.open(ctx, "", first); err != nil {
		return err
	}
	argv := s.rec.ResumeArgv
	if len(argv) == 0 {
		argv = s.rec.Argv
	}
	if err := s.spawn(ctx, argv); err != nil {
		return err
	}
	return s.goLive(ctx)
}

// firstEvents makes the record that begins the run and the state after it. The
// journal may ask more than once; the last answer counts.
func (s *session) firstEvents(h *snapshot.History, epoch protocol.Epoch, base protocol.Seq, bodies ...any) []*protocol.Event {
	now := s.w.cfg.Now().UnixMilli()
	events := make([]*protocol.Event, 0, len(bodies))
	for i, body := range bodies {
		e := &protocol.Event{
			Seq: base + protocol.Seq(i), TS: now, Run: s.rec.Run, Source: protocol.SourceBroker, Body: encodeBody(body),
		}
		snapshot.Apply(s.adapter, h.State, epoch, e)
		events = append(events, e)
	}
	inherited := make(map[string]bool)
	for _, id := range h.Ledger.Open() {
		inherited[id] = true
	}
	s.mu.Lock()
	s.state, s.ledger, s.inherited, s.updatedAt, s.logged = h.State, h.Ledger, inherited, now, h.Bytes
	s.mu.Unlock()
	return events
}

// open takes the session's log over.
func (s *session) open(
	ctx context.Context, epoch protocol.Epoch, first func(context.Context, journal.Tail, protocol.Seq) ([]*protocol.Event, error),
) error {
	j, err := s.w.places.open(ctx, journal.WriterConfig{
		Log: s.at(), Run: s.rec.Run, Epoch: epoch, MinHead: s.rec.Head, First: first,
		Deleted: func(ctx context.Context) (bool, error) { return s.w.reg.Deleted(ctx, s.key) },
		Repair:  func(ctx context.Context) error { return s.w.reg.Confirm(ctx, s.key, s.rec.Run) },
		Failed:  s.writerFailed,
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.journal = j
	s.keeper = s.w.places.keep(s.at(), j, s.adapter, s.logged)
	return nil
}

// spawn starts the program with the session's environment.
func (s *session) spawn(ctx context.Context, argv []string) error {
	c, err := s.fork(ctx, argv)
	if err != nil {
		s.w.counters.failed.Add(1)
		return err
	}
	s.w.counters.started.Add(1)
	s.mu.Lock()
	s.child = c
	s.mu.Unlock()
	s.stdin = newStdin(c.stdin, s)
	s.stderr = newStderrTail(s.w.cfg.DataDir, s.key, s.rec.Run, s.log)
	s.stderr.seal = s.w.cfg.StderrSeal
	return nil
}

// fork is spawn up to the child's first moment.
func (s *session) fork(ctx context.Context, argv []string) (*child, error) {
	if len(argv) > 0 {
		if err := checkDirectory(argv[0], s.rec.Cwd); err != nil {
			return nil, err
		}
	}
	own, err := makePrivate(s.w.cfg.DataDir, &s.rec)
	if err != nil {
		return nil, fmt.Errorf("make private directories: %w", err)
	}
	env := childEnv(&s.rec, own, s.w.places.instance)
	path, err := lookPath(argv, env, s.rec.Cwd)
	if err != nil {
		return nil, err
	}
	group, err := s.w.cfg.Containment.group(&s.rec, s.log)
	if err != nil {
		return nil, err
	}
	c, err := s.w.forker.spawn(ctx, path, argv, env, s.rec.Cwd, group)
	if err != nil {
		s.dropGroup(group)
		return nil, startError(argv[0], path, s.rec.Cwd, err)
	}
	return c, nil
}

// dropGroup removes the control group of a child that did not start.
func (s *session) dropGroup(g group) {
	if g == nil {
		return
	}
	if err := g.Remove(); err != nil {
		s.log.Warn("control group is not removed", slog.Any(protocol.LogError, err))
	}
}

// releaseChild gives back what the run's process had.
func (s *session) releaseChild() {
	if err := s.child.release(); err != nil {
		s.log.Warn("control group is not removed", slog.Any(protocol.LogError, err))
	}
}

// goLive tells the registry whose process it is, before the first byte of input
// can reach it, and opens the session for commands.
func (s *session) goLive(ctx context.Context) error {
	s.mu.Lock()
	status, epoch, head := s.state.Status, s.journal.Epoch(), s.journal.Durable()
	s.mu.Unlock()
	err := s.w.reg.Update(ctx, s.key, s.rec.Run, func(r *protocol.SessionRecord) {
		r.Owner, r.Host = s.w.owner, s.w.cfg.ID
		r.Status, r.Epoch, r.Head, r.Floor = status, epoch, head, max(r.Floor, 1)
		r.PID, r.PIDStart, r.BootID = s.child.pid, s.child.start, s.w.places.bootID
		r.Exit, r.Settled = nil, false
		r.UpdatedAt = s.w.cfg.Now().UnixMilli()
	})
	if err != nil {
		return fmt.Errorf("tell the registry: %w", err)
	}
	s.mu.Lock()
	s.phase = phaseLive
	if asked, _, _, _ := s.stops.times(); asked {
		s.phase = phaseStopping
	}
	s.perform(s.driver.Start(s.state))
	s.mu.Unlock()
	close(s.ready)
	s.log.Info("session is live", slog.Int(protocol.LogPID, s.child.pid))
	return nil
}

// abandon undoes a start: no child, no open run, no session here.
func (s *session) abandon(t tenure, why error) {
	s.mu.Lock()
	j, c := s.journal, s.child
	s.mu.Unlock()
	if c != nil {
		s.stdin.close()
		tree := s.newTree()
		tree.resign()
		tree.kill(time.Now().Add(sweepMax))
		s.releaseChild()
		s.stderr.close()
	}
	if j != nil {
		if !errors.Is(why, journal.ErrFenced) {
			s.endUnborn(t)
		}
		s.closeKeeper(t.life)
		s.closeJournal(t.life, j)
	}
	s.mu.Lock()
	s.phase = phaseLost
	s.mu.Unlock()
	close(s.ready)
	close(s.dead)
	s.w.forget(s)
}

// endUnborn ends a run that has its first record but never went live.
func (s *session) endUnborn(t tenure) {
	s.mu.Lock()
	s.exit = &protocol.Exit{Reason: protocol.EndLost}
	if s.failed == nil {
		s.endLocked(protocol.SessionEnd{Type: protocol.TypeSessionEnd, Reason: protocol.EndLost})
	}
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.life, recordWait)
	defer cancel()
	if err := s.journal.Flush(ctx); err != nil {
		s.log.Warn("end of a run that did not begin is not durable", slog.Any(protocol.LogError, err))
	}
	if s.rec.Run > 1 {
		s.tellEnd(ctx)
	}
}
