package gatewaytcp

import (
	"syscall"

	"golang.org/x/sys/unix"

	"rejoin/protocol"
)

// boundUnsent bounds what the kernel holds for a client that does not read
// (TCP_NOTSENT_LOWAT, tcp(7)); accepted connections inherit it. What is on its way
// to the client is not bounded by it, so a long link keeps its speed.
func boundUnsent(_, _ string, raw syscall.RawConn) error {
	var err error
	if e := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, protocol.UnsentBytesMax)
	}); e != nil {
		return e
	}
	return err
}
