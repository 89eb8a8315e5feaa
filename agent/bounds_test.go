package agent_test

import (
	"fmt"
	"strings"
	"testing"

	"rejoin/agent"
	"rejoin/protocol"
)

// Each bound of a state: what is at it stays, what is one over it leaves or is cut.
func TestStateBounds(t *testing.T) {
	s := &protocol.State{}
	for i := range protocol.NotesMax {
		agent.SetNote(s, fmt.Sprintf("k%03d", i), "x")
	}
	agent.SetNote(s, "one more", "x")
	agent.SetNote(s, "k000", strings.Repeat("y", protocol.NoteBytes))
	agent.SetNote(s, "k001", strings.Repeat("y", protocol.NoteBytes+1))
	notes := s.Extra.Notes
	if len(notes) != protocol.NotesMax || notes[0].Key != "k000" || len(notes[0].Text) != protocol.NoteBytes || notes[0].Text[0] != 'y' {
		t.Errorf("%d notes, the first of %d bytes", len(notes), len(notes[0].Text))
	}
	if n := len(notes[1].Text); n != protocol.NoteBytes {
		t.Errorf("a note over the limit: %d bytes", n)
	}

	lines := make([]string, protocol.QueueLinesMax+1)
	lines[0], lines[1] = strings.Repeat("q", protocol.QueueTextBytes), strings.Repeat("q", protocol.QueueTextBytes+1)
	agent.SetQueue(s, lines, lines[:protocol.QueueLinesMax])
	q := s.Queue
	if len(q.Steering) != protocol.QueueLinesMax || len(q.FollowUp) != protocol.QueueLinesMax {
		t.Errorf("%d and %d lines wait", len(q.Steering), len(q.FollowUp))
	}
	if q.Steering[0] != lines[0] || q.Steering[1] == lines[1] || len(q.Steering[1]) > protocol.QueueTextBytes {
		t.Errorf("lines of %d and %d bytes", len(q.Steering[0]), len(q.Steering[1]))
	}

	s = &protocol.State{}
	for i := range protocol.OpenItemsMax + 1 {
		if i == protocol.OpenItemsMax && s.Items[0].Status != protocol.ItemStreaming {
			t.Errorf("the first of %d open items is %s", i, s.Items[0].Status)
		}
		agent.Edit(s, &protocol.Event{Seq: protocol.Seq(i + 1)}).Open(fmt.Sprint("n", i), protocol.ItemAssistant)
	}
	if len(s.Extra.Open) != protocol.OpenItemsMax || s.Items[0].Status != protocol.ItemInterrupted || s.Items[1].Status != protocol.ItemStreaming {
		t.Errorf("%d open, the oldest is %s", len(s.Extra.Open), s.Items[0].Status)
	}

	s = &protocol.State{}
	seq := protocol.Seq(0)
	for s.ItemsDropped == 0 {
		if len(encode(t, s.Items)) > protocol.StateItemsBytes {
			t.Fatal("items over their limit")
		}
		seq++
		agent.Edit(s, &protocol.Event{Seq: seq}).Notice(strings.Repeat("n", 60_000), protocol.ItemDone)
	}
	if n := len(encode(t, s.Items)); n > protocol.StateItemsBytes || n < protocol.StateItemsBytes-70_000 || s.ItemsDropped != 1 {
		t.Errorf("%d items of %d bytes, %d dropped", len(s.Items), n, s.ItemsDropped)
	}
}
