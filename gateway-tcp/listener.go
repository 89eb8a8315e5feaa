package gatewaytcp

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"

	"rejoin/gateway"
	"rejoin/protocol"
)

// keepAlive finds peers that are gone without a word: about a minute after their
// last one.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 10 * time.Second, Count: 3}

// Back-off of a failing accept.
const (
	acceptRetryMin = 5 * time.Millisecond
	acceptRetryMax = time.Second
)

// Limits of a listener.
type Limits struct {
	// RequestBytesMax is the longest line of a client without its LF. Zero means
	// protocol.RequestBytesDefault.
	RequestBytesMax int
	// Certificates of tls:// listeners, which need them.
	Certificates *Certificates
	// HandshakeTimeout bounds a TLS handshake. Zero means
	// protocol.AuthTimeoutDefault.
	HandshakeTimeout time.Duration
	// Logger; nil discards.
	Logger *slog.Logger
}

// A Listener accepts connections of one URL.
type Listener struct {
	ln         net.Listener
	endpoint   Endpoint
	limits     Limits
	tls        *tls.Config // nil: in clear
	handshakes handshakes
	stats      counters
}

// Listen listens on tcp://HOST:PORT or tls://HOST:PORT (port 0 picks a free one)
// or unix:///PATH (mode 0600; a socket that nobody listens on is replaced).
// Errors: *SchemeError and *URLError for URLs that make no sense, else what the
// system says.
func Listen(rawURL string, limits Limits) (*Listener, error) {
	e, err := ParseURL(rawURL)
	if err != nil {
		return nil, err
	}
	if limits.RequestBytesMax == 0 {
		limits.RequestBytesMax = protocol.RequestBytesDefault
	}
	if limits.HandshakeTimeout == 0 {
		limits.HandshakeTimeout = protocol.AuthTimeoutDefault
	}
	if limits.Logger == nil {
		limits.Logger = slog.New(slog.DiscardHandler)
	}
	l := &Listener{endpoint: e, limits: limits}
	switch e.Scheme {
	case SchemeUnix:
		l.ln, err = listenUnix(e.Address)
	case SchemeTLS:
		if limits.Certificates == nil {
			return nil, &URLError{rawURL, "a tls listener needs a certificate"}
		}
		l.tls = limits.Certificates.config()
		fallthrough
	default:
		l.ln, err = listenTCP(e.Address)
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}

func listenTCP(address string) (net.Listener, error) {
	lc := net.ListenConfig{KeepAliveConfig: keepAlive, Control: boundUnsent}
	return lc.Listen(context.Background(), "tcp", address) //nolint:contextcheck // resolving a numeric or local name; nothing to cancel
}

// Addr is where it listens, with the real port.
func (l *Listener) Addr() net.Addr { return l.ln.Addr() }

// URL is what a client dials, with the real port.
func (l *Listener) URL() string {
	if l.endpoint.Scheme == SchemeUnix {
		return "unix://" + l.endpoint.Address
	}
	return l.endpoint.Scheme + "://" + l.ln.Addr().String()
}

// Scheme is that of its URL.
func (l *Listener) Scheme() string { return l.endpoint.Scheme }

// Dialect is what it speaks.
func (l *Listener) Dialect() string { return l.endpoint.Dialect }

// Close stops listening. The connections of a Serve under way go on until its
// ctx ends.
func (l *Listener) Close() error { return l.ln.Close() }

// Serve accepts until ctx ends or Close is called and returns when ctx has ended
// and so has every connection it accepted; its error is nil then. When accepting
// fails for good, the connections are ended and the error is returned.
func (l *Listener) Serve(ctx context.Context, s *gateway.Server) error {
	ctx, cancel := context.WithCancel(ctx)
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { // a pending accept ends at once
		defer close(closed)
		if err := l.ln.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			l.limits.Logger.Debug("close listener", slog.Any(protocol.LogError, err))
		}
		l.handshakes.close()
	})
	var conns sync.WaitGroup
	err := l.accept(ctx, func(c net.Conn) {
		l.stats.Accepted.Add(1)
		url := l.URL()
		conns.Go(func() {
			if p := l.open(c); p != nil {
				s.Serve(ctx, p, url)
			}
		})
	})
	if errors.Is(err, net.ErrClosed) {
		<-ctx.Done() // closed: here or by Close
	}
	if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
		err = nil
		conns.Wait()
	}
	cancel()
	conns.Wait()
	if !stop() {
		<-closed
	}
	return err
}

// open returns the pipe of a connection, nil when none comes of it.
//
//go:noinline // the reader's stack stays small: see BenchmarkIdleConnection
func (l *Listener) open(c net.Conn) gateway.Pipe {
	switch {
	case l.tls != nil:
		return l.secure(c)
	case l.endpoint.Auth == AuthPeer:
		return l.admitPeer(c)
	}
	return newPipe(c, l.limits.RequestBytesMax)
}

func (l *Listener) accept(ctx context.Context, serve func(net.Conn)) error {
	wait := acceptRetryMin
	for {
		c, err := l.ln.Accept()
		switch {
		case err == nil:
			wait = acceptRetryMin
			serve(c)
			continue
		case errors.Is(err, syscall.ECONNABORTED):
			continue // the client went while it waited
		case !exhausted(err):
			return err
		}
		l.stats.AcceptRetries.Add(1)
		l.limits.Logger.Warn("accept", slog.Any(protocol.LogError, err), slog.Duration("retry", wait))
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		}
		wait = min(2*wait, acceptRetryMax)
	}
}

// exhausted reports that the system has no more of something that others will
// give back.
func exhausted(err error) bool {
	for _, e := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
