package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"rejoin/journal"
	"rejoin/protocol"
)

// fakeBucket is a bucket of one key that fails as a test says.
type fakeBucket struct {
	mu     sync.Mutex
	entry  journal.Entry // the newest
	older  journal.Entry // the one before
	away   bool          // nothing is answered: calls wait for their ctx
	mute   bool          // writes are stored, their answers are lost
	slow   time.Duration // until a write is answered
	behind int           // so many Gets are answered with the older entry
	writes []protocol.WorkerEntry
	at     []time.Time
}

func (f *fakeBucket) wait(ctx context.Context) error {
	<-ctx.Done()
	return fmt.Errorf("%w: %w", journal.ErrUnavailable, ctx.Err())
}

func (f *fakeBucket) Get(ctx context.Context, key string) (journal.Entry, error) {
	f.mu.Lock()
	e, away := f.entry, f.away
	if f.behind > 0 {
		f.behind--
		e = f.older
	}
	f.mu.Unlock()
	switch {
	case away:
		return journal.Entry{}, f.wait(ctx)
	case e.Key != key:
		return journal.Entry{}, journal.ErrNotFound
	}
	return e, nil
}

func (f *fakeBucket) PutOver(ctx context.Context, key string, value []byte, rev uint64) (uint64, error) {
	f.mu.Lock()
	away, mute, slow := f.away, f.mute, f.slow
	if !away && rev != f.entry.Revision {
		f.mu.Unlock()
		if rev == 0 {
			return 0, journal.ErrExists
		}
		return 0, journal.ErrRevision
	}
	if !away {
		f.older = f.entry
		f.entry = journal.Entry{Key: key, Value: value, Revision: rev + 1}
		f.writes, f.at = append(f.writes, f.read()), append(f.at, time.Now())
	}
	f.mu.Unlock()
	if away || mute {
		return 0, f.wait(ctx)
	}
	<-time.After(slow)
	return rev + 1, nil
}

// read returns the newest entry. Mu is held.
func (f *fakeBucket) read() (e protocol.WorkerEntry) {
	if err := json.Unmarshal(f.entry.Value, &e); err != nil {
		panic(err)
	}
	return e
}

// set does something to the bucket.
func (f *fakeBucket) set(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
}

// put stores an entry as somebody else; change begins with the one that is there.
func (f *fakeBucket) put(change func(*protocol.WorkerEntry)) {
	f.set(func() {
		var e protocol.WorkerEntry
		if f.entry.Key != "" {
			e = f.read()
		}
		change(&e)
		value, err := json.Marshal(e)
		if err != nil {
			panic(err)
		}
		f.older = f.entry
		f.entry = journal.Entry{Key: "w", Value: value, Revision: f.entry.Revision + 1}
	})
}

func (f *fakeBucket) newest() (protocol.WorkerEntry, int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.entry.Key == "" {
		return protocol.WorkerEntry{}, 0
	}
	return f.read(), len(f.writes)
}

// fakeCharges notes what a presence decides.
type fakeCharges struct {
	mu    sync.Mutex
	did   []string
	when  []time.Time
	fails int // so many confirms fail

	bucket *fakeBucket
	writes int // of the bucket, at the last freeze
}

func (c *fakeCharges) note(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.did, c.when = append(c.did, what), append(c.when, time.Now())
}

func (c *fakeCharges) live() int { return 7 }

func (c *fakeCharges) freeze() {
	_, n := c.bucket.newest()
	c.note("freeze")
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writes = n
}

func (c *fakeCharges) confirm(_ context.Context, all bool) error {
	c.mu.Lock()
	fails := c.fails > 0
	if fails {
		c.fails--
	}
	c.mu.Unlock()
	if fails {
		c.note("confirm fails")
		return journal.ErrUnavailable
	}
	c.note(map[bool]string{true: "confirm all", false: "confirm frozen"}[all])
	return nil
}

