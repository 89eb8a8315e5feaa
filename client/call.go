package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"

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
	l, id, err := c.link(ctx)
	if err != nil {
		return nil, err
	}
	return l.call(ctx, id, method, raw)
}

// callLink is a link that carries requests of many callers.
type callLink struct {
	*link
	mu      sync.Mutex
	waiting map[uint64]*waiter // bounded by the callers, each of which waits for one
	err     error              // set: the link has ended
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
	l.mu.Lock()
	err := l.err
	if err == nil {
		l.waiting[id] = w
	}
	l.mu.Unlock()
	if err != nil {
		return nil, err
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

func (l *callLink) forget(id uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.waiting, id)
}

// serve hands out answers until the link ends; the error says why.
func (l *callLink) serve() error {
	for {
		line, err := l.read()
		if err != nil {
			return err
		}
		m, err := parseEnvelope(line)
		if err != nil {
			return err
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
	l.err = fmt.Errorf("%w: %w", ErrLost, cause)
	for id, w := range l.waiting {
		delete(l.waiting, id)
		w.answer <- answer{err: l.err}
	}
}
