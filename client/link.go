package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"time"

	"rejoin/protocol"
)

// writeTimeout bounds the write of one request: a server that takes none for so
// long is stuck.
const writeTimeout = 10 * time.Second

// link is one authenticated connection. One goroutine reads; any may write.
type link struct {
	conn   net.Conn
	url    string // of the server
	sealed bool   // by TLS: a write that was cut has ended it
	pulse  *pulse
	lines  *protocol.LineReader
	write  chan struct{} // holds one token: the right to write
}

// The ids of a link's own requests; those of callers are numbers.
const (
	idHello = `"hello"`
	idPing  = `"ping"`
)

// openLink dials the server that is next and authenticates within ctx; one that
// fails goes behind the others. BufferBytes is the read buffer of an idle link,
// whose pings end with life. Close it by closing conn. The error is a *DialError, an
// *RPCError, or the end of ctx.
func (c *Client) openLink(ctx, life context.Context, bufferBytes int) (*link, error) {
	o := c.opts
	o.URL = c.servers.next()
	if o.Locate != nil {
		var err error
		if o.URL, o.Token, err = c.opts.Locate(); err != nil {
			return nil, &DialError{URL: c.opts.URL, Err: err}
		}
	}
	l, err := openLink(ctx, life, &o, bufferBytes)
	if err != nil && ctx.Err() == nil {
		c.servers.failed(o.URL)
	}
	return l, err
}

func openLink(ctx, life context.Context, o *Options, bufferBytes int) (*link, error) {
	scheme, address, err := ParseURL(o.URL)
	if err != nil {
		return nil, &DialError{URL: o.URL, Err: err}
	}
	within, cancel := context.WithTimeout(ctx, o.DialTimeout)
	defer cancel()
	conn, err := o.dial(within, scheme, address)
	if err != nil {
		return nil, dialError(ctx, o, plain(err))
	}
	l := &link{conn: conn, url: o.URL, sealed: scheme == schemeTLS, write: make(chan struct{}, 1)}
	l.write <- struct{}{}
	l.pulse = &pulse{conn: conn, after: o.PingAfter, within: o.PongWithin}
	l.lines = protocol.NewLineReader(l.pulse, o.LineBytesMax, bufferBytes)
	stop := context.AfterFunc(within, func() { _ = conn.Close() }) // the read below fails then
	err = l.hello(within, o)
	if !stop() {
		err = fmt.Errorf("no answer within %v", o.DialTimeout)
	}
	if err != nil {
		_ = conn.Close() // nothing was asked of it yet
		return nil, dialError(ctx, o, err)
	}
	l.pulse.ping = func() error {
		return l.send(life, requestLine(idPing, "ping", nil))
	}
	return l, nil
}

func dialError(ctx context.Context, o *Options, err error) error {
	var rpc *RPCError
	if errors.As(err, &rpc) {
		if rpc.Code == protocol.CodeInvalidRequest { // of a whole one: the server did not see what was sent
			return &DialError{URL: o.URL, Err: rpc}
		}
		return rpc
	}
	if ctx.Err() != nil {
		return ended(ctx, err)
	}
	return &DialError{URL: o.URL, Err: err}
}

// plain drops what net.OpError adds to a cause: the URL says it better.
func plain(err error) error {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return op.Err
	}
	return err
}

// hello authenticates, or without a token finds out whether a server is there.
func (l *link) hello(ctx context.Context, o *Options) error {
	line := requestLine(idHello, "ping", nil)
	if o.Token != "" {
		params, err := encode(struct {
			Token string `json:"token"`
			Name  string `json:"name,omitempty"`
		}{o.Token, o.Name})
		if err != nil {
			return err
		}
		line = requestLine(idHello, "authenticate", params)
	}
	failed := l.send(ctx, line)
	_, err := l.answer(idHello)
	var refusal *RPCError
	if failed != nil && !errors.As(err, &refusal) { // else the server said why it takes nothing
		return failed
	}
	return err
}

// answer reads until the response with that id; what comes before is ignored. It
// is for the goroutine that reads, before anything else is expected.
func (l *link) answer(id string) (json.RawMessage, error) {
	for {
		line, err := l.read()
		if err != nil {
			return nil, err
		}
		m, err := parseEnvelope(line)
		if err != nil {
			return nil, err
		}
		if m.Method != "" || (string(m.ID) != id && m.Error == nil) {
			continue
		}
		if m.Error != nil {
			return nil, m.Error.rpc()
		}
		return m.Result, nil
	}
}

// read returns the next line, valid until the next call.
func (l *link) read() ([]byte, error) {
	line, err := l.lines.ReadLine()
	switch {
	case err == nil:
		return line, nil
	case errors.Is(err, protocol.ErrLineTooLong):
		return nil, fmt.Errorf("client: a line of the server is too long: %w", err)
	case errors.Is(err, io.EOF):
		return nil, errHungUp
	}
	return nil, err
}

var (
	errHungUp   = errors.New("the server closed the connection")
	errDraining = errors.New("the server stops")
)

// send writes one line. When ctx ends with the line half written the link ends.
func (l *link) send(ctx context.Context, line []byte) error {
	select {
	case <-l.write:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { l.write <- struct{}{} }()
	if err := l.conn.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	cut := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = l.conn.SetWriteDeadline(time.Unix(1, 0)) // a closed connection needs no deadline
		close(cut)
	})
	n, err := l.conn.Write(line)
	if !stop() {
		<-cut // so that it cannot hit the next writer
	}
	if err == nil {
		return nil
	}
	if n > 0 || ctx.Err() == nil || l.sealed {
		l.spoil(err)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// spoil ends a link after a write that went wrong: half a line, or a server that
// takes none. One that closed its side may have said why; the reader finds that
// and then the end.
func (l *link) spoil(err error) {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		_ = l.conn.Close() // the reader reports it
	}
}

// requestLine is one request; params nil means none.
func requestLine(id, method string, params []byte) []byte {
	line := make([]byte, 0, len(params)+len(method)+64)
	line = append(line, `{"jsonrpc":"2.0","id":`...)
	line = append(line, id...)
	line = append(line, `,"method":`...)
	line = protocol.AppendString(line, method)
	if params != nil {
		line = append(line, `,"params":`...)
		line = append(line, params...)
	}
	return append(line, '}', '\n')
}

// encode is json.Marshal without its HTML escapes, which would change the bytes of
// a raw command.
func encode(v any) ([]byte, error) {
	if v == nil {
		return nil, nil
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("client: encode parameters: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'}), nil
}

// envelope is any message of a server.
type envelope struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *wireError      `json:"error"`
}

type wireError struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data"`
}

func (e *wireError) rpc() *RPCError {
	return &RPCError{Code: e.Code, Message: e.Message, Data: e.Data}
}

func parseEnvelope(line []byte) (envelope, error) {
	var m envelope
	if err := json.Unmarshal(line, &m); err != nil {
		return m, fmt.Errorf("client: the server sent no JSON-RPC: %w", err)
	}
	return m, nil
}

// callID returns the number of a caller's request; ok is false for other ids.
func (m *envelope) callID() (id uint64, ok bool) {
	id, err := strconv.ParseUint(string(m.ID), 10, 64)
	return id, err == nil
}
