package worker

import (
	"bytes"
	"errors"
	"fmt"

	"rejoin/agent"
	"rejoin/journal"
	"rejoin/protocol"
	"rejoin/snapshot"
)

// admitted is a command on its way into the journal.
type admitted struct {
	waiters []func(error) // repeats of it; at most protocol.RepeatsWaitingMax, above it they are refused
}

// lineExtra is more than a line has besides its command's value.
const lineExtra = 512

// admit is the one place where a command takes effect: known id, live child,
// journal, expect, room, adapter, append — in this order, under mu, so that the
// order of calls is the order of admission. The answer comes at once for what is
// refused, else from the journal's callback when the command event is durable.
func (s *session) admit(in *protocol.CommandInput, answer func(protocol.WorkerReply)) {
	result := protocol.SendResult{SessionID: s.key.Session, Status: "sent", CommandID: in.ID}
	s.mu.Lock()
	err := s.admitLocked(in, &result, answer)
	s.mu.Unlock()
	switch {
	case err == nil: // answered later
	case errors.Is(err, errKnown):
		answer(protocol.WorkerReply{Result: &result})
	case errors.Is(err, errStarting):
		answer(protocol.WorkerReply{NotOwner: true, Starting: true})
	case errors.Is(err, journal.ErrFenced):
		answer(protocol.WorkerReply{NotOwner: true})
	default:
		answer(protocol.WorkerReply{Error: s.w.asError(err, s.key)})
	}
}

// errStarting: the run has not read yet which commands are known. Until it is live
// its log tells.
var errStarting = errors.New("worker: session is starting")

// errKnown: the command is durable already and the result is filled in.
var errKnown = errors.New("worker: command is known")

func (s *session) admitLocked(in *protocol.CommandInput, result *protocol.SendResult, answer func(protocol.WorkerReply)) error {
	switch {
	case s.phase == phaseStarting:
		return errStarting
	case s.phase == phaseLost || s.failed != nil:
		return ErrNotOwner
	}
	value := in.Command
	if in.Verb != "" {
		value = in.Params
	}
	value = protocol.Compact(make([]byte, 0, len(value)), value)
	if known, ok := s.ledger.Lookup(in.ID); ok { // I-B1
		return s.repeat(in, value, &known, result, answer)
	}
	if s.phase != phaseLive || s.stdin.broken() {
		e := protocol.Errorf(protocol.ReasonSessionUnavailable, "session %s has no child that reads", s.key.Session)
		e.Retryable = s.returns()
		return e
	}
	if err := s.journal.Health().Err(); err != nil {
		return err
	}
	if err := s.meets(in.Expect); err != nil {
		return err
	}
	if limit := s.stdin.short(len(value) + lineExtra); limit != "" {
		return errStdinFull(s.key.Session, limit)
	}
	effects, err := s.driver.Admit(s.state, &agent.Request{
		ID: in.ID, Verb: in.Verb, Value: value, Client: in.Client.Name, Resolved: s.ledger.Resolved,
	})
	if err != nil {
		return err
	}
	return s.accept(in, value, effects, result, answer)
}

// returns reports whether the policy may bring the session back after this run:
// nobody asked for its end, and the child did not end well. Mu is held.
func (s *session) returns() bool {
	if s.rec.Restart != protocol.RestartResume {
		return false
	}
	if asked, why, _, _ := s.stops.times(); asked && why != endServerStop {
		return false
	}
	e := s.exit
	return e == nil || e.Signal != nil || e.Code == nil || *e.Code != 0
}

// accept records a command and what the driver wants done before it.
func (s *session) accept(
	in *protocol.CommandInput, value []byte, effects []agent.Effect, result *protocol.SendResult, answer func(protocol.WorkerReply),
) error {
	for i := range effects {
		if effects[i].Input == nil || effects[i].Input.ID != in.ID {
			s.perform(effects[i : i+1])
			continue
		}
		if err := s.append(in, value, effects[i].Input, result, answer); err != nil {
			return err
		}
	}
	return nil
}

