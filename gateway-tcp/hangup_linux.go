package gatewaytcp

import (
	"errors"
	"fmt"
	"net"
	"syscall"

	"golang.org/x/sys/unix"

	"rejoin/gateway"
)

// halfPipe is a pipe whose peer may end its side and read on.
type halfPipe struct {
	*pipe
	raw syscall.RawConn
	// events are what besides POLLHUP and POLLERR means that the peer is gone.
	events int16
}

var _ gateway.HalfCloser = (*halfPipe)(nil)

func halfCloser(p *pipe) gateway.Pipe {
	sc, ok := p.conn.(syscall.Conn)
	if !ok {
		return p
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return p
	}
	return &halfPipe{p, raw, 0}
}

// securedPipe is the half pipe of a TLS connection over c. There the end of input
// is an alert, not TCP's: a peer that ends its side of c as well has gone.
func securedPipe(p *pipe, c net.Conn) (halfPipe, error) {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return halfPipe{}, fmt.Errorf("%T has no descriptor", c)
	}
	raw, err := sc.SyscallConn()
	return halfPipe{p, raw, unix.POLLRDHUP}, err
}

// AwaitHangup returns when both sides of the connection have ended, by a reset,
// a close of a Unix socket's peer or a failed keepalive probe: poll(2) then says
// POLLHUP or POLLERR, while an ended input alone is neither. The network poller
// wakes it; nothing is read. An error means that the pipe was closed meanwhile.
func (p *halfPipe) AwaitHangup() {
	_ = p.raw.Read(func(fd uintptr) bool {
		fds := []unix.PollFd{{Fd: int32(fd), Events: p.events}} //nolint:gosec // a descriptor fits
		for {
			_, err := unix.Poll(fds, 0)
			if !errors.Is(err, unix.EINTR) {
				return err != nil || fds[0].Revents != 0
			}
		}
	})
}
