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
	"rejoin/tests/logs"
)

// start starts a node that syncs every 500 ms and closes it with the test.
func start(tb testing.TB) *journal.Node {
	tb.Helper()
	n, err := journal.Start(logs.Context(tb), journal.Config{
		Dir: tb.TempDir(), Durability: journal.Durability{Interval: 500 * time.Millisecond}, MaxBytes: 4 << 30,
		Logger: slog.New(slog.NewTextHandler(tb.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		tb.Fatalf("Start: %v", err)
	}
	tb.Cleanup(func() { logs.Close(tb, n) })
	return n
}

// write appends events one record each, or packed as they come, and waits.
func write(tb testing.TB, w *journal.Writer, n int, packed bool) {
	tb.Helper()
	for range n {
		if _, err := w.Append(event(w.Head()+1), nil); err != nil {
			tb.Fatalf("Append: %v", err)
		}
		if !packed {
			logs.Flush(tb, w)
		}
	}
	logs.Flush(tb, w)
}

// event is logs.Event with a text, as long as an agent's are.
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
