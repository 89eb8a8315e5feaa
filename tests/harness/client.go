package harness

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"
)

// RPCError is the error of a response.
type RPCError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    struct {
		Reason    string  `json:"reason"`
		Retryable bool    `json:"retryable"`
		Head      *uint64 `json:"head"`
		Floor     *uint64 `json:"floor"`
		Epoch     string  `json:"epoch"`

		ResolvedBy string `json:"resolvedBy"`
		Outcome    string `json:"outcome"`
	} `json:"data"`
}

// Error returns code, reason and message.
func (e *RPCError) Error() string {
	return fmt.Sprintf("%d %s: %s", e.Code, e.Data.Reason, e.Message)
}

// ErrConnection is wrapped by every error that means: the connection ended.
var ErrConnection = errors.New("connection ended")

// Client is a connection with the checks of an oracle: each response answers one
// request, each notification belongs to a subscription whose response has come,
// and each subscription keeps its promises (see Stream). The first breach ends
// the connection and is what every later call returns. Safe for concurrent use.
type Client struct {
	conn    net.Conn
	r       *bufio.Reader
	done    chan struct{} // closed when the reader has ended
	writing sync.Mutex    // one request at a time on the wire
	tap     func(*Frame)  // sees every frame before any check; may be nil

	mu      sync.Mutex
	lastID  uint64
	calls   map[uint64]*call
	streams map[uint64]*Stream
	gone    map[uint64]bool // subscriptions that have ended
	err     error           // why the reader ended, or the breach
	paused  chan struct{}   // not nil: the reader waits until it is closed
}

type call struct {
	stream *Stream // of subscribe and resync
	drop   uint64  // of unsubscribe: nothing may follow the response
	reply  chan reply
}

type reply struct {
	result json.RawMessage
	err    error
}

// Dial connects and authenticates; the connection is closed with the test.
func Dial(tb testing.TB, s *Server) *Client {
	tb.Helper()
	network, address := s.Addr()
	c, err := Connect(Context(tb), network, address, s.Token())
	if err != nil {
		tb.Fatalf("connect: %v", err)
	}
	tb.Cleanup(func() {
		if err := c.Close(); err != nil {
			tb.Errorf("the server broke the protocol: %v", err)
		}
	})
	return c
}

// Caller makes requests: a Client, or who looks for another connection when one ends.
type Caller interface {
	// Call sends one request and waits for its result.
	Call(ctx context.Context, method string, params any) (json.RawMessage, error)
}

// Do makes a request that must succeed and decodes its result.
func Do[T any](tb testing.TB, c Caller, method string, params any) T {
	tb.Helper()
	var r T
	raw, err := c.Call(Context(tb), method, params)
	if err != nil {
		tb.Fatalf("%s %v: %v", method, params, err)
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		tb.Fatalf("%s answered %.300s: %v", method, raw, err)
	}
	return r
}

// Insist is Do of a request that may be repeated: what is refused for the moment is
// asked again.
func Insist[T any](tb testing.TB, c Caller, method string, params any) (r T) {
	tb.Helper()
	Eventually(tb, method+" is taken", func() bool {
		raw, err := c.Call(Context(tb), method, params)
		var refused *RPCError
		if errors.As(err, &refused) && refused.Data.Retryable {
			return false
		}
		if err == nil {
			err = json.Unmarshal(raw, &r)
		}
		if err != nil {
			tb.Fatalf("%s %v: %v", method, params, err)
		}
		return true
	})
	return r
}

// Connect dials and authenticates with the token, if there is one.
func Connect(ctx context.Context, network, address, token string) (*Client, error) {
	return ConnectBuffer(ctx, network, address, token, 0)
}

// ConnectBuffer is Connect with a receive buffer of that many bytes in the
// kernel (zero: as it comes). It is set before the connection is made: set later
// it leaves a window that carries next to nothing.
func ConnectBuffer(ctx context.Context, network, address, token string, rcvbuf int) (*Client, error) {
	return ConnectTap(ctx, network, address, token, rcvbuf, nil)
}

