package journal

import (
	"bytes"
	"encoding/binary"
	"errors"

	"github.com/nats-io/nats-server/v2/server/avl"
)

// indexFile is what nats-server writes at a clean stop and every few minutes:
// the state of a stream as of then. It believes it as long as the newest block
// ends as the file says.
const (
	indexFile    = "index.db"
	indexMagic   = 11
	indexVersion = 4 // the only one that this server writes
)

var errIndex = errors.New("index does not decode")

// blockIndex is what a stream's index tells of a stream: more than its blocks
// can after damage. The zero value tells nothing.
type blockIndex struct {
	last   uint64 // highest seq given out
	lastTS int64
	blocks []indexedBlock
}

// indexedBlock is one block as of the index.
type indexedBlock struct {
	index       uint32
	first, last uint64
	deleted     *avl.SequenceSet // of the seqs between; nil: none
}

// deleted reports whether the index knows that the message of seq is deleted.
func (x *blockIndex) deleted(block uint32, seq uint64) bool {
	for i := range x.blocks {
		if b := &x.blocks[i]; b.index == block {
			return seq < b.first || seq <= b.last && b.deleted != nil && b.deleted.Exists(seq)
		}
	}
	return false
}

// parseIndex decodes the index of a stream. It is an error when it is not
// whole, or is encrypted.
func parseIndex(stream string, buf []byte) (blockIndex, error) {
	if len(buf) < 32 {
		return blockIndex{}, errIndex
	}
	h := newDigest(stream)
	body, sum := buf[:len(buf)-blockHash], buf[len(buf)-blockHash:]
	_, _ = h.Write(body) // a hash never fails
	if !bytes.Equal(h.Sum(nil), sum) || body[0] != indexMagic || body[1] != indexVersion {
		return blockIndex{}, errIndex
	}
	d := indexDecoder{b: body[2:]}
	x := d.state()
	if d.bad {
		return blockIndex{}, errIndex
	}
	return x, nil
}

// indexDecoder takes numbers off the front of b.
type indexDecoder struct {
	b   []byte
	bad bool
}

func (d *indexDecoder) uint() uint64 {
	v, n := binary.Uvarint(d.b)
	return take(d, v, n)
}

func (d *indexDecoder) int() int64 {
	v, n := binary.Varint(d.b)
	return take(d, v, n)
}

func take[T uint64 | int64](d *indexDecoder, v T, n int) T {
	if d.bad || n <= 0 {
		d.bad = true
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *indexDecoder) skip(n uint64) {
	if d.bad || n > uint64(len(d.b)) {
		d.bad = true
		return
	}
	d.b = d.b[n:]
}

// state reads what follows magic and version: server/filestore.go, _writeFullState.
func (d *indexDecoder) state() blockIndex {
	var x blockIndex
	d.uint() // messages
	d.uint() // bytes
	d.uint() // first seq
	d.int()  // first time
	x.last = d.uint()
	x.lastTS = d.int()
	for range d.count() { // subjects
		d.skip(d.uint())
		d.uint() // messages
		d.uint() // first block
		d.uint() // last block
		if d.bad {
			return x
		}
	}
	for range d.count() {
		b := indexedBlock{index: uint32(d.uint())}
		d.uint() // bytes
		b.first = d.uint()
		d.int() // first time
		b.last = d.uint()
		d.int() // last time
		deleted := d.uint()
		d.uint() // expiring messages
		d.uint() // scheduled messages
		if d.bad {
			return x
		}
		if deleted > 0 {
			set, n, err := avl.Decode(d.b)
			if err != nil {
				d.bad = true
				return x
			}
			b.deleted = set
			d.skip(uint64(n))
		}
		x.blocks = append(x.blocks, b)
	}
	return x
}

// count reads how many items follow; each takes at least a byte.
func (d *indexDecoder) count() uint64 {
	n := d.uint()
	if n > uint64(len(d.b)) {
		d.bad = true
	}
	if d.bad {
		return 0
	}
	return n
}