// append records the command; its answer waits until that is durable: I-W1.
func (s *session) append(
	in *protocol.CommandInput, value []byte, input *agent.Input, result *protocol.SendResult, answer func(protocol.WorkerReply),
) error {
	if bytes.IndexByte(input.Line, '\n') >= 0 {
		return fmt.Errorf("adapter %s made a line with a line feed", s.adapter.Name())
	}
	body := commandBody(in, value, input.Line, input.Held)
	id, a, res := in.ID, &admitted{}, *result
	s.inflight[id] = a
	res.Seq = s.journal.Head() + 1
	err := s.input(input, body, func(err error) {
		s.mu.Lock()
		delete(s.inflight, id)
		waiters := a.waiters
		s.mu.Unlock()
		if err != nil {
			answer(protocol.WorkerReply{Error: errUnknown()})
		} else {
			r := res
			answer(protocol.WorkerReply{Result: &r})
		}
		for _, wake := range waiters {
			wake(err)
		}
	})
	if err != nil {
		delete(s.inflight, id)
		return errUnknown()
	}
	return nil
}

// repeat answers a command id that the ledger knows.
func (s *session) repeat(
	in *protocol.CommandInput, value []byte, known *snapshot.Admitted, result *protocol.SendResult, answer func(protocol.WorkerReply),
) error {
	if known.Hash != snapshot.PayloadHash(in.Verb, value) {
		return protocol.Errorf(protocol.ReasonConflict, "command id %s was used for another command", in.ID)
	}
	result.Seq, result.Duplicate = known.Seq, true
	a, waits := s.inflight[in.ID]
	if !waits {
		return errKnown
	}
	if len(a.waiters) >= protocol.RepeatsWaitingMax {
		return protocol.Errorf(protocol.ReasonOverloaded, "command id %s: %d repeats of it wait already", in.ID, protocol.RepeatsWaitingMax).Met("RepeatsWaitingMax")
	}
	res := *result
	a.waiters = append(a.waiters, func(err error) {
		if err != nil {
			answer(protocol.WorkerReply{Error: errUnknown()})
			return
		}
		answer(protocol.WorkerReply{Result: &res})
	})
	return nil
}

// meets holds the session against what a command demands of it.
func (s *session) meets(want *protocol.Expect) error {
	if want == nil {
		return nil
	}
	if want.Turn != nil && !s.driver.Turns() {
		return protocol.Errorf(protocol.ReasonUnsupported, "adapter %s has no turns", s.adapter.Name())
	}
	head, epoch := s.journal.Head(), s.journal.Epoch()
	differs := func(what string, want, is any) error {
		e := protocol.Errorf(protocol.ReasonConflict, "expected %s %v, it is %v", what, want, is)
		e.Head, e.Epoch = &head, epoch
		return e
	}
	turn := "none"
	if s.state.Turn != nil {
		turn = s.state.Turn.ID
	}
	switch {
	case want.Epoch != nil && *want.Epoch != epoch:
		return differs("epoch", *want.Epoch, epoch)
	case want.Run != nil && *want.Run != s.rec.Run:
		return differs("run", *want.Run, s.rec.Run)
	case want.Status != nil && *want.Status != s.state.Status:
		return differs("status", *want.Status, s.state.Status)
	case want.Turn != nil && *want.Turn != turn:
		return differs("turn", *want.Turn, turn)
	case want.Head != nil && *want.Head != head:
		return differs("head", *want.Head, head)
	}
	return nil
}

func errStdinFull(session, limit string) *protocol.Error {
	return protocol.Errorf(protocol.ReasonOverloaded, "session %s does not read its input: the queue is full (%d lines, %d bytes)",
		session, protocol.StdinQueueLinesMax, protocol.StdinQueueBytesMax).Met(limit)
}
