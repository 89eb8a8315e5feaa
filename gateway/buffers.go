package gateway

import (
	"sync"
	"sync/atomic"

	"rejoin/protocol"
)

const (
	// bufferBytes is how much a writer gathers for one write; one event may pass it.
	bufferBytes = 64 << 10
	// smallBytes is that while protocol.GatherBuffersMax writers hold larger buffers.
	smallBytes = 4 << 10
)

// buffers lends what writers gather in. A connection that sends nothing holds
// none; of the large ones a fixed number is out at a time, so that however many
// clients stall in the middle of a write, what they pin is bounded. Safe for
// concurrent use.
type buffers struct {
	out          atomic.Int64 // large ones
	large, small sync.Pool
}

type buffer struct {
	b     []byte
	limit int // gathered before it is sent
}

// get lends a large buffer, or a small one while too many of those are out.
func (p *buffers) get() *buffer {
	pool, limit := &p.large, bufferBytes
	if p.out.Add(1) > protocol.GatherBuffersMax {
		p.out.Add(-1)
		pool, limit = &p.small, smallBytes
	}
	if b, ok := pool.Get().(*buffer); ok {
		return b
	}
	return &buffer{b: make([]byte, 0, limit+limit/16), limit: limit}
}

// put takes b back.
func (p *buffers) put(b *buffer) {
	pool := &p.small
	if b.limit == bufferBytes {
		p.out.Add(-1)
		pool = &p.large
	}
	if cap(b.b) > 2*b.limit {
		return // it has held a larger event
	}
	b.b = b.b[:0]
	pool.Put(b)
}
