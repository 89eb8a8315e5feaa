package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"rejoin/protocol"
)

// testPipe is a Pipe over two in-memory pipes, so that each side can be ended by
// itself. Its peer's writes are buffered.
type testPipe struct {
	closeR func() error
	out    net.Conn
	lines  *protocol.LineReader
	once   sync.Once
	closed chan struct{}
	code   int
}

func (p *testPipe) ReadFrame() ([]byte, error)         { return p.lines.ReadLine() }
func (p *testPipe) Write(b []byte) (int, error)        { return p.out.Write(b) }
func (p *testPipe) SetWriteDeadline(t time.Time) error { return p.out.SetWriteDeadline(t) }
func (p *testPipe) Resumable() bool                    { return true }
func (p *testPipe) Name() string                       { return "test" }
func (p *testPipe) Close(code int, _ string) error {
	p.once.Do(func() { p.code = code; close(p.closed) })
	return firstError(p.closeR(), p.out.Close())
}

func firstError(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

type halfTestPipe struct{ *testPipe }

func (p halfTestPipe) AwaitHangup() { <-p.closed }

// link is a client of one connection.
type link struct {
	t      *testing.T
	in     *io.PipeWriter
	out    net.Conn
	lines  *bufio.Reader
	pipe   *testPipe
	stop   context.CancelFunc
	served chan struct{}
	id     int
}

// dial serves one more connection of s.
func dial(t *testing.T, s *Server, half bool) *link {
	t.Helper()
	inR, inW := io.Pipe()
	server, client := net.Pipe()
	p := &testPipe{closeR: inR.Close, out: server, lines: protocol.NewLineReader(inR, 1<<20, 0), closed: make(chan struct{})}
	var gp Pipe = p
	if half {
		gp = halfTestPipe{p}
	}
	ctx, cancel := context.WithCancel(t.Context())
	l := &link{t: t, in: inW, out: client, lines: bufio.NewReader(client), pipe: p, stop: cancel, served: make(chan struct{})}
	go func() {
		defer close(l.served)
		s.Serve(ctx, gp, "test://")
	}()
	return l
}

// close ends the client and waits until its connection is served.
func (l *link) close() {
	_ = l.in.Close()
	_ = l.out.Close()
	l.stop()
	<-l.served
}

func (l *link) write(format string, args ...any) {
	l.t.Helper()
	if _, err := l.in.Write(fmt.Appendf(nil, format+"\n", args...)); err != nil {
		l.t.Fatalf("write: %v", err)
	}
}

// call writes a request and returns its id.
func (l *link) call(method, params string) int {
	l.t.Helper()
	l.id++
	l.write(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, l.id, method, params)
	return l.id
}

func (l *link) line() string {
	l.t.Helper()
	b, err := l.lines.ReadString('\n')
	if err != nil {
		l.t.Fatalf("read: %v", err)
	}
	return strings.TrimSuffix(b, "\n")
}

// buffered returns what was read from the server and not taken.
func (l *link) buffered() string {
	l.t.Helper()
	b, err := l.lines.Peek(l.lines.Buffered())
	if err != nil {
		l.t.Fatal(err)
	}
	return string(b)
}

// message is any line of a server.
type message struct {
	ID     json.RawMessage
	Result json.RawMessage
	Error  *struct {
		Code    int
		Message string
		Data    map[string]any
	}
	Method string
	Params struct {
		SubscriptionID uint64
		SessionID      string
		Seq            uint64
		Epoch          string
		Reason         string
		Event          json.RawMessage
	}
}

func (l *link) next() message {
	l.t.Helper()
	var m message
	line := l.line()
	if err := json.Unmarshal([]byte(line), &m); err != nil {
		l.t.Fatalf("%v in %s", err, line)
	}
	return m
}

// result calls and returns the result; notifications before it are an error.
func (l *link) result(method, params string) string {
	l.t.Helper()
	id := l.call(method, params)
	m := l.next()
	if string(m.ID) != fmt.Sprint(id) || m.Error != nil {
		l.t.Fatalf("%s %s: answered %+v", method, params, m)
	}
	return string(m.Result)
}

// fails calls and wants the error code.
func (l *link) fails(method, params string, code int) message {
	l.t.Helper()
	l.call(method, params)
	m := l.next()
	if m.Error == nil || m.Error.Code != code {
		l.t.Fatalf("%s %s: want %d, got %s %+v", method, params, code, m.Result, m.Error)
	}
	return m
}

func (l *link) want(lines ...string) {
	l.t.Helper()
	for _, want := range lines {
		if got := l.line(); got != want {
			l.t.Fatalf("\n got %s\nwant %s", got, want)
		}
	}
}

// wantEvents reads the events from..to of subscription id, in order, nothing between.
func (l *link) wantEvents(id, from, to uint64) {
	l.t.Helper()
	for seq := from; seq <= to; seq++ {
		if m := l.next(); m.Method != "event" || m.Params.Seq != seq || m.Params.SubscriptionID != id {
			l.t.Fatalf("want event %d of %d, got %s %+v %s", seq, id, m.Method, m.Params, m.Result)
		}
	}
}

// quiet wants no line for a moment.
func (l *link) quiet() {
	l.t.Helper()
	if err := l.out.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
		l.t.Fatal(err)
	}
	if b, err := l.lines.ReadBytes('\n'); err == nil {
		l.t.Fatalf("want nothing, got %s", b)
	}
	if err := l.out.SetReadDeadline(time.Time{}); err != nil {
		l.t.Fatal(err)
	}
	l.lines.Reset(l.out)
}

// ended wants the end of the connection.
func (l *link) ended(code int) {
	l.t.Helper()
	if b, err := l.lines.ReadBytes('\n'); err == nil {
		l.t.Fatalf("want the end, got %s", b)
	}
	<-l.served
	if l.pipe.code != code {
		l.t.Fatalf("closed with %d, want %d", l.pipe.code, code)
	}
}

// inBubble runs f with a server over w, in a bubble of its own time.
func inBubble(t *testing.T, w *fakeWorld, cfg Config, f func(t *testing.T, s *Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(cfg, w.backends())
		f(t, s)
		s.Close()
		for id, l := range w.logs {
			if l.refs != 0 || len(l.wakers) != 0 {
				t.Errorf("session %s: %d watches and %d wakers left", id, l.refs, len(l.wakers))
			}
		}
		for name, space := range s.census.spaces {
			if n := space.subscriptions.Load(); n != 0 {
				t.Errorf("%d subscriptions left in workspace %s", n, name)
			}
		}
	})
}
