package gateway

import (
	"errors"
	"log/slog"
	"time"

	"rejoin/protocol"
)

// Config of a Server. It is not changed after New.
type Config struct {
	// RequestBytesMax is the longest request. The listeners enforce it, where the
	// line arrives; here it is only checked. Zero means protocol.RequestBytesDefault.
	RequestBytesMax int
	// AuthTimeout closes connections that do not authenticate. Zero means
	// protocol.AuthTimeoutDefault.
	AuthTimeout time.Duration
	// WriteTimeout closes connections that take no byte for so long. Zero means
	// protocol.WriteTimeoutDefault.
	WriteTimeout time.Duration
	// ConnectionsMax over all listeners. Zero means protocol.ConnectionsMaxDefault.
	ConnectionsMax int
	// ConnectionsPerToken over all listeners, for each token of a token file. Zero
	// means protocol.ConnectionsPerTokenDefault.
	ConnectionsPerToken int
	// RequestsPerSecond is how fast a connection is read in the long run; a batch
	// counts its members. Zero means protocol.RequestsPerSecondDefault.
	RequestsPerSecond int
	// AuthFailures is how many wrong tokens an address may show within
	// protocol.AuthFailureWindow. Zero means protocol.AuthFailuresDefault.
	AuthFailures int
	// Audit takes what the audit log is to know; it must not block. Nil: nothing
	// is audited.
	Audit func(AuditEntry)
	// ServerID and Version are shown by server_status.
	ServerID string
	Version  string
	// Durability is shown by server_status: what acknowledged events survive. Empty:
	// what the journal says of itself.
	Durability string
	// Cluster is shown by server_status to operators of the server's own workspace;
	// it must not block. Nil: the server is one process on its own.
	Cluster func() protocol.ClusterStatus
	// Containment is shown by server_status; nil: nothing is.
	Containment func() protocol.Containment
	// Elsewhere names servers of the same sessions to a client that this one is about
	// to leave, at most protocol.ReconnectURLsMax; the seed spreads clients over them.
	// It must not block. Nil: the server is alone, its clients are told nothing and
	// come back.
	Elsewhere func(seed uint64) []string
	// Logger; nil discards.
	Logger *slog.Logger
	// Now is the wall clock of what clients are shown; nil means time.Now.
	Now func() time.Time
}

func (c Config) withDefaults() Config {
	if c.RequestBytesMax == 0 {
		c.RequestBytesMax = protocol.RequestBytesDefault
	}
	if c.AuthTimeout == 0 {
		c.AuthTimeout = protocol.AuthTimeoutDefault
	}
	if c.WriteTimeout == 0 {
		c.WriteTimeout = protocol.WriteTimeoutDefault
	}
	if c.ConnectionsMax == 0 {
		c.ConnectionsMax = protocol.ConnectionsMaxDefault
	}
	if c.ConnectionsPerToken == 0 {
		c.ConnectionsPerToken = protocol.ConnectionsPerTokenDefault
	}
	if c.RequestsPerSecond == 0 {
		c.RequestsPerSecond = protocol.RequestsPerSecondDefault
	}
	if c.AuthFailures == 0 {
		c.AuthFailures = protocol.AuthFailuresDefault
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// Validate names the first field that makes no sense.
func (c Config) Validate() error {
	switch {
	case c.RequestBytesMax < 0:
		return errors.New("gateway: RequestBytesMax is negative")
	case c.AuthTimeout < 0:
		return errors.New("gateway: AuthTimeout is negative")
	case c.WriteTimeout < 0:
		return errors.New("gateway: WriteTimeout is negative")
	case c.ConnectionsMax < 0:
		return errors.New("gateway: ConnectionsMax is negative")
	case c.ConnectionsPerToken < 0:
		return errors.New("gateway: ConnectionsPerToken is negative")
	case c.RequestsPerSecond < 0:
		return errors.New("gateway: RequestsPerSecond is negative")
	case c.AuthFailures < 0:
		return errors.New("gateway: AuthFailures is negative")
	}
	return nil
}
