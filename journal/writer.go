package journal

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"rejoin/protocol"
)

// stalledAfter is how long a record may wait for its acknowledgement before
// Stalled says so.
const stalledAfter = 3 * time.Second

// Writer appends to one log. Safe for concurrent use; the order of Append calls
// is the order of events. One goroutine publishes, from OpenWriter to Close.
type Writer struct {
	store
	counters *counters // the node's; nil in stepped tests
	cfg      WriterConfig
	subject  string
	wake     chan struct{} // capacity 1: something to write, or closing
	abort    func()        // makes the goroutine end without writing anything more
	done     chan struct{} // closed when the goroutine has ended

	epoch   atomic.Pointer[protocol.Epoch]
	durable atomic.Uint64 // newest acknowledged seq
	since   atomic.Int64  // when the record in flight began to wait, ns since 1970; 0: none

	// mu guards the following; never held while calling out.
	mu            sync.Mutex
	head          protocol.Seq // newest assigned
	filling       *batch       // collects appended events
	backlogBytes  int          // of events that are in no record yet
	backlogEvents int
	endAt         protocol.Seq // a coming event that is to be the last of its record; 0: none
	closing       bool
	err           error         // why nothing can be appended any more
	changed       chan struct{} // closed at the next change; nil when nobody waits

	// Owned by the goroutine (by takeover before it starts).
	opening bool   // until the log is taken over
	active  *batch // is cut into records
	at      stand
	kept    retained
	rec     []byte        // the record in flight, kept byte for byte until its outcome is known
	ticket  chan struct{} // capacity 1, for the turnstile
	doubt   suspicion
}

// Append gives e its seq (and the writer's run) and queues it; then (may be
// nil) is called once from the writer's goroutine, in seq order, when the event
// is durable (nil) or the writer failed. Append never blocks on the journal,
// and then must not block. e is encoded at once, e.Body is not kept. Errors:
// why the writer failed, ErrClosed, ErrEventTooLarge, a body with a line feed;
// then gets no call after an error.
//
// What waits here is bounded by its callers: child output calls WaitRoom before
// each batch, control records are few and each answers something.
func (w *Writer) Append(e *protocol.Event, then func(error)) (protocol.Seq, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return 0, w.err
	}
	if w.closing {
		return 0, ErrClosed
	}
	first := len(w.filling.ends) == 0
	if err := w.add(w.filling, e, then); err != nil {
		return 0, err
	}
	if first {
		w.signal()
	}
	return e.Seq, nil
}

// AppendGroup appends events that become durable together, in one record, or not
// at all. Then is called once, when they are. Everything else is as for Append;
// ErrEventTooLarge means that together they are over PartBytesMax, or more than
// RecordEventsMax. No event is appended when it returns an error.
func (w *Writer) AppendGroup(events []*protocol.Event, then func(error)) error {
	if err := checkGroup(events); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	if w.closing {
		return ErrClosed
	}
	first := len(w.filling.ends) == 0
	for i, e := range events {
		var told func(error)
		if i == len(events)-1 {
			told = then
		}
		if err := w.add(w.filling, e, told); err != nil {
			panic("journal: a group that was checked is refused: " + err.Error())
		}
		if i > 0 {
			w.filling.tie()
		}
	}
	if first {
		w.signal()
	}
	return nil
}

// groupFrame is more than an event's line has besides its body and command id.
const groupFrame = 512

func checkGroup(events []*protocol.Event) error {
	if len(events) > protocol.RecordEventsMax {
		return ErrEventTooLarge
	}
	size := 0
	for _, e := range events {
		size += len(e.Body) + 6*len(e.CommandID) + groupFrame
		if size > protocol.PartBytesMax {
			return ErrEventTooLarge
		}
		if bytes.IndexByte(e.Body, '\n') >= 0 {
			return errEventLine
		}
	}
	return nil
}

