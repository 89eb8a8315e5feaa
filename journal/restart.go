package journal

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// Bounds of the pause between two restarts of the embedded server. A restart
// that came this long after the last one begins with the shortest pause again.
const (
	restartPauseMin = time.Second
	restartPauseMax = time.Minute
	restartForget   = 5 * time.Minute
)

// connectEvery is how often the end of a restart looks for the connections.
const connectEvery = 10 * time.Millisecond

// pace keeps restarts from following each other in a loop.
type pace struct {
	last  time.Time
	pause time.Duration
}

func (p *pace) due(now time.Time) bool { return p.last.IsZero() || now.Sub(p.last) >= p.pause }

func (p *pace) tried(now time.Time) {
	if p.last.IsZero() || now.Sub(p.last) >= restartForget {
		p.pause = restartPauseMin
	} else {
		p.pause = min(2*p.pause, restartPauseMax)
	}
	p.last = now
}

// lifeline is where connections find the embedded server: the one that runs now.
// While there is none they try again.
type lifeline struct {
	srv *atomic.Pointer[server.Server]
}

// InProcessConn is nats.go's way to a server without a socket.
func (l lifeline) InProcessConn() (net.Conn, error) {
	srv := l.srv.Load()
	if srv == nil {
		return nil, errNoServer
	}
	return srv.InProcessConn()
}

// startBus starts the server of the bus. It keeps nothing, so that commands to
// stop a child find their way while the store is away.
func (n *Node) startBus(ctx context.Context) error {
	srv, err := n.runServer(ctx, &server.Options{
		ServerName: "rejoin-bus", DontListen: true, NoSigs: true, MaxPayload: messageBytesMax, MaxPending: pendingBytesMax,
	})
	if err != nil {
		return err
	}
	n.busServer.Store(srv)
	return nil
}

// restart ends the embedded server and starts it again on the same directory,
// in place and under the boot guard: connections find the new one, watches read
// on, and writers publish what has no known outcome once more, byte for byte.
// Streams that met a write error are counted anew from their blocks. Errors leave
// no server; *MissingStreamError is one after which it must not be tried again.
func (n *Node) restart(ctx context.Context, sick []string) (err error) {
	n.restarting.Store(true)
	defer n.restarting.Store(false)
	n.stopEngine()
	defer func() {
		if err != nil {
			n.stopEngine()
		}
	}()
	for _, name := range sick {
		// What the server counted may be ahead of what reached the disk.
		if err := ignoreMissing(os.Remove(filepath.Join(streamsDir(n.cfg.Dir), name, blocksDir, indexFile))); err != nil {
			return fmt.Errorf("journal: %w", err)
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := n.reopen(ctx); err != nil {
		return err
	}
	within, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := n.checkStreams(within, nil); err != nil {
		return err
	}
	if slices.Contains(sick, snapStream) {
		n.snapFresh.done.Store(false) // its last block met the error
	}
	for _, g := range n.gates {
		g.removed()
	}
	n.hub.checkAll()
	n.reach.found()
	return nil
}

// startEngine starts the embedded server and lets connections find it.
func (n *Node) startEngine(ctx context.Context) error {
	srv, err := n.bootServer(ctx)
	if err != nil {
		return err
	}
	n.reach.begin(n.life)
	n.engine.Store(srv)
	return nil
}

// awaitConnected waits until every connection to the store has found the server.
func (n *Node) awaitConnected(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(connectEvery)
	defer tick.Stop()
	for _, nc := range n.stored() {
		for !nc.IsConnected() {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return fmt.Errorf("journal: connect to the restarted server: %w", ctx.Err())
			}
		}
	}
	return nil
}

// stored are the connections to the server that keeps the streams.
func (n *Node) stored() []*nats.Conn {
	all := []*nats.Conn{n.pub, n.read, n.kv, n.snap}
	if n.hub != nil && n.hub.feed != nil {
		all = append(all, n.hub.feed.nc)
	}
	return all
}

func isMissingStream(err error) bool {
	var missing *MissingStreamError
	return errors.As(err, &missing)
}

// broadcast tells everybody who waits that something has happened. The zero
// value is ready. Safe for concurrent use.
type broadcast struct {
	mu sync.Mutex
	ch chan struct{} // nil when nobody waits
}

// next returns a channel that is closed at the next signal.
func (b *broadcast) next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch == nil {
		b.ch = make(chan struct{})
	}
	return b.ch
}

func (b *broadcast) signal() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch != nil {
		close(b.ch)
		b.ch = nil
	}
}
