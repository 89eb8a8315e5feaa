package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"rejoin/journal"
	"rejoin/protocol"
)

// fakeBucket is a bucket in memory that can be away.
type fakeBucket struct {
	mu       sync.Mutex
	rev      uint64
	entries  map[string]journal.Entry
	watchers map[chan journal.Entry]bool
	away     bool // nothing is answered, watches are silent
}

func newFakeBucket() *fakeBucket {
	return &fakeBucket{entries: map[string]journal.Entry{}, watchers: map[chan journal.Entry]bool{}}
}

func (b *fakeBucket) locked(f func() error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.away {
		return journal.ErrUnavailable
	}
	return f()
}

// put stores under mu.
func (b *fakeBucket) put(key string, value []byte, deleted bool) uint64 {
	b.rev++
	e := journal.Entry{Key: key, Value: value, Revision: b.rev, Deleted: deleted}
	b.entries[key] = e
	for ch := range b.watchers {
		ch <- e
	}
	return b.rev
}

func (b *fakeBucket) Get(_ context.Context, key string) (e journal.Entry, err error) {
	err = b.locked(func() error {
		e = b.entries[key]
		if e.Revision == 0 || e.Deleted {
			return journal.ErrNotFound
		}
		return nil
	})
	return e, err
}

func (b *fakeBucket) PutOver(_ context.Context, key string, value []byte, old uint64) (rev uint64, err error) {
	err = b.locked(func() error {
		switch e := b.entries[key]; {
		case old == 0 && e.Revision != 0 && !e.Deleted:
			return journal.ErrExists
		case old != 0 && e.Revision != old:
			return journal.ErrRevision
		}
		rev = b.put(key, value, false)
		return nil
	})
	return rev, err
}

func (b *fakeBucket) Delete(_ context.Context, key string) error {
	return b.locked(func() error {
		b.put(key, nil, true)
		return nil
	})
}

func (b *fakeBucket) Watch(ctx context.Context, f func(journal.Entry)) error {
	ch := make(chan journal.Entry, 1<<10)
	var present []journal.Entry
	err := b.locked(func() error {
		b.watchers[ch] = true
		present = slices.SortedFunc(maps.Values(b.entries), func(a, c journal.Entry) int { return cmp.Compare(a.Revision, c.Revision) })
		return nil
	})
	if err != nil {
		return err
	}
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.watchers, ch)
	}()
	for _, e := range present {
		if !e.Deleted {
			f(e)
		}
	}
	f(journal.Entry{})
	for {
		select {
		case e := <-ch:
			f(e)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// say writes the entry of another gateway.
func (b *fakeBucket) say(t *testing.T, e protocol.GatewayEntry) {
	t.Helper()
	value, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.put(e.ID, value, false)
}

func (b *fakeBucket) entry(t *testing.T, id string) (e protocol.GatewayEntry) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := json.Unmarshal(b.entries[id].Value, &e); err != nil {
		t.Fatalf("entry of %s: %v", id, err)
	}
	return e
}

func presenceOf(t *testing.T, b entries, id string, urls ...string) *Presence {
	t.Helper()
	p, err := newPresence(PresenceConfig{ID: id, URLs: urls, Version: "v", Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}, b)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// start runs p; end stops it and waits.
func (p *Presence) start(t *testing.T) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := p.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	synctest.Wait()
	return func() {
		cancel()
		wg.Wait()
		synctest.Wait()
	}
}

func (p *Presence) wants(t *testing.T, what string, urls ...string) {
	t.Helper()
	if got := p.Elsewhere(0); !slices.Equal(got, urls) {
		t.Errorf("%s: %v, want %v", what, got, urls)
	}
}

func TestPresence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFakeBucket()
		a, c := presenceOf(t, b, "a", "tcp://a:1"), presenceOf(t, b, "c", "tcp://c:1", "tls://c:2")
		endA := a.start(t)
		a.wants(t, "alone")
		endC := c.start(t)
		a.wants(t, "beside another one", "tcp://c:1", "tls://c:2")
		c.wants(t, "the other way round", "tcp://a:1")
		wait(t, time.Hour+protocol.GatewayEvery/2)
		a.wants(t, "an hour later", "tcp://c:1", "tls://c:2")
		at := time.Now().Add(-protocol.GatewayEvery / 2).UnixMilli()
		if e := b.entry(t, "c"); e.Beat != 361 || e.Draining || e.Version != "v" || e.At != at {
			t.Errorf("entry %+v", e)
		}
		endC()
		a.wants(t, "the other one drains")
		if e := b.entry(t, "c"); !e.Draining {
			t.Errorf("entry %+v", e)
		}
		wait(t, time.Second) // a life of the same id: it writes over what is there
		endC = presenceOf(t, b, "c", "tcp://c:3").start(t)
		a.wants(t, "it is back", "tcp://c:3")
		endC()
		endA()
	})
}

