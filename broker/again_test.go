package broker

import (
	"errors"
	"testing"
	"time"

	"rejoin/protocol"
)

func TestWants(t *testing.T) {
	code := 1
	lost := func(f func(*protocol.SessionRecord)) *protocol.SessionRecord {
		r := &protocol.SessionRecord{Run: 2, Restart: protocol.RestartResume, Status: protocol.StatusInterrupted}
		f(r)
		return r
	}
	for name, c := range map[string]struct {
		rec  *protocol.SessionRecord
		want bool
	}{
		"interrupted": {lost(func(*protocol.SessionRecord) {}), true},
		"failed": {lost(func(r *protocol.SessionRecord) {
			r.Status, r.Exit = protocol.StatusEnded, &protocol.Exit{Reason: protocol.EndExited, Code: &code}
		}), true},
		"stopped": {lost(func(r *protocol.SessionRecord) {
			r.Status, r.Exit = protocol.StatusEnded, &protocol.Exit{Reason: protocol.EndStopped}
		}), false},
		"another policy":        {lost(func(r *protocol.SessionRecord) { r.Restart = "" }), false},
		"it rests":              {lost(func(r *protocol.SessionRecord) { r.Rests = 2 }), false},
		"it rested after a run": {lost(func(r *protocol.SessionRecord) { r.Rests = 1 }), true},
		"it is being deleted":   {lost(func(r *protocol.SessionRecord) { r.Deleting = true }), false},
		"it runs":               {lost(func(r *protocol.SessionRecord) { r.Status = protocol.StatusBusy }), false},
	} {
		if got := wants(c.rec); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestGrant: of brokers that planned the same restart one gets it, and no more of
// them come about in the window than may.
func TestGrant(t *testing.T) {
	now := time.UnixMilli(1_000_000_000)
	seen := &protocol.SessionRecord{Run: 2}
	g := grant{policy: true}
	r := clone(seen)
	for i := range protocol.RestartsPerWindowMax {
		if err := g.admit(r, seen, now.Add(time.Duration(i)*time.Minute)); err != nil || len(r.Restarted) != i+1 {
			t.Fatalf("restart %d: %v, %v", i, r.Restarted, err)
		}
	}
	late := now.Add(3 * time.Minute)
	if err := g.admit(r, seen, late); !errors.Is(err, ErrNotOwner) {
		t.Errorf("one too many: %v", err)
	}
	if err := (grant{}).admit(r, seen, late); err != nil || len(r.Restarted) != protocol.RestartsPerWindowMax {
		t.Errorf("a client's: %v, %v", r.Restarted, err)
	}
	if err := g.admit(r, seen, now.Add(protocol.RestartWindow)); err != nil || len(r.Restarted) != protocol.RestartsPerWindowMax {
		t.Errorf("when the first is out of the window: %v, %v", r.Restarted, err)
	}
	if err := g.admit(&protocol.SessionRecord{Run: 3}, seen, now); !errors.Is(err, ErrNotOwner) {
		t.Errorf("another run: %v", err)
	}
	if err := g.admit(&protocol.SessionRecord{Run: 2, Rests: 2}, seen, now); !errors.Is(err, ErrNotOwner) {
		t.Errorf("it rests: %v", err)
	}
}

// TestPlanRun: a plan is for the run that it was made for, and moves only with it.
func TestPlanRun(t *testing.T) {
	r := newRestarts(time.Now)
	r.planRun(keyA, 2, time.Hour)
	at := r.agenda.due[keyA]
	r.planRun(keyA, 2, time.Minute)
	if run, ok := r.planned(keyA); !ok || run != 2 || r.agenda.due[keyA] != at {
		t.Errorf("planned again: %d, %v, %v", run, ok, r.agenda.due[keyA])
	}
	r.planRun(keyA, 4, time.Minute)
	if run, ok := r.planned(keyA); !ok || run != 4 || !r.agenda.due[keyA].Before(at) {
		t.Errorf("another run: %d, %v", run, ok)
	}
	r.done(keyA)
	if _, ok := r.planned(keyA); ok || r.agenda.has(keyA) {
		t.Error("called off, and planned")
	}
}
