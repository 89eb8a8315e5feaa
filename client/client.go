package client

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"rejoin/protocol"
)

// A Client asks one server at a time, over one connection. All methods are safe
// for concurrent use. Close it.
type Client struct {
	opts    Options
	servers *servers
	cancel  context.CancelFunc
	wg      sync.WaitGroup // run, and every subscription's run

	mu      sync.Mutex
	session *callLink     // nil while there is no link
	changed chan struct{} // closed and replaced when session or failed changes
	failed  error         // set: there will be no link again
	lastErr error         // why there is no link
	calls   uint64        // ids given to requests
	subs    map[*Subscription]struct{}
}

// Dial connects and authenticates. It tries each server once, or with Options.Wait
// until ctx ends; afterwards the client connects again by itself whenever the link is
// lost, until Close or until a server refuses its token. Errors are a *DialError, an
// *RPCError (the token was refused), the end of ctx, or of several servers all of
// theirs, joined.
func Dial(ctx context.Context, opts Options) (*Client, error) {
	c := &Client{opts: opts.withDefaults(), changed: make(chan struct{}), subs: map[*Subscription]struct{}{}}
	var err error
	if c.servers, err = newServers(&c.opts); err != nil {
		return nil, err
	}
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c.cancel = cancel
	first, err := c.dialFirst(ctx, life)
	if err != nil {
		cancel()
		return nil, err
	}
	c.wg.Go(func() { c.run(life, first) })
	return c, nil
}

func (c *Client) dialFirst(ctx, life context.Context) (*callLink, error) {
	b := newBackoff(&c.opts).among(c.servers)
	var all []error // without Wait
	for {
		l, err := c.open(ctx, life)
		if err == nil || ctx.Err() != nil || refused(err) {
			return l, err
		}
		if !c.opts.Wait {
			if all = append(all, err); len(all) < c.servers.count() && c.opts.Locate == nil {
				continue
			}
			return nil, join(all)
		}
		if !pause(ctx, c.lost(err, &b)) {
			return nil, ended(ctx, err)
		}
	}
}

// join is errors.Join that leaves one error as it is.
func join(all []error) error {
	if len(all) == 1 {
		return all[0]
	}
	return errors.Join(all...)
}

// refused reports that a server does not let this client in.
func refused(err error) bool {
	var rpc *RPCError
	return errors.As(err, &rpc) && !rpc.Retryable()
}

// Close ends the client and its subscriptions and waits for them. Calls that wait
// return ErrClosed. It is idempotent.
func (c *Client) Close() error {
	c.mu.Lock()
	if c.failed == nil {
		c.failed = ErrClosed
		c.signal()
	}
	subs := make([]*Subscription, 0, len(c.subs))
	for s := range c.subs {
		subs = append(subs, s)
	}
	c.mu.Unlock()
	c.cancel()
	for _, s := range subs {
		s.cancel()
	}
	c.wg.Wait()
	return nil
}

// run serves one link after the other until ctx ends or the token is refused.
func (c *Client) run(ctx context.Context, l *callLink) {
	b := newBackoff(&c.opts).among(c.servers)
	for {
		c.notify(Link{State: LinkConnected, URL: l.url})
		c.use(l)
		stop := context.AfterFunc(ctx, func() { _ = l.conn.Close() })
		err := l.serve(func(params json.RawMessage) {
			c.servers.drained(l.url, params)
			c.unuse(errDraining)
		})
		stop()
		_ = l.conn.Close() // it is lost already
		c.servers.failed(l.url)
		c.unuse(err)
		l.end(err)
		if l = c.again(ctx, err, &b); l == nil {
			return
		}
		b.reset()
	}
}

// again dials until there is a link; nil when there will be none.
func (c *Client) again(ctx context.Context, err error, b *backoff) *callLink {
	for {
		if ctx.Err() != nil {
			c.fail(ErrClosed)
			return nil
		}
		if !pause(ctx, c.lost(err, b)) {
			continue
		}
		var l *callLink
		if l, err = c.open(ctx, ctx); err == nil {
			return l
		}
		if refused(err) {
			c.opts.Logger.Warn("the server refuses this client", protocol.LogError, err)
			c.fail(err)
			return nil
		}
	}
}

// open dials within ctx; pings of the link end with life.
func (c *Client) open(ctx, life context.Context) (*callLink, error) {
	c.notify(Link{State: LinkConnecting})
	l, err := c.openLink(ctx, life, 0)
	if err != nil {
		return nil, err
	}
	return newCallLink(l), nil
}

// lost tells why there is no link and returns the wait until the next attempt.
func (c *Client) lost(err error, b *backoff) time.Duration {
	wait := b.next()
	c.mu.Lock()
	c.lastErr = err
	c.mu.Unlock()
	c.opts.Logger.Debug("link lost", protocol.LogError, err, "wait", wait)
	c.notify(Link{State: LinkLost, Err: err, Wait: wait})
	return wait
}

func (c *Client) notify(l Link) {
	if c.opts.OnLink != nil {
		c.opts.OnLink(l)
	}
}

func (c *Client) use(l *callLink) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.session = l
	c.signal()
}

func (c *Client) unuse(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.session, c.lastErr = nil, err
	c.signal()
}

func (c *Client) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed == nil {
		c.failed = err
		c.signal()
	}
}

// signal wakes who waits for a change; mu is held.
func (c *Client) signal() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// link waits for a link and returns it with an id for one request.
func (c *Client) link(ctx context.Context) (*callLink, uint64, error) {
	for {
		c.mu.Lock()
		l, changed, failed, last := c.session, c.changed, c.failed, c.lastErr
		if l != nil {
			c.calls++
		}
		id := c.calls
		c.mu.Unlock()
		switch {
		case failed != nil:
			return nil, 0, failed
		case ctx.Err() != nil:
			return nil, 0, ended(ctx, last)
		case l != nil:
			return l, id, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}