// ConnectTap is ConnectBuffer for a recorder: tap gets every frame as it came,
// before the checks, on the connection's reader; it may not call the client and
// may not keep the frame's bytes.
func ConnectTap(ctx context.Context, network, address, token string, rcvbuf int, tap func(*Frame)) (*Client, error) {
	var d net.Dialer
	if rcvbuf > 0 {
		d.Control = func(_, _ string, raw syscall.RawConn) error {
			var inner error
			err := raw.Control(func(fd uintptr) {
				inner = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, rcvbuf)
			})
			return errors.Join(err, inner)
		}
	}
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConnection, err)
	}
	c := newClient(conn, tap)
	if token == "" {
		return c, nil
	}
	if _, err := c.Call(ctx, "authenticate", map[string]any{"token": token}); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func newClient(conn net.Conn, tap func(*Frame)) *Client {
	c := &Client{
		conn: conn, r: bufio.NewReaderSize(conn, 256<<10), done: make(chan struct{}), tap: tap,
		calls: map[uint64]*call{}, streams: map[uint64]*Stream{}, gone: map[uint64]bool{},
	}
	go c.read()
	return c
}

// Close ends the connection, waits for the reader and returns the breach of
// protocol, if there was one.
func (c *Client) Close() error {
	c.Resume()
	_ = c.conn.Close() // it may be closed already; the reader tells
	<-c.done
	return c.Breach()
}

// Done is closed when the connection has ended.
func (c *Client) Done() <-chan struct{} { return c.done }

// Breach returns what the server did against the protocol, or nil.
func (c *Client) Breach() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if errors.Is(c.err, ErrConnection) {
		return nil
	}
	return c.err
}

// Pause stops reading from the socket after the line at hand; Resume goes on.
func (c *Client) Pause() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.paused == nil {
		c.paused = make(chan struct{})
	}
}

// Resume ends a Pause.
func (c *Client) Resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.paused != nil {
		close(c.paused)
		c.paused = nil
	}
}

// Call sends one request and waits for its result. Errors: *RPCError, the end of
// the connection (ErrConnection), a breach of protocol, ctx.
func (c *Client) Call(ctx context.Context, method string, params any) (json.RawMessage, error) {
	return c.call(ctx, method, params, &call{})
}

func (c *Client) call(ctx context.Context, method string, params any, k *call) (json.RawMessage, error) {
	k.reply = make(chan reply, 1)
	line, id, err := c.register(method, params, k)
	if err != nil {
		return nil, err
	}
	if err := c.write(ctx, line); err != nil {
		select {
		case <-c.done: // the reader knows better why
		default:
			return nil, fmt.Errorf("%w: write: %w", ErrConnection, err)
		}
	}
	select {
	case r := <-k.reply:
		return r.result, r.err
	case <-ctx.Done():
		return nil, fmt.Errorf("%s (request %d) was not answered: %w", method, id, context.Cause(ctx))
	}
}

func (c *Client) register(method string, params any, k *call) (line []byte, id uint64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return nil, 0, c.err
	}
	c.lastID++
	line, err = json.Marshal(map[string]any{"jsonrpc": "2.0", "id": c.lastID, "method": method, "params": params})
	if err != nil {
		return nil, 0, err
	}
	c.calls[c.lastID] = k
	return append(line, '\n'), c.lastID, nil
}

func (c *Client) write(ctx context.Context, line []byte) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Time{}
	}
	if err := c.conn.SetWriteDeadline(deadline); err != nil {
		return err
	}
	_, err := c.conn.Write(line)
	return err
}

