package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"strconv"
	"sync/atomic"
)

// A Target is a server of streams of lines, under load.
type Target interface {
	// Stream makes a stream of lines of so many bytes that nobody has written to.
	Stream(ctx context.Context, size int) (Stream, error)
	// PIDs are the processes of the server.
	PIDs() []int
}

// A Stream has one publisher, which is for one goroutine, and observers.
type Stream interface {
	// Emit publishes n untimed lines; it may return before they are published.
	Emit(n int) error
	// Pace publishes burst timed lines n times, rate times a second.
	Pace(ctx context.Context, n, rate, burst int) error
	// Digest is of everything published so far.
	Digest(ctx context.Context) (Digest, error)
	// Subscribe lets o go on at its cursor, on a connection of its own with a read
	// buffer of so many bytes.
	Subscribe(ctx context.Context, o *Observer, bufferBytes int) error
	// Close ends the stream and what publishes to it.
	Close() error
}

// counted is a stream with the count that its publisher is held back by.
type counted struct {
	Stream
	total atomic.Int64 // lines of all its observers
	wake  chan struct{}
	sent  int64
}

func newCounted(ctx context.Context, t Target) (*counted, error) {
	s, err := t.Stream(ctx, LineBytes)
	if err != nil {
		return nil, err
	}
	return &counted{Stream: s, wake: make(chan struct{}, 1)}, nil
}

// observer makes one that counts.
func (c *counted) observer() *Observer {
	o := NewObserver(LineBytes)
	o.total, o.wake = &c.total, c.wake
	return o
}

// rejoin is the Target of this program.
type rejoin struct {
	*Server
	adapter string // of the sessions
	link    *link  // for starting them
}

// NewRejoin makes a Target of a server. Close what it returns before the server.
func NewRejoin(ctx context.Context, s *Server) (Target, func(), error) {
	r, err := newRejoin(ctx, s)
	if err != nil {
		return nil, nil, err
	}
	return r, func() { r.link.close() }, nil // a restart has another link
}

func newRejoin(ctx context.Context, s *Server) (*rejoin, error) {
	l, err := dialLink(ctx, s.address, s.token, controlBuffer, nil)
	if err != nil {
		return nil, err
	}
	return &rejoin{Server: s, adapter: "jsonl", link: l}, nil
}

const controlBuffer = 4 << 10

// session is a rejoin session as a Stream.
type session struct {
	*feed
	r  *rejoin
	id string
}

// Stream starts a session whose child is this program.
func (r *rejoin) Stream(ctx context.Context, size int) (Stream, error) { return r.session(ctx, size) }

func (r *rejoin) session(ctx context.Context, size int) (_ *session, err error) {
	l, err := feedSocket(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if e := l.Close(); err == nil && !errors.Is(e, net.ErrClosed) {
			err = e
		}
	}()
	s := &session{r: r}
	if s.id, err = r.start(ctx, childArgv(l.Addr().String(), size), r.adapter); err != nil {
		return nil, err
	}
	if s.feed, err = acceptFeed(ctx, l); err != nil {
		return nil, err
	}
	return s, nil
}

// start starts a session.
func (r *rejoin) start(ctx context.Context, argv []string, adapter string) (string, error) {
	var a struct{ SessionID string }
	params := map[string]any{"argv": argv, "adapter": adapter, "commandId": rand.Text()} // asked again it is the same session
	err := retried(ctx, func() error { return r.link.ask(ctx, "start_session", params, &a) })
	return a.SessionID, err
}

// head is the newest seq of the session.
func (s *session) head(ctx context.Context) (uint64, error) {
	var info struct{ Head uint64 }
	err := s.r.link.ask(ctx, "get_session", map[string]any{"sessionId": s.id}, &info)
	return info.Head, err
}

// Subscribe connects o by itself.
func (s *session) Subscribe(ctx context.Context, o *Observer, bufferBytes int) error {
	l, err := dialLink(ctx, s.r.address, s.r.token, bufferBytes, o.slow)
	if err != nil {
		return err
	}
	if err := retried(ctx, func() error { return l.subscribe(ctx, s.id, o, nil) }); err != nil {
		l.close()
		return err
	}
	o.conn, o.done = l.conn, l.done
	return nil
}

// Close lets the child end.
func (s *session) Close() error {
	s.close()
	return nil
}

// childArgv is how a server starts the child of a row: itself (proc(5)), told
// where its orders come from and how long its lines are.
func childArgv(socket string, size int) []string {
	return []string{"/proc/self/exe", ChildCommand, socket, strconv.Itoa(size)}
}
