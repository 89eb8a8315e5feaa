package gateway

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"rejoin/broker"
	"rejoin/protocol"
)

// drainTimeout bounds what a connection may still send when its server stops.
const drainTimeout = time.Second

// connectionIDs bounds the ids of connections: JSON numbers that every client
// can hold.
const connectionIDs = 1 << 53

// conn is one connection. Its reader and its writer meet in the fields under mu.
type conn struct {
	srv     *Server
	pipe    Pipe
	id      uint64
	address string // the listener's
	half    HalfCloser
	// resumable: see Resumable.
	resumable bool

	cut      atomic.Int64 // unix nanoseconds after which no write may last; zero: none
	jobs     sync.WaitGroup
	close    sync.Once
	code     int // why the pipe was closed; written once, by close
	reason   string
	authTime *time.Timer // nil when no authentication is required
	cutter   *time.Timer // set by drain
	expeller *time.Timer // set by expel; guarded by mu
	refused  *refusal    // the reader's: the connection ends with the answers of this line
	pace     pace        // the reader's

	sc     scope
	run    func()         // write, made once: a writer that begins allocates nothing
	writer sync.WaitGroup // the writer's goroutine, while there is one

	mu   sync.Mutex
	room sync.Cond // the reader and heavy jobs wait here

	writing bool // the writer's goroutine runs; without one there is nothing to write
	over    bool // it has closed the pipe, or is about to: it never runs again

	who     broker.Principal
	authed  bool
	counted *broker.Principal // as whom the census counts it; nil: not yet

	// Of the end. Dead: the pipe is cut, nothing can be sent. Closing: no request
	// is read and no event pulled, the answers at hand are sent. Draining: the
	// server stops. Ended: the peer's side is at its end.
	dead, closing, draining, ended bool
	closeCode                      int
	closeReason                    string

	out      []byte // responses not taken by the writer; LF-terminated
	unsent   int    // bytes of responses that the transport has not taken
	reserved int    // bytes that heavy jobs in work may answer
	lanes    lanes

	subs     map[uint64]*subscription // nil until the first
	retired  retired
	ready    readyList                // subscriptions the writer should look at
	watching map[uint64]*sessionWatch // nil until the first
	news     []*sessionWatch          // those the writer should look at
	fetcher  *subscription            // whose snapshot is being fetched or waits to be sent
	waiters  []*subscription          // for the fetcher's place; at most one entry per subscription
}

func newConn(s *Server, p Pipe, address string) *conn {
	// Ids are random: numbers in a row would tell a client how many others came.
	c := &conn{srv: s, pipe: p, id: rand.Uint64N(connectionIDs-1) + 1, address: address}
	c.run = c.write
	c.room.L = &c.mu
	c.half, _ = p.(HalfCloser)
	if r, ok := p.(Resumable); ok {
		c.resumable = r.Resumable()
	}
	return c
}

// scope is the two lives a request may have: what changes something goes on when
// its client is gone and ends with the server; reading ends with the connection.
type scope struct {
	effects, reads context.Context
}

// serve reads until the input ends, writes until nothing is left, and returns when
// every goroutine of the connection has.
func (c *conn) serve(ctx context.Context) {
	end := c.begin(ctx)
	c.read(&c.sc)
	end.wait(c)
}

