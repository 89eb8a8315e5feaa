package gateway

import (
	"maps"
	"sync"
	"sync/atomic"

	"rejoin/protocol"
)

// counters are what a Server counts. Hot paths add once per batch or request.
type counters struct {
	requests                            []atomic.Uint64                    // by method.index
	errors                              map[protocol.Reason]*atomic.Uint64 // filled once
	connected, bytes, events, snapshots atomic.Uint64
	authTimeouts, writeTimeouts         atomic.Uint64

	mu      sync.Mutex
	refused map[string]uint64 // by limit; the limits are named in the code
}

func newCounters() *counters {
	c := &counters{requests: make([]atomic.Uint64, len(methodNames)), errors: make(map[protocol.Reason]*atomic.Uint64), refused: make(map[string]uint64)}
	for _, r := range protocol.Reasons() {
		c.errors[r] = new(atomic.Uint64)
	}
	return c
}

// failed counts an answer that is an error.
func (c *counters) failed(e *protocol.Error) {
	if n := c.errors[e.Reason]; n != nil {
		n.Add(1)
	}
	if e.Limit != "" {
		c.refuse(e.Limit)
	}
}

// refuse counts something that met a limit, by the limit's name.
func (c *counters) refuse(limit string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused[limit]++
}

// Stats is what a Server has counted since it was made, and what it has now.
type Stats struct {
	Connections   int // open ones
	Subscriptions int
	CaughtUp      int // subscriptions that have everything there is
	Behind        int // those that have not

	Connected     uint64 // connections in all
	Requests      map[string]uint64
	Errors        map[string]uint64 // answers, by reason
	Refused       map[string]uint64 // by name of the limit that was met
	BytesWritten  uint64
	EventsWritten uint64
	SnapshotsSent uint64
	AuthTimeouts  uint64 // connections that did not authenticate in time
	WriteTimeouts uint64 // connections that took no byte for too long
}

// Stats counts. It looks at every subscription once: it is for somebody who asks
// every few seconds. Safe for concurrent use.
func (s *Server) Stats() Stats {
	c := s.counters
	st := Stats{
		Connected: c.connected.Load(), BytesWritten: c.bytes.Load(), EventsWritten: c.events.Load(), SnapshotsSent: c.snapshots.Load(),
		AuthTimeouts: c.authTimeouts.Load(), WriteTimeouts: c.writeTimeouts.Load(),
		Requests: make(map[string]uint64, len(methodNames)), Errors: make(map[string]uint64, len(c.errors)),
	}
	for i, name := range methodNames {
		st.Requests[name] = c.requests[i].Load()
	}
	for r, n := range c.errors {
		st.Errors[string(r)] = n.Load()
	}
	c.mu.Lock()
	st.Refused = maps.Clone(c.refused)
	c.mu.Unlock()
	conns := s.open()
	st.Connections = len(conns)
	for _, conn := range conns {
		conn.countCursors(&st)
	}
	return st
}

func (c *conn) countCursors(st *Stats) {
	type reading struct {
		s      *subscription
		cursor protocol.Cursor
	}
	var few [4]reading
	all := few[:0]
	c.mu.Lock()
	for _, s := range c.subs {
		if s.active && !s.gone {
			s.acquire()
			all = append(all, reading{s, s.cursor})
		}
	}
	c.mu.Unlock()
	for _, r := range all {
		at := r.s.w.Position() // takes the watch's lock: not under ours
		r.s.release()
		st.Subscriptions++
		if at.Epoch == r.cursor.Epoch && r.cursor.Seq >= at.Head {
			st.CaughtUp++
		} else {
			st.Behind++
		}
	}
}
