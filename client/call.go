package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"rejoin/protocol"
)

// largeTriesMax is how often a request over the default limit of a server may cost
// its link before it is taken for the cause.
const largeTriesMax = 3

// Call asks once and returns the result. Params is marshalled as JSON; nil means
// none. While the link is down it waits for the next one, until ctx ends. Errors:
// an *RPCError (what the server answered), ErrLost (the link went before the
// answer), ErrClosed, the end of ctx. The end of ctx does not end what the server
// does.
func (c *Client) Call(ctx context.Context, method string, params any) (json.RawMessage, error) {
	raw, err := encode(params)
	if err != nil {
		return nil, err
	}
	return c.call(ctx, method, raw)
}

// Retry is Call, asked again until there is an answer that is not retryable or
// ctx ends. It is for requests that may take effect twice without harm.
func (c *Client) Retry(ctx context.Context, method string, params any) (json.RawMessage, error) {
	raw, err := encode(params)
	if err != nil {
		return nil, err
	}
	return c.retry(ctx, method, raw, nil)
}

func (c *Client) retry(ctx context.Context, method string, raw []byte, tell func(error)) (json.RawMessage, error) {
	b := newBackoff(&c.opts)
	for losses := 0; ; {
		result, err := c.call(ctx, method, raw)
		if err == nil || !retryable(err) {
			return result, err
		}
		if errors.Is(err, ErrLost) {
			if losses++; len(raw) > protocol.RequestBytesDefault && losses == largeTriesMax {
				return nil, err
			}
		}
		if tell != nil {
			tell(err)
		}
		if !pause(ctx, b.next()) {
			return nil, ended(ctx, err)
		}
	}
}

func (c *Client) call(ctx context.Context, method string, raw []byte) (json.RawMessage, error) {
	for {
		l, id, err := c.link(ctx)
		if err != nil {
			return nil, err
		}
		result, err := l.call(ctx, id, method, raw)
		if !errors.Is(err, errNotAsked) {
			return result, err
		}
	}
}

// errNotAsked: the link took no request any more; the next one may.
var errNotAsked = errors.New("client: not asked")

// callLink is a link that carries requests of many callers.
type callLink struct {
	*link
	mu      sync.Mutex
	waiting map[uint64]*waiter // bounded by the callers, each of which waits for one
	leaving bool               // the server drains: the link ends with the answers that are due
	ended   bool
}

// waiter is one request without its answer. The answer is sent once; room for it
// is kept.
type waiter struct {
	size   int // of the request, in bytes
	answer chan answer
}

type answer struct {
	result json.RawMessage
	err    error
}

func newCallLink(l *link) *callLink {
	return &callLink{link: l, waiting: map[uint64]*waiter{}}
}

func (l *callLink) call(ctx context.Context, id uint64, method string, params []byte) (json.RawMessage, error) {
	line := requestLine(strconv.FormatUint(id, 10), method, params)
	w := &waiter{size: len(line), answer: make(chan answer, 1)}
	if !l.expect(id, w) {
		return nil, errNotAsked
	}
	defer l.forget(id)
	if err := l.send(ctx, line); err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	// After any other error the link is at its end, and its reader, which may
	// still find the server's last words, fails the request.
	select {
	case a := <-w.answer:
		return a.result, a.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// expect registers a request; false when the link takes none any more.
func (l *callLink) expect(id uint64, w *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.leaving || l.ended {
		return false
	}
	l.waiting[id] = w
	return true
}

func (l *callLink) forget(id uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.waiting, id)
}

// serve hands out answers until the link ends; the error says why. When the server
// drains it calls drains and stays for what was asked before, as long as a server
// may take to stop.
func (l *callLink) serve(drains func(params json.RawMessage)) error {
	var cut *time.Timer
	defer func() {
		if cut != nil {
			cut.Stop()
		}
	}()
	for !l.over() {
		line, err := l.read()
		if err != nil {
			return err
		}
		m, err := parseEnvelope(line)
		if err != nil {
			return err
		}
		if m.Method == methodDraining && cut == nil {
			cut = time.AfterFunc(drainPatience, func() { _ = l.conn.Close() })
			drains(m.Params) // first: who finds the link leaving is to find the next one
			l.leave()
		}
		if m.Method != "" {
			continue // nothing is subscribed here
		}
		a := answer{result: m.Result}
		if m.Error != nil {
			a = answer{err: m.Error.rpc()}
		}
		if id, ok := m.callID(); ok {
			l.deliver(id, a)
		} else if a.err != nil {
			l.refused(a.err)
		}
	}
	return errDraining
}

// drainPatience is longer than any server takes to stop.
const drainPatience = 15 * time.Second

// leave lets the link end with the answers that are due.
func (l *callLink) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leaving = true
}

// over reports that the server drains and owes no answer.
func (l *callLink) over() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leaving && len(l.waiting) == 0
}

func (l *callLink) deliver(id uint64, a answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w, ok := l.waiting[id]; ok {
		delete(l.waiting, id)
		w.answer <- a
	}
}

// refused handles an error without an id: the server could not read a request.
// The limit on a line is the only reason there is for a request made here, so
// that the largest one gets the error.
func (l *callLink) refused(err error) {
	var rpc *RPCError
	if !errors.As(err, &rpc) || rpc.Code != protocol.CodeInvalidRequest {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var id uint64
	var largest *waiter
	for i, w := range l.waiting {
		if largest == nil || w.size > largest.size {
			id, largest = i, w
		}
	}
	if largest != nil {
		delete(l.waiting, id)
		largest.answer <- answer{err: err}
	}
}

// end fails what waits and whatever is asked later.
func (l *callLink) end(cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	err := fmt.Errorf("%w: %w", ErrLost, cause)
	for id, w := range l.waiting {
		delete(l.waiting, id)
		w.answer <- answer{err: err}
	}
}
