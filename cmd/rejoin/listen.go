package main

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
)

// listenURL is one --listen.
type listenURL struct {
	raw     string
	scheme  string // tcp, unix
	address string // host:port, or a path
	dialect string
}

const dialectNative = "native"

// parseListen reads a URL to listen on; its errors begin with the URL.
func parseListen(raw string) (listenURL, error) {
	u, err := url.Parse(raw)
	if err != nil {
		var ue *url.Error
		if errors.As(err, &ue) {
			err = ue.Err
		}
		return listenURL{}, fmt.Errorf("%s: %w", raw, err)
	}
	l := listenURL{raw: raw, scheme: u.Scheme, dialect: dialectNative}
	switch u.Scheme {
	case "tcp":
		if u.Port() == "" || u.Path != "" {
			return l, fmt.Errorf("%s: want tcp://host:port", raw)
		}
		l.address = u.Host
	case "unix":
		if u.Host != "" || u.Path == "" {
			return l, fmt.Errorf("%s: want unix:///path/to/socket", raw)
		}
		l.address = u.Path
	case "tls", "ws", "wss":
		return l, fmt.Errorf("%s: this version does not serve %s; it serves tcp and unix", raw, u.Scheme)
	default:
		return l, fmt.Errorf("%s: unknown scheme %q; want tcp://host:port or unix:///path", raw, u.Scheme)
	}
	if u.User != nil || u.Fragment != "" {
		return l, fmt.Errorf("%s: user and fragment have no meaning", raw)
	}
	for name, values := range u.Query() {
		if name != "dialect" {
			return l, fmt.Errorf("%s: unknown parameter %q", raw, name)
		}
		if l.dialect = values[len(values)-1]; l.dialect != dialectNative {
			return l, fmt.Errorf("%s: this version does not speak the dialect %q; it speaks %s", raw, l.dialect, dialectNative)
		}
	}
	return l, nil
}

// loopback reports whether only this machine can reach the listener. A name other
// than localhost may resolve to anything, so it does not count.
func (l listenURL) loopback() bool {
	if l.scheme == "unix" {
		return true
	}
	host, _, err := net.SplitHostPort(l.address)
	if err != nil {
		return false
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