// read is the only reader of the connection; it ends with it.
func (c *Client) read() {
	defer close(c.done)
	var err error
	for err == nil {
		c.waitWhilePaused()
		var line []byte
		if line, err = readLine(c.r); err != nil {
			err = fmt.Errorf("%w: %w", ErrConnection, err)
			break
		}
		if err = c.take(line); err != nil {
			err = fmt.Errorf("%w\n  in: %s", err, clip(string(line)))
		}
	}
	_ = c.conn.Close() // nobody reads any more
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
	for id, k := range c.calls {
		k.reply <- reply{err: err}
		delete(c.calls, id)
	}
	for _, s := range c.streams {
		s.fail(err)
	}
}

func (c *Client) waitWhilePaused() {
	c.mu.Lock()
	paused := c.paused
	c.mu.Unlock()
	if paused != nil {
		<-paused
	}
}

// readLine returns one line of any length, a copy.
func readLine(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadBytes('\n')
	if errors.Is(err, io.EOF) && len(line) > 0 {
		return nil, fmt.Errorf("cut line of %d bytes: %w", len(line), io.ErrUnexpectedEOF)
	}
	if err != nil {
		return nil, err
	}
	return line[:len(line)-1], nil
}

// Frame is any line of a server; one pass decodes it.
type Frame struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
	Params  Note            `json:"params"`
	Result  json.RawMessage `json:"result"`
	Error   *RPCError       `json:"error"`
}

// Note holds the params of every notification of a subscription.
type Note struct {
	SubscriptionID uint64          `json:"subscriptionId"`
	SessionID      string          `json:"sessionId"`
	Epoch          string          `json:"epoch"`
	Seq            uint64          `json:"seq"`
	TS             int64           `json:"ts"`
	Run            uint64          `json:"run"`
	Source         string          `json:"source"`
	CommandID      string          `json:"commandId"`
	Event          json.RawMessage `json:"event"`
	StateHash      string          `json:"stateHash"`
	Reason         string          `json:"reason"`
	State          json.RawMessage `json:"state"`
}

func (c *Client) take(line []byte) error {
	var m Frame
	if err := json.Unmarshal(line, &m); err != nil {
		return fmt.Errorf("a line of the server is no JSON object: %w", err)
	}
	if c.tap != nil {
		c.tap(&m)
	}
	if m.JSONRPC != "2.0" {
		return errors.New("a message without jsonrpc 2.0")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if m.Method != "" {
		return c.notified(m.Method, &m.Params)
	}
	return c.answered(&m)
}

// answered runs under mu.
func (c *Client) answered(m *Frame) error {
	if (m.Error == nil) == (m.Result == nil) {
		return errors.New("a response with both or neither of result and error")
	}
	var id uint64
	if err := json.Unmarshal(m.ID, &id); err != nil {
		return fmt.Errorf("a response to an id that was never used: %w", err)
	}
	k, ok := c.calls[id]
	if !ok {
		return fmt.Errorf("a response to request %d, which does not wait for one", id)
	}
	delete(c.calls, id)
	if m.Error != nil {
		k.reply <- reply{err: m.Error}
		return nil
	}
	if k.stream != nil {
		if err := c.subscribed(k.stream, m.Result); err != nil {
			return err
		}
	}
	if k.drop != 0 {
		c.forget(k.drop, errors.New("unsubscribed"))
	}
	k.reply <- reply{result: m.Result}
	return nil
}

// notified runs under mu.
func (c *Client) notified(method string, p *Note) error {
	if method == "draining" {
		return nil // of no subscription: the server stops
	}
	s, ok := c.streams[p.SubscriptionID]
	switch {
	case c.gone[p.SubscriptionID]:
		return fmt.Errorf("%s for subscription %d after its end", method, p.SubscriptionID)
	case !ok:
		return fmt.Errorf("%s for subscription %d before its response", method, p.SubscriptionID)
	}
	over, err := s.take(method, p)
	if over {
		c.forget(p.SubscriptionID, nil)
	}
	return err
}

// forget runs under mu.
func (c *Client) forget(id uint64, why error) {
	if s, ok := c.streams[id]; ok && why != nil {
		s.fail(why)
	}
	delete(c.streams, id)
	c.gone[id] = true
}
