package model

import (
	"fmt"
	"io"
)

// Tally counts what was judged: of each session its newest history.
type Tally struct{ sessions map[string]counts }

type counts struct{ events, frames, commands, answers, states, lines int }

// Judged takes the history that a session was judged by.
func (t *Tally) Judged(u *Subject, h *History) {
	var c counts
	for i := range h.Logs {
		c.events += len(h.Logs[i].Events)
	}
	for _, v := range h.Views {
		c.frames += len(v.Frames)
	}
	for _, k := range h.Commands {
		c.commands++
		c.answers += len(k.Answers)
	}
	for _, b := range h.Books {
		c.lines += len(b.Printed)
	}
	c.states = h.Folded()
	if t.sessions == nil {
		t.sessions = make(map[string]counts)
	}
	t.sessions[u.Session] = c
}

// Print says how much it was, over so many rounds, and returns the states that were
// compared.
func (t *Tally) Print(w io.Writer, rounds int) (states int, err error) {
	var all counts
	for _, c := range t.sessions {
		all.events += c.events
		all.frames += c.frames
		all.commands += c.commands
		all.answers += c.answers
		all.states += c.states
		all.lines += c.lines
	}
	_, err = fmt.Fprintf(w, "\n%d rounds, %d sessions, 0 broken promises\n"+
		"%d events in the logs, %d lines in the children's books, %d frames seen by clients, %d commands with %d answers, %d states compared\n",
		rounds, len(t.sessions), all.events, all.lines, all.frames, all.commands, all.answers, all.states)
	return all.states, err
}
