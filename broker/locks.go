package broker

import (
	"context"
	"sync"

	"rejoin/protocol"
)

// locks lets the changes of one session's life take turns: start, resume, the
// writes of a broker that owns nothing, delete, recovery. An entry exists while
// somebody holds or awaits it.
type locks struct {
	mu   sync.Mutex
	held map[protocol.Key]*lock
}

type lock struct {
	turn  chan struct{} // capacity one; full while held
	users int           // holder and waiters, guarded by locks.mu
}

func newLocks() *locks { return &locks{held: make(map[protocol.Key]*lock)} }

// lock waits for its turn; unlock must be called once when err is nil.
func (l *locks) lock(ctx context.Context, k protocol.Key) (unlock func(), err error) {
	l.mu.Lock()
	e := l.held[k]
	if e == nil {
		e = &lock{turn: make(chan struct{}, 1)}
		l.held[k] = e
	}
	e.users++
	l.mu.Unlock()

	select {
	case e.turn <- struct{}{}:
		return func() { <-e.turn; l.leave(k, e) }, nil
	case <-ctx.Done():
		l.leave(k, e)
		return nil, ctx.Err()
	}
}

func (l *locks) leave(k protocol.Key, e *lock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.users--; e.users == 0 {
		delete(l.held, k)
	}
}
