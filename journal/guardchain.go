package journal

import (
	"bytes"
	"encoding/binary"
	"strconv"
	"strings"

	"rejoin/protocol"
)

// chains follows the back-links of every session in a shard's blocks, each of
// which names the record before it, and so finds whose records are missing.
type chains struct {
	s       *streamScan
	shard   int
	lost    []span // where records may be missing
	tails   map[string]chainTail
	found   []SessionDamage
	guesses []guess
}

// chainTail is the newest record of a session so far.
type chainTail struct {
	seq  uint64
	last protocol.Seq
}

// guess is the subject that the remains of a damaged record name.
type guess struct {
	subject string
	after   uint64 // the last seq before it
}

// shardOf returns which shard a stream is.
func shardOf(stream string) (int, bool) {
	n, ok := strings.CutPrefix(stream, "J")
	if !ok {
		return 0, false
	}
	shard, err := strconv.Atoi(n)
	return shard, err == nil
}

// brokenChains returns the holes in the logs of a shard. It reads all its blocks
// once more, without their checksums where those are known to hold.
func brokenChains(s *streamScan, lost []span) []SessionDamage {
	shard, ok := shardOf(s.name)
	if !ok || s.sealed {
		return nil
	}
	c := &chains{s: s, shard: shard, lost: lost, tails: make(map[string]chainTail)}
	var buf []byte
	r := newBlockReader(s.name)
	for i := range s.blocks {
		b := &s.blocks[i]
		if b.err != nil {
			continue
		}
		var err error
		if buf, err = readBlock(s.blockFile(b.index), buf); err != nil {
			continue
		}
		if b.sound() {
			walkBlock(buf, c.visit)
			continue
		}
		r.open(b.index)
		r.scan(buf, i == len(s.blocks)-1, c.visit)
		for _, h := range b.holes {
			if h.restored {
				continue
			}
			for _, subject := range r.remains(buf[h.from:h.to]) {
				c.guesses = append(c.guesses, guess{subject, max(h.after, s.lastBefore(i))})
			}
		}
	}
	c.conclude()
	return c.found
}

// lastBefore returns the last seq of the blocks before i.
func (s *streamScan) lastBefore(i int) uint64 {
	var last uint64
	for k := range i {
		last = max(last, s.blocks[k].last)
	}
	return last
}

// walkBlock hands on the records of a block that is known to be sound.
func walkBlock(buf []byte, visit func(blockRecord)) {
	for len(buf) > 0 {
		raw, subject, headers, why := lengths(buf)
		if why != "" {
			return
		}
		rec := blockRecord{raw: raw, seq: binary.LittleEndian.Uint64(raw[4:])}
		body, end := raw[blockHeader:], len(raw)-blockHeader-blockHash
		rec.subject, rec.data = body[:subject], body[subject:end]
		switch {
		case rec.seq&blockTomb != 0:
			rec.kind = blockTombstone
		case rec.seq&blockErased != 0 || rec.seq == 0:
			rec.kind = blockErasure
		case headers:
			n := int(binary.LittleEndian.Uint32(rec.data))
			rec.headers, rec.data = rec.data[4:4+n], rec.data[4+n:]
		}
		visit(rec)
		buf = buf[len(raw):]
	}
}

// visit takes the next record of the shard.
func (c *chains) visit(rec blockRecord) {
	if rec.kind != blockMessage {
		return
	}
	if _, deleted := c.s.tombs[rec.seq]; deleted {
		return
	}
	h, err := decodeHeader(rec.data)
	if err != nil {
		return // its readers are told
	}
	last, first := h.base+protocol.Seq(h.count)-1, h.base
	if h.part < h.parts { // the event exists with its last part only
		last--
	}
	if h.part > 1 {
		first++
	}
	back := backOf(rec.headers)
	tail, known := c.tails[string(rec.subject)]
	switch {
	case known && rec.seq <= tail.seq:
		return
	case known && back != tail.seq:
		c.hole(string(rec.subject), tail.last, first)
	case !known && back != 0 && c.mayBeLost(back):
		c.hole(string(rec.subject), 0, first)
	}
	c.tails[string(rec.subject)] = chainTail{rec.seq, last}
}

func (c *chains) mayBeLost(seq uint64) bool {
	for _, p := range c.lost {
		if p.first <= seq && seq <= p.last {
			return true
		}
	}
	return false
}

// hole notes that events between two seqs of a session are missing.
func (c *chains) hole(subject string, after, before protocol.Seq) {
	k, ok := keyOf(subject)
	if !ok || before != 0 && before <= after+1 {
		return
	}
	c.found = append(c.found, SessionDamage{Workspace: k.Workspace, Session: k.Session, Shard: c.shard, After: after, Before: before})
}

// conclude notes the logs whose last record is damaged: no later one links back
// to it, but its remains may name its subject.
func (c *chains) conclude() {
	for _, g := range c.guesses {
		tail := c.tails[g.subject]
		if tail.seq <= g.after {
			c.hole(g.subject, tail.last, 0)
		}
	}
}

// remains returns the subjects that damaged records still name. A payload that
// looks like one costs a session a new epoch, no more.
func (r *blockReader) remains(b []byte) (out []string) {
	for at := 0; len(r.prefix) > 0; {
		i := bytes.Index(b[at:], r.prefix)
		if i < 0 {
			return out
		}
		start := at + i
		at = start + len(r.prefix)
		if start < blockHeader {
			continue
		}
		n := int(binary.LittleEndian.Uint16(b[start-2:]))
		if n > len(b)-start {
			continue
		}
		subject := string(b[start : start+n])
		if _, ok := keyOf(subject); ok {
			out = append(out, subject)
		}
	}
	return out
}
