package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"syscall"

	"rejoin/protocol"
)

var (
	// ErrClosed is returned by a Client or Subscription after Close. Retrying cannot help.
	ErrClosed = errors.New("client: closed")
	// ErrLost is returned by Call when the link went before the answer came: the
	// request may have taken effect. Asking again helps; for requests with effects
	// do so under the same command id.
	ErrLost = errors.New("client: connection lost before the answer")
	// ErrGap is returned by Next when the server twice sent something else than the
	// event that comes next. Retrying cannot help: the server is broken.
	ErrGap = errors.New("client: events do not follow each other")
)

// A DialError says that a server could not be reached. Trying later may help.
type DialError struct {
	URL string
	Err error
}

// Error names the server and the cause.
func (e *DialError) Error() string { return fmt.Sprintf("cannot connect to %s: %v", e.URL, e.Err) }

// Broken reports whether somebody took the connection, which then ended before it
// was authenticated.
func (e *DialError) Broken() bool {
	for _, end := range []error{errHungUp, io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(e.Err, end) {
			return true
		}
	}
	return false
}

// Unwrap returns the cause.
func (e *DialError) Unwrap() error { return e.Err }

// An RPCError is an error that the server answered (JSON-RPC 2.0 §5.1).
type RPCError struct {
	Code    int
	Message string
	Data    json.RawMessage // as sent; nil when absent
}

// Error returns the server's message.
func (e *RPCError) Error() string { return e.Message }

// Reason returns data.reason, empty when the server gave none.
func (e *RPCError) Reason() protocol.Reason { return e.data().Reason }

// Retryable reports whether the server said that the same request may succeed later.
func (e *RPCError) Retryable() bool { return e.data().Retryable }

// Unauthorised reports whether the token is missing, wrong or not enough.
func (e *RPCError) Unauthorised() bool {
	return e.Code == protocol.CodeAuth || e.Code == protocol.CodeForbidden
}

// Resolved tells who resolved an interaction and how, where that is why the
// request was refused; else both are empty.
func (e *RPCError) Resolved() (by, outcome string) {
	d := e.data()
	return d.ResolvedBy, d.Outcome
}

// Next tells behind which event a log can be read, where the request was refused
// because that is not so at the place it asked for.
func (e *RPCError) Next() (after protocol.Seq, ok bool) {
	switch d := e.data(); {
	case d.Next != nil:
		return *d.Next, true
	case d.Reason == protocol.ReasonTrimmed && d.Floor > 0:
		return d.Floor - 1, true
	}
	return 0, false
}

type errorData struct {
	Reason    protocol.Reason `json:"reason"`
	Retryable bool            `json:"retryable"`
	Floor     protocol.Seq    `json:"floor"`
	Next      *protocol.Seq   `json:"next"`

	ResolvedBy string `json:"resolvedBy"`
	Outcome    string `json:"outcome"`
}

func (e *RPCError) data() errorData {
	var d errorData
	if len(e.Data) > 0 {
		if err := json.Unmarshal(e.Data, &d); err != nil {
			return errorData{} // data of another server may have any shape
		}
	}
	return d
}

// retryable reports whether the same request, sent again, may be answered.
func retryable(err error) bool {
	if errors.Is(err, ErrLost) {
		return true
	}
	var rpc *RPCError
	return errors.As(err, &rpc) && rpc.Retryable()
}

// ended adds to the end of ctx what stood in the way last.
func ended(ctx context.Context, last error) error {
	cause := context.Cause(ctx)
	if last == nil {
		return cause
	}
	return fmt.Errorf("%w (last: %w)", cause, last)
}
