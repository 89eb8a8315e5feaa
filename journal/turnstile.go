package journal

import (
	"context"
	"sync"
)

// turnsPerShard is how many publishes a shard has in flight.
const turnsPerShard = 4

// turnstile lets a bounded number of writers of one shard publish at a time, in
// the order in which they asked. A writer that waits collects more events into
// its next record, so a flooding session cannot starve the others.
type turnstile struct {
	mu   sync.Mutex
	free int
	wait []chan struct{} // each has capacity 1; bounded by the number of writers
}

func newTurnstile(width int) *turnstile { return &turnstile{free: width} }

// enter waits for a turn; ticket is a channel of capacity 1 that the caller
// reuses. The only error is ctx's.
func (t *turnstile) enter(ctx context.Context, ticket chan struct{}) error {
	t.mu.Lock()
	if t.free > 0 {
		t.free--
		t.mu.Unlock()
		return nil
	}
	t.wait = append(t.wait, ticket)
	t.mu.Unlock()
	select {
	case <-ticket:
		return nil
	case <-ctx.Done():
	}
	if !t.giveUp(ticket) {
		<-ticket // the turn came at the same moment: pass it on
		t.leave()
	}
	return ctx.Err()
}

// giveUp leaves the queue; false when the turn was already given.
func (t *turnstile) giveUp(ticket chan struct{}) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, c := range t.wait {
		if c == ticket {
			t.wait = append(t.wait[:i], t.wait[i+1:]...)
			return true
		}
	}
	return false
}

// leave gives the turn to the longest waiting writer.
func (t *turnstile) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.wait) == 0 {
		t.free++
		return
	}
	next := t.wait[0]
	t.wait = append(t.wait[:0], t.wait[1:]...)
	next <- struct{}{}
}