// take returns what was decided since the last call, repetitions left out.
func (c *fakeCharges) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := slices.Compact(c.did)
	c.did, c.when = nil, nil
	return out
}

// moment is when the decision was taken for the first time.
func (c *fakeCharges) moment(what string) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.Index(c.did, what); i >= 0 {
		return c.when[i]
	}
	return time.Time{}
}

// stage is a presence under test, in a bubble.
type stage struct {
	t       *testing.T
	bucket  *fakeBucket
	charges *fakeCharges
	p       *presence
	asleep  time.Duration // of the machine: no timer counts it
	end     context.CancelFunc
	ended   chan error
}

// inBubble runs play with a presence that has not begun.
func inBubble(t *testing.T, play func(s *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &stage{t: t, bucket: &fakeBucket{}, ended: make(chan error, 1)}
		s.charges = &fakeCharges{bucket: s.bucket}
		cfg := Config{ID: "w", SessionsMax: 9, Now: time.Now, Presence: &Presence{Labels: map[string]string{"repo": "a"}, Version: "v"}}
		s.p = newPresence(&cfg, "w~1", func(ctx context.Context) (entries, error) {
			s.bucket.mu.Lock()
			away := s.bucket.away
			s.bucket.mu.Unlock()
			if away {
				return nil, s.bucket.wait(ctx)
			}
			return s.bucket, nil
		}, s.charges, slog.New(slog.DiscardHandler))
		began := time.Now()
		s.p.clock = func() time.Duration { return time.Since(began) + s.asleep }
		play(s)
		if s.end != nil {
			s.end()
			if err := <-s.ended; err != nil && !errors.Is(err, context.Canceled) {
				s.t.Errorf("run: %v", err)
			}
		}
	})
}

func (s *stage) begin() {
	ctx, end := context.WithCancel(s.t.Context())
	s.end = end
	go func() { s.ended <- s.p.run(ctx) }()
	synctest.Wait()
}

// pass lets time go by.
func (s *stage) pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// decided compares what was decided since the last call.
func (s *stage) decided(want ...string) {
	s.t.Helper()
	if got := s.charges.take(); !slices.Equal(got, want) {
		s.t.Errorf("decided %q, want %q", got, want)
	}
}

// entry checks the newest entry's owner and returns it.
func (s *stage) entry(owner string) protocol.WorkerEntry {
	s.t.Helper()
	e, _ := s.bucket.newest()
	if e.Owner != owner {
		s.t.Errorf("owner %q, want %q", e.Owner, owner)
	}
	return e
}

func TestHeartbeat(t *testing.T) {
	inBubble(t, func(s *stage) {
		s.begin()
		s.pass(10 * protocol.HeartbeatEvery)
		e := s.entry("w~1")
		if e.ID != "w" || e.Labels["repo"] != "a" || e.Capacity != 9 || e.Sessions != 7 || e.Version != "v" || e.Lost || e.Left || e.Draining || e.At == 0 {
			t.Errorf("entry: %+v", e)
		}
		if n := len(s.bucket.writes); n != 11 || e.Beat != 11 {
			t.Errorf("%d entries, beat %d", n, e.Beat)
		}
		for i := range s.bucket.at[1:] {
			if d := s.bucket.at[i+1].Sub(s.bucket.at[i]); d != protocol.HeartbeatEvery {
				t.Errorf("%v between heartbeats", d)
			}
		}
		s.decided()
	})
}

// The newest process of an id is the worker, whatever an earlier one left.
func TestPresenceTakesOver(t *testing.T) {
	for name, left := range map[string]protocol.WorkerEntry{
		"alive": {ID: "w", Owner: "w~0"}, "lost": {ID: "w", Owner: "w~0", Lost: true}, "stopped": {ID: "w", Owner: "w~0", Left: true, Draining: true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(s *stage) {
				s.bucket.put(func(e *protocol.WorkerEntry) { *e = left })
				s.begin()
				if e := s.entry("w~1"); e.Lost || e.Left || e.Draining {
					t.Errorf("entry: %+v", e)
				}
				s.decided()
			})
		})
	}
}

