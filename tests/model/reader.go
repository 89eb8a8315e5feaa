package model

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"rejoin/tests/harness"
)

// How a reader behaves.
const (
	follow       = "follow"   // stays at the tail, resumes by its cursor
	slow         = "slow"     // a small buffer, and again and again it does not read
	flaky        = "flaky"    // leaves after some events and comes back by its cursor
	fromSnapshot = "snapshot" // comes anew each time, with a snapshot
	untilHead    = "until"    // reads the log from its start to the head of the moment
)

// dice are a client's own random numbers.
type dice struct{ r *rand.Rand }

func (d *dice) seed(seed, a, b int) {
	d.r = rand.New(rand.NewPCG(uint64(seed), uint64(a)<<32|uint64(b)))
}

type place struct {
	epoch string
	seq   uint64
}

// Reader is one client that reads.
type Reader struct {
	Name      string
	Transport string // its way to the service, or the one that it tries first

	u   *Subject
	how string
	rng dice // the run goroutine's

	mu sync.Mutex
	at place
}

// Follows reports whether it must have the whole log in the end.
func (r *Reader) Follows() bool { return r.how == follow || r.how == slow || r.how == flaky }

// Prompt reports whether it reads whatever comes at once, and stays.
func (r *Reader) Prompt() bool { return r.how == follow }

// Session is the one that it reads.
func (r *Reader) Session() string { return r.u.Session }

func (r *Reader) cursor() place {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.at
}

func (r *Reader) run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := r.visit(ctx); err != nil && ctx.Err() == nil {
			r.u.s.broke(fmt.Errorf("reader %s of %s: %w", r.Name, r.u.Session, err))
			return
		}
		if r.Follows() {
			harness.Pause(ctx, 10*time.Millisecond)
		} else {
			harness.Pause(ctx, cmp.Or(r.u.s.Rest, 200*time.Millisecond)) // it has to read everything each time
		}
	}
}

// Tolerate drops the errors that a client expects while links and servers break.
func Tolerate(err error) error {
	if errors.Is(err, harness.ErrConnection) || errors.Is(err, context.Canceled) || errors.Is(err, harness.ErrEnded) {
		return nil
	}
	var refused *harness.RPCError
	if errors.As(err, &refused) && refused.Data.Retryable {
		return nil
	}
	return err
}

// asks returns the params of subscribe and what they mean.
func (r *Reader) asks(ctx context.Context, c *harness.Client) (map[string]any, Asked, error) {
	switch r.how {
	case fromSnapshot:
		return map[string]any{"from": "snapshot"}, Asked{}, nil
	case untilHead:
		i, err := Info(ctx, c, r.u.Session)
		if err != nil || i.Head < i.Floor {
			return nil, Asked{}, err
		}
		a := Asked{Replay: true, After: i.Floor - 1, Epoch: i.Epoch, Until: i.Head}
		return map[string]any{"after": a.After, "epoch": a.Epoch, "until": a.Until}, a, nil
	}
	at := r.cursor()
	a := Asked{Replay: true, After: at.seq, Epoch: at.epoch}
	params := map[string]any{"after": at.seq}
	if at.epoch != "" {
		params["epoch"] = at.epoch
	}
	return params, a, nil
}

// visit is one connection. Its end is no error; a breach of a promise is.
func (r *Reader) visit(ctx context.Context) error {
	rcvbuf := 0
	if r.how == slow {
		rcvbuf = 16 << 10
	}
	// What is asked for has to be known before the frames come, and untilHead asks
	// over another connection what to ask for.
	asker, err := r.u.s.Connect(ctx, r.Transport, 0, nil)
	if err != nil {
		return Tolerate(err)
	}
	params, asked, err := r.asks(ctx, asker)
	if err == nil && r.how == fromSnapshot {
		err = r.probe(ctx, asker)
	}
	if err = errors.Join(Tolerate(err), asker.Close()); err != nil || params == nil {
		return err
	}
	tap := r.u.Rec.Tap(r.Name, r.Transport, asked)
	c, err := r.u.s.Connect(ctx, r.Transport, rcvbuf, tap)
	if err != nil {
		return Tolerate(err)
	}
	err = r.stay(ctx, c, params)
	return errors.Join(err, c.Close())
}

// probe asks for the state at some seq that the log has.
func (r *Reader) probe(ctx context.Context, c *harness.Client) error {
	i, err := Info(ctx, c, r.u.Session)
	if err != nil || i.Head < i.Floor {
		return err
	}
	at := i.Floor + uint64(r.rng.r.Int64N(int64(i.Head-i.Floor+1)))
	raw, err := c.Call(ctx, "get_snapshot", map[string]any{"sessionId": r.u.Session, "at": at, "epoch": i.Epoch})
	if err != nil {
		var refused *harness.RPCError
		if errors.As(err, &refused) && refused.Code == -32010 && refused.Data.Epoch != i.Epoch {
			return nil // another epoch has begun
		}
		return err
	}
	var s struct {
		Epoch     string `json:"epoch"`
		Seq       uint64 `json:"seq"`
		StateHash string `json:"stateHash"`
		Damaged   bool   `json:"damaged"`
	}
	if err := json.Unmarshal(raw, &s); err != nil {
		return err
	}
	if s.Epoch != i.Epoch || s.Seq != at && !s.Damaged {
		return fmt.Errorf("broke I-J6: asked for the state at (%s, %d), got (%s, %d)", i.Epoch, at, s.Epoch, s.Seq)
	}
	r.u.Rec.Shown(StateAt{Epoch: s.Epoch, Asked: at, Seq: s.Seq, Hash: s.StateHash})
	return nil
}

// stay subscribes and reads as its kind does until the connection ends.
func (r *Reader) stay(ctx context.Context, c *harness.Client, params map[string]any) error {
	events := make(chan struct{}, 1)
	var n int
	leave := -1
	switch r.how {
	case flaky:
		leave = 50 + r.rng.r.IntN(800)
	case fromSnapshot:
		leave = 20 + r.rng.r.IntN(400)
	}
	gone := make(chan struct{})
	st, err := c.SubscribeFunc(ctx, r.u.Session, params, func(e harness.Event) {
		if r.u.s.Seen != nil && r.Follows() {
			r.u.s.Seen(r, e)
		}
		if n++; n == leave {
			close(gone)
		}
		select {
		case events <- struct{}{}:
		default:
		}
	})
	if err != nil {
		return Tolerate(err)
	}
	over := make(chan struct{})
	var waiting sync.WaitGroup
	waitCtx, cancel := context.WithCancel(ctx)
	if r.how == untilHead {
		waiting.Go(func() {
			_, _ = st.End(waitCtx) // the view tells how it ended
			close(over)
		})
	}
	r.watch(ctx, c, st, events, gone, over)
	cancel()
	waiting.Wait()
	return nil
}

// watch keeps the cursor and the manners of the reader until it leaves.
func (r *Reader) watch(ctx context.Context, c *harness.Client, st *harness.Stream, events, gone, over <-chan struct{}) {
	defer func() { r.note(st) }()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-c.Done():
			return
		case <-gone:
			return
		case <-over:
			return
		case <-events:
		}
		if r.how == slow && i%8 == 0 && r.u.level.Load() == Talking {
			c.Pause()
			harness.Pause(ctx, time.Duration(20+r.rng.r.IntN(100))*time.Millisecond)
			c.Resume()
		}
		r.note(st)
	}
}

// note moves the cursor to what the stream has delivered.
func (r *Reader) note(st *harness.Stream) {
	epoch, seq := st.Cursor()
	if seq+1 == 0 {
		return // a snapshot is due
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at = place{epoch, seq}
}
