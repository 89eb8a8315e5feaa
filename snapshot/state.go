package snapshot

import (
	"bytes"
	"encoding/json"

	"rejoin/protocol"
)

// Version is the version of the fold. It changes whenever the same events add
// up to another state; the golden hash in the tests fails when it does not.
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

// Apply folds one event into s; epoch is the epoch of the record that holds e.
// It is pure and total: any event in any order is taken, and a broker's event
// that cannot be read only moves seq, run and epoch. A child's event costs no
// look at its body. Neither e nor its body is kept.
func Apply(s *protocol.State, epoch protocol.Epoch, e *protocol.Event) { // I-S1
	advance(s, epoch, e.Run, e.Seq)
	if e.Source == protocol.SourceBroker {
		applyBroker(s, e.Body)
	}
}

// advance is what every event does to a state.
func advance(s *protocol.State, epoch protocol.Epoch, run protocol.Run, seq protocol.Seq) {
	s.Epoch, s.Run, s.Seq = epoch, run, seq
}

func applyBroker(s *protocol.State, body []byte) {
	switch eventType(body) {
	case protocol.TypeSessionStart:
		var b protocol.SessionStart
		if !read(body, &b) {
			return
		}
		s.Status, s.Exit = protocol.StatusIdle, nil
		s.Agent = protocol.StateAgent{Name: b.Agent, Adapter: b.Adapter}
		s.Title = b.Title
	case protocol.TypeSessionResumed:
		var b protocol.SessionResumed
		if !read(body, &b) {
			return
		}
		s.Status, s.Exit = protocol.StatusIdle, nil
	case protocol.TypeSessionInterrupted:
		var b protocol.SessionInterrupted
		if !read(body, &b) {
			return
		}
		s.Status = protocol.StatusInterrupted
	case protocol.TypeSessionEnd:
		var b protocol.SessionEnd
		if !read(body, &b) {
			return
		}
		s.Status = protocol.StatusEnded
		s.Exit = &protocol.StateExit{Code: b.ExitCode, Signal: b.Signal, Reason: b.Reason}
	case protocol.TypeSessionTitle:
		var b protocol.SessionTitle
		if !read(body, &b) {
			return
		}
		s.Title = b.Title
	case protocol.TypeSessionDeleted:
		s.Status = protocol.StatusEnded
	}
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