func TestPresenceWaitsForTheCluster(t *testing.T) {
	inBubble(t, func(s *stage) {
		s.bucket.away = true
		s.begin()
		s.pass(5 * time.Minute)
		s.bucket.set(func() { s.bucket.away = false })
		s.pass(protocol.HeartbeatEvery + beatAgain)
		s.entry("w~1")
		if s.p.away() {
			t.Error("the worker takes no session")
		}
	})
}

// Proves I-B2 among processes of one id.
func TestSuperseded(t *testing.T) {
	inBubble(t, func(s *stage) {
		s.begin()
		s.bucket.put(func(e *protocol.WorkerEntry) { e.Owner = "w~2" })
		s.pass(protocol.HeartbeatEvery + registryPause)
		var err error
		select {
		case err = <-s.ended:
		default:
			s.t.Fatal("it goes on")
		}
		if !errors.Is(err, ErrSuperseded) || !errors.Is(err, journal.ErrFenced) {
			t.Errorf("run: %v", err)
		}
		s.ended <- nil
		_, writes := s.bucket.newest()
		if err := s.p.leave(s.t.Context()); !errors.Is(err, ErrSuperseded) {
			t.Errorf("leave: %v", err)
		}
		if _, n := s.bucket.newest(); n != writes {
			t.Error("a superseded worker writes")
		}
		s.entry("w~2")
		s.decided()
	})
}

// A server that lags behind may show the entry of the life before: that is no newer one.
func TestOldAnswerDoesNotSupersede(t *testing.T) {
	inBubble(t, func(s *stage) {
		s.bucket.put(func(e *protocol.WorkerEntry) { e.Owner = "w~0" })
		old := s.bucket.entry
		s.begin()
		s.bucket.set(func() { s.bucket.mute = true })
		s.pass(protocol.HeartbeatEvery + time.Second)
		s.bucket.set(func() { s.bucket.mute, s.bucket.behind, s.bucket.older = false, 3, old })
		s.pass(2 * protocol.HeartbeatEvery)
		if s.bucket.behind != 0 {
			s.t.Fatal("no old answer was given")
		}
		e := s.entry("w~1")
		s.pass(protocol.HeartbeatEvery)
		if now := s.entry("w~1"); now.Beat <= e.Beat {
			t.Error("no heartbeat")
		}
		s.decided()
	})
}

// An entry whose answer was lost is found and gone on from.
func TestLostAnswerOfAHeartbeat(t *testing.T) {
	inBubble(t, func(s *stage) {
		s.bucket.mute = true
		s.begin()
		s.pass(protocol.HeartbeatEvery - time.Millisecond)
		s.bucket.set(func() { s.bucket.mute = false })
		s.pass(protocol.HeartbeatEvery)
		s.entry("w~1")
		if _, n := s.bucket.newest(); n < 2 {
			t.Errorf("%d entries", n)
		}
		s.decided()
	})
}

// A worker that was given up looks at its sessions before it says that it is there.
func TestLost(t *testing.T) {
	inBubble(t, func(s *stage) {
		s.begin()
		s.charges.fails = 2
		s.bucket.put(func(e *protocol.WorkerEntry) { e.Lost = true })
		s.pass(protocol.HeartbeatEvery + registryPause)
		s.decided("confirm fails")
		if e := s.entry("w~1"); !e.Lost {
			t.Error("it says that it is there before its sessions were looked at")
		}
		s.pass(2 * beatAgain)
		s.decided("confirm fails", "confirm all")
		if e := s.entry("w~1"); e.Lost {
			t.Error("it still says that it is lost")
		}
		s.pass(4 * protocol.HeartbeatEvery)
		s.decided()
	})
}

