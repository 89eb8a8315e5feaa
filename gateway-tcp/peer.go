package gatewaytcp

import (
	"fmt"
	"log/slog"
	"net"
	"os"

	"rejoin/gateway"
	"rejoin/protocol"
)

// peerPipe is a pipe whose peer the kernel vouches for: a process of the server's
// own user, or of root.
type peerPipe struct{ *halfPipe }

var _ gateway.Attested = (*peerPipe)(nil)

// Attested says so.
func (*peerPipe) Attested() bool { return true }

// admitPeer returns the pipe of a connection to a socket with auth=peer, or nil:
// a process of another user is told and its connection closed.
func (l *Listener) admitPeer(c net.Conn) gateway.Pipe {
	uid, err := peerUID(c)
	if err == nil && uid != 0 && uid != os.Geteuid() {
		err = fmt.Errorf("user %d is neither the server's nor root", uid)
	}
	p, ok := newPipe(c, l.limits.RequestBytesMax).(*halfPipe)
	if err == nil && ok {
		return &peerPipe{p}
	}
	l.stats.PeersRefused.Add(1)
	l.limits.Logger.Warn("peer refused", slog.String("socket", l.endpoint.Address), slog.Any(protocol.LogError, err))
	refusal := protocol.AppendError(nil, nil, protocol.Errorf(protocol.ReasonForbidden, "this socket is for the server's own user"))
	(&pipe{conn: c}).refuse(append(refusal, '\n'))
	if err := c.Close(); err != nil {
		l.limits.Logger.Debug("close", slog.Any(protocol.LogError, err))
	}
	return nil
}