// add encodes e into b as the next event. w.mu is held.
func (w *Writer) add(b *batch, e *protocol.Event, then func(error)) error {
	e.Seq, e.Run = w.head+1, w.cfg.Run
	if err := b.add(e, then); err != nil {
		return err
	}
	if w.endAt == e.Seq {
		b.endHere()
	}
	w.head = e.Seq
	w.backlogBytes += b.size()
	w.backlogEvents++
	return nil
}

// signal tells the goroutine that there is something to do.
func (w *Writer) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// notify wakes everybody in wait. w.mu is held.
func (w *Writer) notify() {
	if w.changed != nil {
		close(w.changed)
		w.changed = nil
	}
}

// wait blocks until ok (called with w.mu held) holds, the writer failed or ctx ends.
func (w *Writer) wait(ctx context.Context, ok func() bool) error {
	for {
		w.mu.Lock()
		if ok() {
			w.mu.Unlock()
			return nil
		}
		if err := w.err; err != nil {
			w.mu.Unlock()
			return err
		}
		if w.changed == nil {
			w.changed = make(chan struct{})
		}
		changed := w.changed
		w.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Epoch returns the epoch of the events that the writer appends.
func (w *Writer) Epoch() protocol.Epoch { return *w.epoch.Load() }

// Head returns the newest assigned seq.
func (w *Writer) Head() protocol.Seq {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.head
}

// Durable returns the newest acknowledged seq.
func (w *Writer) Durable() protocol.Seq { return protocol.Seq(w.durable.Load()) }

// EndRecord makes seq the last event of its record. It has to be called before
// the event after seq is appended, else it does nothing: records that start
// right behind a checkpoint are what Trim can go to.
func (w *Writer) EndRecord(seq protocol.Seq) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case seq == w.head: // in active already where filling is empty: then it is the last there
		w.filling.endHere()
	case seq > w.head:
		w.endAt = seq
	}
}

// WaitRoom blocks while the journal has no room for output, or a whole batch of
// events waits behind the record in flight: readers of stdout call it before each
// batch of Append, control records never do. Errors: why the writer failed, ctx's.
func (w *Writer) WaitRoom(ctx context.Context) error {
	if err := w.gate.awaitRoom(ctx, w.done); err != nil {
		return err
	}
	return w.wait(ctx, func() bool {
		return w.err == nil && w.backlogBytes < protocol.RecordBytesMax && w.backlogEvents < protocol.RecordEventsMax
	})
}

// Stalled reports that the record in flight has gone unanswered or refused for
// over 3 s.
func (w *Writer) Stalled() bool {
	t := w.since.Load()
	return t != 0 && w.clock().UnixNano()-t > int64(stalledAfter)
}

// Health says what the log can still take. It is HealthSick also while the
// writer is Stalled.
func (w *Writer) Health() Health {
	h := w.gate.Health()
	if w.Stalled() {
		return h.worse(Health{HealthSick, reasonStalled})
	}
	return h
}

// Await waits until the event of seq, appended already or yet to be, is durable,
// the writer failed, or ctx ends.
func (w *Writer) Await(ctx context.Context, seq protocol.Seq) error {
	return w.wait(ctx, func() bool { return w.Durable() >= seq })
}

// Flush waits until everything appended so far is durable, the writer failed,
// or ctx ends.
func (w *Writer) Flush(ctx context.Context) error { return w.Await(ctx, w.Head()) }

// Close flushes, bounded by ctx, and stops the writer's goroutine; nothing can
// be appended from its beginning on. What is not durable when ctx ends gets
// ErrClosed; its outcome is unknown. It returns nil only when everything
// appended is durable. Close is idempotent and must not be called from a then.
func (w *Writer) Close(ctx context.Context) error {
	w.mu.Lock()
	w.closing = true
	w.mu.Unlock()
	w.signal()
	select {
	case <-w.done:
	case <-ctx.Done():
		w.abort()
		<-w.done
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.Durable() >= w.head {
		return nil
	}
	return w.err
}