func TestFreezeAndContinue(t *testing.T) {
	inBubble(t, func(s *stage) {
		s.begin()
		last := time.Now() // the first heartbeat has gone through
		s.bucket.set(func() { s.bucket.away = true })
		s.pass(protocol.WorkerFreezeAfter - time.Nanosecond)
		s.decided()
		if s.p.away() {
			t.Error("away too early")
		}
		s.pass(time.Nanosecond)
		if at := s.charges.moment("freeze"); at.Sub(last) != protocol.WorkerFreezeAfter {
			t.Errorf("frozen after %v", at.Sub(last))
		}
		if !s.p.away() {
			t.Error("sessions would be started")
		}
		s.pass(time.Minute) // again and again: for those that come up late
		s.decided("freeze")
		s.charges.mu.Lock()
		s.charges.fails = 1 << 30
		s.charges.mu.Unlock()
		_, before := s.bucket.newest()
		s.bucket.set(func() { s.bucket.away = false })
		s.pass(2 * protocol.WorkerFreezeAfter)
		if _, n := s.bucket.newest(); n == before || !s.p.away() {
			t.Errorf("%d entries after %d, away %v: want a heartbeat, and to be away while nothing is known of a session", n, before, s.p.away())
		}
		s.decided("freeze", "confirm fails")
		s.charges.mu.Lock()
		s.charges.fails = 0
		s.charges.mu.Unlock()
		s.pass(beatAgain)
		s.decided("confirm frozen")
		if s.p.away() {
			t.Error("still away")
		}
		s.pass(10 * protocol.HeartbeatEvery)
		s.decided()
	})
}

// While no heartbeat goes through, output waits and commands are refused, of sessions
// too that nobody starts elsewhere; no answer about a frozen session is waited for.
func TestLogsWaitWhileUnheard(t *testing.T) {
	inBubble(t, func(s *stage) {
		s.begin()
		log := heard{&fakeLog{}, s.p}
		room := func(ctx context.Context) chan error {
			got := make(chan error, 1)
			go func() { got <- log.WaitRoom(ctx) }()
			synctest.Wait()
			return got
		}
		s.bucket.set(func() { s.bucket.away = true })
		s.pass(protocol.WorkerFreezeAfter - time.Nanosecond)
		if err := <-room(s.t.Context()); err != nil || log.Health().Refuses() {
			s.t.Errorf("before it is unheard: %v, %v", err, log.Health())
		}
		s.pass(time.Nanosecond)
		ctx, cancel := context.WithCancel(s.t.Context())
		given, waits := room(ctx), room(s.t.Context())
		cancel()
		if err := <-given; !errors.Is(err, context.Canceled) {
			s.t.Errorf("what is left of an ended child: %v", err)
		}
		if h := log.Health(); !h.Refuses() || h.Err() == nil {
			s.t.Errorf("unheard: %v", h)
		}
		s.pass(protocol.WorkerLostAfter)
		select {
		case err := <-waits:
			s.t.Errorf("output goes on while unheard: %v", err)
			return
		default:
		}
		s.charges.mu.Lock()
		s.charges.fails = 1 << 30
		s.charges.mu.Unlock()
		s.bucket.set(func() { s.bucket.away = false })
		s.pass(protocol.HeartbeatEvery + 2*beatAgain)
		if err := <-waits; err != nil || log.Health().Refuses() || !s.p.away() {
			s.t.Errorf("heard again: %v, %v, away %v", err, log.Health(), s.p.away())
		}
	})
}

// What counts is when the entry was sent: brokers may have seen it at once.
func TestFreezeAfterASlowAnswer(t *testing.T) {
	inBubble(t, func(s *stage) {
		sent := time.Now()
		s.bucket.slow = 2 * time.Second
		s.begin()
		s.pass(s.bucket.slow)
		s.bucket.set(func() { s.bucket.away = true })
		s.pass(protocol.WorkerFreezeAfter)
		if at := s.charges.moment("freeze"); at.Sub(sent) != protocol.WorkerFreezeAfter {
			t.Errorf("frozen after %v", at.Sub(sent))
		}
	})
}

