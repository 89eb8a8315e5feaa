//go:build !linux

package gatewaytcp

import (
	"net"

	"rejoin/gateway"
)

// halfCloser: without a way to see the peer go, the end of its input is taken
// for its end.
func halfCloser(p *pipe) gateway.Pipe { return p }

// halfPipe is a pipe.
type halfPipe struct{ *pipe }

func securedPipe(p *pipe, _ net.Conn) (halfPipe, error) { return halfPipe{p}, nil }
