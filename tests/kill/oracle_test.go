package kill_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"rejoin/tests/harness"
)

// history is a whole log, read by pages from the server after its restart.
type history struct {
	epoch  string
	events []harness.Event   // events[i] has seq i+1
	admits map[string]uint64 // command id → seq of its command event
	ends   map[string]string // command id → outcome
	runs   uint64
}

// readHistory reads the log from its first event and checks what must hold of
// any log.
func readHistory(t *testing.T, c *harness.Client, session string) *history {
	t.Helper()
	h := &history{admits: map[string]uint64{}, ends: map[string]string{}}
	for {
		var page struct {
			Events []struct {
				SessionID string          `json:"sessionId"`
				Seq       uint64          `json:"seq"`
				TS        int64           `json:"ts"`
				Run       uint64          `json:"run"`
				Source    string          `json:"source"`
				CommandID string          `json:"commandId"`
				Event     json.RawMessage `json:"event"`
			} `json:"events"`
			Head  uint64 `json:"head"`
			Floor uint64 `json:"floor"`
			Epoch string `json:"epoch"`
		}
		params := map[string]any{"sessionId": session, "after": len(h.events), "limit": 1000, "maxBytes": 8 << 20}
		call(t, c, "read_events", params, &page)
		if page.Floor != 1 || h.epoch != "" && page.Epoch != h.epoch {
			t.Fatalf("broke I-J1: floor %d, epoch %s after %s", page.Floor, page.Epoch, h.epoch)
		}
		h.epoch = page.Epoch
		for _, e := range page.Events {
			if e.SessionID != session {
				t.Fatalf("broke I-A1: read_events of %s gave an event of %s", session, e.SessionID)
			}
			h.add(t, harness.Event{
				Epoch: page.Epoch, Seq: e.Seq, TS: e.TS, Run: e.Run, Source: e.Source, CommandID: e.CommandID, Body: e.Event,
			})
		}
		if uint64(len(h.events)) >= page.Head {
			return h
		}
		if len(page.Events) == 0 {
			t.Fatalf("broke I-J4: read_events after %d gave nothing though the head is %d", len(h.events), page.Head)
		}
	}
}

func (h *history) add(t *testing.T, e harness.Event) {
	t.Helper()
	if e.Seq != uint64(len(h.events))+1 {
		t.Fatalf("broke I-J1: the log has %d after %d", e.Seq, len(h.events))
	}
	if e.Run < h.runs {
		t.Fatalf("broke I-J3: event %d of run %d follows run %d", e.Seq, e.Run, h.runs)
	}
	h.runs = e.Run
	h.events = append(h.events, e)
	if e.Source != "broker" {
		return
	}
	var b struct {
		Type      string `json:"type"`
		CommandID string `json:"commandId"`
		Outcome   string `json:"outcome"`
	}
	if err := json.Unmarshal(e.Body, &b); err != nil {
		t.Fatalf("event %d of the broker: %v", e.Seq, err)
	}
	switch b.Type {
	case "command":
		if at, ok := h.admits[b.CommandID]; ok {
			t.Fatalf("broke I-B1: command %s was admitted at %d and %d", b.CommandID, at, e.Seq)
		}
		h.admits[b.CommandID] = e.Seq
	case "command_outcome":
		if was, ok := h.ends[b.CommandID]; ok {
			t.Fatalf("broke I-B3: command %s ended as %s and at %d as %s", b.CommandID, was, e.Seq, b.Outcome)
		}
		h.ends[b.CommandID] = b.Outcome
	}
}

// last returns the last event's type.
func (h *history) last() string {
	if len(h.events) == 0 {
		return ""
	}
	return h.events[len(h.events)-1].Type()
}

// checkSeen compares every event that a client booked with the log.
func (h *history) checkSeen(t *testing.T, o *observer) {
	t.Helper()
	b, err := o.events.read()
	if err != nil {
		t.Fatal(err)
	}
	var want []byte
	i := 0
	for got := range bytes.Lines(b) {
		got = bytes.TrimSuffix(got, []byte("\n"))
		if i >= len(h.events) {
			t.Fatalf("broke I-J2: observer %s saw an event that the log of %d does not have: %.200s", o.name, len(h.events), got)
		}
		want = eventLine(want[:0], &h.events[i])
		if !bytes.Equal(got, want) {
			t.Fatalf("broke I-J2: observer %s saw at place %d\n  %.300s\nthe log has\n  %.300s", o.name, i+1, got, want)
		}
		i++
	}
}

// checkOutput compares the child events of each run with what the child booked:
// a prefix, and everything for runs up to whole.
func (h *history) checkOutput(t *testing.T, w *world, whole func(run uint64) bool) {
	t.Helper()
	printed := map[uint64][]harness.Event{}
	for _, e := range h.events {
		if e.Source == "child" {
			printed[e.Run] = append(printed[e.Run], e)
		}
	}
	for run := uint64(1); run <= h.runs; run++ {
		book, err := os.ReadFile(outPath(w.dir, w.session, run))
		if errors.Is(err, os.ErrNotExist) {
			book = nil // a run of a recovering broker, or a child that was killed before its first line
		} else if err != nil {
			t.Fatal(err)
		}
		lines := bytes.Split(book, []byte("\n"))
		lines = lines[:len(lines)-min(1, len(lines))] // what follows the last LF
		if len(printed[run]) > len(lines) {
			t.Fatalf("broke I-W2: the log has %d child events of run %d, the child printed %d", len(printed[run]), run, len(lines))
		}
		for i, e := range printed[run] {
			if !bytes.Equal(e.Body, lines[i]) {
				t.Fatalf("broke I-W2: child event %d of run %d (seq %d) is\n  %.300s\nthe child's line is\n  %.300s", i+1, run, e.Seq, e.Body, lines[i])
			}
		}
		if whole(run) && len(printed[run]) != len(lines) {
			t.Fatalf("broke I-W2: run %d ended in order with %d child events, the child printed %d", run, len(printed[run]), len(lines))
		}
	}
}

