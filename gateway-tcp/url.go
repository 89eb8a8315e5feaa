package gatewaytcp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
)

// DialectNative is the one dialect there is.
const DialectNative = "native"

// The schemes of URLs to listen on.
const (
	SchemeTCP  = "tcp"
	SchemeTLS  = "tls"
	SchemeUnix = "unix"
)

// How a listener's clients authenticate.
const (
	AuthToken = "token" // by a token, unless the server asks for none
	AuthPeer  = "peer"  // Unix sockets: by being a process of the server's user, or root
)

// A SchemeError is a usage error: nobody here listens on such URLs.
type SchemeError struct {
	URL    string
	Scheme string
}

// Error names the schemes that are known.
func (e *SchemeError) Error() string {
	return fmt.Sprintf("%s: unknown scheme %q; want tcp://host:port, tls://host:port or unix:///path", e.URL, e.Scheme)
}

// A URLError is a usage error: the URL's scheme is known, the rest of it is wrong.
type URLError struct {
	URL    string
	Reason string
}

// Error says what is wrong.
func (e *URLError) Error() string { return e.URL + ": " + e.Reason }

// An Endpoint is a URL to listen on, taken apart.
type Endpoint struct {
	URL     string // as given
	Scheme  string // one of the schemes above
	Address string // host:port, or a path
	Dialect string
	Auth    string // AuthToken or AuthPeer
}

// ParseURL reads a URL to listen on. Errors are *SchemeError and *URLError; they
// begin with the URL.
func ParseURL(raw string) (Endpoint, error) {
	u, err := url.Parse(raw)
	if err != nil {
		var ue *url.Error
		if errors.As(err, &ue) {
			err = ue.Err
		}
		return Endpoint{}, &URLError{raw, err.Error()}
	}
	e := Endpoint{URL: raw, Scheme: u.Scheme, Dialect: DialectNative, Auth: AuthToken}
	if e.Address, err = address(raw, u); err != nil {
		return Endpoint{}, err
	}
	if u.User != nil || u.Fragment != "" {
		return Endpoint{}, &URLError{raw, "user and fragment have no meaning"}
	}
	if err := e.readQuery(u.RawQuery); err != nil {
		return Endpoint{}, err
	}
	return e, nil
}

func address(raw string, u *url.URL) (string, error) {
	switch u.Scheme {
	case SchemeTCP, SchemeTLS:
		host, port, err := net.SplitHostPort(u.Host)
		if err != nil || u.Path != "" {
			return "", &URLError{raw, "want " + u.Scheme + "://host:port"}
		}
		if _, err := strconv.ParseUint(port, 10, 16); err != nil {
			return "", &URLError{raw, fmt.Sprintf("port %q: want a number from 0 to 65535", port)}
		}
		return net.JoinHostPort(host, port), nil
	case SchemeUnix:
		if u.Host != "" || !filepath.IsAbs(u.Path) || strings.ContainsRune(u.Path, 0) {
			return "", &URLError{raw, "want unix:///path/to/socket"}
		}
		return filepath.Clean(u.Path), nil
	}
	return "", &SchemeError{raw, u.Scheme}
}

func (e *Endpoint) readQuery(query string) error {
	q, err := url.ParseQuery(query)
	if err != nil {
		return &URLError{e.URL, "the query does not parse"}
	}
	for name, values := range q {
		value := values[0]
		switch {
		case len(values) != 1:
			return &URLError{e.URL, fmt.Sprintf("parameter %q is given more than once", name)}
		case name == "dialect" && value == DialectNative:
		case name == "dialect":
			return &URLError{e.URL, fmt.Sprintf("this version does not speak the dialect %q; it speaks %s", value, DialectNative)}
		case name == "auth" && (value == AuthToken || value == AuthPeer && e.Scheme == SchemeUnix):
			e.Auth = value
		case name == "auth" && value == AuthPeer:
			return &URLError{e.URL, "auth=peer is for unix sockets: only their kernel says who the peer is"}
		case name == "auth":
			return &URLError{e.URL, fmt.Sprintf("auth is %q, want token or, for unix sockets, peer", value)}
		default:
			return &URLError{e.URL, fmt.Sprintf("unknown parameter %q", name)}
		}
	}
	return nil
}

// Loopback reports whether the URL promises that only this machine can reach the
// listener. A name other than localhost may resolve to anything, so it does not
// count; what localhost came to is known once it listens (Listener.Loopback).
func (e Endpoint) Loopback() bool {
	if e.Scheme == SchemeUnix {
		return true
	}
	host, _, err := net.SplitHostPort(e.Address)
	return err == nil && IsLoopback(host)
}

// IsLoopback reports whether a host, without port and brackets, is localhost or an
// address of this machine's loopback.
func IsLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// Loopback reports whether only this machine can reach the listener at the
// address that it got.
func (l *Listener) Loopback() bool {
	a, ok := l.ln.Addr().(*net.TCPAddr)
	return !ok || a.IP.IsLoopback()
}
