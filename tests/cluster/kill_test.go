package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"rejoin/journal"
	"rejoin/tests/harness"
	"rejoin/tests/logs"
)

// load is sessions that write all the time, each followed by a reader in another
// process, and a bucket that changes all the time, mirrored there.
type load struct {
	writers []*loadWriter
	readers []*reader
	logs    []journal.Log
	mirror  *mirror

	mu    sync.Mutex
	want  map[string]string // of the bucket
	stop  context.CancelFunc
	ended sync.WaitGroup
}

// loadWriter is one session.
type loadWriter struct {
	w      *journal.Writer
	acked  atomic.Uint64
	failed chan error
	pauses pauses
}

// pauses remembers how far apart acknowledgements were.
type pauses struct {
	mu   sync.Mutex
	last time.Time
	most time.Duration
}

func (p *pauses) tick() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if !p.last.IsZero() {
		p.most = max(p.most, now.Sub(p.last))
	}
	p.last = now
}

// longest returns the longest pause since it was asked before.
func (p *pauses) longest() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	most := p.most
	p.most = 0
	return most
}

// loadSize is enough for every shard to have a session.
const loadSize = 8

// begin starts a load of node a that is watched on node b.
func begin(tb testing.TB, a, b *journal.Node) *load {
	tb.Helper()
	ctx, cancel := context.WithCancel(tb.Context())
	l := &load{want: map[string]string{}, stop: cancel}
	for i := range loadSize {
		at := onShard(a, i%8, fmt.Sprintf("load%d", i))
		cfg := logs.Begin(at, 1, logs.Epoch(int64(i)))
		lw := &loadWriter{failed: make(chan error, 1)}
		cfg.Failed = func(err error) { lw.failed <- err }
		lw.w = logs.Open(tb, a, cfg)
		l.logs, l.writers, l.readers = append(l.logs, at), append(l.writers, lw), append(l.readers, follow(tb, b, at))
	}
	l.mirror = watch(tb, bucket(tb, b, "sessions"))
	for _, lw := range l.writers {
		l.ended.Go(func() { lw.run(ctx) })
	}
	beats := bucket(tb, a, "sessions")
	l.ended.Go(func() { l.beat(ctx, beats) })
	tb.Cleanup(l.end)
	return l
}

func (l *load) end() {
	l.stop()
	l.ended.Wait()
}

// run appends events, a few in flight, until ctx ends or the writer fails.
func (lw *loadWriter) run(ctx context.Context) {
	free := make(chan struct{}, 4)
	for ctx.Err() == nil {
		select {
		case free <- struct{}{}:
		case <-ctx.Done():
			return
		}
		_, err := lw.w.Append(logs.Event(lw.w.Head()+1), func(err error) {
			if err == nil {
				lw.acked.Store(uint64(lw.w.Durable()))
				lw.pauses.tick()
			}
			<-free
		})
		if err != nil {
			return // Failed has said it
		}
	}
}

// beat changes a key as fast as it is answered, as a heartbeat does: after an
// unknown outcome it reads first.
func (l *load) beat(ctx context.Context, b *journal.Bucket) {
	rev := uint64(0)
	for i := 0; ctx.Err() == nil; i++ {
		value := fmt.Sprintf("beat %d", i)
		var err error
		if rev == 0 {
			rev, err = b.Create(ctx, "default/beat", []byte(value))
		} else {
			rev, err = b.Update(ctx, "default/beat", []byte(value), rev)
		}
		for err != nil && ctx.Err() == nil {
			var e journal.Entry
			if e, err = b.Get(ctx, "default/beat"); err == nil {
				rev, value = e.Revision, string(e.Value)
			} else if errors.Is(err, journal.ErrNotFound) {
				rev, value, err = 0, "", nil
			}
		}
		if err == nil && value != "" {
			l.mu.Lock()
			l.want["default/beat"] = value
			l.mu.Unlock()
		}
	}
}

