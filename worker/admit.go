package worker

import (
	"bytes"
	"errors"
	"fmt"

	"rejoin/journal"
	"rejoin/protocol"
	"rejoin/snapshot"
)

// admitted is a command on its way into the journal.
type admitted struct {
	waiters []func(error) // repeats of it; at most waitersMax, above it they are refused
}

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
	case errors.Is(err, journal.ErrFenced):
		answer(protocol.WorkerReply{NotOwner: true})
	default:
		answer(protocol.WorkerReply{Error: s.w.asError(err, s.key)})
	}
}

// errKnown: the command is durable already and the result is filled in.
var errKnown = errors.New("worker: command is known")

func (s *session) admitLocked(in *protocol.CommandInput, result *protocol.SendResult, answer func(protocol.WorkerReply)) error {
	switch {
	case s.phase == phaseStarting:
		e := protocol.Errorf(protocol.ReasonSessionUnavailable, "session %s is starting", s.key.Session)
		e.Retryable = true
		return e
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
		return protocol.Errorf(protocol.ReasonSessionUnavailable, "session %s has no child that reads", s.key.Session)
	}
	if s.journal.Stalled() {
		return errJournal()
	}
	if err := s.meets(in.Expect); err != nil {
		return err
	}
	if !s.stdin.fits(len(value)) {
		return errStdinFull(s.key.Session)
	}
	line, err := s.adapter.Encode(in.Verb, value)
	if err != nil {
		return err
	}
	if bytes.IndexByte(line, '\n') >= 0 {
		return fmt.Errorf("adapter %s made a line with a line feed", s.adapter.Name())
	}
	return s.append(in, value, line, result, answer)
}

// append records the command and queues its line once that is durable: I-W1.
func (s *session) append(in *protocol.CommandInput, value, line []byte, result *protocol.SendResult, answer func(protocol.WorkerReply)) error {
	body := commandBody(in, value, line)
	data := append(line[:len(line):len(line)], '\n')
	if !s.stdin.reserve(len(data)) {
		return errStdinFull(s.key.Session)
	}
	id, a, res := in.ID, &admitted{}, *result
	s.inflight[id] = a
	then := func(err error) {
		s.mu.Lock()
		delete(s.inflight, id)
		waiters := a.waiters
		s.mu.Unlock()
		if err != nil {
			s.stdin.release(len(data))
			answer(protocol.WorkerReply{Error: errUnknown()})
		} else {
			s.stdin.push(inputLine{id: id, data: data})
			r := res
			answer(protocol.WorkerReply{Result: &r})
		}
		for _, wake := range waiters {
			wake(err)
		}
	}
	res.Seq = s.journal.Head() + 1
	if _, err := s.add(protocol.SourceBroker, id, body, then); err != nil {
		delete(s.inflight, id)
		s.stdin.release(len(data))
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
	if len(a.waiters) >= waitersMax {
		return protocol.Errorf(protocol.ReasonOverloaded, "command id %s is repeated too often", in.ID)
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
	if want.Turn != nil {
		return protocol.Errorf(protocol.ReasonUnsupported, "adapter %s has no turns", s.adapter.Name())
	}
	head, epoch := s.journal.Head(), s.journal.Epoch()
	differs := func(what string, want, is any) error {
		e := protocol.Errorf(protocol.ReasonConflict, "expected %s %v, it is %v", what, want, is)
		e.Head, e.Epoch = &head, epoch
		return e
	}
	switch {
	case want.Epoch != nil && *want.Epoch != epoch:
		return differs("epoch", *want.Epoch, epoch)
	case want.Run != nil && *want.Run != s.rec.Run:
		return differs("run", *want.Run, s.rec.Run)
	case want.Status != nil && *want.Status != s.state.Status:
		return differs("status", *want.Status, s.state.Status)
	case want.Head != nil && *want.Head != head:
		return differs("head", *want.Head, head)
	}
	return nil
}

func errStdinFull(session string) *protocol.Error {
	return protocol.Errorf(protocol.ReasonOverloaded, "session %s does not read its input: the queue is full", session)
}