// checkInput compares what the child received with the log: everything was
// admitted first, with the same bytes, and came once.
func (h *history) checkInput(t *testing.T, w *world) (received map[string]bool) {
	t.Helper()
	received = map[string]bool{}
	for run := uint64(1); run <= h.runs; run++ {
		book, err := os.ReadFile(inPath(w.dir, w.session, run))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		for line := range bytes.Lines(book) {
			var o order
			if err := json.Unmarshal(line, &o); err != nil {
				t.Fatalf("broke I-W1: the child of run %d read %.200q: %v", run, line, err)
			}
			if received[o.K] {
				t.Fatalf("broke I-B1: command %s reached the child twice", o.K)
			}
			received[o.K] = true
			h.checkAdmitted(t, run, o.K, bytes.TrimSuffix(line, []byte("\n")))
		}
	}
	return received
}

func (h *history) checkAdmitted(t *testing.T, run uint64, id string, line []byte) {
	t.Helper()
	seq, ok := h.admits[id]
	if !ok {
		t.Fatalf("broke I-W1: command %s reached the child of run %d and is not in the log", id, run)
	}
	var b struct {
		Command json.RawMessage `json:"command"`
	}
	e := h.events[seq-1]
	if err := json.Unmarshal(e.Body, &b); err != nil || e.Run != run || !bytes.Equal(b.Command, line) {
		t.Fatalf("broke I-W1: the child of run %d read %s, the log has at %d of run %d %s (%v)", run, line, seq, e.Run, b.Command, err)
	}
}

// checkAcks looks for the event of every acknowledged order.
func (h *history) checkAcks(t *testing.T, o *observer) {
	t.Helper()
	for _, s := range o.orders() {
		if s.Seq == 0 {
			continue
		}
		if at, ok := h.admits[s.ID]; !ok || at != s.Seq {
			t.Fatalf("broke I-J2: command %s was acknowledged at %d; the log (head %d) has it at %d", s.ID, s.Seq, len(h.events), at)
		}
	}
}

// checkOutcomes demands one outcome for every command when no run is alive, and
// that what is said not to have been written was not read.
func (h *history) checkOutcomes(t *testing.T, received map[string]bool) {
	t.Helper()
	for id, seq := range h.admits {
		switch outcome := h.ends[id]; outcome {
		case "done", "interrupted":
		case "failed", "discarded":
			if received[id] {
				t.Fatalf("broke I-B3: command %s is said to be %s, yet the child read it", id, outcome)
			}
		default:
			t.Fatalf("broke I-B3: command %s (seq %d) has outcome %q though its run is over", id, seq, outcome)
		}
	}
}

// checkRetries sends every order again under its id, each client's at the same
// time, and tells what must come back: the first answer where there was one.
// alive: the session has an owner, so only acknowledged orders are asked for (the
// others would be admitted now).
func (h *history) checkRetries(t *testing.T, c *harness.Client, w *world, alive bool) (retried int) {
	t.Helper()
	ctx := harness.Context(t)
	counts, errs := make([]int, len(w.observers)), make([]error, len(w.observers))
	var asking sync.WaitGroup
	for i, o := range w.observers {
		asking.Go(func() {
			for _, s := range o.orders() {
				if alive && s.Seq == 0 {
					continue
				}
				counts[i]++
				if errs[i] = h.retry(ctx, c, w.session, &s); errs[i] != nil {
					return
				}
			}
		})
	}
	asking.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for _, n := range counts {
		retried += n
	}
	return retried
}

func (h *history) retry(ctx context.Context, c *harness.Client, session string, s *sent) error {
	r, err := sendOrder(ctx, c, session, s)
	admitted := h.admits[s.ID]
	var refused *harness.RPCError
	switch {
	case s.Seq != 0 && (err != nil || !r.Duplicate || r.Seq != s.Seq):
		return fmt.Errorf("broke I-B1: command %s was acknowledged at %d; its retry answered %+v, %w", s.ID, s.Seq, r, err)
	case s.Seq == 0 && admitted != 0 && (err != nil || !r.Duplicate || r.Seq != admitted):
		return fmt.Errorf("broke I-B1: command %s is in the log at %d; its retry answered %+v, %w", s.ID, admitted, r, err)
	case s.Seq == 0 && admitted == 0 && (!errors.As(err, &refused) || refused.Code != -32004):
		return fmt.Errorf("broke I-B1: command %s is not in the log and no child lives; its retry answered %+v, %w", s.ID, r, err)
	}
	return nil
}

// checkConflict demands that another payload under a known id is refused.
func (h *history) checkConflict(t *testing.T, c *harness.Client, w *world) {
	t.Helper()
	for id := range h.admits {
		_, err := sendOrder(harness.Context(t), c, w.session, &sent{ID: id, Command: json.RawMessage(fmt.Sprintf(`{"type":"other","k":%q}`, id))})
		var refused *harness.RPCError
		if !errors.As(err, &refused) || refused.Code != -32006 {
			t.Fatalf("broke I-B1: another payload under command id %s answered %v", id, err)
		}
		return
	}
}
