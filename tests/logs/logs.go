// Package logs writes logs of sessions for tests that hold the journal in their own
// process.
package logs

import (
	"context"
	"fmt"
	"testing"
	"time"

	"rejoin/journal"
	"rejoin/protocol"
	"rejoin/tests/harness"
)

// Patience is harness.Patience for waits that an election, or two, may be part of.
const Patience = 4 * harness.Patience

// Context returns a context that ends with the test or after Patience.
func Context(tb testing.TB) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), Patience)
	tb.Cleanup(cancel)
	return ctx
}

// Eventually waits until cond holds; what names the condition in the failure.
func Eventually(tb testing.TB, what string, cond func() bool) {
	tb.Helper()
	if !harness.Within(Patience, cond) {
		tb.Fatalf("not within %v: %s", Patience, what)
	}
}

// Close closes a node, also when the test's context has ended.
func Close(tb testing.TB, n *journal.Node) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), Patience)
	defer cancel()
	if err := n.Close(ctx); err != nil {
		tb.Errorf("Close: %v", err)
	}
}

// Of is the log of a session of the default workspace.
func Of(n *journal.Node, session string) journal.Log {
	k := protocol.Key{Workspace: protocol.DefaultWorkspace, Session: session}
	return journal.Log{Key: k, Shard: n.ShardOf(k)}
}

// Epoch is the n-th of some epochs, each later than the one before.
func Epoch(n int64) protocol.Epoch { return protocol.NewEpoch(time.Unix(1764500000+n, 0)) }

// FirstBody is the body of the first event of each writer.
const FirstBody = `{"type":"session_start"}`

// Begin is the configuration of a writer that begins a log, or takes one over, with
// one event; without an epoch in the log's own.
func Begin(l journal.Log, run protocol.Run, epoch protocol.Epoch) journal.WriterConfig {
	return journal.WriterConfig{
		Log: l, Run: run, Epoch: epoch,
		First: func(context.Context, journal.Tail, protocol.Seq) ([]*protocol.Event, error) {
			return []*protocol.Event{{Source: protocol.SourceBroker, Body: []byte(FirstBody)}}, nil
		},
		Deleted: func(context.Context) (bool, error) { return false, nil },
	}
}

// Open opens a writer and closes it with the test.
func Open(tb testing.TB, n *journal.Node, cfg journal.WriterConfig) *journal.Writer {
	tb.Helper()
	w, err := n.OpenWriter(Context(tb), cfg)
	if err != nil {
		tb.Fatalf("OpenWriter: %v", err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), harness.Patience/10)
		defer cancel()
		_ = w.Close(ctx) // a test that cares closes it itself; the node ends what is left
	})
	return w
}

// Flush waits until everything that was appended is durable.
func Flush(tb testing.TB, w *journal.Writer) {
	tb.Helper()
	if err := w.Flush(Context(tb)); err != nil {
		tb.Fatalf("Flush: %v", err)
	}
}

// Event is a child's whose body names a number, so that a reader can check what it
// got.
func Event(n protocol.Seq) *protocol.Event {
	return &protocol.Event{TS: 1764500000000, Source: protocol.SourceChild, Body: fmt.Appendf(nil, `{"n":%d}`, n)}
}
