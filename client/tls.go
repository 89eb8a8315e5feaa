package client

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
)

const schemeTLS = "tls"

// ErrNoTLS is the cause of a DialError: whoever listens at a tls:// URL speaks
// something else.
var ErrNoTLS = errors.New("the server does not speak TLS there; use tcp://")

// dial opens the connection that a URL of that scheme names, with its handshake.
func (o *Options) dial(ctx context.Context, scheme, address string) (net.Conn, error) {
	if scheme != schemeTLS {
		return o.Dialer(ctx, scheme, address)
	}
	conn, err := o.Dialer(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	sealed := tls.Client(conn, o.tlsFor(address))
	if err := sealed.HandshakeContext(ctx); err != nil {
		_ = conn.Close() // nothing was asked of it yet
		var header tls.RecordHeaderError
		if errors.As(err, &header) {
			return nil, ErrNoTLS
		}
		return nil, err
	}
	return sealed, nil
}

// tlsFor is the configuration for a server at that address.
func (o *Options) tlsFor(address string) *tls.Config {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.TLS != nil {
		c = o.TLS.Clone()
		c.MinVersion = max(c.MinVersion, tls.VersionTLS12)
	}
	if c.ServerName == "" {
		if host, _, err := net.SplitHostPort(address); err == nil { // ParseURL saw a port
			c.ServerName = host
		}
	}
	return c
}
