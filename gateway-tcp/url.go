package gatewaytcp

import (
	"fmt"
	"net"
	"net/url"
	"path/filepath"
)

// DialectNative is the one dialect there is.
const DialectNative = "native"

// A SchemeError is a usage error: nobody here listens on such URLs.
type SchemeError struct {
	URL    string
	Scheme string
}

// Error names the schemes that are known.
func (e *SchemeError) Error() string {
	return fmt.Sprintf("listen on %s: unknown scheme %q (known: tcp, unix)", e.URL, e.Scheme)
}

// A URLError is a usage error: the URL's scheme is known, the rest of it is wrong.
type URLError struct {
	URL    string
	Reason string
}

// Error says what is wrong.
func (e *URLError) Error() string { return fmt.Sprintf("listen on %s: %s", e.URL, e.Reason) }

// endpoint is a URL taken apart.
type endpoint struct {
	network, address, dialect string
}

func parseURL(raw string) (endpoint, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return endpoint{}, &URLError{raw, "not a URL"}
	}
	e := endpoint{dialect: DialectNative}
	switch u.Scheme {
	case "tcp":
		host, port, err := net.SplitHostPort(u.Host)
		if err != nil || port == "" || u.Path != "" {
			return e, &URLError{raw, "want tcp://HOST:PORT"}
		}
		e.network, e.address = "tcp", net.JoinHostPort(host, port)
	case "unix":
		if u.Host != "" || !filepath.IsAbs(u.Path) {
			return e, &URLError{raw, "want unix:///PATH"}
		}
		e.network, e.address = "unix", filepath.Clean(u.Path)
	default:
		return e, &SchemeError{raw, u.Scheme}
	}
	if u.User != nil || u.Fragment != "" {
		return e, &URLError{raw, "user and fragment have no meaning"}
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return e, &URLError{raw, "the query does not parse"}
	}
	for name, values := range q {
		if name != "dialect" || len(values) != 1 {
			return e, &URLError{raw, "unknown query parameter " + name}
		}
		if values[0] != DialectNative {
			return e, &URLError{raw, fmt.Sprintf("unknown dialect %q (known: %s)", values[0], DialectNative)}
		}
	}
	return e, nil
}
