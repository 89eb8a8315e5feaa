package gatewaytcp

import (
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"rejoin/gateway"
	"rejoin/protocol"
)

// sealedConn is the connection under a tls.Conn. A TLS write that fails has ended
// the stream, also when it was only slow, so the rule that bytes which were taken
// renew the deadline cannot be the core's here: it is kept below the records.
type sealedConn struct {
	net.Conn
	patience atomic.Int64 // nanoseconds that a write may go on without a byte taken; zero: no end
	closing  atomic.Bool
}

// Write gives p to the kernel whole, or fails once it takes no byte for as long
// as patience says.
func (c *sealedConn) Write(p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		if d := c.patience.Load(); d != 0 {
			if err := c.Conn.SetWriteDeadline(time.Now().Add(time.Duration(d))); err != nil {
				return n, err
			}
		}
		var m int
		m, err = c.Conn.Write(p[n:])
		n += m
		if m > 0 && errors.Is(err, os.ErrDeadlineExceeded) && !c.closing.Load() {
			err = nil
		}
	}
	return n, err
}

// SetWriteDeadline is what crypto/tls calls before its last alert, with 5 s: the
// end of a connection has lingerMax.
func (c *sealedConn) SetWriteDeadline(time.Time) error {
	c.closing.Store(true)
	c.patience.Store(0)
	return c.Conn.SetWriteDeadline(time.Now().Add(lingerMax))
}

// tlsPipe is a pipe whose frames travel through TLS.
type tlsPipe struct {
	halfPipe
	sealed   *sealedConn
	accepted time.Time
}

var (
	_ gateway.Pipe  = (*tlsPipe)(nil)
	_ gateway.Dated = (*tlsPipe)(nil)
)

// Resumable: a TLS connection whose write failed is over.
func (p *tlsPipe) Resumable() bool { return false }

// SetWriteDeadline: t is how long from now a write may find no byte taken.
func (p *tlsPipe) SetWriteDeadline(t time.Time) error {
	if p.sealed.closing.Load() {
		return nil
	}
	p.sealed.patience.Store(max(1, int64(time.Until(t))))
	return p.sealed.Conn.SetWriteDeadline(t) // also for a write under way
}

// Accepted is when the connection was made, before its handshake.
func (p *tlsPipe) Accepted() time.Time { return p.accepted }

// secure makes the handshake on c and returns the pipe, or nil when there is none:
// c is closed then. It takes at most Limits.HandshakeTimeout.
func (l *Listener) secure(c net.Conn) gateway.Pipe {
	accepted := time.Now()
	leave := l.handshakes.enter(c)
	defer leave()
	sealed := &sealedConn{Conn: c}
	conn := tls.Server(sealed, l.tls)
	err := c.SetDeadline(accepted.Add(l.limits.HandshakeTimeout))
	if err == nil {
		err = conn.Handshake()
	}
	if err == nil {
		err = c.SetDeadline(time.Time{})
	}
	if err != nil {
		l.handshakeFailed(c, err)
		return nil
	}
	p := &pipe{conn: conn, greeted: true}
	p.lines = protocol.NewLineReader(conn, l.limits.RequestBytesMax, 0)
	half, err := securedPipe(p, c)
	if err != nil {
		l.handshakeFailed(c, err)
		return nil
	}
	return &tlsPipe{half, sealed, accepted}
}

// handshakeFailed tells a client that speaks in clear what this listener is, and
// ends the connection.
func (l *Listener) handshakeFailed(c net.Conn, err error) {
	l.stats.HandshakesFailed.Add(1)
	log := l.limits.Logger.Info
	var header tls.RecordHeaderError
	switch {
	case errors.As(err, &header) && header.Conn != nil:
		err = errors.New("the client does not speak TLS")
		refusal := protocol.AppendError(nil, nil, protocol.Errorf(protocol.ReasonInvalidRequest, "this listener speaks TLS: connect with tls://"))
		(&pipe{conn: c}).refuse(append(refusal, '\n'))
	case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed), errors.Is(err, syscall.ECONNRESET):
		log = l.limits.Logger.Debug // a probe, or the end of the listener
	}
	log("no TLS handshake", slog.String("peer", c.RemoteAddr().String()), slog.Any(protocol.LogError, err))
	if err := c.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		l.limits.Logger.Debug("close", slog.Any(protocol.LogError, err))
	}
}
