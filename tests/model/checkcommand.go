package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// places are the seqs of the command events under one id.
type places []uint64

func (p places) has(seq uint64) bool { return slices.Contains(p, seq) }

// admitted returns where each command id stands in the log.
func (h *History) admitted() (map[string]places, error) {
	at := map[string]places{}
	err := h.events(func(_ *Log, e *Event) error {
		b, err := e.broker()
		if b.Type == "command" {
			at[b.CommandID] = append(at[b.CommandID], e.Seq)
		}
		return err
	})
	return at, err
}

// CheckOnceCommand (I-B1): a command id takes effect at most once: one event, one
// answer whatever happened between, one line to the child.
func CheckOnceCommand(h *History) error {
	admitted, err := h.admitted()
	if err != nil {
		return err
	}
	for id, at := range admitted {
		if len(at) > 1 && len(h.kept(at)) > 1 {
			return fmt.Errorf("command %s was admitted at %v", id, at)
		}
	}
	for id, c := range h.Commands {
		if err := c.once(h.lostAnywhere); err != nil {
			return fmt.Errorf("command %s: %w", id, err)
		}
	}
	received := map[string]uint64{}
	for _, b := range h.Books {
		for _, line := range b.Read {
			id := orderID(line)
			if len(h.kept(admitted[id])) < len(admitted[id]) {
				continue // its admission was lost: it may have come again
			}
			if run, ok := received[id]; ok {
				return fmt.Errorf("command %s reached the child of run %d and that of run %d", id, run, b.Run)
			}
			received[id] = b.Run
		}
	}
	return nil
}

// kept returns those places whose events were not lost.
func (h *History) kept(at places) places {
	return slices.DeleteFunc(slices.Clone(at), h.lostAnywhere)
}

// once judges the answers under one id: all the same; a fresh one only first. An
// answer whose event was lost since says nothing of later ones.
func (c *Command) once(lost func(seq uint64) bool) error {
	var seq uint64
	fresh := 0
	for _, a := range c.Answers {
		switch {
		case a.Seq == 0 && a.Reason == "conflict":
			return errors.New("the same payload was called a conflict")
		case a.Seq == 0:
			continue // refused: it may be admitted later
		case lost(a.Seq):
			continue
		case seq != 0 && a.Seq != seq:
			return fmt.Errorf("was answered %d and %d", seq, a.Seq)
		}
		seq = a.Seq
		if !a.Duplicate {
			fresh++
		}
	}
	if fresh > 1 {
		return fmt.Errorf("was admitted %d times", fresh)
	}
	return nil
}

// CheckOneOwner (I-B2): a run has one child.
func CheckOneOwner(h *History) error {
	seen := map[uint64]bool{}
	for _, b := range h.Books {
		if seen[b.Run] || b.Rivals > 0 {
			return fmt.Errorf("run %d had %d children", b.Run, 2+b.Rivals)
		}
		seen[b.Run] = true
	}
	return nil
}

// CheckOutcome (I-B3): every admitted command ends in exactly one recorded
// outcome; what is said not to have been written was not read.
func CheckOutcome(h *History) error {
	ends, gone := map[string]string{}, map[string]bool{}
	admitted, err := h.admitted()
	if err != nil {
		return err
	}
	var live uint64 // run of the newest event
	err = h.events(func(_ *Log, e *Event) error {
		live = e.Run
		b, err := e.broker()
		if err != nil || b.Type != "command_outcome" {
			return err
		}
		if h.lostAnywhere(e.Seq) { // its owner may know, or not
			gone[b.CommandID] = true
			return nil
		}
		at := admitted[b.CommandID]
		if was, ok := ends[b.CommandID]; ok && len(h.kept(at)) == len(at) { // else it may have come again
			return fmt.Errorf("command %s ended as %s and at %d as %s", b.CommandID, was, e.Seq, b.Outcome)
		}
		if len(at) == 0 {
			return fmt.Errorf("command %s ended at %d and was never admitted", b.CommandID, e.Seq)
		}
		ends[b.CommandID] = b.Outcome
		return nil
	})
	if err != nil {
		return err
	}
	read := map[string]bool{}
	for _, b := range h.Books {
		for _, line := range b.Read {
			read[orderID(line)] = true
		}
	}
	runs := h.runsOfSeqs(admitted)
	for id := range admitted {
		switch outcome := ends[id]; {
		case outcome == "done" || outcome == "interrupted":
		case outcome == "failed" || outcome == "discarded":
			if read[id] {
				return fmt.Errorf("command %s is said to be %s, yet the child read it", id, outcome)
			}
		case outcome == "" && h.Alive && runs[id] == live:
		case outcome == "" && (gone[id] || len(h.kept(admitted[id])) < len(admitted[id])):
		default:
			return fmt.Errorf("command %s (at %v) has outcome %q though its run is over", id, admitted[id], outcome)
		}
	}
	return nil
}

// runsOfSeqs returns the run in which each command was admitted.
func (h *History) runsOfSeqs(admitted map[string]places) map[string]uint64 {
	runs := map[string]uint64{}
	for id, at := range admitted {
		for i := range h.Logs {
			if e := h.Logs[i].At(at[0]); e != nil {
				runs[id] = e.Run
			}
		}
	}
	return runs
}

// CheckInputFirst (I-W1): what the child read was in the log first: admitted in
// the child's run, with the same bytes, and before anything that answers it.
func CheckInputFirst(h *History) error {
	type admission struct {
		run     uint64
		command json.RawMessage
	}
	log := map[string][]admission{} // more than one where one was lost
	err := h.events(func(_ *Log, e *Event) error {
		b, err := e.broker()
		if b.Type == "command" {
			log[b.CommandID] = append(log[b.CommandID], admission{e.Run, b.Command})
		}
		if e.Source == "child" {
			if id := answers(e.Body); id != "" {
				if len(log[id]) == 0 {
					return fmt.Errorf("event %d answers command %s, which is not in the log before it", e.Seq, id)
				}
			}
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, b := range h.Books {
		for _, line := range b.Read {
			id := orderID(line)
			all := log[id]
			switch {
			case len(all) == 0:
				return fmt.Errorf("the child of run %d read %.200s, which is not in the log", b.Run, line)
			case !slices.ContainsFunc(all, func(a admission) bool { return a.run == b.Run && bytes.Equal(a.command, line) }):
				return fmt.Errorf("the child of run %d read %.200s; the log has in run %d %.200s", b.Run, line, all[0].run, all[0].command)
			}
		}
	}
	return nil
}

// orderID is the command id that an order carries, which the child can see.
func orderID(line []byte) string {
	var o Order
	if json.Unmarshal(line, &o) != nil || o.K == "" {
		return "unreadable " + string(line)
	}
	return o.K
}

// answers is the command id that a line of the child says it answers.
func answers(line []byte) string {
	if !bytes.Contains(line, []byte(`"k":`)) {
		return ""
	}
	var o Order
	if json.Unmarshal(line, &o) != nil {
		return ""
	}
	return o.K
}
