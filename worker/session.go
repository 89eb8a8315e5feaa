package worker

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"rejoin/agent"
	"rejoin/journal"
	"rejoin/protocol"
	"rejoin/snapshot"
)

// phase is how far a session's run has come.
type phase uint8

const (
	phaseStarting phase = iota // no child, or none that may be written to
	phaseLive
	phaseStopping // the ladder has begun: no command is admitted
	phaseEnded    // its last record is in the journal's hands
	phaseLost     // the start failed, or another owner has it: it is not here
)

// session is one run of a session on its owner: the actor.
type session struct {
	w       *Worker
	key     protocol.Key
	rec     protocol.SessionRecord // as granted; never changes
	adapter agent.Adapter
	log     *slog.Logger
	child   *child // set before ready
	stdin   *stdin // set before ready
	stderr  *stderrTail

	ready chan struct{} // closed when the start is over, well or not
	dead  chan struct{} // closed when the child and its descendants are dead
	done  chan struct{} // closed when nothing of the run is left here

	stops  stops
	frost  frost
	expiry chan struct{} // capacity one: a deadline is new; a second token says nothing more

	// mu makes admission, fold and append one step. Nothing waits under it.
	mu        sync.Mutex
	phase     phase
	journal   appender
	state     *protocol.State
	ledger    *snapshot.Ledger
	inherited map[string]bool // commands that earlier runs left without outcome
	driver    agent.Driver
	held      map[string]inputLine // of the driver's held commands; within the bounds of stdin
	deadlines map[string]time.Time // of open interactions that have one
	parting   map[string]bool      // last inputs that the child has not got yet
	gone      chan struct{}        // closed when it has; nil before the ladder
	keeper    *snapshot.Keeper     // nil: no checkpoints are taken
	logged    uint64               // bytes of the log that the run continues
	inflight  map[string]*admitted // commands whose record is not durable yet; bounded by the stdin queue
	updatedAt int64
	told      told
	exit      *protocol.Exit
	failed    error // why the writer can write no more
	ev        protocol.Event
}

func (w *Worker) newSession(rec *protocol.SessionRecord, adapter agent.Adapter) *session {
	s := &session{
		w: w, key: rec.Key(), rec: *rec, adapter: adapter,
		log:   w.log.With(slog.String(protocol.LogSession, rec.Key().String()), slog.Uint64(protocol.LogRun, uint64(rec.Run))),
		ready: make(chan struct{}), dead: make(chan struct{}), done: make(chan struct{}),
		state: snapshot.New(rec.ID), ledger: snapshot.NewLedger(), inflight: make(map[string]*admitted),
		updatedAt: rec.UpdatedAt, driver: adapter.Drive(rec.Run), held: make(map[string]inputLine),
		deadlines: make(map[string]time.Time), expiry: make(chan struct{}, 1),
	}
	s.stops.wake = make(chan struct{}, 1)
	return s
}

// at is where the session's records are.
func (s *session) at() journal.Log { return journal.Log{Key: s.key, Shard: s.rec.Shard} }

// add folds an event and hands it to the journal, which gives it the seq that
// the fold saw. Mu is held. An error means that the writer has failed: the run
// is over.
func (s *session) add(source protocol.Source, command string, body []byte, then func(error)) (protocol.Seq, error) {
	s.ev = protocol.Event{
		Seq: s.journal.Head() + 1, TS: s.w.cfg.Now().UnixMilli(), Run: s.rec.Run, Source: source, CommandID: command, Body: body,
	}
	s.fold(&s.ev)
	seq, err := s.journal.Append(&s.ev, then)
	s.ev.Body = nil
	return seq, err
}

// fold folds an event. Mu is held.
func (s *session) fold(e *protocol.Event) {
	s.updatedAt = e.TS
	snapshot.Apply(s.adapter, s.state, s.journal.Epoch(), e)
	s.ledger.Apply(e)
	s.noteDeadline(e)
	s.w.announcer.look(s)
	s.keeper.Applied(s.state, s.ledger, e)
}

// addBroker adds an event of rejoin's own. Mu is held.
func (s *session) addBroker(body any, command string, then func(error)) (protocol.Seq, error) {
	return s.add(protocol.SourceBroker, command, encodeBody(body), then)
}

// writerFailed is the journal's word that this run can write no more. It is
// called from the writer's goroutine.
func (s *session) writerFailed(err error) {
	s.mu.Lock()
	s.failed = err
	s.mu.Unlock()
	s.log.Warn("journal writer failed, ending the child", slog.Any(protocol.LogError, err))
	s.requestStop(endFenced, fenceGrace)
}

