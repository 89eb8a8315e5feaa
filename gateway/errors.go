package gateway

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"log/slog"

	"rejoin/journal"
	"rejoin/protocol"
)

func errAuthRequired() *protocol.Error {
	return protocol.Errorf(protocol.ReasonAuthRequired, "authentication required")
}

// errStopping answers what was not begun when the server stopped.
func errStopping() *protocol.Error {
	e := protocol.Errorf(protocol.ReasonSessionUnavailable, "the server is stopping")
	e.Retryable = true
	return e
}

func invalid(format string, args ...any) *protocol.Error {
	return protocol.Errorf(protocol.ReasonInvalidParams, format, args...)
}

// tooLong returns e, which says what is wrong with id, and names the limit if that
// is its length.
func tooLong(id string, max int, limit string, e *protocol.Error) *protocol.Error {
	if len(id) > max {
		return e.Met(limit)
	}
	return e
}

// wireError gives err its place in the protocol's table. What has none is an
// internal error: the client gets a correlation id, the log the cause.
func (c *conn) wireError(method string, err error) *protocol.Error {
	if e, ok := protocol.AsError(err); ok {
		return e
	}
	switch {
	case errors.Is(err, journal.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		return protocol.Errorf(protocol.ReasonJournalUnavailable, "the journal is not available")
	case errors.Is(err, context.Canceled), errors.Is(err, journal.ErrClosed):
		return errStopping()
	case errors.Is(err, journal.ErrDamaged), errors.Is(err, journal.ErrRolledBack):
		c.srv.log.Error("log is damaged", slog.String("method", method), slog.Uint64(protocol.LogConn, c.id), slog.Any(protocol.LogError, err))
		return protocol.Errorf(protocol.ReasonDamaged, "the log is damaged there; the server's log says where, a snapshot leads across it")
	}
	var b [8]byte
	if _, rerr := rand.Read(b[:]); rerr != nil {
		err = errors.Join(err, rerr)
	}
	id := hex.EncodeToString(b[:])
	c.srv.log.Error("internal error", slog.String("id", id), slog.String("method", method),
		slog.Uint64(protocol.LogConn, c.id), slog.Any(protocol.LogError, err))
	e := protocol.Errorf(protocol.ReasonInternal, "internal error %s", id)
	e.ID = id
	return e
}
