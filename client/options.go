package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"time"

	"rejoin/protocol"
)

// Options of Dial. Only URL, or one of URLs, is required.
type Options struct {
	// URL of the server: tcp://host:port, tls://host:port or unix:///path.
	URL string
	// URLs are more servers of the same sessions, which take the same token: gateways
	// of one installation. URL, or without it the first of them, is tried first; a
	// server that fails or drains goes behind the others. What a draining server
	// names besides is tried, too, but never leads from TLS into the clear.
	URLs []string
	// TLS is for tls:// URLs. Nil means the system's roots and no certificate of
	// the client's own. An empty ServerName is the URL's host.
	TLS *tls.Config
	// Token to authenticate with. Empty means none: a server that wants one answers
	// every request with -32001.
	Token string
	// Locate, when set, is asked before each attempt to connect and replaces URL, URLs
	// and Token: for a server that is elsewhere after a restart. Its errors are those
	// of a server that cannot be reached. It may be called by several goroutines.
	Locate func() (url, token string, err error)
	// Name is what the server may call this client; it is sent along with Token.
	Name string
	// Wait makes Dial try until its context ends instead of once at each server.
	Wait bool
	// Logger gets changes of the link. Nil means none.
	Logger *slog.Logger
	// OnLink is told of changes of the link that carries requests, in order, from a
	// goroutine that waits for it: it must not block and must not call the Client.
	OnLink func(Link)
	// Dialer opens connections, without TLS; network is tcp or unix. Nil means net.Dialer.
	Dialer func(ctx context.Context, network, address string) (net.Conn, error)

	// BackoffBase bounds the first wait before dialling again. Zero means 100 ms.
	BackoffBase time.Duration
	// BackoffMax bounds every wait. Zero means 15 s.
	BackoffMax time.Duration
	// DialTimeout bounds connecting and authenticating. Zero means 10 s.
	DialTimeout time.Duration
	// PingAfter is the silence after which the server is asked for a sign of life.
	// Zero means 30 s.
	PingAfter time.Duration
	// PongWithin is how long it may take to give one. Zero means 10 s.
	PongWithin time.Duration
	// LineBytesMax is the longest line taken from the server. Zero means 256 MiB.
	LineBytesMax int

	jitter func(time.Duration) time.Duration // tests: a wait from [0, d)
}

// A LinkState is what became of a link.
type LinkState uint8

// The states of a link.
const (
	LinkConnecting LinkState = iota + 1 // dialling
	LinkConnected                       // authenticated; a subscription: subscribed
	LinkLost                            // Err says why; Wait until the next attempt
)

// String returns the state's name.
func (s LinkState) String() string {
	switch s {
	case LinkConnecting:
		return "connecting"
	case LinkConnected:
		return "connected"
	case LinkLost:
		return "lost"
	}
	return "unknown"
}

// A Link is one change of a link.
type Link struct {
	State  LinkState
	URL    string          // connected: of the server
	Err    error           // lost: why
	Wait   time.Duration   // lost: until the next attempt
	Cursor protocol.Cursor // of a subscription: what has been received up to now
	Mode   string          // of a subscription, connected: live, replay or snapshot
}

func (o Options) withDefaults() Options {
	set := func(d *time.Duration, to time.Duration) {
		if *d <= 0 {
			*d = to
		}
	}
	set(&o.BackoffBase, 100*time.Millisecond)
	set(&o.BackoffMax, 15*time.Second)
	set(&o.DialTimeout, 10*time.Second)
	set(&o.PingAfter, 30*time.Second)
	set(&o.PongWithin, 10*time.Second)
	if o.LineBytesMax <= 0 {
		o.LineBytesMax = 256 << 20
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Dialer == nil {
		// Half-open peers: 30 s idle, 3 probes 10 s apart.
		d := &net.Dialer{KeepAliveConfig: net.KeepAliveConfig{
			Enable: true, Idle: 30 * time.Second, Interval: 10 * time.Second, Count: 3,
		}}
		o.Dialer = d.DialContext
	}
	if o.jitter == nil {
		o.jitter = fullJitter
	}
	return o
}

// ParseURL returns the scheme and address that a client URL names. The schemes are
// tcp, tls and unix; anything else is an error that names what is understood.
func ParseURL(raw string) (scheme, address string, err error) {
	u, err := url.Parse(raw)
	if err != nil {
		var ue *url.Error
		if errors.As(err, &ue) {
			err = ue.Err
		}
		return "", "", fmt.Errorf("%q is not a server URL: %w", raw, err)
	}
	switch u.Scheme {
	case "tcp", schemeTLS:
		if u.Port() == "" || u.Path != "" {
			return "", "", fmt.Errorf("%q is not a server URL: want %s://host:port", raw, u.Scheme)
		}
		return u.Scheme, u.Host, nil
	case "unix":
		if u.Host != "" || u.Path == "" {
			return "", "", fmt.Errorf("%q is not a server URL: want unix:///path/to/socket", raw)
		}
		return "unix", u.Path, nil
	case "ws", "wss":
		return "", "", fmt.Errorf("%q: this client does not speak %s yet; use tcp://, tls:// or unix://", raw, u.Scheme)
	}
	return "", "", fmt.Errorf("%q is not a server URL: want tcp://host:port, tls://host:port or unix:///path/to/socket", raw)
}
