package harness

import (
	"bytes"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
)

// Proxy is a TCP link to a server that can break in the ways links break. Its
// methods are safe for concurrent use.
type Proxy struct {
	listener         net.Listener
	network, address string
	running          sync.WaitGroup

	mu     sync.Mutex
	links  map[*link]bool
	stalls chan struct{} // not nil: nothing passes until it is closed
	mark   []byte        // StallAt: what a client says last
	passed chan struct{} // closed when it has
	bad    [][]byte      // StallLinks: what stalls the link that says it
	caught chan struct{} // closed when one has
	closed bool
}

// link is one connection of a client and the one to the server behind it.
type link struct {
	near, far *net.TCPConn
	held      bool          // HalfOpen: far stays until over; under the proxy's mu
	stalls    chan struct{} // StallLinks: nothing passes until it is closed; under the proxy's mu
	over      chan struct{} // closed by reset
	once      sync.Once
}

// NewProxy listens on a free port of 127.0.0.1 and leads to a TCP address, also
// while nothing listens there; it is closed with the test.
func NewProxy(tb testing.TB, address string) *Proxy {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("listen: %v", err)
	}
	p := &Proxy{listener: l, network: "tcp", address: address, links: map[*link]bool{}}
	p.running.Go(p.accept)
	tb.Cleanup(p.close)
	return p
}

// Addr is where clients connect.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

func (p *Proxy) accept() {
	for {
		near, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		far, err := net.Dial(p.network, p.address)
		if err != nil {
			_ = near.Close() // the client sees what the proxy saw: nobody is there
			continue
		}
		p.start(&link{near: near.(*net.TCPConn), far: far.(*net.TCPConn), over: make(chan struct{})})
	}
}

func (p *Proxy) start(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		l.reset()
		return
	}
	p.links[l] = true
	p.running.Go(func() { p.carry(l, l.far, l.near) })
	p.running.Go(func() {
		p.carry(l, l.near, l.far)
		if p.holds(l) {
			<-l.over
		}
		_ = l.near.Close() // the server has ended it
		_ = l.far.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.links, l)
	})
}

func (p *Proxy) holds(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return l.held
}

// carry copies until either side ends; then dst is told that no more comes.
func (p *Proxy) carry(l *link, dst, src *net.TCPConn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		p.wait(l, buf[:n])
		p.look(buf[:n])
		if n > 0 {
			if _, werr := dst.Write(buf[:n]); werr != nil {
				return
			}
		}
		if errors.Is(err, net.ErrClosed) {
			return // by HalfOpen or Cut, which say what dst is to see
		}
		if err != nil {
			_ = dst.CloseWrite() // it may be gone
			return
		}
	}
}

// wait returns when b, which came over l, may pass.
func (p *Proxy) wait(l *link, b []byte) {
	p.mu.Lock()
	if l.stalls == nil && slices.ContainsFunc(p.bad, func(mark []byte) bool { return bytes.Contains(b, mark) }) {
		l.stalls = make(chan struct{})
		select {
		case <-p.caught:
		default:
			close(p.caught)
		}
	}
	all, one := p.stalls, l.stalls
	p.mu.Unlock()
	for _, stalls := range []chan struct{}{all, one} {
		if stalls != nil {
			<-stalls
		}
	}
}

// look begins the stall of StallAt, before the mark passes: its answer does not.
func (p *Proxy) look(b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mark == nil || !bytes.Contains(b, p.mark) {
		return
	}
	p.mark = nil
	if p.stalls == nil {
		p.stalls = make(chan struct{})
	}
	close(p.passed)
}

// each runs do for every link and returns how many there were.
func (p *Proxy) each(do func(*link)) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		do(l)
	}
	return len(p.links)
}

// Links returns how many there are.
func (p *Proxy) Links() int { return p.each(func(*link) {}) }

// Cut resets every link on both sides and returns how many there were.
func (p *Proxy) Cut() int { return p.each((*link).reset) }

func (l *link) reset() {
	for _, c := range []*net.TCPConn{l.near, l.far} {
		_ = c.SetLinger(0) // it may be closed already
		_ = c.Close()
	}
	l.once.Do(func() { close(l.over) })
}

// HalfOpen takes the clients away and leaves the server's side open and silent,
// as a link does whose machine has lost power. Cut ends those too.
func (p *Proxy) HalfOpen() int {
	return p.each(func(l *link) {
		l.held = true
		_ = l.near.Close()
	})
}

// HalfClose ends the input of the server and leaves the way back open.
func (p *Proxy) HalfClose() int { return p.each(func(l *link) { _ = l.far.CloseWrite() }) }

// Stall stops every byte in both directions until Flow; it returns how many links
// there are.
func (p *Proxy) Stall() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stalls == nil {
		p.stalls = make(chan struct{})
	}
	return len(p.links)
}

// StallAt stalls every link, until Flow, as soon as one side has sent mark, which
// still passes; then the channel is closed. A mark is found where it is sent at once.
func (p *Proxy) StallAt(mark string) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mark, p.passed = []byte(mark), make(chan struct{})
	return p.passed
}

// StallLinks stalls, until Flow, every link on which one side says one of the marks,
// those that come later too: it does not pass, and other links go on. The channel is
// closed when the first one is stalled. A mark is found where it is sent at once.
func (p *Proxy) StallLinks(marks ...string) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bad, p.caught = nil, make(chan struct{})
	for _, mark := range marks {
		p.bad = append(p.bad, []byte(mark))
	}
	return p.caught
}

// Flow ends a Stall.
func (p *Proxy) Flow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bad = nil
	for l := range p.links {
		if l.stalls != nil {
			close(l.stalls)
			l.stalls = nil
		}
	}
	if p.stalls != nil {
		close(p.stalls)
		p.stalls = nil
	}
}

func (p *Proxy) close() {
	_ = p.listener.Close() // accept ends
	p.Flow()
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.Cut()
	p.running.Wait()
}
