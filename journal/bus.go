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

// Bounds of what waits for one subscribed subject. Above them messages are
// dropped, which the subscriber cannot see: what is published must be repeated, or
// asked for at intervals.
const (
	busNewsMax      = 65536
	busNewsBytesMax = 64 << 20
)

// Bus is request and reply between roles, and news for whoever listens. Safe for
// concurrent use.
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
	return b.ServeQueue(subject, "", h)
}

// ServeQueue is Serve where each request goes to one of those who serve the subject
// in the same queue group, whichever process they are in.
func (b *Bus) ServeQueue(subject, queue string, h func(data []byte, reply func([]byte))) (stop func(), err error) {
	return b.listen(subject, queue, busRequestsMax, busBytesMax, func(m *nats.Msg) { h(m.Data, b.replier(m)) })
}

// Publish sends data (up to 8 MiB) to whoever has subscribed to subject. It does
// not wait and may be lost. Errors: ErrUnavailable.
func (b *Bus) Publish(subject string, data []byte) error {
	if err := b.nc.Publish(subject, data); err != nil {
		return fmt.Errorf("%w: publish to %s: %w", ErrUnavailable, subject, err)
	}
	return nil
}

// Subscribe calls h for each message to subject, which may end in ".>" for all
// below it, one at a time and in the order of each publisher. data belongs to h.
// stop is Serve's.
func (b *Bus) Subscribe(subject string, h func(data []byte)) (stop func(), err error) {
	return b.listen(subject, "", busNewsMax, busNewsBytesMax, func(m *nats.Msg) { h(m.Data) })
}

// listen calls h for each message to subject, or for those that the queue group, if
// there is one, gives us, until stop.
func (b *Bus) listen(subject, queue string, messages, bytes int, h nats.MsgHandler) (stop func(), err error) {
	sub, err := b.nc.QueueSubscribe(subject, queue, h)
	if err != nil {
		return nil, fmt.Errorf("%w: serve %s: %w", ErrUnavailable, subject, err)
	}
	ended := make(chan struct{})
	sub.SetClosedHandler(func(string) { close(ended) })
	err = sub.SetPendingLimits(messages, bytes)
	if err == nil {
		err = b.nc.Flush() // the server knows the subscription when listen returns
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
