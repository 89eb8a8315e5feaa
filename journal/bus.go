package journal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"rejoin/protocol"
)

// ErrNoOwner means that nobody serves the subject.
var ErrNoOwner = errors.New("journal: nobody serves the subject")

// Bounds of what waits for one served subject. A request over them is dropped
// and its requester times out with an unknown outcome.
const (
	busRequestsMax = 16384
	busBytesMax    = 64 << 20
)

// Bus is request and reply between roles. Safe for concurrent use.
type Bus struct {
	nc  *nats.Conn
	log *slog.Logger
}

// Request sends data (up to 8 MiB) and waits for the reply. Errors: ErrNoOwner
// when nobody serves subject; ctx's when it ends first, the outcome is unknown
// then; ErrUnavailable.
func (b *Bus) Request(ctx context.Context, subject string, data []byte) ([]byte, error) {
	msg, err := b.nc.RequestWithContext(ctx, subject, data)
	switch {
	case err == nil:
		return msg.Data, nil
	case errors.Is(err, nats.ErrNoResponders):
		return nil, ErrNoOwner
	default:
		return nil, unavailable(ctx, err)
	}
}

// Serve calls h for each request to subject, one at a time and in the order of
// each requester; reply may be called later, once, from any goroutine, with up
// to 8 MiB. data belongs to h. stop ends the service and returns when h does not
// run any more; it must not be called from h.
func (b *Bus) Serve(subject string, h func(data []byte, reply func([]byte))) (stop func(), err error) {
	sub, err := b.nc.Subscribe(subject, func(m *nats.Msg) {
		h(m.Data, b.replier(m))
	})
	if err != nil {
		return nil, fmt.Errorf("%w: serve %s: %w", ErrUnavailable, subject, err)
	}
	ended := make(chan struct{})
	sub.SetClosedHandler(func(string) { close(ended) })
	err = sub.SetPendingLimits(busRequestsMax, busBytesMax)
	if err == nil {
		err = b.nc.Flush() // the server knows the subscription when Serve returns
	}
	stop = func() {
		if err := sub.Unsubscribe(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) && !errors.Is(err, nats.ErrBadSubscription) {
			b.log.Warn("bus unsubscribe", slog.String("subject", subject), slog.Any(protocol.LogError, err))
		}
		<-ended
	}
	if err != nil {
		stop()
		return nil, fmt.Errorf("%w: serve %s: %w", ErrUnavailable, subject, err)
	}
	return stop, nil
}

// replier returns the reply function of one request; calls after the first do
// nothing.
func (b *Bus) replier(m *nats.Msg) func([]byte) {
	var done atomic.Bool
	return func(data []byte) {
		if m.Reply == "" || done.Swap(true) {
			return
		}
		if err := b.nc.Publish(m.Reply, data); err != nil {
			b.log.Warn("bus reply", slog.String("subject", m.Subject), slog.Int(protocol.LogBytes, len(data)), slog.Any(protocol.LogError, err))
		}
	}
}
