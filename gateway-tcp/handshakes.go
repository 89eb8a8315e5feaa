package gatewaytcp

import (
	"container/list"
	"net"
	"sync"

	"rejoin/protocol"
)

// handshakes are the connections of a listener that are not secured yet, oldest
// first, at most protocol.HandshakesMax. When one more comes the oldest is cut:
// an honest client needs moments, so whoever has been there longest is most
// likely a stranger who holds the place. Safe for concurrent use.
type handshakes struct {
	mu     sync.Mutex
	order  list.List // of net.Conn
	closed bool
	cut    uint64 // for want of room
}

// enter takes the place of c, which leave gives back.
func (h *handshakes) enter(c net.Conn) (leave func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.order.Len() >= protocol.HandshakesMax {
		oldest := h.order.Front()
		_ = h.order.Remove(oldest).(net.Conn).Close() //nolint:forcetypeassert // its own goroutine reports the end
		h.cut++
	}
	if h.closed {
		_ = c.Close() // as above
	}
	e := h.order.PushBack(c)
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.order.Remove(e) // nothing, if it was cut
	}
}

// close cuts everyone, now and from now on.
func (h *handshakes) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for e := h.order.Front(); e != nil; e = e.Next() {
		_ = e.Value.(net.Conn).Close() //nolint:forcetypeassert // as in enter
	}
}
