package model

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// CheckDense (I-J1): inside an epoch seq is dense from its floor, and an epoch
// goes on where the one before it ended.
func CheckDense(h *History) error {
	if len(h.Logs) == 0 {
		return errors.New("no log was read")
	}
	for i := range h.Logs {
		l := &h.Logs[i]
		for j := range l.Events {
			if got, want := l.Events[j].Seq, l.Floor+uint64(j); got != want {
				return fmt.Errorf("epoch %s has %d where %d belongs", l.Epoch, got, want)
			}
		}
		if i == 0 {
			continue
		}
		if err := follows(&h.Logs[i-1], l); err != nil {
			return err
		}
	}
	return nil
}

func follows(was, l *Log) error {
	if len(l.Events) == 0 {
		return fmt.Errorf("epoch %s is empty", l.Epoch)
	}
	b, err := l.Events[0].broker()
	if err != nil {
		return err
	}
	if b.Type != "epoch_start" || b.PreviousEpoch != was.Epoch || b.Reason == "" || l.Floor <= b.PreviousHead {
		return fmt.Errorf("epoch %s follows %s (head %d) with event %d: %.200s", l.Epoch, was.Epoch, was.Head(), l.Floor, l.Events[0].Body)
	}
	return nil
}

// CheckRunsGrow (I-J3): runs only grow, in the log and in every view.
func CheckRunsGrow(h *History) error {
	var run uint64
	err := h.events(func(_ *Log, e *Event) error {
		if e.Run == 0 || e.Run < run {
			return fmt.Errorf("event %d of run %d follows run %d", e.Seq, e.Run, run)
		}
		run = e.Run
		return nil
	})
	if err != nil {
		return err
	}
	for _, v := range h.Views {
		run = 0
		for i := range v.Frames {
			f := &v.Frames[i]
			if f.Kind != Item {
				continue
			}
			if f.Run < run {
				return fmt.Errorf("client %s saw event %d of run %d after run %d", v.Client, f.Seq, f.Run, run)
			}
			run = f.Run
		}
	}
	return nil
}

// printed lists what stands in the log instead of each line of a run's child.
func (h *History) printed() (map[uint64][]*Event, error) {
	of := map[uint64][]*Event{}
	err := h.events(func(_ *Log, e *Event) error {
		if e.Source == "child" {
			of[e.Run] = append(of[e.Run], e)
			return nil
		}
		b, err := e.broker()
		if b.Type == "error" && (b.Error == lineTooLong || b.Base64 != "" || strings.HasPrefix(b.Error, "invalid json")) {
			of[e.Run] = append(of[e.Run], e)
		}
		return err
	})
	return of, err
}

const lineTooLong = "line exceeds limit"

// compareLines calls differ with each event of a run and the line at its place.
func (h *History) compareLines(each func(b *Book, n int, e *Event, line []byte) error) error {
	if !h.Booked {
		return nil
	}
	of, err := h.printed()
	if err != nil {
		return err
	}
	for _, b := range h.Books {
		for i, e := range of[b.Run] {
			if i >= len(b.Printed) {
				break // CheckOutputComplete's
			}
			if err := each(b, i, e, b.Printed[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// CheckOutputComplete (I-W2): the child events of a run are the lines that its
// child printed, in order; all of them when the run ended in order, else those up
// to some point; an event that says that output was cut excuses it. Lines carry their run and number, so that a line at another's
// place is told from one with other bytes.
func CheckOutputComplete(h *History) error {
	if !h.Booked {
		return nil
	}
	of, err := h.printed()
	if err != nil {
		return err
	}
	known, cut := map[uint64]bool{}, map[uint64]bool{}
	err = h.events(func(_ *Log, e *Event) error {
		b, err := e.broker()
		if b.Type == "error" && b.Error == "output truncated" {
			cut[e.Run] = true
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, b := range h.Books {
		known[b.Run] = true
		got := of[b.Run]
		if len(got) > len(b.Printed) {
			return fmt.Errorf("the log has %d lines of run %d, its child printed %d", len(got), b.Run, len(b.Printed))
		}
		if b.Whole && !cut[b.Run] && len(got) < len(b.Printed) {
			return fmt.Errorf("run %d ended in order with %d lines, its child printed %d", b.Run, len(got), len(b.Printed))
		}
	}
	for run, got := range of {
		if !known[run] {
			return fmt.Errorf("the log has %d lines of run %d, which had no child", len(got), run)
		}
	}
	return h.compareLines(func(b *Book, n int, e *Event, line []byte) error {
		if number, ok := lineNumber(e.Body); ok && number != (lineKey{b.Run, n + 1}) {
			return fmt.Errorf("event %d is line %d of run %d; line %d of run %d was next", e.Seq, number.n, number.run, n+1, b.Run)
		}
		return nil
	})
}

// CheckBytes (I-P1): a child's bytes reach the log unchanged.
func CheckBytes(h *History) error {
	return h.compareLines(func(b *Book, n int, e *Event, line []byte) error {
		if e.Source == "child" && !bytes.Equal(e.Body, line) {
			return fmt.Errorf("event %d, line %d of run %d, is\n  %.300s\nthe child printed\n  %.300s", e.Seq, n+1, b.Run, e.Body, line)
		}
		return nil
	})
}

// CheckLineLimit (I-P2): of a line over its limit the log has an error that tells
// its length, and of no other line.
func CheckLineLimit(h *History) error {
	limit := h.Limit
	if limit == 0 {
		limit = 8 << 20
	}
	return h.compareLines(func(b *Book, n int, e *Event, line []byte) error {
		said, err := e.broker()
		if err != nil {
			return err
		}
		over := said.Type == "error" && said.Error == lineTooLong
		if over != (len(line) > limit) || over && said.Bytes != len(line) {
			return fmt.Errorf("line %d of run %d has %d bytes (limit %d); event %d is %.200s", n+1, b.Run, len(line), limit, e.Seq, e.Body)
		}
		return nil
	})
}

// CheckSecrets (I-A1): no secret stands in an event.
func CheckSecrets(h *History) error {
	return h.events(func(_ *Log, e *Event) error {
		for i, s := range h.Secrets {
			if bytes.Contains(e.Body, []byte(s)) {
				return fmt.Errorf("event %d carries secret %d", e.Seq, i)
			}
		}
		return nil
	})
}

// CheckNoOrphans (I-W3): no process of the session was seen when none may be.
func CheckNoOrphans(h *History) error {
	if len(h.Orphans) > 0 {
		return fmt.Errorf("processes %v of the session lived", h.Orphans)
	}
	return nil
}
