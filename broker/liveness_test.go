package broker

import (
	"testing"
	"testing/synctest"
	"time"

	"rejoin/protocol"
)

// watched is a bucket that a liveness looks at: a test says what goes through.
type watched struct {
	*liveness
	beats map[string]bool // who writes
	away  bool            // canaries are not written
	deaf  bool            // they are, and are not seen back
}

func newWatched(keys ...string) *watched {
	w := &watched{liveness: newLiveness(), beats: make(map[string]bool)}
	for _, k := range keys {
		w.beats[k] = true
		w.beat(k, time.Now())
	}
	return w
}

// round is one heartbeat of everybody.
func (w *watched) round() {
	<-time.After(protocol.HeartbeatEvery)
	for k, on := range w.beats {
		if on && !w.away && !w.deaf {
			w.beat(k, time.Now())
		}
	}
	n := w.send(time.Now())
	switch {
	case w.away:
		w.fail(time.Now())
	case !w.deaf:
		w.echo(n, time.Now())
	}
}

// until counts rounds to the moment when key is silent, at most max.
func (w *watched) until(key string, limit int) int {
	for i := 1; i <= limit; i++ {
		w.round()
		if w.silent(key, protocol.WorkerLostAfter) {
			return i
		}
	}
	return 0
}

// TestLost: a worker that writes nothing for 30 s while canaries go through is
// lost; one that writes is not.
func TestLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatched("a", "b")
		if w.until("a", 100) != 0 {
			t.Fatal("a worker that writes is lost")
		}
		w.beats["a"] = false
		if n := w.until("a", 100); n != int(protocol.WorkerLostAfter/protocol.HeartbeatEvery) {
			t.Errorf("lost after %d rounds", n)
		}
		if w.silent("b", protocol.WorkerLostAfter) || w.silent("c", 0) {
			t.Error("others are lost too")
		}
		w.beat("a", time.Now())
		if w.silent("a", protocol.WorkerLostAfter) {
			t.Error("it is back, and lost")
		}
		w.forget("b")
		w.expect("c", time.Now())
		w.expect("a", time.Now().Add(-time.Hour))
		if w.silent("b", 0) || w.silent("a", protocol.WorkerLostAfter) || w.until("c", 100) == 0 {
			t.Error("forget and expect")
		}
	})
}

// TestOutageIsNobodysSilence: while canaries fail, or do not come back, nobody is
// lost, however long; afterwards everybody has the whole time again.
func TestOutageIsNobodysSilence(t *testing.T) {
	rounds := int(protocol.WorkerLostAfter / protocol.HeartbeatEvery)
	for name, cut := range map[string]func(*watched, bool){
		"not written":   func(w *watched, on bool) { w.away = on },
		"not seen back": func(w *watched, on bool) { w.deaf = on },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWatched("a")
				w.beats["a"] = false
				if w.until("a", rounds-2) != 0 {
					t.Fatal("lost too early")
				}
				cut(w, true)
				if w.until("a", 1000) != 0 {
					t.Fatal("lost in an outage")
				}
				cut(w, false)
				if n := w.until("a", 100); n < rounds {
					t.Errorf("lost %d rounds after the outage", n)
				}
				// One failure every 27 s is enough to know nothing.
				w.beat("a", time.Now())
				for range 50 {
					if w.until("a", rounds-1) != 0 {
						t.Fatal("lost though canaries fail")
					}
					cut(w, true)
					w.round()
					cut(w, false)
				}
			})
		})
	}
}

// TestBrokerStoodStill: the time in which a broker did not run is no silence of
// others, whether a canary was out or not.
func TestBrokerStoodStill(t *testing.T) {
	for name, stop := range map[string]func(*watched){
		"between canaries": func(*watched) { <-time.After(time.Hour) },
		"one was out": func(w *watched) {
			n := w.send(time.Now())
			<-time.After(time.Hour)
			w.echo(n, time.Now())
		},
		"a late one": func(w *watched) {
			n := w.send(time.Now())
			<-time.After(time.Hour)
			m := w.send(time.Now())
			w.echo(n, time.Now())
			if w.silent("a", protocol.HeartbeatEvery) {
				t.Error("a canary that was given up counts")
			}
			w.echo(m, time.Now())
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWatched("a")
				w.round()
				w.beats["a"] = false
				stop(w)
				if w.silent("a", protocol.WorkerLostAfter) {
					t.Fatal("lost in one's own pause")
				}
				if n := w.until("a", 100); n < int(protocol.WorkerLostAfter/protocol.HeartbeatEvery) {
					t.Errorf("lost %d rounds after the pause", n)
				}
			})
		})
	}
}
