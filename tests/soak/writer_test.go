package soak_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"rejoin/tests/harness"
	"rejoin/tests/model"
)

// writer is one client that sends commands, and sends again what has no answer.
type writer struct {
	u         *subject
	name      string
	transport string
	rng       dice // under mu

	mu   sync.Mutex
	sent []*sent
	done int // of sent: the first so many are settled
}

// sent is one command.
type sent struct {
	id      string
	payload json.RawMessage
	settled atomic.Bool // acknowledged, or refused for good
}

func (w *writer) run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := w.visit(ctx); err != nil && ctx.Err() == nil {
			w.u.s.broke(fmt.Errorf("writer %s of %s: %w", w.name, w.u.session, err))
			return
		}
		pause(ctx, 10*time.Millisecond)
	}
}

func (w *writer) visit(ctx context.Context) error {
	c, err := w.u.s.connect(ctx, w.transport, 0, nil)
	if err != nil {
		return tolerate(err)
	}
	return errors.Join(tolerate(w.talk(ctx, c)), c.Close())
}

// talk sends what is due every few milliseconds; now and then it sends again what
// has its answer.
func (w *writer) talk(ctx context.Context, c *harness.Client) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.Done():
			return nil
		case <-tick.C:
		}
		x := w.pick()
		if x == nil {
			continue
		}
		if err := w.send(ctx, c, x); err != nil {
			return err
		}
	}
}

// pick returns the oldest command without an answer, an old one again, a new one,
// or nil.
func (w *writer) pick() *sent {
	level := w.u.level.Load()
	if level == silent {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for ; w.done < len(w.sent); w.done++ {
		if x := w.sent[w.done]; !x.settled.Load() {
			return x
		}
	}
	switch {
	case level == retrying:
		return nil
	case w.done > 0 && w.rng.r.IntN(5) == 0:
		return w.sent[w.rng.r.IntN(w.done)]
	}
	return w.order(w.fresh())
}

// fresh is what to say next.
func (w *writer) fresh() model.Order {
	switch n := w.rng.r.IntN(40); {
	case n < 10:
		return model.Order{Type: "chat", N: w.rng.r.IntN(3000)}
	case n == 10:
		return model.Order{Type: "big", N: 200<<10 + w.rng.r.IntN(eventLimit+200<<10)}
	}
	return model.Order{Type: "echo"}
}

// order notes a new command before it is sent. It runs under mu.
func (w *writer) order(o model.Order) *sent {
	o.K = fmt.Sprintf("%s-%d", w.name, len(w.sent))
	var payload []byte
	var err error
	if w.u.kind == "demo" {
		words := []string{"count 20", "tool", "think", "say hello", "rubbish", "flood 30"}
		payload, err = json.Marshal(map[string]any{"type": "prompt", "message": words[w.rng.r.IntN(len(words))]})
	} else {
		payload, err = json.Marshal(o)
	}
	if err != nil {
		panic(err) // plain members
	}
	x := &sent{id: o.K, payload: payload}
	w.sent = append(w.sent, x)
	w.u.rec.Sent(x.id, payload)
	return x
}

// send sends a command once and notes the answer. A refusal that a retry may
// change leaves it open.
func (w *writer) send(ctx context.Context, c *harness.Client, x *sent) error {
	a, err := model.Send(ctx, c, w.u.session, x.id, x.payload)
	if err != nil {
		return err // unknown: sent again
	}
	if a.Seq != 0 && !a.Duplicate && w.u.s.trap.CompareAndSwap(true, false) {
		if err := w.u.s.server.KillNow(); err != nil {
			return err
		}
	}
	w.u.rec.Answered(x.id, a)
	switch {
	case a.Seq != 0:
		if !x.settled.Swap(true) {
			w.u.acks.Add(1)
		}
	case a.Code == -32004 || a.Code == -32005 || a.Retryable:
		// No child lives at the moment, or somebody has too much to do: later.
	default:
		return fmt.Errorf("broke docs/protocol.md: command %s was refused: %d %s", x.id, a.Code, strings.TrimSpace(a.Reason))
	}
	return nil
}

// settledAll reports whether the fate of every command is known.
func (w *writer) settledAll() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for ; w.done < len(w.sent); w.done++ {
		if !w.sent[w.done].settled.Load() {
			return false
		}
	}
	return true
}
