package hub_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"rejoin/journal"
	"rejoin/protocol"
)

const testTimeout = 60 * time.Second

func deadline(tb testing.TB) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), testTimeout)
	tb.Cleanup(cancel)
	return ctx
}

// start starts a node that syncs every 20 ms and closes it with the test.
func start(tb testing.TB) *journal.Node {
	tb.Helper()
	n, err := journal.Start(deadline(tb), journal.Config{
		Dir: tb.TempDir(), Durability: journal.Durability{Interval: 500 * time.Millisecond}, MaxBytes: 4 << 30,
		Logger: slog.New(slog.NewTextHandler(tb.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		tb.Fatalf("Start: %v", err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), testTimeout)
		defer cancel()
		if err := n.Close(ctx); err != nil {
			tb.Errorf("Close: %v", err)
		}
	})
	return n
}

func logOf(n *journal.Node, session string) journal.Log {
	k := protocol.Key{Workspace: protocol.DefaultWorkspace, Session: session}
	return journal.Log{Key: k, Shard: n.ShardOf(k)}
}

// open takes a log over with a session_start or epoch_start record.
func open(tb testing.TB, n *journal.Node, l journal.Log, run protocol.Run, epoch protocol.Epoch) *journal.Writer {
	tb.Helper()
	w, err := n.OpenWriter(deadline(tb), journal.WriterConfig{
		Log: l, Run: run, Epoch: epoch,
		First: func(context.Context, journal.Tail, protocol.Seq) ([]*protocol.Event, error) {
			return []*protocol.Event{{Source: protocol.SourceBroker, Body: []byte(`{"type":"start"}`)}}, nil
		},
		Deleted: func(context.Context) (bool, error) { return false, nil },
	})
	if err != nil {
		tb.Fatalf("OpenWriter: %v", err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), testTimeout)
		defer cancel()
		_ = w.Close(ctx) // a test that cares closes it itself
	})
	return w
}

func newEpoch(n int64) protocol.Epoch { return protocol.NewEpoch(time.Unix(1764500000+n, 0)) }

// write appends events one record each, or packed as they come, and waits.
func write(tb testing.TB, w *journal.Writer, n int, packed bool) {
	tb.Helper()
	for range n {
		if _, err := w.Append(event(w.Head()+1), nil); err != nil {
			tb.Fatalf("Append: %v", err)
		}
		if !packed {
			flush(tb, w)
		}
	}
	flush(tb, w)
}

func flush(tb testing.TB, w *journal.Writer) {
	tb.Helper()
	if err := w.Flush(deadline(tb)); err != nil {
		tb.Fatalf("Flush: %v", err)
	}
}

// event names its own seq, so that a reader can check what it got.
func event(seq protocol.Seq) *protocol.Event {
	return &protocol.Event{TS: 1764500000000, Source: protocol.SourceChild, Body: fmt.Appendf(nil, `{"n":%d,"pad":"%0100d"}`, seq, seq)}
}

// waker is a reader's bell: capacity 1, a second ring changes nothing.
type waker chan struct{}

func newWaker() waker { return make(waker, 1) }

func (k waker) Wake() {
	select {
	case k <- struct{}{}:
	default:
	}
}

// reader pulls from a watch like a connection does and checks what it gets.
type reader struct {
	w    *journal.Watch
	bell waker
	at   protocol.Cursor
	buf  []byte
	max  int
}

func newReader(w *journal.Watch, at protocol.Cursor) *reader {
	r := &reader{w: w, bell: newWaker(), at: at, max: 64 << 10}
	w.Add(r.bell)
	return r
}

func (r *reader) close() { r.w.Remove(r.bell) }

// upTo pulls until the cursor is at seq.
func (r *reader) upTo(ctx context.Context, seq protocol.Seq) error {
	for r.at.Seq < seq {
		out, last, st := r.w.Pull(r.buf[:0], []byte("P"), r.at, 0, r.max, 0)
		if err := r.check(out, last); err != nil {
			return err
		}
		r.buf, r.at.Seq = out, last
		switch st {
		case journal.PullMore:
		case journal.PullIdle, journal.PullWait, journal.PullFailed:
			if r.at.Seq >= seq {
				return nil
			}
			select {
			case <-r.bell:
			case <-ctx.Done():
				return fmt.Errorf("at %d of %d, status %d: %w", r.at.Seq, seq, st, ctx.Err())
			}
		default:
			return fmt.Errorf("at %d: status %d", r.at.Seq, st)
		}
	}
	return nil
}

// check proves that out holds exactly the events after the cursor up to last.
func (r *reader) check(out []byte, last protocol.Seq) error {
	want := r.at.Seq
	for line := range bytes.Lines(out) {
		want++
		if line[0] != 'P' || line[len(line)-1] != '\n' {
			return fmt.Errorf("not a whole notification: %q", line)
		}
		e, err := protocol.ParseEventLine(line[1 : len(line)-1])
		if err != nil {
			return fmt.Errorf("seq %d: %w", want, err)
		}
		if e.Seq != want {
			return fmt.Errorf("got seq %d, want %d", e.Seq, want)
		}
	}
	if want != last {
		return fmt.Errorf("events end at %d, last is %d", want, last)
	}
	return nil
}
