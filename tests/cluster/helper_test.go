package cluster_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"rejoin/journal"
	"rejoin/protocol"
	"rejoin/tests/harness"
	"rejoin/tests/logs"
)

// servers runs a test against one server and against a cluster of three.
func servers(t *testing.T, test func(t *testing.T, s *harness.NATSServers)) {
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d", n), func(t *testing.T) { test(t, harness.NATS(t, n)) })
	}
}

// config is that of a process that may make the journal.
func config(tb testing.TB, s *harness.NATSServers, name string) journal.RemoteConfig {
	tb.Helper()
	return journal.RemoteConfig{
		URLs: s.URLs(), Name: name, Create: true, MaxBytes: 1 << 30,
		Logger: slog.New(slog.NewTextHandler(tb.Output(), nil)).With(slog.String("node", name)),
	}
}

// connect connects a node and closes it with the test.
func connect(tb testing.TB, cfg journal.RemoteConfig) *journal.Node {
	tb.Helper()
	n, err := journal.Connect(logs.Context(tb), cfg)
	if err != nil {
		tb.Fatalf("Connect: %v", err)
	}
	tb.Cleanup(func() { logs.Close(tb, n) })
	return n
}

// onShard is a log of a shard.
func onShard(n *journal.Node, shard int, name string) journal.Log {
	for i := 0; ; i++ {
		if l := logs.Of(n, fmt.Sprintf("%s-%d", name, i)); l.Shard == shard {
			return l
		}
	}
}

// write appends events and waits until they are durable.
func write(tb testing.TB, w *journal.Writer, n int) {
	tb.Helper()
	for range n {
		if _, err := w.Append(logs.Event(w.Head()+1), nil); err != nil {
			tb.Fatalf("Append: %v", err)
		}
	}
	logs.Flush(tb, w)
}

// readAll reads a log from its first event to its head: dense, each event the one
// that was written there.
func readAll(tb testing.TB, n *journal.Node, l journal.Log) protocol.Seq {
	tb.Helper()
	after := protocol.Seq(0)
	for {
		recs, err := n.Read(logs.Context(tb), l, after, 1<<20)
		if err != nil {
			tb.Fatalf("Read after %d: %v", after, err)
		}
		if len(recs) == 0 {
			return after
		}
		for _, r := range recs {
			for i := range r.Len() {
				e, err := protocol.ParseEventLine(r.Line(i))
				if err != nil || e.Seq != after+1 {
					tb.Fatalf("event %d where %d belongs: %v", e.Seq, after+1, err)
				}
				if want := string(logs.Event(e.Seq).Body); string(e.Body) != want && string(e.Body) != logs.FirstBody {
					tb.Fatalf("event %d is %s", e.Seq, e.Body)
				}
				after++
			}
		}
	}
}

// reader follows a watch and checks what it gets: the next seq each time.
type reader struct {
	w    *journal.Watch
	bell chan struct{}
	done chan struct{} // closed when follow has ended

	mu  sync.Mutex
	at  protocol.Cursor
	bad error
}

// Wake is journal.Waker.
func (r *reader) Wake() {
	select {
	case r.bell <- struct{}{}:
	default:
	}
}

// follow reads the log from its first event on until the test ends.
func follow(tb testing.TB, n *journal.Node, l journal.Log) *reader {
	tb.Helper()
	w, err := n.Hub().Watch(logs.Context(tb), l)
	if err != nil {
		tb.Fatalf("Watch: %v", err)
	}
	r := &reader{w: w, bell: make(chan struct{}, 1), done: make(chan struct{}), at: protocol.Cursor{Epoch: w.Position().Epoch}}
	w.Add(r)
	ctx, cancel := context.WithCancel(tb.Context())
	go func() {
		defer close(r.done)
		r.run(ctx)
	}()
	tb.Cleanup(func() {
		cancel()
		<-r.done
		w.Remove(r)
		w.Release()
	})
	return r
}

func (r *reader) run(ctx context.Context) {
	for {
		r.mu.Lock()
		out, last, st := r.w.Pull(nil, nil, r.at, 0, 1<<20, 0)
		r.take(out, last, st)
		more := st == journal.PullMore && r.bad == nil
		r.mu.Unlock()
		if more {
			continue
		}
		select {
		case <-r.bell:
		case <-ctx.Done():
			return
		}
	}
}

func (r *reader) take(out []byte, last protocol.Seq, st journal.PullStatus) {
	for line := range strings.Lines(string(out)) {
		e, err := protocol.ParseEventLine([]byte(strings.TrimSuffix(line, "\n")))
		if err != nil || e.Seq != r.at.Seq+1 {
			r.bad = fmt.Errorf("event %d where %d belongs: %w", e.Seq, r.at.Seq+1, err)
			return
		}
		r.at.Seq++
	}
	if r.at.Seq != last || st == journal.PullTrimmed || st == journal.PullEpoch || st == journal.PullDamaged {
		r.bad = fmt.Errorf("at %d, want %d, status %d", r.at.Seq, last, st)
	}
}

// seq is how far the reader has come; a breach fails the test.
func (r *reader) seq(tb testing.TB) protocol.Seq {
	tb.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.bad != nil {
		tb.Fatal(r.bad)
	}
	return r.at.Seq
}
