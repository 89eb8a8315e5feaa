package broker

import (
	"encoding/json"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"rejoin/journal"
	"rejoin/protocol"
)

// feed has a roster take an entry of a worker.
func (r *roster) feed(t *testing.T, rev uint64, e protocol.WorkerEntry) {
	t.Helper()
	value, err := json.Marshal(e)
	if err == nil {
		err = r.take(journal.Entry{Key: e.ID, Value: value, Revision: rev})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (r *roster) feedCanary(t *testing.T, key string, rev, beat uint64) {
	t.Helper()
	value, err := json.Marshal(canary{Beat: beat})
	if err == nil {
		err = r.take(journal.Entry{Key: key, Value: value, Revision: rev})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestRosterFate(t *testing.T) {
	woken := 0
	r := newRoster("canary.me", func() { woken++ })
	r.feed(t, 1, protocol.WorkerEntry{ID: "w", Owner: "w~1", Beat: 1})
	r.feed(t, 2, protocol.WorkerEntry{ID: "w", Owner: "w~1", Beat: 2})
	for owner, want := range map[string]string{"w~1": "", "w~0": protocol.InterruptedWorkerRestart, "x~1": ""} {
		if got := r.fate(owner); got != want {
			t.Errorf("fate of %s: %q", owner, got)
		}
	}
	r.feed(t, 3, protocol.WorkerEntry{ID: "w", Owner: "w~1", Lost: true})
	r.feed(t, 2, protocol.WorkerEntry{ID: "w", Owner: "w~1", Beat: 2}) // an old one comes again
	if got := r.fate("w~1"); got != protocol.InterruptedWorkerLost {
		t.Errorf("fate of a lost one: %q", got)
	}
	r.feed(t, 4, protocol.WorkerEntry{ID: "w", Owner: "w~1", Beat: 3}) // it is back
	if got := r.fate("w~1"); got != "" {
		t.Errorf("fate of one that is back: %q", got)
	}
	r.feed(t, 5, protocol.WorkerEntry{ID: "w", Owner: "w~1", Left: true})
	if got := r.fate("w~1"); got != protocol.InterruptedWorkerStop {
		t.Errorf("fate of one that left: %q", got)
	}
	if woken != 4 { // a heartbeat alone is no news
		t.Errorf("woken %d times", woken)
	}
	if err := r.take(journal.Entry{Key: "w", Value: []byte("{"), Revision: 6}); err == nil {
		t.Error("an unreadable entry was taken")
	}
}

// TestRosterSilent: which workers and brokers are silent, by the watch alone.
func TestRosterSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoster("canary.me", func() {})
		r.feed(t, 1, protocol.WorkerEntry{ID: "w", Owner: "w~1"})
		r.feed(t, 2, protocol.WorkerEntry{ID: "lost", Owner: "lost~1", Lost: true})
		r.feed(t, 3, protocol.WorkerEntry{ID: "left", Owner: "left~1", Left: true})
		r.feedCanary(t, "canary.a", 4, 1)
		r.expect(map[string]bool{"w": true, "nobody": true})
		rev := uint64(10)
		rounds := func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); rev++ {
				<-time.After(protocol.HeartbeatEvery)
				r.mu.Lock()
				n := r.life.send(r.now())
				r.mu.Unlock()
				r.feedCanary(t, "canary.me", rev, n)
			}
		}
		if r.brokers() != 2 || r.first() || !slices.Equal(r.singing(), []string{"a"}) {
			t.Errorf("brokers: %d, first %v, others %v", r.brokers(), r.first(), r.singing())
		}
		gaveUp := make(chan struct{})
		defer r.whenSilent(t.Context(), "a", func() { close(gaveUp) })()
		rounds(protocol.WorkerLostAfter + 2*protocol.HeartbeatEvery)
		<-gaveUp
		workers, canaries := r.silent()
		if len(workers) != 2 || workers["w"].rev != 1 || workers["nobody"].rev != 0 || len(canaries) != 0 {
			t.Errorf("silent: %v, %v", workers, canaries)
		}
		if r.brokers() != 1 || !r.first() || len(r.singing()) != 0 {
			t.Errorf("brokers: %d, first %v, others %v", r.brokers(), r.first(), r.singing())
		}
		r.feed(t, rev, protocol.WorkerEntry{ID: "w", Owner: "w~1"})
		rounds(brokerGone)
		if _, canaries = r.silent(); !slices.Equal(canaries, []string{"canary.a"}) {
			t.Errorf("silent canaries: %v", canaries)
		}
	})
}
