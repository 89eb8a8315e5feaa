package worker

import (
	"log/slog"

	"rejoin/agent"
	"rejoin/journal"
	"rejoin/protocol"
)

// Effects of the driver are carried out in order under mu: what is recorded is
// folded at once, what is written follows its record.

// perform carries out what follows from an event of a live run. Mu is held.
func (s *session) perform(effects []agent.Effect) {
	for i := range effects {
		switch e := &effects[i]; {
		case s.failed != nil || s.phase >= phaseEnded:
			return // a fenced run writes nothing; an ended one has settled every command
		case e.Outcome != nil:
			s.settleLocked(e.Outcome.CommandID, e.Outcome.Outcome, e.Outcome.Result)
		case s.phase != phaseLive || s.stdin.broken():
			// The child gets no more input: what is held stays so, to be discarded at the end.
		case e.Release != "":
			s.release(e.Release)
		case e.Input != nil:
			if e.Input.Limit != "" {
				s.w.counters.met(e.Input.Limit)
			}
			s.sayLocked(e.Input)
		}
	}
}

// sayLocked records a command of rejoin's own and queues its line.
func (s *session) sayLocked(in *agent.Input) {
	own := protocol.CommandInput{ID: in.ID, Client: protocol.CommandClient{Name: protocol.ClientRejoin}}
	if err := s.input(in, commandBody(&own, in.Value, in.Line, in.Held), func(error) {}); err != nil {
		s.log.Warn("own command is not recorded", slog.String(protocol.LogCommand, in.ID), slog.Any(protocol.LogError, err))
	}
}

// input records a command, with what it resolves in the same record, and queues
// its line once that is durable: I-W1. Room for a client's line is checked before.
// The error is why nothing was recorded; done gets no call then. Mu is held.
func (s *session) input(in *agent.Input, body []byte, done func(error)) error {
	line := inputLine{id: in.ID, data: append(in.Line[:len(in.Line):len(in.Line)], '\n')}
	s.stdin.reserve(len(line.data))
	then := func(err error) {
		switch {
		case err != nil:
			s.stdin.release(len(line.data))
		case !in.Held:
			s.stdin.push(line)
		}
		done(err)
	}
	var err error
	if in.Resolves == nil {
		_, err = s.add(protocol.SourceBroker, in.ID, body, then)
	} else {
		delete(s.deadlines, in.Resolves.InteractionID)
		err = s.addGroup(in.ID, [][]byte{body, encodeBody(in.Resolves)}, then)
	}
	if err != nil {
		s.stdin.release(len(line.data))
		return err
	}
	if in.Held {
		s.held[in.ID] = line
	}
	return nil
}

// release records that a held command goes on, and queues its line once that is
// durable: a command without such a record was never written. Mu is held.
func (s *session) release(id string) {
	line, ok := s.held[id]
	if !ok {
		return
	}
	body := encodeBody(protocol.CommandReleased{Type: protocol.TypeCommandReleased, CommandID: id})
	_, err := s.add(protocol.SourceBroker, id, body, func(err error) {
		if err != nil {
			s.stdin.release(len(line.data))
			return
		}
		s.stdin.push(line)
	})
	if err != nil {
		s.log.Warn("release of a command is not recorded", slog.String(protocol.LogCommand, id), slog.Any(protocol.LogError, err))
		return
	}
	delete(s.held, id)
}

// addGroup folds events of the broker about one command and hands them to the
// journal, which keeps them in one record. Mu is held. Journal.ErrEventTooLarge
// says that nothing was folded; any other error that the writer has failed.
func (s *session) addGroup(command string, bodies [][]byte, then func(error)) error {
	now, size := s.w.cfg.Now().UnixMilli(), 0
	events := make([]*protocol.Event, 0, len(bodies))
	for i, body := range bodies {
		size += len(body) + groupFrame
		events = append(events, &protocol.Event{
			Seq: s.journal.Head() + 1 + protocol.Seq(i), TS: now, Run: s.rec.Run, Source: protocol.SourceBroker, CommandID: command, Body: body,
		})
	}
	if size > protocol.PartBytesMax {
		return journal.ErrEventTooLarge
	}
	for _, e := range events {
		s.fold(e)
	}
	return s.journal.AppendGroup(events, then)
}

// groupFrame is more than the journal counts for an event besides its body.
const groupFrame = 2 << 10

// wrote is stdin's word that the child got a line.
func (s *session) wrote(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.perform(s.driver.Wrote(id))
	s.parted(id)
}

// broke is stdin's word that a line was not written, or not all of it; I-B3.
func (s *session) broke(id string, outcome protocol.Outcome, result protocol.RawJSON) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.driver.Broke(id)
	if s.failed == nil && s.phase < phaseEnded {
		s.settleLocked(id, outcome, result)
	}
	s.parted(id)
}

// settleLocked records how a command ended, unless that is recorded already.
func (s *session) settleLocked(id string, outcome protocol.Outcome, result protocol.RawJSON) {
	if known, ok := s.ledger.Lookup(id); ok && known.Outcome != protocol.OutcomeAdmitted {
		return
	}
	body := protocol.CommandOutcome{Type: protocol.TypeCommandOutcome, CommandID: id, Outcome: outcome, Result: result}
	if _, err := s.addBroker(body, id, nil); err != nil {
		s.log.Warn("outcome of a command is not recorded", slog.String(protocol.LogCommand, id), slog.Any(protocol.LogError, err))
	}
}