// lose ends a run that is not this worker's any more: the child is killed and nothing
// more is written.
func (s *session) lose(why error) {
	s.mu.Lock()
	if s.phase >= phaseEnded || s.failed != nil {
		s.mu.Unlock()
		return
	}
	s.failed = why
	s.mu.Unlock()
	s.log.Warn("session is another's, ending the child", slog.Any(protocol.LogError, why))
	s.requestStop(endFenced, fenceGrace)
}

// begun reports whether the run has a history that may be shown.
func (s *session) begun() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.phase != phaseStarting && s.phase != phaseLost
}

// lost reports whether the session is not here after all.
func (s *session) lost() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.phase == phaseLost || s.failed != nil
}

// info is the session as clients see it, as far as it is durable.
func (s *session) info() protocol.SessionInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.rec
	r.Status, r.Title, r.UpdatedAt, r.Exit = s.state.Status, s.state.Title, s.updatedAt, s.exit
	if s.journal != nil {
		r.Epoch, r.Head = s.journal.Epoch(), s.journal.Durable()
	}
	r.PID = 0
	if s.child != nil && s.phase != phaseEnded {
		r.PID = s.child.pid
	}
	r.Floor = max(r.Floor, s.keeper.Floor(), 1)
	info := r.Info()
	info.Blocked = s.blocked()
	return info
}

// blocked says why the session waits for the journal; empty while it does not. Mu
// is held.
func (s *session) blocked() string {
	if s.journal == nil || s.failed != nil {
		return ""
	}
	return s.journal.Health().String()
}

// awaitEnd returns when the run is settled, or recordWait after the child's death.
func (s *session) awaitEnd(ctx context.Context) error {
	select {
	case <-s.done:
		return nil
	case <-s.dead:
	case <-ctx.Done():
		return ctx.Err()
	}
	limit := time.NewTimer(recordWait)
	defer limit.Stop()
	select {
	case <-s.done:
	case <-limit.C:
	case <-ctx.Done():
	}
	return nil
}

// retitle records a new title; it returns when the event is durable and the
// registry knows.
func (s *session) retitle(ctx context.Context, title string) error {
	durable := make(chan error, 1)
	s.mu.Lock()
	switch {
	case s.phase == phaseLost || s.failed != nil:
		s.mu.Unlock()
		return ErrNotOwner
	case s.phase == phaseStarting || s.phase == phaseEnded: // nothing follows the end of a run
		s.mu.Unlock()
		e := protocol.Errorf(protocol.ReasonSessionUnavailable, "session %s is starting or ending", s.key.Session)
		e.Retryable = true
		return e
	}
	if err := s.journal.Health().Err(); err != nil {
		s.mu.Unlock()
		return err
	}
	body := protocol.SessionTitle{Type: protocol.TypeSessionTitle, Title: title}
	_, err := s.addBroker(body, "", func(err error) { durable <- err })
	s.mu.Unlock()
	if err != nil {
		return ErrNotOwner
	}
	select {
	case err := <-durable:
		if err != nil {
			return errUnknown()
		}
	case <-ctx.Done():
		return errUnknown()
	}
	return s.w.reg.Update(ctx, s.key, s.rec.Run, func(r *protocol.SessionRecord) {
		r.Title = title
		r.UpdatedAt = s.w.cfg.Now().UnixMilli()
	})
}

// statuses answers command_status from what is durable.
func (s *session) statuses(ctx context.Context, ids []string) ([]protocol.CommandStatus, error) {
	s.mu.Lock()
	if s.phase == phaseStarting || s.phase == phaseLost {
		s.mu.Unlock()
		return nil, ErrNotOwner
	}
	out := make([]protocol.CommandStatus, 0, len(ids))
	for _, id := range ids {
		out = append(out, s.ledger.Status(id))
	}
	behind := s.journal.Durable() < s.journal.Head()
	s.mu.Unlock()
	if behind {
		// What the ledger says may rest on events that a crash would still lose.
		if err := s.journal.Flush(ctx); err != nil {
			return nil, errJournal()
		}
	}
	return out, nil
}

func errJournal() *protocol.Error {
	return protocol.Errorf(protocol.ReasonJournalUnavailable, "journal is not available")
}

func errUnknown() *protocol.Error {
	return protocol.Errorf(protocol.ReasonOutcomeUnknown, "answer of the journal was lost: repeat the same command")
}
