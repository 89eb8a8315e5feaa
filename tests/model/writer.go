package model

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
)

// Writer is one client that sends commands, and sends again what has no answer.
type Writer struct {
	u         *Subject
	name      string
	transport string
	rng       dice // under mu

	mu   sync.Mutex
	sent []*Sent
	done int // of sent: the first so many are settled
}

// Sent is one command.
type Sent struct {
	Settled atomic.Bool // acknowledged, or refused for good

	id      string
	payload json.RawMessage
	mark    int64 // of the subject when it was made
}

func (w *Writer) run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := w.visit(ctx); err != nil && ctx.Err() == nil {
			w.u.s.broke(fmt.Errorf("writer %s of %s: %w", w.name, w.u.Session, err))
			return
		}
		harness.Pause(ctx, 10*time.Millisecond)
	}
}

func (w *Writer) visit(ctx context.Context) error {
	c, err := w.u.s.Connect(ctx, w.transport, 0, nil)
	if err != nil {
		return Tolerate(err)
	}
	return errors.Join(Tolerate(w.talk(ctx, c)), c.Close())
}

// talk sends what is due every few milliseconds; now and then it sends again what
// has its answer.
func (w *Writer) talk(ctx context.Context, c *harness.Client) error {
	return Talk(ctx, c, 20*time.Millisecond, func() error {
		if x := w.pick(); x != nil {
			return w.send(ctx, c, x)
		}
		return nil
	})
}

// pick returns the oldest command without an answer, an old one again, a new one,
// or nil.
func (w *Writer) pick() *Sent {
	level := w.u.level.Load()
	if level == Silent {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for ; w.done < len(w.sent); w.done++ {
		if x := w.sent[w.done]; !x.Settled.Load() {
			return x
		}
	}
	switch {
	case level == Retrying:
		return nil
	case w.done > 0 && w.rng.r.IntN(5) == 0:
		return w.sent[w.rng.r.IntN(w.done)]
	}
	return w.order(w.fresh())
}

// fresh is what to say next.
func (w *Writer) fresh() Order {
	switch n := w.rng.r.IntN(40); {
	case n < 10:
		return Order{Type: "chat", N: w.rng.r.IntN(3000)}
	case n == 10:
		return Order{Type: "big", N: 200<<10 + w.rng.r.IntN(w.u.s.EventLimit+200<<10)}
	}
	return Order{Type: "echo"}
}

// order notes a new command before it is sent. It runs under mu.
func (w *Writer) order(o Order) *Sent {
	o.K = fmt.Sprintf("%s-%d", w.name, len(w.sent))
	var payload []byte
	var err error
	if w.u.Kind == Demo {
		words := []string{"count 20", "tool", "think", "say hello", "rubbish", "flood 30"}
		payload, err = json.Marshal(map[string]any{"type": "prompt", "message": words[w.rng.r.IntN(len(words))]})
	} else {
		payload, err = json.Marshal(o)
	}
	if err != nil {
		panic(err) // plain members
	}
	x := &Sent{id: o.K, payload: payload, mark: w.u.mark.Load()}
	w.sent = append(w.sent, x)
	w.u.Rec.Sent(x.id, payload)
	return x
}

// send sends a command once and notes the answer. A refusal that a retry may
// change leaves it open.
func (w *Writer) send(ctx context.Context, c harness.Caller, x *Sent) error {
	a, err := Send(ctx, c, w.u.Session, x.id, x.payload)
	if err != nil {
		return err // unknown: sent again
	}
	if a.Seq != 0 && !a.Duplicate && w.u.s.Acked != nil {
		if err := w.u.s.Acked(w.u); err != nil {
			return err
		}
	}
	w.u.Rec.Answered(x.id, a)
	switch {
	case a.Seq != 0:
		if !x.Settled.Swap(true) {
			w.u.acks.Add(1)
			if x.mark == w.u.mark.Load() {
				w.u.marked.Add(1)
			}
		}
	case a.Code == -32004 || a.Code == -32005 || a.Retryable:
		// No child lives at the moment, or somebody has too much to do: later.
	default:
		return fmt.Errorf("broke docs/protocol.md: command %s was refused: %d %s", x.id, a.Code, strings.TrimSpace(a.Reason))
	}
	return nil
}

// settledAll reports whether the fate of every command is known.
func (w *Writer) settledAll() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for ; w.done < len(w.sent); w.done++ {
		if !w.sent[w.done].Settled.Load() {
			return false
		}
	}
	return true
}
