package kill_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"rejoin/tests/harness"
)

// An observer is one client: it follows a session by its cursor and sends orders,
// through every death of the server, and keeps two notebooks: the events it got
// and the results of what it sent.
type observer struct {
	w      *world
	name   string
	two    bool // sends on a connection of its own, not the one it reads from
	events *notebook
	sends  *notebook

	epoch string        // of the cursor; the run goroutine's
	seq   atomic.Uint64 // of the cursor: the last event in the notebook

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

func newObserver(w *world, name string) (*observer, error) {
	events, err := newNotebook(filepath.Join(w.dir, w.session+"."+name+".events"))
	if err != nil {
		return nil, err
	}
	sends, err := newNotebook(filepath.Join(w.dir, w.session+"."+name+".sends"))
	if err != nil {
		return nil, errors.Join(err, events.close())
	}
	return &observer{w: w, name: name, two: len(w.observers)%2 == 0, events: events, sends: sends}, nil
}

// run follows the session until ctx ends.
func (o *observer) run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := o.visit(ctx); err != nil && ctx.Err() == nil {
			o.w.broke(fmt.Errorf("observer %s of %s: %w", o.name, o.w.session, err))
			return
		}
		pause(ctx, 10*time.Millisecond)
	}
}

// pause waits for d or the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// visit is one connection. Its end is no error; a breach of a promise is.
func (o *observer) visit(ctx context.Context) error {
	c, err := harness.Connect(ctx, o.w.network, o.w.address, o.w.token)
	if err != nil {
		return tolerate(err)
	}
	err = o.stay(ctx, c)
	err = errors.Join(err, c.Close())
	o.events.sync()
	o.sends.sync()
	return err
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
	var line []byte
	first := true
	s, err := c.SubscribeFunc(ctx, o.w.session, params, func(e harness.Event) {
		if first && o.epoch == "" {
			o.epoch = e.Epoch
		}
		first = false
		line = eventLine(line[:0], &e)
		o.events.add(line)
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
// milliseconds, as far as the world lets it; now and then it makes the notebooks
// durable.
func (o *observer) talk(ctx context.Context, c *harness.Client) error {
	tick := time.NewTicker(15 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-c.Done():
			return nil
		case <-tick.C:
		}
		if n%3 == 0 {
			o.events.sync()
			o.sends.sync()
		}
		s := o.pick()
		if s == nil {
			continue
		}
		if err := o.send(ctx, c, s); err != nil {
			return err
		}
	}
}

// pick returns the oldest order without an answer, or a new one, or nil.
func (o *observer) pick() *sent {
	level := o.w.level.Load()
	if level == silent {
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
	if level == retrying {
		return nil
	}
	return o.order("echo", 0)
}

// order books a new order before it is sent. It runs under mu.
func (o *observer) order(kind string, n int) *sent {
	id := fmt.Sprintf("%s-%d", o.name, len(o.sent))
	command, err := json.Marshal(order{Type: kind, K: id, N: n})
	if err != nil {
		panic(err) // three plain members
	}
	s := &sent{ID: id, Command: command}
	o.sent = append(o.sent, s)
	o.sends.add([]byte("send " + id))
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
	r, err := sendOrder(ctx, c, o.w.session, s)
	var refused *harness.RPCError
	if errors.As(err, &refused) {
		return o.answered(s, 0, refused)
	}
	if err != nil {
		return err // unknown: the next visit asks again
	}
	return o.answered(s, r.Seq, nil)
}

func (o *observer) answered(s *sent, seq uint64, refused *harness.RPCError) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if refused != nil {
		o.sends.add(fmt.Appendf(nil, "refused %s %v", s.ID, refused))
		if refused.Code == -32004 || refused.Code == -32005 {
			s.Refused = !refused.Data.Retryable
			return nil
		}
		return fmt.Errorf("order %s: %w", s.ID, refused)
	}
	o.sends.add(fmt.Appendf(nil, "ack %s %d", s.ID, seq))
	s.Seq = seq
	o.w.sawAck()
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

// sendResult is the result of send.
type sendResult struct {
	SessionID string `json:"sessionId"`
	Status    string `json:"status"`
	CommandID string `json:"commandId"`
	Seq       uint64 `json:"seq"`
	Duplicate bool   `json:"duplicate"`
}

func sendOrder(ctx context.Context, c *harness.Client, session string, s *sent) (sendResult, error) {
	var r sendResult
	raw, err := c.Call(ctx, "send", map[string]any{"sessionId": session, "commandId": s.ID, "command": s.Command})
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return r, err
	}
	if r.SessionID != session || r.Status != "sent" || r.CommandID != s.ID || r.Seq == 0 {
		return r, fmt.Errorf("send answered %s", raw)
	}
	return r, nil
}
