package journal_test

import (
	"log/slog"
	"testing"
	"time"

	"rejoin/journal"
	"rejoin/protocol"
	"rejoin/tests/logs"
)

// start starts a node on dir and closes it with the test, if it is not before.
func start(tb testing.TB, cfg journal.Config) *journal.Node {
	tb.Helper()
	n, err := journal.Start(logs.Context(tb), cfg)
	if err != nil {
		tb.Fatalf("Start: %v", err)
	}
	tb.Cleanup(func() { logs.Close(tb, n) })
	return n
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

func closeWriter(tb testing.TB, w *journal.Writer) {
	tb.Helper()
	if err := w.Close(logs.Context(tb)); err != nil {
		tb.Fatalf("Writer.Close: %v", err)
	}
}

// appendEvents appends n events and waits until they are durable.
func appendEvents(tb testing.TB, w *journal.Writer, from, n int) {
	tb.Helper()
	for i := from; i < from+n; i++ {
		if _, err := w.Append(logs.Event(protocol.Seq(i)), nil); err != nil {
			tb.Fatalf("Append: %v", err)
		}
	}
	logs.Flush(tb, w)
}

// readAll returns the bodies of a log from seq 1 on and checks their density.
func readAll(tb testing.TB, n *journal.Node, l journal.Log) []string {
	tb.Helper()
	var bodies []string
	for after := protocol.Seq(0); ; {
		tail, err := n.Tail(logs.Context(tb), l)
		if err != nil {
			tb.Fatalf("Tail: %v", err)
		}
		if after == tail.Head {
			return bodies
		}
		recs, err := n.Read(logs.Context(tb), l, after, 1<<20)
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
