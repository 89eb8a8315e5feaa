package gatewaytcp

import (
	"errors"
	"io"
	"net"
	"os"
	"time"

	"rejoin/gateway"
	"rejoin/protocol"
)

// lingerMax is how long a connection that ends with an error is held until its
// client has read the last answer.
const lingerMax = time.Second

// pipe is a stream connection of LF-terminated lines.
type pipe struct {
	conn    net.Conn
	lines   *protocol.LineReader
	greeted bool // the first bytes were looked at
	began   bool // the first line was read
}

// newPipe returns the pipe of a connection in clear.
func newPipe(c net.Conn, requestBytesMax int) gateway.Pipe {
	p := &pipe{conn: c}
	p.lines = protocol.NewLineReader(p, requestBytesMax, 0)
	return halfCloser(p)
}

// tlsHandshake is the first byte of a TLS client (RFC 8446 §5.1), and of no JSON.
const tlsHandshake = 0x16

var errTLSClient = errors.New("the client speaks TLS, this listener does not")

// Read is what the line reader reads from. It waits most of its life in there.
func (p *pipe) Read(b []byte) (int, error) {
	n, err := p.conn.Read(b)
	if p.greeted || n == 0 {
		return n, err
	}
	return p.greet(b[:n], err)
}

// greet looks at the first bytes that were read. A client that begins with TLS is
// told, in clear: it would wait for an answer to what may never become a line.
//
//go:noinline // the reader's stack stays small: see BenchmarkIdleConnection
func (p *pipe) greet(b []byte, err error) (int, error) {
	p.greeted = true
	if b[0] != tlsHandshake {
		return len(b), err
	}
	refusal := protocol.AppendError(nil, nil, protocol.Errorf(protocol.ReasonInvalidRequest, "this listener does not speak TLS: connect with tcp://"))
	p.refuse(append(refusal, '\n'))
	return 0, errTLSClient
}

// refuse sends the only line of a connection, from the reader's side while nothing
// was answered yet. Whether it arrives is the client's affair.
func (p *pipe) refuse(line []byte) {
	if p.conn.SetWriteDeadline(time.Now().Add(lingerMax)) != nil {
		return
	}
	if _, err := p.conn.Write(line); err == nil {
		p.linger()
	}
}

// ReadFrame returns the next line without LF, CR and, if it is the first one, BOM.
func (p *pipe) ReadFrame() ([]byte, error) {
	line, err := p.lines.ReadLine()
	if err != nil {
		return nil, err
	}
	line = protocol.TrimLine(line, !p.began)
	p.began = true
	return line, nil
}

func (p *pipe) Write(b []byte) (int, error)        { return p.conn.Write(b) }
func (p *pipe) SetWriteDeadline(t time.Time) error { return p.conn.SetWriteDeadline(t) }

// Resumable: a socket takes up where it stopped.
func (p *pipe) Resumable() bool { return true }

// Name is network and address of the peer.
func (p *pipe) Name() string {
	a := p.conn.RemoteAddr()
	return a.Network() + " " + a.String()
}

// Close ends the connection. After a refusal it first ends only its own side and
// reads on for a moment: closing while the client's bytes are unread would reset
// the connection and could take the last answer away from it.
func (p *pipe) Close(code int, _ string) error {
	switch code {
	case gateway.CloseUnauthorized, gateway.CloseTooBig, gateway.CloseOverloaded:
		p.linger()
	}
	return p.conn.Close()
}

func (p *pipe) linger() {
	c, ok := p.conn.(interface{ CloseWrite() error })
	if !ok || c.CloseWrite() != nil || p.conn.SetReadDeadline(time.Now().Add(lingerMax)) != nil {
		return
	}
	var rest [4096]byte
	for {
		if _, err := p.conn.Read(rest[:]); err != nil {
			return
		}
	}
}

var (
	_ gateway.Pipe = (*pipe)(nil)
	_ gateway.Pipe = (*stdio)(nil)
)

// stdio is a Pipe over any two streams. Its reader runs on a goroutine of its
// own: a read of a terminal or a file cannot be interrupted, and after Close
// nobody waits for it.
type stdio struct {
	w      io.Writer
	next   chan struct{} // asks the goroutine for a line; unbuffered
	lines  chan frame    // unbuffered
	closed chan struct{} // closed by Close
}

type frame struct {
	line []byte
	err  error
}

// NewStdio returns a Pipe that reads lines from r and writes to w. Close closes
// w if it can be closed; r only stops being read.
func NewStdio(r io.Reader, w io.Writer, requestBytesMax int) gateway.Pipe {
	if requestBytesMax == 0 {
		requestBytesMax = protocol.RequestBytesDefault
	}
	s := &stdio{w: w, next: make(chan struct{}), lines: make(chan frame), closed: make(chan struct{})}
	go s.read(protocol.NewLineReader(r, requestBytesMax, 0))
	return s
}

func (s *stdio) read(lines *protocol.LineReader) {
	for first := true; ; first = false {
		select {
		case <-s.next:
		case <-s.closed:
			return
		}
		line, err := lines.ReadLine()
		select {
		case s.lines <- frame{protocol.TrimLine(line, first), err}:
		case <-s.closed:
			return
		}
	}
}

// ReadFrame returns the next line; io.EOF after Close.
func (s *stdio) ReadFrame() ([]byte, error) {
	select {
	case s.next <- struct{}{}:
	case <-s.closed:
		return nil, io.EOF
	}
	select {
	case f := <-s.lines:
		return f.line, f.err
	case <-s.closed:
		return nil, io.EOF
	}
}

func (s *stdio) Write(p []byte) (int, error) { return s.w.Write(p) }

// SetWriteDeadline works where w knows deadlines; a file or terminal has none.
func (s *stdio) SetWriteDeadline(t time.Time) error {
	d, ok := s.w.(interface{ SetWriteDeadline(t time.Time) error })
	if !ok {
		return nil
	}
	if err := d.SetWriteDeadline(t); !errors.Is(err, os.ErrNoDeadline) {
		return err
	}
	return nil
}

// AwaitHangup: the end of stdin says nothing about stdout.
func (s *stdio) AwaitHangup() { <-s.closed }

// Name is for logs.
func (s *stdio) Name() string { return "stdio" }

// Close ends the pipe.
func (s *stdio) Close(int, string) error {
	close(s.closed)
	if c, ok := s.w.(io.Closer); ok {
		return c.Close()
	}
	return nil
}