// goesOn waits until every session has had n more events acknowledged.
func (l *load) goesOn(tb testing.TB, n uint64) {
	tb.Helper()
	for i, lw := range l.writers {
		from := lw.acked.Load()
		logs.Eventually(tb, fmt.Sprintf("session %d goes on", i), func() bool {
			select {
			case err := <-lw.failed:
				tb.Fatalf("session %d: the writer ended: %v", i, err)
			default:
			}
			return lw.acked.Load() >= from+n
		})
	}
}

// pause returns the longest pause of any session since it was asked before.
func (l *load) pause() time.Duration {
	var most []time.Duration
	for _, lw := range l.writers {
		most = append(most, lw.pauses.longest())
	}
	return slices.Max(most)
}

// judge ends the load: what was acknowledged is there, once and in order, and both
// kinds of watch have everything.
func (l *load) judge(tb testing.TB, n *journal.Node) {
	tb.Helper()
	l.end()
	for i, lw := range l.writers {
		if err := lw.w.Flush(logs.Context(tb)); err != nil {
			tb.Fatalf("session %d: flush: %v", i, err)
		}
		acked := lw.w.Durable()
		if got := readAll(tb, n, l.logs[i]); got != acked {
			tb.Errorf("session %d: the log ends at %d, acknowledged is %d", i, got, acked)
		}
		r := l.readers[i]
		logs.Eventually(tb, fmt.Sprintf("reader %d has everything", i), func() bool { return r.seq(tb) == acked })
	}
	b := bucket(tb, n, "sessions")
	e, err := b.Get(logs.Context(tb), "default/beat")
	if err != nil {
		tb.Fatal(err)
	}
	logs.Eventually(tb, "the mirror has the newest entry", func() bool { return l.mirror.is(map[string]string{"default/beat": string(e.Value)}) })
}

// TestLeaderKilled: the server that leads a shard is killed, ended in order and
// frozen under writers, each in turn, and once the two that are left lose another.
// No acknowledged event is missing, none is there twice, no writer ends, every
// attempt of a record is the same bytes, and readers and watches have it all.
func TestLeaderKilled(t *testing.T) {
	s := harness.NATS(t, 3)
	a, b := connect(t, config(t, s, "a")), connect(t, config(t, s, "b"))
	l := begin(t, a, b)
	l.goesOn(t, 50)
	p := &tap{}
	for i := range 3 {
		p.listen(t, s, i)
	}
	step := func(what string, do func()) {
		l.pause()
		do()
		l.goesOn(t, 50)
		t.Logf("%s: longest pause of acknowledgements %v", what, l.pause().Round(10*time.Millisecond))
	}
	back := func(i int) {
		s.Start(i)
		s.AwaitReady()
		p.listen(t, s, i)
		l.goesOn(t, 20)
	}
	for _, stream := range []string{"J0", "KV_sessions"} {
		i := s.AwaitLeader(stream)
		step("leader of "+stream+" killed", func() { s.Kill9(i) })
		step("and back", func() { back(i) })
	}
	i := s.AwaitLeader("J1")
	step("leader of J1 stopped in order", func() { s.Stop(i) })
	step("and back", func() { back(i) })
	i = s.AwaitLeader("J2")
	step("leader of J2 frozen", func() { s.Pause(i) })
	step("and woken", func() { s.Continue(i); s.AwaitReady() })
	step("two killed, then back", func() {
		s.Kill9(0)
		s.Kill9(1)
		s.Start(0)
		s.Start(1)
		s.AwaitReady()
	})
	l.judge(t, b)
	p.mu.Lock()
	defer p.mu.Unlock()
	t.Logf("%d records, %d attempts more", len(p.attempts), p.again)
	if len(p.differ) > 0 {
		t.Errorf("attempts of one record differ: %v", p.differ)
	}
	if p.again == 0 {
		t.Error("no record was tried twice: the test saw no retry")
	}
}
