package gateway

import (
	"context"
	"log/slog"
	"time"

	"rejoin/broker"
	"rejoin/journal"
	"rejoin/snapshot"
)

type Config struct {
	RequestBytesMax int           // zero: protocol.RequestBytesDefault
	AuthTimeout     time.Duration // zero: protocol.AuthTimeoutDefault
	WriteTimeout    time.Duration // zero: protocol.WriteTimeoutDefault
	ConnectionsMax  int
	ServerID        string
	Version         string
	Logger          *slog.Logger
	Now             func() time.Time
}

// Pipe is one connection as the core sees it: frames in, LF-terminated frames out.
type Pipe interface {
	// ReadFrame returns the next message without delimiter, valid until the next call. protocol.ErrLineTooLong when it passes the limit; io.EOF at the end of input.
	ReadFrame() ([]byte, error)
	// Write sends whole LF-terminated messages; it returns how many bytes the transport took before an error or the deadline.
	Write(p []byte) (int, error)
	SetWriteDeadline(t time.Time) error
	// Close ends the connection; code is one of the WebSocket close codes of docs/protocol.md (transports without codes ignore it).
	Close(code int, reason string) error
	// Name for logs, such as tcp 127.0.0.1:5123; Local: same machine.
	Name() string
}

// Server is the connection core, shared by every listener.
type Server struct{ _ int }

func New(cfg Config, b *broker.Broker, hub *journal.Hub, node *journal.Node, folds *snapshot.Reader) (*Server, error) {
	panic("stub")
}

// Serve runs one connection until it ends or ctx does; it closes the pipe. address is the listener's, for server_status.
func (s *Server) Serve(ctx context.Context, p Pipe, address string) { panic("stub") }
