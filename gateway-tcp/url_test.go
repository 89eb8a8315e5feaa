package gatewaytcp

import (
	"errors"
	"testing"
)

func TestParseURL(t *testing.T) {
	for _, c := range []struct {
		url              string
		network, address string
		scheme, bad      bool
	}{
		{url: "tcp://127.0.0.1:9800", network: "tcp", address: "127.0.0.1:9800"},
		{url: "tcp://[::1]:0", network: "tcp", address: "[::1]:0"},
		{url: "tcp://:9800?dialect=native", network: "tcp", address: ":9800"},
		{url: "unix:///run/rejoin.sock", network: "unix", address: "/run/rejoin.sock"},
		{url: "ftp://x:1", scheme: true},
		{url: "9800", scheme: true},
		{url: "tls://x:1", scheme: true},
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
		e, err := parseURL(c.url)
		var se *SchemeError
		var ue *URLError
		switch {
		case errors.As(err, &se) != c.scheme, errors.As(err, &ue) != c.bad:
			t.Errorf("%s: %v", c.url, err)
		case err == nil && (e.network != c.network || e.address != c.address || e.dialect != DialectNative):
			t.Errorf("%s: %+v", c.url, e)
		}
	}
}
