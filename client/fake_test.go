package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"rejoin/protocol"
)

const epoch = "01JZZZZZZZZZZZZZZZZZZZZZZZ"

// fake is a server whose connections a test scripts one after the other.
type fake struct {
	t     *testing.T
	conns chan *peer
}

func newFake(t *testing.T) *fake {
	t.Helper()
	return &fake{t: t, conns: make(chan *peer)}
}

// options dial the fake and wait the whole bound between attempts.
func (f *fake) options() Options {
	return Options{
		URL: "tcp://fake:1", Token: "secret", Name: "test", Dialer: f.dial,
		jitter: func(d time.Duration) time.Duration { return d },
	}
}

func (f *fake) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	p := &peer{t: f.t, Conn: there, r: bufio.NewReader(there)}
	select {
	case f.conns <- p:
		return here, nil
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), here.Close(), there.Close())
	}
}

// accept waits for the next connection; the script ends when the test does.
func (f *fake) accept() *peer {
	f.t.Helper()
	var p *peer
	select {
	case p = <-f.conns:
	case <-f.t.Context().Done():
		runtime.Goexit()
	}
	f.t.Cleanup(func() { _ = p.Close() }) // most are closed by then
	return p
}

// login accepts a connection and lets it in.
func (f *fake) login() *peer {
	f.t.Helper()
	p := f.accept()
	p.result(p.request("authenticate"), `{"authenticated":true}`)
	return p
}

// peer is the server's end of one connection.
type peer struct {
	t *testing.T
	net.Conn
	r *bufio.Reader
}

type request struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params map[string]any  `json:"params"`
}

// next reads a request; io.EOF when the client is gone.
func (p *peer) next() (request, error) {
	var r request
	line, err := p.r.ReadBytes('\n')
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(line, &r)
}

func (p *peer) request(method string) request {
	p.t.Helper()
	r, err := p.next()
	if err != nil {
		p.t.Errorf("waiting for %s: %v", method, err)
	} else if r.Method != method {
		p.t.Errorf("request is %s, want %s", r.Method, method)
	}
	return r
}

func (p *peer) say(format string, args ...any) {
	if _, err := fmt.Fprintf(p, format+"\n", args...); err != nil && !errors.Is(err, io.ErrClosedPipe) {
		p.t.Errorf("write: %v", err)
	}
}

func (p *peer) result(r request, result string) {
	p.say(`{"jsonrpc":"2.0","id":%s,"result":%s}`, r.ID, result)
}

func (p *peer) refuse(r request, code int, reason protocol.Reason, retryable bool) {
	p.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":"no: %s","data":{"reason":%q,"retryable":%v}}}`, r.ID, code, reason, reason, retryable)
}

// subscribed answers a subscribe as subscription 7 of session s.
func (p *peer) subscribed(mode string, after, head int) request {
	p.t.Helper()
	r := p.request("subscribe")
	p.result(r, fmt.Sprintf(`{"subscriptionId":7,"sessionId":"s","status":"subscribed","mode":%q,"epoch":%q,"after":%d,"head":%d}`, mode, epoch, after, head))
	return r
}

func (p *peer) event(seq int) {
	line := protocol.AppendEventPrefix(nil, 7, "s", "")
	line = protocol.AppendEventLine(line, &protocol.Event{Seq: protocol.Seq(seq), TS: 5, Run: 1, Body: fmt.Appendf(nil, `{"n":%d}`, seq)})
	p.say("%s", line)
}

// gone waits until the client has closed the connection.
func (p *peer) gone() {
	p.t.Helper()
	if r, err := p.next(); err == nil {
		p.t.Errorf("request %s, want the end of the connection", r.Method)
	}
}

// dialFake connects a client.
func dialFake(t *testing.T, o Options) *Client {
	t.Helper()
	c, err := Dial(t.Context(), o)
	if err != nil {
		t.Fatalf("Dial: %v", err)
	}
	return c
}

// wantSeqs reads events and fails unless they are exactly those.
func wantSeqs(t *testing.T, s *Subscription, seqs ...protocol.Seq) {
	t.Helper()
	for _, want := range seqs {
		m, err := s.Next(t.Context())
		if err != nil {
			t.Fatalf("waiting for event %d: %v", want, err)
		}
		if m.Kind == KindSynced {
			m, err = s.Next(t.Context())
		}
		if err != nil || m.Kind != KindEvent || m.Event.Seq != want || m.Event.Epoch != epoch {
			t.Fatalf("got %+v, %v; want event %d", m, err, want)
		}
		if got := fmt.Sprintf(`{"n":%d}`, want); string(m.Event.Body) != got {
			t.Fatalf("body of event %d is %s", want, m.Event.Body)
		}
	}
}
