package kill_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"

	"rejoin/tests/harness"
	"rejoin/tests/model"
)

// readLog reads a whole log, which nothing has trimmed.
func readLog(t *testing.T, c *harness.Client, session string) *model.Log {
	t.Helper()
	l := &model.Log{}
	if _, err := model.ReadMore(t.Context(), c, session, l); err != nil {
		t.Fatal(err)
	}
	if l.Floor != 1 {
		t.Fatalf("broke I-J1: floor %d", l.Floor)
	}
	return l
}

// last returns the last event's type.
func last(l *model.Log) string {
	if len(l.Events) == 0 {
		return ""
	}
	return l.Events[len(l.Events)-1].Type()
}

// lastRun returns the run of the last event.
func lastRun(l *model.Log) uint64 {
	if len(l.Events) == 0 {
		return 0
	}
	return l.Events[len(l.Events)-1].Run
}

// admits returns the seq at which each command was admitted.
func admits(t *testing.T, l *model.Log) map[string]uint64 {
	t.Helper()
	at := map[string]uint64{}
	for i := range l.Events {
		e := &l.Events[i]
		if e.Source != "broker" || e.Type() != "command" {
			continue
		}
		var b struct {
			CommandID string `json:"commandId"`
		}
		if err := json.Unmarshal(e.Body, &b); err != nil {
			t.Fatal(err)
		}
		at[b.CommandID] = e.Seq
	}
	return at
}

// checkRetries sends every order again under its id, each client's at the same
// time, and tells what must come back: the first answer where there was one.
// alive: the session has an owner, so only acknowledged orders are asked for (the
// others would be admitted now).
func checkRetries(t *testing.T, c *harness.Client, w *world, l *model.Log, alive bool) (retried int) {
	t.Helper()
	ctx := harness.Context(t)
	admitted := admits(t, l)
	counts, errs := make([]int, len(w.observers)), make([]error, len(w.observers))
	var asking sync.WaitGroup
	for i, o := range w.observers {
		asking.Go(func() {
			for _, s := range o.orders() {
				if alive && s.Seq == 0 {
					continue
				}
				counts[i]++
				if errs[i] = retry(ctx, c, w, &s, admitted[s.ID]); errs[i] != nil {
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

func retry(ctx context.Context, c *harness.Client, w *world, s *sent, admitted uint64) error {
	a, err := model.Send(ctx, c, w.session, s.ID, s.Command)
	if err != nil {
		return err
	}
	w.rec.Answered(s.ID, a)
	switch {
	case s.Seq != 0 && (!a.Duplicate || a.Seq != s.Seq):
		return fmt.Errorf("broke I-B1: command %s was acknowledged at %d; its retry answered %+v", s.ID, s.Seq, a)
	case s.Seq == 0 && admitted != 0 && (!a.Duplicate || a.Seq != admitted):
		return fmt.Errorf("broke I-B1: command %s is in the log at %d; its retry answered %+v", s.ID, admitted, a)
	case s.Seq == 0 && admitted == 0 && a.Code != -32004:
		return fmt.Errorf("broke I-B1: command %s is not in the log and no child lives; its retry answered %+v", s.ID, a)
	}
	return nil
}

// checkConflict demands that another payload under a known id is refused.
func checkConflict(t *testing.T, c *harness.Client, w *world, l *model.Log) {
	t.Helper()
	for id := range admits(t, l) {
		a, err := model.Send(harness.Context(t), c, w.session, id, json.RawMessage(fmt.Sprintf(`{"type":"other","k":%q}`, id)))
		if err != nil || a.Code != -32006 {
			t.Fatalf("broke I-B1: another payload under command id %s answered %+v, %v", id, a, err)
		}
		return
	}
}
