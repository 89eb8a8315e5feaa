package journal

import "context"

// A question is a look at the newest record of a log, at its leader: one for all
// who came before it was asked.
type question struct {
	answered chan struct{} // closed when the rest is set
	rec      *Record
	err      error
}

// newestRecord is the log's newest record, from the leader: of a moment after the call.
// Who comes while a question is on its way shares the next one with all who come
// until that is asked, so that however many ask at once there are two. Errors:
// ErrUnavailable, ErrClosed, ErrDamaged, or ctx's.
func (w *Watch) newestRecord(ctx context.Context) (*Record, error) {
	w.mu.Lock()
	q := w.next
	if q == nil {
		q = &question{answered: make(chan struct{})}
		w.next = q
	}
	first := !w.asking
	w.asking = true
	w.mu.Unlock()
	if first {
		w.hub.begin(w.ask)
	}
	select {
	case <-q.answered:
		return q.rec, q.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// ask asks until nobody waits for a further question. It belongs to the hub: who
// came first may leave before the others have their answer.
func (w *Watch) ask() {
	for {
		w.mu.Lock()
		q := w.next
		w.next = nil // who comes from here on is not answered by what is asked now
		w.asking = q != nil
		w.mu.Unlock()
		if q == nil {
			return
		}
		w.hub.asked.Add(1)
		if q.rec, q.err = w.hub.src.newest(w.hub.ctx, w.log); q.err != nil && w.hub.ctx.Err() != nil {
			q.err = ErrClosed
		}
		close(q.answered)
	}
}

// begin runs f on a goroutine that close waits for; when the hub is closing, here
// and now: then all that f asks the journal fails at once.
func (h *Hub) begin(f func()) {
	h.mu.RLock()
	closed := h.closed
	if !closed {
		h.wg.Go(f)
	}
	h.mu.RUnlock()
	if closed {
		<-h.ctx.Done()
		f()
	}
}
