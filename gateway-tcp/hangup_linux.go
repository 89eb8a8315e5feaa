package gatewaytcp

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"

	"rejoin/gateway"
)

// halfPipe is a pipe whose peer may end its side and read on.
type halfPipe struct {
	*pipe
	raw syscall.RawConn
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
	return &halfPipe{p, raw}
}

// AwaitHangup returns when both sides of the connection have ended, by a reset,
// a close of a Unix socket's peer or a failed keepalive probe: poll(2) then says
// POLLHUP or POLLERR, while an ended input alone is neither. The network poller
// wakes it; nothing is read. An error means that the pipe was closed meanwhile.
func (p *halfPipe) AwaitHangup() {
	_ = p.raw.Read(func(fd uintptr) bool {
		fds := []unix.PollFd{{Fd: int32(fd)}} //nolint:gosec // a descriptor fits
		for {
			_, err := unix.Poll(fds, 0)
			if !errors.Is(err, unix.EINTR) {
				return err != nil || fds[0].Revents != 0
			}
		}
	})
}
