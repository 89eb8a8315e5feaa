package gatewaytcp

import (
	"errors"
	"testing"
)

func TestParseURL(t *testing.T) {
	for _, c := range []struct {
		url                 string
		wantScheme, address string
		auth                string
		scheme, bad         bool
	}{
		{url: "tcp://127.0.0.1:9800", wantScheme: "tcp", address: "127.0.0.1:9800"},
		{url: "tcp://[::1]:0", wantScheme: "tcp", address: "[::1]:0"},
		{url: "tcp://:9800?dialect=native", wantScheme: "tcp", address: ":9800"},
		{url: "unix:///run/rejoin.sock", wantScheme: "unix", address: "/run/rejoin.sock"},
		{url: "ftp://x:1", scheme: true},
		{url: "9800", scheme: true},
		{url: "tls://x:1", wantScheme: "tls", address: "x:1"},
		{url: "ws://x:1", scheme: true},
		{url: "unix:///run/rejoin.sock?auth=peer", wantScheme: "unix", address: "/run/rejoin.sock", auth: AuthPeer},
		{url: "unix:///r.sock?auth=token", wantScheme: "unix", address: "/r.sock"},
		{url: "tcp://127.0.0.1:1?auth=peer", bad: true},
		{url: "unix:///r.sock?auth=none", bad: true},
		{url: "unix:///r.sock?auth=peer&auth=token", bad: true},
		{url: "tls://127.0.0.1", bad: true},
		{url: "tcp://127.0.0.1:70000", bad: true},
		{url: "tcp://127.0.0.1:http", bad: true},
		{url: "tcp://127.0.0.1", bad: true},
		{url: "tcp://127.0.0.1:", bad: true},
		{url: "tcp://127.0.0.1:1/path", bad: true},
		{url: "tcp://u@127.0.0.1:1", bad: true},
		{url: "tcp://127.0.0.1:1?dialect=zcode", bad: true},
		{url: "tcp://127.0.0.1:1?x=1", bad: true},
		{url: "unix://relative/path", bad: true},
		{url: "unix://", bad: true},
		{url: "tcp://%zz", bad: true},
	} {
		e, err := ParseURL(c.url)
		if c.auth == "" {
			c.auth = AuthToken
		}
		var se *SchemeError
		var ue *URLError
		switch {
		case (err != nil) != (c.scheme || c.bad), errors.As(err, &se) != c.scheme, errors.As(err, &ue) != c.bad:
			t.Errorf("%s: %v", c.url, err)
		case err == nil && (e.Scheme != c.wantScheme || e.Address != c.address || e.Dialect != DialectNative || e.Auth != c.auth):
			t.Errorf("%s: %+v", c.url, e)
		}
	}
}
