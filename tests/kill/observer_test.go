package kill_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"rejoin/tests/harness"
	"rejoin/tests/model"
)

// An observer is one client: it follows a session by its cursor and sends orders,
// through every death of the server; the world's recorder keeps what it saw, sent
// and was answered.
type observer struct {
	w    *world
	name string
	two  bool // sends on a connection of its own, not the one it reads from

	epoch string        // of the cursor; the run goroutine's
	seq   atomic.Uint64 // of the cursor: the last event it got

	mu      sync.Mutex
	sent    []*sent // every order, in order
	settled int     // of sent: the first so many have their answer
}

// sent is one order under its command id.
type sent struct {
	ID      string
	Command json.RawMessage
	Seq     uint64 // of its command event; zero: not acknowledged
	Refused bool   // the server said that it was not admitted
}

func newObserver(w *world, name string) *observer {
	return &observer{w: w, name: name, two: len(w.observers)%2 == 0}
}

// run follows the session until ctx ends.
func (o *observer) run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := o.visit(ctx); err != nil && ctx.Err() == nil {
			o.w.broke(fmt.Errorf("observer %s of %s: %w", o.name, o.w.session, err))
			return
		}
		harness.Pause(ctx, 10*time.Millisecond)
	}
}

// visit is one connection. Its end is no error; a breach of a promise is.
func (o *observer) visit(ctx context.Context) error {
	asked := model.Asked{Replay: true, After: o.seq.Load(), Epoch: o.epoch}
	tap := o.w.rec.Tap(o.name, o.w.network, asked)
	c, err := harness.ConnectTap(ctx, o.w.network, o.w.address, o.w.token, 0, tap)
	if err != nil {
		return tolerate(err)
	}
	return errors.Join(o.stay(ctx, c), c.Close())
}

// tolerate drops the errors that a client expects while its server dies.
func tolerate(err error) error {
	if errors.Is(err, harness.ErrConnection) || errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// stay subscribes at the cursor and sends until the connection ends.
func (o *observer) stay(ctx context.Context, c *harness.Client) error {
	params := map[string]any{"after": o.seq.Load()}
	if o.epoch != "" {
		params["epoch"] = o.epoch
	}
	first := true
	s, err := c.SubscribeFunc(ctx, o.w.session, params, func(e harness.Event) {
		if first && o.epoch == "" {
			o.epoch = e.Epoch
		}
		first = false
		o.seq.Store(e.Seq)
		o.w.sawEvent(e.Seq)
	})
	if err != nil {
		return tolerate(err)
	}
	if a := s.Attached(); a.Mode != "replay" {
		return fmt.Errorf("broke I-J4: after %v in epoch %q answered mode %s, reason %s (head %d, epoch %s)",
			params["after"], o.epoch, a.Mode, a.Reason, a.Head, a.Epoch)
	}
	if !o.two {
		return tolerate(o.talk(ctx, c))
	}
	sender, err := harness.Connect(ctx, o.w.network, o.w.address, o.w.token)
	if err != nil {
		return tolerate(err)
	}
	return errors.Join(tolerate(o.talk(ctx, sender)), sender.Close())
}

// talk retries what has no answer yet, then sends a new order every few
// milliseconds, as far as the world lets it.
func (o *observer) talk(ctx context.Context, c *harness.Client) error {
	return model.Talk(ctx, c, 15*time.Millisecond, func() error {
		if s := o.pick(); s != nil {
			return o.send(ctx, c, s)
		}
		return nil
	})
}

// pick returns the oldest order without an answer, or a new one, or nil.
func (o *observer) pick() *sent {
	level := o.w.level.Load()
	if level == model.Silent {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.sent[o.settled:] {
		if s.Seq == 0 && !s.Refused {
			return s
		}
		o.settled++
	}
	if level == model.Retrying {
		return nil
	}
	return o.order("echo", 0)
}

// order books a new order before it is sent. It runs under mu.
func (o *observer) order(kind string, n int) *sent {
	id := fmt.Sprintf("%s-%d", o.name, len(o.sent))
	command, err := json.Marshal(model.Order{Type: kind, K: id, N: n})
	if err != nil {
		panic(err) // three plain members
	}
	s := &sent{ID: id, Command: command}
	o.sent = append(o.sent, s)
	o.w.rec.Sent(id, command)
	o.w.sentOrders.Add(1)
	return s
}

// give sends one order of a kind; while the connection holds, it is answered.
func (o *observer) give(ctx context.Context, c *harness.Client, kind string, n int) error {
	o.mu.Lock()
	s := o.order(kind, n)
	o.mu.Unlock()
	return o.send(ctx, c, s)
}

func (o *observer) send(ctx context.Context, c *harness.Client, s *sent) error {
	a, err := model.Send(ctx, c, o.w.session, s.ID, s.Command)
	if err != nil {
		return err // unknown: the next visit asks again
	}
	o.w.rec.Answered(s.ID, a)
	return o.answered(s, a)
}

func (o *observer) answered(s *sent, a model.Answer) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case a.Seq != 0:
		s.Seq = a.Seq
		o.w.sawAck()
	case a.Code == -32004 || a.Code == -32005:
		s.Refused = !a.Retryable
	default:
		return fmt.Errorf("order %s: %d %s", s.ID, a.Code, a.Reason)
	}
	return nil
}

// orders returns a copy of what was sent so far.
func (o *observer) orders() []sent {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := make([]sent, len(o.sent))
	for i, s := range o.sent {
		all[i] = *s
	}
	return all
}

// settledAll reports whether the fate of every order is known.
func (o *observer) settledAll() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.sent[o.settled:] {
		if s.Seq == 0 && !s.Refused {
			return false
		}
	}
	return true
}
