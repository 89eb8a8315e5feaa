package client

import (
	"context"
	"errors"
	"io"
	"sync/atomic"

	"rejoin/protocol"
)

// SubscribeOptions of Subscribe. The zero value follows the session from now on.
type SubscribeOptions struct {
	// After is the last event already applied; the next one is After+1. Nil: see From.
	After *protocol.Seq
	// Epoch is the epoch of After. Empty means whichever is current.
	Epoch protocol.Epoch
	// From is start, snapshot or now; only without After. Empty means now.
	From string
	// Until ends the subscription after that event. Zero means never.
	Until protocol.Seq
	// OnLink is told of changes of this subscription's link, in order, from a
	// goroutine that waits for it: it must not block and must not call the
	// Subscription or the Client.
	OnLink func(Link)
}

// The bound of what a Subscription holds for a consumer that is slow: batches that
// wait plus the one being filled. When they are full the socket is not read.
const (
	batchMessages  = 256
	batchBytes     = 256 << 10 // or one message, whatever its size
	batchesWaiting = 2
)

// A Subscription follows one session over a connection of its own. Next and Ready
// are for one goroutine; Close and Cursor may be called from any.
type Subscription struct {
	client  *Client
	session string
	opts    SubscribeOptions
	cancel  context.CancelFunc
	epoch   atomic.Pointer[protocol.Epoch] // in which it reads; nil before the first response

	batches chan []Message // closed by run, after err is set
	err     error
	done    chan struct{} // closed when run has returned

	batch []Message // what Next takes from
	at    atomic.Pointer[protocol.Cursor]
}

// Subscribe follows a session; it returns when the server has answered the first
// time. After that the subscription resumes by itself, for as long as it takes.
// Errors are an *RPCError, ErrClosed, or the end of ctx, which ends nothing later.
func (c *Client) Subscribe(ctx context.Context, session string, opts SubscribeOptions) (*Subscription, error) {
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := &Subscription{
		client: c, session: session, opts: opts, cancel: cancel,
		batches: make(chan []Message, batchesWaiting), done: make(chan struct{}),
	}
	f := newFollower(s)
	c.mu.Lock()
	if c.failed != nil {
		c.mu.Unlock()
		cancel()
		return nil, c.failed
	}
	c.subs[s] = struct{}{}
	c.wg.Go(func() {
		defer close(s.done)
		s.err = f.run(life)
		close(s.batches)
		c.mu.Lock()
		delete(c.subs, s)
		c.mu.Unlock()
	})
	c.mu.Unlock()
	select {
	case <-f.subscribed:
		return s, nil
	case <-s.done:
		cancel()
		return nil, s.err
	case <-ctx.Done():
		_ = s.Close()
		return nil, ended(ctx, f.lastErr)
	}
}

// Next returns the next message. It blocks until there is one, ctx ends (the
// subscription stays) or the subscription ends: io.EOF after KindEnd, ErrClosed
// after Close, ErrGap, or an *RPCError when the server refuses to go on.
func (s *Subscription) Next(ctx context.Context) (Message, error) {
	for len(s.batch) == 0 {
		select {
		case b, ok := <-s.batches:
			if !ok {
				return Message{}, s.err
			}
			s.batch = b
		case <-ctx.Done():
			return Message{}, context.Cause(ctx)
		}
	}
	m := s.batch[0]
	s.batch = s.batch[1:]
	return m, nil
}

// Ready reports whether Next will not block.
func (s *Subscription) Ready() bool { return len(s.batch) > 0 || len(s.batches) > 0 }

// Cursor returns how far the subscription has received, which may be further than
// Next has delivered.
func (s *Subscription) Cursor() protocol.Cursor {
	if c := s.at.Load(); c != nil {
		return *c
	}
	return protocol.Cursor{}
}

// Close ends the subscription and waits for its goroutine; messages already
// received are still delivered by Next, then ErrClosed. It is idempotent.
func (s *Subscription) Close() error {
	s.cancel()
	<-s.done
	return nil
}

// terminal reports whether a subscription cannot go on after err.
func terminal(err error) bool {
	var rpc *RPCError
	if errors.As(err, &rpc) {
		return !rpc.Retryable()
	}
	return errors.Is(err, io.EOF) || errors.Is(err, ErrGap)
}
