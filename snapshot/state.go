package snapshot

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"

	"rejoin/agent"
	"rejoin/protocol"
)

// Version is the version of what Apply does itself. It changes whenever the same
// events add up to another state; the golden hash in the tests fails when it
// does not.
const Version = 1

// New returns the state of a session before its first event.
func New(session string) *protocol.State {
	return &protocol.State{
		SessionID: session,
		Status:    protocol.StatusStarting,
		Items:     []protocol.Item{},
		Pending:   []protocol.Interaction{},
		Queue:     protocol.Queue{Steering: []string{}, FollowUp: []string{}},
	}
}

// Apply folds one event into s: f folds what is its agent's business, Apply the
// rest. epoch is the epoch of the record that holds e. A nil f, or one of
// another adapter than the session's, makes the fold minimal: everything but
// what the child says.
//
// It is pure and total: any event in any order is taken, and a broker's event
// that cannot be read only moves seq, run and epoch. Neither e nor its body is
// kept.
func Apply(f agent.Adapter, s *protocol.State, epoch protocol.Epoch, e *protocol.Event) { // I-S1
	advance(s, epoch, e.Run, e.Seq)
	g := folder(minimal{})
	if f != nil && f.Name() == s.Agent.Adapter {
		g = f
	}
	if e.Source == protocol.SourceBroker {
		applyBroker(g, s, e)
	} else {
		g.Fold(s, e)
	}
	if u := s.Usage; u != nil && (math.IsNaN(u.CostUSD) || math.IsInf(u.CostUSD, 0)) {
		u.CostUSD = 0 // a sum of what agents print; JSON has no such numbers
	}
}

// advance is what every event does to a state.
func advance(s *protocol.State, epoch protocol.Epoch, run protocol.Run, seq protocol.Seq) {
	s.Epoch, s.Run, s.Seq = epoch, run, seq
}

func applyBroker(f folder, s *protocol.State, e *protocol.Event) {
	switch eventType(e.Body) {
	case protocol.TypeOutput, protocol.TypeError, protocol.TypeCommand, protocol.TypeCommandOutcome:
		f.Fold(s, e)
	case protocol.TypeInteraction:
		var b protocol.InteractionResolved
		if read(e.Body, &b) {
			resolve(s, b.InteractionID)
		}
	case protocol.TypeSessionStart:
		var b protocol.SessionStart
		if !read(e.Body, &b) {
			return
		}
		endRun(f, s, e)
		s.Status, s.Exit = protocol.StatusIdle, nil
		s.Agent = protocol.StateAgent{Name: b.Agent, Adapter: b.Adapter}
		s.Title = b.Title
	case protocol.TypeSessionResumed:
		var b protocol.SessionResumed
		if !read(e.Body, &b) {
			return
		}
		endRun(f, s, e)
		s.Status, s.Exit = protocol.StatusIdle, nil
	case protocol.TypeSessionInterrupted:
		var b protocol.SessionInterrupted
		if !read(e.Body, &b) {
			return
		}
		endRun(f, s, e)
		s.Status = protocol.StatusInterrupted
	case protocol.TypeSessionEnd:
		var b protocol.SessionEnd
		if !read(e.Body, &b) {
			return
		}
		endRun(f, s, e)
		s.Status = protocol.StatusEnded
		s.Exit = &protocol.StateExit{Code: b.ExitCode, Signal: b.Signal, Reason: b.Reason}
	case protocol.TypeSessionTitle:
		var b protocol.SessionTitle
		if !read(e.Body, &b) {
			return
		}
		s.Title = b.Title
	case protocol.TypeSessionDeleted:
		endRun(f, s, e)
		s.Status = protocol.StatusEnded
	}
}

// endRun closes what a run leaves open, so that no session stays busy for ever:
// at its end, and once more when the next one begins.
func endRun(f folder, s *protocol.State, e *protocol.Event) {
	f.Settle(s, e)
	s.Turn = nil
	s.Pending = s.Pending[:0]
	s.Queue = protocol.Queue{Steering: []string{}, FollowUp: []string{}}
}

// resolve removes an interaction.
func resolve(s *protocol.State, id string) {
	s.Pending = slices.DeleteFunc(s.Pending, func(p protocol.Interaction) bool { return p.InteractionID == id })
	agent.SetStatus(s)
}

// typePrefix starts every object the broker makes: the type is its first member.
var typePrefix = []byte(`{"type":"`)

// eventType returns the type of a broker's event without decoding the body;
// empty when it has none.
func eventType(body []byte) string {
	rest, ok := bytes.CutPrefix(body, typePrefix)
	if !ok {
		return ""
	}
	end := bytes.IndexByte(rest, '"')
	if end < 0 {
		return ""
	}
	return string(rest[:end])
}

// read decodes a body that rejoin itself made.
func read(body []byte, v any) bool { return json.Unmarshal(body, v) == nil }
