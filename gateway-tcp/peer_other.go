//go:build !linux

package gatewaytcp

import (
	"errors"
	"net"
)

// peerUID: nobody vouches for peers here, so nobody is admitted by that.
func peerUID(net.Conn) (int, error) {
	return 0, errors.New("this system does not say who a peer is")
}