// A gateway that is gone without a word is nobody's destination after three beats,
// and forgotten later.
func TestGatewayThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFakeBucket()
		a := presenceOf(t, b, "a", "tcp://a:1")
		defer a.start(t)()
		b.say(t, protocol.GatewayEntry{ID: "c", URLs: []string{"tcp://c:1"}, Beat: 1})
		wait(t, 3*protocol.GatewayEvery)
		a.wants(t, "for three beats", "tcp://c:1")
		wait(t, protocol.GatewayEvery)
		synctest.Wait() // the beat of this very moment
		a.wants(t, "after that")
		b.say(t, protocol.GatewayEntry{ID: "c", URLs: []string{"tcp://c:1"}, Beat: 2})
		synctest.Wait()
		a.wants(t, "heard again", "tcp://c:1")
		wait(t, 2*beatsUntilForgotten*protocol.GatewayEvery)
		if _, err := b.Get(t.Context(), "c"); !errors.Is(err, journal.ErrNotFound) {
			t.Errorf("the entry is still there: %v", err)
		}
		if len(a.others) != 0 {
			t.Errorf("%d others are known", len(a.others))
		}
	})
}

// While the journal is away nobody grows old, and the watch that broke is made again.
func TestPresenceWithoutJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFakeBucket()
		b.away = true
		a := presenceOf(t, b, "a", "tcp://a:1")
		end := a.start(t)
		wait(t, time.Minute)
		b.mu.Lock()
		b.away = false
		b.mu.Unlock()
		b.say(t, protocol.GatewayEntry{ID: "c", URLs: []string{"tcp://c:1"}, Beat: 1})
		wait(t, protocol.GatewayEvery)
		a.wants(t, "the journal is there", "tcp://c:1")
		b.mu.Lock()
		b.away = true
		b.mu.Unlock()
		wait(t, time.Hour)
		a.wants(t, "after an hour without it", "tcp://c:1")
		begin := time.Now()
		end()
		if d := time.Since(begin); d > leaveTimeout {
			t.Errorf("it took %v to leave without the journal", d)
		}
	})
}

// Two processes of one id go on, and the log says so.
func TestTwoGatewaysOfOneID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFakeBucket()
		var log strings.Builder
		one := presenceOf(t, b, "a", "tcp://a:1")
		one.log = slog.New(slog.NewTextHandler(&log, nil))
		end := one.start(t)
		wait(t, time.Second)
		other := presenceOf(t, b, "a", "tcp://b:1").start(t)
		wait(t, 2*protocol.GatewayEvery)
		other()
		end()
		if !strings.Contains(log.String(), "another process writes the entry") {
			t.Errorf("the log says %s", log.String())
		}
	})
}

func TestGatewaysKnownMax(t *testing.T) {
	p := presenceOf(t, newFakeBucket(), "a")
	for i := range 2 * protocol.GatewaysKnownMax {
		p.see(journal.Entry{Key: fmt.Sprintf("g%05d", i), Value: fmt.Appendf(nil, `{"urls":["tcp://g:%d"]}`, i), Revision: uint64(i + 1)})
	}
	if n := len(p.Others()); n != protocol.GatewaysKnownMax {
		t.Errorf("%d are known, want %d", n, protocol.GatewaysKnownMax)
	}
	all := p.Elsewhere(0)
	if len(all) != protocol.ReconnectURLsMax || all[0] != "tcp://g:0" {
		t.Errorf("elsewhere is %v", all)
	}
	if next := p.Elsewhere(protocol.GatewaysKnownMax + 1); len(next) != len(all) || next[0] != "tcp://g:1" {
		t.Errorf("with another seed elsewhere is %v", next)
	}
	p.see(journal.Entry{Key: "g00000", Value: []byte(`what`), Revision: 1 << 20}) // it stays what it was
	p.see(journal.Entry{Key: "g00001", Deleted: true, Revision: 1<<20 + 1})
	if got := p.Elsewhere(0)[:2]; !slices.Equal(got, []string{"tcp://g:0", "tcp://g:2"}) {
		t.Errorf("elsewhere begins with %v", got)
	}
	for _, bad := range []PresenceConfig{{ID: ""}, {ID: "a b"}, {ID: "a", URLs: make([]string, protocol.ReconnectURLsMax+1)}} {
		if _, err := newPresence(bad, newFakeBucket()); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
}

// Clients that are authenticated hear where to go on when the server drains, after
// the answers at hand and before the end.
func TestDrainingNamesOthers(t *testing.T) {
	w := newFakeWorld("s")
	w.token = "secret"
	elsewhere := func(uint64) []string { return []string{"tcp://b:1", "tls://c:\"1"} }
	inBubble(t, w, Config{Elsewhere: elsewhere}, func(t *testing.T, s *Server) {
		l, stranger := dial(t, s, false), dial(t, s, false)
		l.result("authenticate", `{"token":"secret"}`)
		l.result("subscribe", `{"sessionId":"s"}`)
		l.next() // synced
		stranger.result("ping", `{}`)
		l.stop()
		l.want(`{"jsonrpc":"2.0","method":"draining","params":{"reconnect":["tcp://b:1","tls://c:\"1"]}}`)
		l.ended(CloseDraining)
		stranger.stop()
		stranger.ended(CloseDraining)
	})
	inBubble(t, newFakeWorld(), Config{Elsewhere: func(uint64) []string { return nil }}, func(t *testing.T, s *Server) {
		l := dial(t, s, false)
		l.result("ping", `{}`)
		l.stop()
		l.want(`{"jsonrpc":"2.0","method":"draining","params":{"reconnect":[]}}`)
		l.ended(CloseDraining)
	})
	inBubble(t, newFakeWorld(), Config{}, func(t *testing.T, s *Server) {
		l := dial(t, s, false)
		l.result("ping", `{}`)
		l.stop()
		l.ended(CloseDraining) // a server on its own has nothing to say
	})
}