func TestFrozenAndLost(t *testing.T) {
	inBubble(t, func(s *stage) {
		s.begin()
		s.bucket.set(func() { s.bucket.away = true })
		s.pass(2 * protocol.WorkerLostAfter)
		s.bucket.put(func(e *protocol.WorkerEntry) { e.Lost = true })
		s.bucket.set(func() { s.bucket.away = false })
		s.pass(protocol.HeartbeatEvery + 2*beatAgain)
		s.decided("freeze", "confirm all", "confirm frozen")
		if e := s.entry("w~1"); e.Lost || s.p.away() {
			t.Errorf("entry %+v, away %v", e, s.p.away())
		}
	})
}

// A process that was stopped for long, and wakes, stops its sessions before it asks
// for anything: they may have gone on elsewhere meanwhile.
func TestFreezeComesBeforeAnything(t *testing.T) {
	inBubble(t, func(s *stage) {
		s.p.since = s.p.clock()
		if err := s.p.step(s.t.Context()); err != nil {
			s.t.Fatal(err)
		}
		s.asleep = time.Hour
		if err := s.p.step(s.t.Context()); err != nil {
			s.t.Fatal(err)
		}
		if before := s.charges.writes; before != 1 {
			t.Errorf("frozen after %d entries", before)
		}
		s.decided("freeze", "confirm frozen")
	})
}

// A failed heartbeat is no reason to stop anything as long as others go through.
func TestSingleFailures(t *testing.T) {
	inBubble(t, func(s *stage) {
		s.begin()
		for range 20 {
			s.bucket.set(func() { s.bucket.away = true })
			s.pass(protocol.WorkerFreezeAfter - 2*protocol.HeartbeatEvery)
			s.bucket.set(func() { s.bucket.away = false })
			s.pass(protocol.HeartbeatEvery + 2*beatAgain)
		}
		s.decided()
	})
}

func TestDrain(t *testing.T) {
	inBubble(t, func(s *stage) {
		s.begin()
		for i, step := range []struct{ asked, says drain }{
			{drain{on: true}, drain{on: true}},
			{drain{}, drain{}},
			{drain{on: true, move: true}, drain{on: true, move: true}},
			{drain{on: true}, drain{on: true, move: true}}, // only its end takes it back
			{drain{}, drain{}},
			{drain{on: true}, drain{on: true}},
		} {
			if err := s.p.drain(s.t.Context(), step.asked); err != nil {
				s.t.Fatal(err)
			}
			if e := s.entry("w~1"); e.Draining != step.says.on || e.Moving != step.says.move {
				t.Errorf("step %d: %+v", i, e)
			}
		}
		s.bucket.set(func() { s.bucket.away = true })
		ctx, cancel := context.WithTimeout(s.t.Context(), protocol.DispatchTimeout)
		defer cancel()
		if err := s.p.drain(ctx, drain{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("drain while the bucket is away: %v", err)
		}
	})
}

func TestLeave(t *testing.T) {
	for name, before := range map[string]func(*fakeBucket){
		"in order": func(*fakeBucket) {},
		"lost":     func(b *fakeBucket) { b.put(func(e *protocol.WorkerEntry) { e.Lost = true }) },
		"cut off":  func(b *fakeBucket) { b.set(func() { b.behind = 1 }); b.put(func(*protocol.WorkerEntry) {}) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(s *stage) {
				s.begin()
				s.p.stop()
				synctest.Wait()
				if e := s.entry("w~1"); !e.Draining || e.Left {
					t.Errorf("while it stops: %+v", e)
				}
				s.end()
				if err := <-s.ended; !errors.Is(err, context.Canceled) {
					t.Errorf("run: %v", err)
				}
				s.ended <- nil
				before(s.bucket)
				if err := s.p.leave(s.t.Context()); err != nil {
					s.t.Fatal(err)
				}
				if e := s.entry("w~1"); !e.Left || e.Lost {
					t.Errorf("entry: %+v", e)
				}
			})
		})
	}
}
