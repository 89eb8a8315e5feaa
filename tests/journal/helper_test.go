package journal_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"rejoin/journal"
	"rejoin/protocol"
	"rejoin/tests/harness"
)

const testTimeout = 30 * time.Second

// deadline returns a context that ends a test which hangs.
func deadline(tb testing.TB) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), testTimeout)
	tb.Cleanup(cancel)
	return ctx
}

// start starts a node on dir and closes it with the test, if it is not before.
func start(tb testing.TB, cfg journal.Config) *journal.Node {
	tb.Helper()
	n, err := journal.Start(deadline(tb), cfg)
	if err != nil {
		tb.Fatalf("Start: %v", err)
	}
	tb.Cleanup(func() { stop(tb, n) })
	return n
}

func stop(tb testing.TB, n *journal.Node) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	if err := n.Close(ctx); err != nil {
		tb.Errorf("Close: %v", err)
	}
}

// small is a node that takes little disk. It syncs every 500 ms: at a few
// milliseconds the race detector finds nats-server 2.15.2 setting up its sync
// timer without a lock (newFileStore, harmless: the timer fires later).
func small(tb testing.TB, dir string) journal.Config {
	tb.Helper()
	return journal.Config{
		Dir: dir, Durability: journal.Durability{Interval: 500 * time.Millisecond}, MaxBytes: 256 << 20,
		Logger: slog.New(slog.NewTextHandler(tb.Output(), nil)),
	}
}

func logOf(n *journal.Node, session string) journal.Log {
	k := protocol.Key{Workspace: protocol.DefaultWorkspace, Session: session}
	return journal.Log{Key: k, Shard: n.ShardOf(k)}
}

// event makes an event of a child; n distinguishes it.
func event(n int) *protocol.Event {
	return &protocol.Event{TS: 1764500000000, Source: protocol.SourceChild, Body: fmt.Appendf(nil, `{"n":%d}`, n)}
}

// writerConfig begins with one session_start event.
func writerConfig(l journal.Log, run protocol.Run, epoch protocol.Epoch) journal.WriterConfig {
	return journal.WriterConfig{
		Log: l, Run: run, Epoch: epoch,
		First: func(context.Context, journal.Tail, protocol.Seq) ([]*protocol.Event, error) {
			return []*protocol.Event{{Source: protocol.SourceBroker, Body: []byte(`{"type":"session_start"}`)}}, nil
		},
		Deleted: func(context.Context) (bool, error) { return false, nil },
	}
}

func open(tb testing.TB, n *journal.Node, cfg journal.WriterConfig) *journal.Writer {
	tb.Helper()
	w, err := n.OpenWriter(deadline(tb), cfg)
	if err != nil {
		tb.Fatalf("OpenWriter: %v", err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		defer cancel()
		_ = w.Close(ctx) // tests that care check it themselves
	})
	return w
}

func closeWriter(tb testing.TB, w *journal.Writer) {
	tb.Helper()
	if err := w.Close(deadline(tb)); err != nil {
		tb.Fatalf("Writer.Close: %v", err)
	}
}

// appendEvents appends n events and waits until they are durable.
func appendEvents(tb testing.TB, w *journal.Writer, from, n int) {
	tb.Helper()
	for i := from; i < from+n; i++ {
		if _, err := w.Append(event(i), nil); err != nil {
			tb.Fatalf("Append: %v", err)
		}
	}
	if err := w.Flush(deadline(tb)); err != nil {
		tb.Fatalf("Flush: %v", err)
	}
}

func newEpoch() protocol.Epoch { return protocol.NewEpoch(time.Unix(1764500000, 0)) }

// eventually waits until ok holds.
func eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	if !harness.Within(testTimeout, ok) {
		tb.Fatalf("never: %s", what)
	}
}

// readAll returns the bodies of a log from seq 1 on and checks their density.
func readAll(tb testing.TB, n *journal.Node, l journal.Log) []string {
	tb.Helper()
	var bodies []string
	for after := protocol.Seq(0); ; {
		tail, err := n.Tail(deadline(tb), l)
		if err != nil {
			tb.Fatalf("Tail: %v", err)
		}
		if after == tail.Head {
			return bodies
		}
		recs, err := n.Read(deadline(tb), l, after, 1<<20)
		if err != nil || len(recs) == 0 {
			tb.Fatalf("Read after %d: %d records, %v", after, len(recs), err)
		}
		for _, r := range recs {
			for i := range r.Len() {
				e, err := protocol.ParseEventLine(r.Line(i))
				if err != nil || e.Seq != after+1 {
					tb.Fatalf("event %d where %d belongs: %v", e.Seq, after+1, err)
				}
				after++
				bodies = append(bodies, string(e.Body))
			}
		}
	}
}
