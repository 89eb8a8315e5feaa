package gateway

import "time"

// Pipe is one connection as the core sees it: frames in, LF-terminated frames
// out. One goroutine reads, another one writes; SetWriteDeadline and Close may
// be called from any, also while the others are blocked, and Close then ends
// their calls.
type Pipe interface {
	// ReadFrame returns the next message without delimiter, valid until the next
	// call. Errors: protocol.ErrLineTooLong when it passes the limit; io.EOF when
	// the peer ended its side in order; anything else when the connection broke.
	ReadFrame() ([]byte, error)
	// Write sends whole LF-terminated messages, or the rest of them after a
	// partial write. It returns how many bytes the transport took before an error
	// or the deadline (os.ErrDeadlineExceeded).
	Write(p []byte) (int, error)
	SetWriteDeadline(t time.Time) error
	// Close ends the connection; code is one of the close codes below
	// (transports without codes ignore it). What was written before has been
	// given to the transport. It may take up to a second to let the last answer
	// arrive. Called once.
	Close(code int, reason string) error
	// Name for logs, such as tcp 127.0.0.1:5123.
	Name() string
}

// A HalfCloser is a Pipe whose peer may end its own side and go on reading.
// After io.EOF the core calls AwaitHangup from the reader's goroutine; it
// returns when the peer is gone altogether or the pipe is closed. A Pipe that
// does not have it is closed once the answers of what was read are sent.
type HalfCloser interface {
	AwaitHangup()
}

// A Dated pipe knows when its connection was made, which may be a while before
// the core sees it: the time to authenticate counts from then.
type Dated interface {
	Accepted() time.Time
}

// An Attested pipe knows from the operating system that its peer is a process of
// the server's own user, or of root: it needs no token to be the local admin.
type Attested interface {
	Attested() bool
}

// Close codes, those of RFC 6455 §7.4.1 that docs/protocol.md gives a meaning.
const (
	CloseNormal       = 1000 // asked for
	CloseDraining     = 1001 // reconnect, here or elsewhere
	CloseUnauthorized = 1008 // do not retry
	CloseTooBig       = 1009
	CloseInternal     = 1011
	CloseOverloaded   = 1013 // retry later
)
