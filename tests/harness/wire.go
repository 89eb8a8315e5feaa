package harness

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"
)

// Wire is a connection without a client on it: bytes out, lines in. It is for
// tests of framing and belongs to one goroutine.
type Wire struct {
	tb   testing.TB
	Conn net.Conn
	r    *bufio.Reader
}

// DialWire connects to the server's first listener and does not authenticate.
func DialWire(tb testing.TB, s *Server) *Wire {
	tb.Helper()
	network, address := s.Addr()
	return DialWireTo(tb, network, address)
}

// DialWireTo is DialWire for a server that somebody else started.
func DialWireTo(tb testing.TB, network, address string) *Wire {
	tb.Helper()
	conn, err := net.DialTimeout(network, address, Patience)
	if err != nil {
		tb.Fatalf("dial: %v", err)
	}
	tb.Cleanup(func() { _ = conn.Close() }) // the test may have closed it
	return &Wire{tb: tb, Conn: conn, r: bufio.NewReaderSize(conn, 64<<10)}
}

// Authenticate does so and checks the answer.
func (w *Wire) Authenticate(token string) {
	w.tb.Helper()
	w.Send(fmt.Sprintf(`{"jsonrpc":"2.0","id":"auth","method":"authenticate","params":{"token":%q}}`+"\n", token))
	if got, want := w.Line(), `{"jsonrpc":"2.0","id":"auth","result":{"authenticated":true}}`; got != want {
		w.tb.Fatalf("authenticate answered %s, want %s", got, want)
	}
}

// Send writes bytes as they are.
func (w *Wire) Send(s string) {
	w.tb.Helper()
	if err := w.TrySend(s); err != nil {
		w.tb.Fatalf("send %d bytes: %v", len(s), err)
	}
}

// TrySend is Send for a peer that may close while the bytes are on their way.
func (w *Wire) TrySend(s string) error {
	if err := w.Conn.SetWriteDeadline(time.Now().Add(Patience)); err != nil {
		return err
	}
	_, err := io.WriteString(w.Conn, s)
	return err
}

// Line returns the next line without its LF.
func (w *Wire) Line() string {
	w.tb.Helper()
	line, err := w.next(Patience)
	if err != nil {
		w.tb.Fatalf("no line came: %v (after %q)", err, clip(line))
	}
	return line
}

// Quiet checks that no line comes for d.
func (w *Wire) Quiet(d time.Duration) {
	w.tb.Helper()
	line, err := w.next(d)
	var timeout net.Error
	if err == nil || !errors.As(err, &timeout) || !timeout.Timeout() {
		w.tb.Fatalf("want silence, got %q, %v", clip(line), err)
	}
}

// Closed waits until the server closes the connection; it returns the lines that
// came before.
func (w *Wire) Closed() []string {
	w.tb.Helper()
	var lines []string
	for {
		line, err := w.next(Patience)
		if err == nil {
			lines = append(lines, line)
			continue
		}
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			w.tb.Fatalf("the connection is still open after %v", Patience)
		}
		return lines
	}
}

// CloseWrite sends the end of input and goes on reading.
func (w *Wire) CloseWrite() {
	w.tb.Helper()
	half, ok := w.Conn.(interface{ CloseWrite() error })
	if !ok {
		w.tb.Fatalf("%T cannot be closed by half", w.Conn)
	}
	if err := half.CloseWrite(); err != nil {
		w.tb.Fatalf("close the writing half: %v", err)
	}
}

func (w *Wire) next(d time.Duration) (string, error) {
	if err := w.Conn.SetReadDeadline(time.Now().Add(d)); err != nil {
		return "", err
	}
	line, err := w.r.ReadString('\n')
	if err != nil {
		return line, err
	}
	return line[:len(line)-1], nil
}

func clip(s string) string {
	if len(s) > 300 {
		return s[:300] + "…"
	}
	return s
}
