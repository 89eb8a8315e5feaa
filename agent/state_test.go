package agent_test

import (
	"slices"
	"testing"

	"rejoin/agent"
	"rejoin/protocol"
)

// Nothing that is folded brings an ended session back: only the next run does.
func TestSetStatus(t *testing.T) {
	turn, asks := &protocol.Turn{ID: "t1"}, []protocol.Interaction{{InteractionID: "1.a"}}
	for _, c := range []struct {
		was     protocol.Status
		turn    *protocol.Turn
		pending []protocol.Interaction
		want    protocol.Status
	}{
		{protocol.StatusBusy, nil, nil, protocol.StatusIdle},
		{protocol.StatusIdle, turn, nil, protocol.StatusBusy},
		{protocol.StatusBusy, turn, asks, protocol.StatusWaiting},
		{protocol.StatusIdle, nil, asks, protocol.StatusWaiting},
		{protocol.StatusEnded, turn, asks, protocol.StatusEnded},
		{protocol.StatusInterrupted, turn, nil, protocol.StatusInterrupted},
	} {
		s := &protocol.State{Status: c.was, Turn: c.turn, Pending: c.pending}
		if agent.SetStatus(s); s.Status != c.want {
			t.Errorf("%+v becomes %s", c, s.Status)
		}
	}
}

func TestSetNote(t *testing.T) {
	s := &protocol.State{}
	for _, c := range []struct {
		key, text string
		want      []protocol.Note
	}{
		{"b", "1", []protocol.Note{{Key: "b", Text: "1"}}},
		{"a", "2", []protocol.Note{{Key: "a", Text: "2"}, {Key: "b", Text: "1"}}},
		{"b", "3", []protocol.Note{{Key: "a", Text: "2"}, {Key: "b", Text: "3"}}},
		{"c", "", []protocol.Note{{Key: "a", Text: "2"}, {Key: "b", Text: "3"}}},
		{"a", "", []protocol.Note{{Key: "b", Text: "3"}}},
	} {
		if agent.SetNote(s, c.key, c.text); !slices.Equal(s.Extra.Notes, c.want) {
			t.Errorf("after %s=%q: %+v", c.key, c.text, s.Extra.Notes)
		}
	}
	if agent.SetNote(s, "b", ""); s.Extra != nil {
		t.Errorf("without notes: %+v", s.Extra)
	}
}
