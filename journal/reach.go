package journal

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// reach tells whether a server can be asked: the embedded one, which all
// connections share, or whatever one connection to a cluster has found. Safe for
// concurrent use.
type reach struct {
	// attempt bounds one attempt at what may be repeated: a request to a leader that
	// has just gone gets no answer. Zero: nothing does.
	attempt time.Duration

	up    atomic.Bool
	alive atomic.Pointer[engineLife]
	again broadcast // each time it can be asked again
}

// engineLife is the time between two losses of a server.
type engineLife struct {
	ctx context.Context // of losses, not of a request
	end context.CancelFunc
}

// begin starts a life, which parent bounds too. Who waits goes on only after found.
func (r *reach) begin(parent context.Context) {
	a := &engineLife{}
	a.ctx, a.end = context.WithCancel(parent)
	if old := r.alive.Swap(a); old != nil {
		old.end()
	}
}

// found says that the server can be asked.
func (r *reach) found() {
	r.up.Store(true)
	r.again.signal()
}

// lost ends the life: requests in flight get no answer.
func (r *reach) lost() {
	r.up.Store(false)
	if a := r.alive.Load(); a != nil {
		a.end()
	}
}

// await waits while the server is away: at most until ctx ends, and then the
// caller finds it away.
func (r *reach) await(ctx context.Context) {
	again := r.again.next()
	if r.up.Load() {
		return
	}
	select {
	case <-again:
	case <-ctx.Done():
	}
}

// mortal returns a context that also ends when the server is lost.
func (r *reach) mortal(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(r.alive.Load().ctx, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// whileUp does something that may be repeated, such as a read, and repeats it
// when the loss of the server came between, or it took longer than an attempt may.
func (r *reach) whileUp(ctx context.Context, f func(context.Context) error) error {
	for {
		r.await(ctx)
		life := r.alive.Load().ctx
		late, err := r.once(ctx, f)
		if err == nil || life.Err() == nil && !late || ctx.Err() != nil {
			return err
		}
	}
}

// once is one attempt; late reports that it took too long.
func (r *reach) once(ctx context.Context, f func(context.Context) error) (late bool, err error) {
	ctx, cancel := r.mortal(ctx)
	defer cancel()
	if r.attempt > 0 {
		var end context.CancelFunc
		ctx, end = context.WithTimeout(ctx, r.attempt)
		defer end()
	}
	err = f(ctx)
	return errors.Is(ctx.Err(), context.DeadlineExceeded), err
}