// enterUnasked makes it the connection of whoever comes, where no token is asked
// for: of anybody, or of a peer that the system vouches for.
func (c *conn) enterUnasked() {
	who, ok := broker.Local(), true
	if a, vouched := c.pipe.(Attested); vouched && a.Attested() {
		c.audit(who, "authenticate", "", "", nil)
	} else if c.srv.auth.AuthRequired() {
		return
	} else {
		who, ok = c.srv.auth.Authenticate("")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if ok && c.srv.census.enter(who, c.srv.cfg.ConnectionsPerToken) {
		c.who, c.authed, c.counted = who, true, &who
	}
}

// ending is what serve needs after the reader's end.
type ending struct {
	cancel  context.CancelFunc // of c.sc.reads
	drained chan struct{}      // closed after drain
	keep    func() bool        // false when drain runs or has run
}

// begin starts what watches the clock and the server's end.
func (c *conn) begin(ctx context.Context) *ending {
	reads, cancel := context.WithCancel(ctx)
	c.sc = scope{effects: ctx, reads: reads}
	e := &ending{cancel: cancel, drained: make(chan struct{})}
	c.enterUnasked()
	if !c.authed {
		within := c.srv.cfg.AuthTimeout
		if d, ok := c.pipe.(Dated); ok {
			within -= time.Since(d.Accepted())
		}
		c.authTime = time.AfterFunc(within, c.authExpired)
	}
	e.keep = context.AfterFunc(ctx, func() {
		defer close(e.drained)
		c.drain()
	})
	return e
}

// wait returns when nothing of the connection runs any more.
func (e *ending) wait(c *conn) {
	c.awaitWriter()
	e.cancel()
	c.jobs.Wait()
	if !e.keep() {
		<-e.drained
		c.cutter.Stop()
	}
	if c.authTime != nil {
		c.authTime.Stop()
	}
	c.mu.Lock()
	if c.expeller != nil {
		c.expeller.Stop()
	}
	c.mu.Unlock()
	c.releaseAll()
	c.releaseWatches()
}

// answer queues a response (nil for a notification) and, in the same critical
// section, does what must not be seen before it.
func (c *conn) answer(frame []byte, then []func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(frame) > 0 && !c.dead {
		c.out = append(append(c.out, frame...), '\n')
		c.unsent += len(frame) + 1
		c.stir()
	}
	for _, f := range then {
		f()
	}
}

// finish ends the connection once the answers at hand are sent.
func (c *conn) finish(code int, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.finishLocked(code, reason)
}

func (c *conn) finishLocked(code int, reason string) {
	if c.closing {
		return
	}
	c.closing, c.closeCode, c.closeReason = true, code, reason
	c.stir()
	c.room.Broadcast()
}

func (c *conn) authExpired() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.authed || c.closing || c.dead {
		return
	}
	c.srv.counters.authTimeouts.Add(1)
	before := len(c.out)
	e := protocol.Errorf(protocol.ReasonAuthRequired, "not authenticated within %v", c.srv.cfg.AuthTimeout).Met("AuthTimeoutDefault")
	c.srv.counters.failed(e)
	c.out = append(protocol.AppendError(c.out, nil, e), '\n')
	c.unsent += len(c.out) - before
	c.finishLocked(CloseUnauthorized, "not authenticated in time")
}

// drain is called when the server stops: the client hears where to go on, if there
// is somewhere, and what is at hand may still be sent until the cut, then the pipe is closed under whoever is blocked in it.
func (c *conn) drain() {
	end := time.Now().Add(drainTimeout)
	c.cut.Store(end.UnixNano())
	var word []byte
	if c.srv.cfg.Elsewhere != nil {
		word = appendDraining(nil, c.srv.cfg.Elsewhere(c.id))
	}
	c.mu.Lock()
	c.draining = true
	if c.authed && !c.closing && !c.dead {
		c.out = append(c.out, word...)
		c.unsent += len(word)
	}
	c.cutter = time.AfterFunc(drainTimeout, func() { c.kill(CloseDraining, "server stops") })
	c.stir()
	c.room.Broadcast()
	c.mu.Unlock()
	c.logTransport("set deadline", c.pipe.SetWriteDeadline(end))
}

// appendDraining appends the notification of a server that stops.
func appendDraining(dst []byte, urls []string) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","method":"draining","params":{"reconnect":[`...)
	for i, url := range urls {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = protocol.AppendString(dst, url)
	}
	return append(dst, "]}}\n"...)
}

// kill cuts the connection now.
func (c *conn) kill(code int, reason string) {
	c.mu.Lock()
	c.dead = true
	c.stir()
	c.room.Broadcast()
	c.mu.Unlock()
	c.closePipe(code, reason)
}

func (c *conn) closePipe(code int, reason string) {
	c.close.Do(func() {
		c.code, c.reason = code, reason
		c.logTransport("close", c.pipe.Close(code, reason))
	})
}

// logTransport reports what a transport says while it is being ended or set up;
// the reads and writes that follow fail by themselves.
func (c *conn) logTransport(what string, err error) {
	if err != nil {
		c.srv.log.Debug("transport", slog.String("op", what), slog.Uint64(protocol.LogConn, c.id), slog.Any(protocol.LogError, err))
	}
}

// stopping reports that no further request is to be read.
func (c *conn) stopping() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dead || c.closing || c.draining
}

// principal returns who the connection is, and whether it may do anything.
func (c *conn) principal() (broker.Principal, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.who, c.authed
}
