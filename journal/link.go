package journal

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"rejoin/protocol"
)

// link says what one connection is for. None ever gives up reconnecting, and none
// keeps a publish for later: a stale one must fail, not be replayed.
type link struct {
	name  string
	srv   *atomic.Pointer[server.Server] // the embedded server it leads to
	reach *reach                         // of this connection alone; used with a cluster
	back  func()                         // after a reconnect; may be nil
	// wrong takes asynchronous errors; nil: they are logged.
	wrong func(*nats.Subscription, error)
}

// dial makes a connection: in process, or to the cluster until ctx ends.
func (n *Node) dial(ctx context.Context, l link) (*nats.Conn, error) {
	opts := []nats.Option{
		nats.MaxReconnects(-1), nats.ReconnectBufSize(-1),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) { n.linkWrong(l, sub, err) }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { n.linkLost(l, err) }),
		nats.ReconnectHandler(func(*nats.Conn) { n.linkBack(l) }),
	}
	if n.remote != nil {
		return n.dialRemote(ctx, l, opts)
	}
	opts = append(opts, nats.InProcessServer(lifeline{l.srv}), nats.Name("rejoin-"+l.name), nats.ReconnectWait(50*time.Millisecond))
	nc, err := nats.Connect("", opts...)
	if err != nil {
		return nil, fmt.Errorf("journal: connect %s: %w", l.name, err)
	}
	return nc, nil
}

func (n *Node) linkWrong(l link, sub *nats.Subscription, err error) {
	if l.wrong != nil {
		l.wrong(sub, err)
		return
	}
	subject := ""
	if sub != nil {
		subject = sub.Subject
	}
	n.log.Warn("journal connection", slog.String("name", l.name), slog.String("subject", subject), slog.Any(protocol.LogError, err))
}

func (n *Node) linkLost(l link, err error) {
	if n.remote != nil {
		l.reach.lost()
	}
	if err != nil && !n.restarting.Load() {
		n.log.Warn("journal connection lost", slog.String("name", l.name), slog.Any(protocol.LogError, err))
	}
}

func (n *Node) linkBack(l link) {
	if n.remote != nil {
		l.reach.silent.Store(nil) // which was of the server before
		l.reach.begin(n.life)
		l.reach.found()
		n.health.soon()
	}
	if !n.restarting.Load() {
		n.log.Info("journal connection back", slog.String("name", l.name))
	}
	if l.back != nil {
		l.back()
	}
}
