package journal

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// reach tells whether a server can be asked: the embedded one, which all
// connections share, or whatever one connection to a cluster has found. Safe for
// concurrent use.
type reach struct {
	// attempt bounds one attempt at what may be repeated: a request to a leader that
	// has just gone gets no answer. Zero: nothing does.
	attempt time.Duration

	// leave goes to another server, where there are several; nil: there are not. Set
	// before the connection is used.
	leave  func()
	silent atomic.Pointer[silence] // nil: leaders answer

	up    atomic.Bool
	alive atomic.Pointer[engineLife]
	again broadcast // each time it can be asked again
}

// deafAfter is how long a connection may have no answer to anything before it is
// taken to another server: its own may be cut off from the others, and not know it.
// Most elections are over by then.
const deafAfter = 6 * time.Second

// deafPause is between two failures that tell nothing of the time between them: who
// asks seldom would else take two elections for one long silence.
const deafPause = 10 * time.Second

// silence is the time in which no leader that was asked has answered.
type silence struct{ from, last time.Time }

// answered notes that a leader which was asked gave an answer, or none though it was
// waited for. What replicas answer does not count: each has all that is old.
func (r *reach) answered(ok bool) {
	if r.leave == nil {
		return
	}
	was := r.silent.Load()
	if ok {
		if was != nil {
			r.silent.Store(nil)
		}
		return
	}
	now := time.Now()
	switch {
	case was == nil || now.Sub(was.last) > deafPause:
		r.silent.CompareAndSwap(was, &silence{now, now})
	case now.Sub(was.from) <= deafAfter:
		r.silent.CompareAndSwap(was, &silence{was.from, now})
	case r.silent.CompareAndSwap(was, nil):
		r.leave()
	}
}

// acknowledged notes what a leader said of a message, nil being that it is stored.
// That an earlier one is on its way is no answer: a leader that is cut off from the
// other servers says so until it steps down, and one that is not soon says more.
func (r *reach) acknowledged(refusal error) {
	if refusal == nil {
		r.answered(true)
		return
	}
	var api *apiError // of the second path only: it is on the heap
	r.answered(!errors.As(refusal, &api) || api.ErrCode != apiInFlight)
}

// unheard reports that an error of a request means: no server that could answer got
// it.
func unheard(err error) bool {
	return errors.Is(err, nats.ErrNoResponders) || errors.Is(err, errNoMeta)
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

// askLeader asks the leader of a stream, which may be repeated. Errors: errNoMeta,
// those of NATS, ctx's.
func (r *reach) askLeader(ctx context.Context, nc *nats.Conn, stream, req string) (msg *nats.Msg, err error) {
	err = r.whileUp(ctx, func(ctx context.Context) (err error) {
		msg, err = nc.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+stream, []byte(req))
		if err == nil && bytes.Contains(msg.Data, noMeta) {
			err = errNoMeta
		}
		if err == nil || unheard(err) || errors.Is(ctx.Err(), context.DeadlineExceeded) {
			r.answered(err == nil)
		}
		return err
	})
	return msg, err
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
