package journal

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/minio/highwayhash"

	"rejoin/protocol"
)

// A block file of nats-server 2.15 is records one after the other, numbers
// little endian (server/filestore.go, writeMsgRecordLocked):
//
//	total_len(4) seq(8) ts(8) subj_len(2) subj             msg hash(8)
//	total_len(4) seq(8) ts(8) subj_len(2) subj hdr_len(4) hdr msg hash(8)
//
// The second form has the high bit of total_len set. The hash is HighwayHash-64
// over seq, ts, subj, hdr and msg, keyed by stream and block number: it covers
// none of the three lengths, which is why they are checked, and can be found
// again, by themselves.
const (
	blockHeader    = 22
	blockHash      = 8
	blockRecordMin = blockHeader + blockHash
	blockRecordMax = 32 << 20 // rlBadThresh

	blockHeaders = 1 << 31 // in total_len: headers follow the subject
	blockErased  = 1 << 63 // in seq: nothing is stored under it
	blockTomb    = 1 << 62 // in seq: the message of that seq, somewhere before, is deleted

	// resyncAhead bounds how far behind the last good record the seq of the next
	// one may be, so that bytes of a payload are hardly ever taken for a header.
	resyncAhead = 1 << 40
)

var (
	natsHeaderLine = []byte("NATS/1.0")
	natsHeaderEnd  = []byte("\r\n\r\n")
)

// blockKind tells what a record of a block is.
type blockKind int

const (
	blockMessage blockKind = iota
	blockTombstone
	blockErasure
)

// blockRecord is one record of a block. Its slices share the block's bytes.
type blockRecord struct {
	raw     []byte // all of it
	kind    blockKind
	seq     uint64 // of the message it is, was or deletes
	ts      int64
	subject []byte
	headers []byte
	data    []byte
}

// span is the seqs from first to last.
type span struct{ first, last uint64 }

// blockHole is a part of a block that does not verify.
type blockHole struct {
	from, to int    // bytes
	after    uint64 // the last seq before it, 0: none in this block
	before   uint64 // the first seq behind it, 0: none in this block
	why      string
	restored bool // the record's lengths were found again: nothing is lost
}

// blockScan is what a block holds.
type blockScan struct {
	index    uint32
	size     int64
	messages uint64
	live     []span   // seqs of messages, rising
	tombs    []uint64 // seqs that it says are deleted
	last     uint64   // highest seq of a message or an erasure
	lastTS   int64    // its time
	holes    []blockHole
	torn     int // bytes of a record at the end that was not written to its end
	err      error
}

// sound reports whether the server can read the block as it is.
func (s *blockScan) sound() bool { return s.err == nil && len(s.holes) == 0 }

// blockReader reads the blocks of one stream. It is not safe for concurrent use.
type blockReader struct {
	stream  string
	prefix  []byte // of every subject of the stream; nil: any
	objects bool   // values are JSON objects, or none
	hash    *highwayhash.Digest64
	index   uint32
	sum     [blockHash]byte
}

func newBlockReader(stream string) *blockReader {
	return &blockReader{
		stream: stream, prefix: []byte(subjectPrefix(stream)),
		objects: stream == bucketStream(protocol.BucketSessions) || stream == bucketStream(protocol.BucketStarts),
	}
}

// open prepares for the block of that number.
func (r *blockReader) open(index uint32) {
	if r.hash != nil && r.index == index {
		return
	}
	r.hash, r.index = newDigest(fmt.Sprintf("%s-%d", r.stream, index)), index
}

// newDigest returns the hash that the server keys by a name.
func newDigest(name string) *highwayhash.Digest64 {
	key := sha256.Sum256([]byte(name))
	h, err := highwayhash.NewDigest64(key[:])
	if err != nil {
		panic("journal: a key of 32 bytes is refused: " + err.Error())
	}
	return h
}

// checksum is what the record's last bytes must be.
func (r *blockReader) checksum(seqTS, subject, rest []byte) []byte {
	r.hash.Reset()
	_, _ = r.hash.Write(seqTS) // a hash never fails
	_, _ = r.hash.Write(subject)
	_, _ = r.hash.Write(rest)
	return r.hash.Sum(r.sum[:0])
}

// lengths splits off the record that b begins with, as far as its lengths tell.
func lengths(b []byte) (rec []byte, subject int, headers bool, why string) {
	if len(b) < blockHeader {
		return nil, 0, false, "cut off"
	}
	total := binary.LittleEndian.Uint32(b)
	subject = int(binary.LittleEndian.Uint16(b[20:]))
	headers = total&blockHeaders != 0
	total &^= blockHeaders
	need := blockRecordMin + subject
	if headers {
		need += 4
	}
	switch {
	case total > blockRecordMax || int(total) < need:
		return nil, 0, false, "impossible length"
	case int(total) > len(b):
		return nil, 0, false, "cut off"
	}
	return b[:total], subject, headers, ""
}

// record verifies the record that b begins with.
func (r *blockReader) record(b []byte) (blockRecord, string) {
	raw, subject, headers, why := lengths(b)
	if why != "" {
		return blockRecord{}, why
	}
	body, end := raw[blockHeader:], len(raw)-blockHeader-blockHash
	rest := body[subject:end]
	if headers {
		rest = rest[4:]
	}
	if !bytes.Equal(r.checksum(raw[4:20], body[:subject], rest), body[end:]) {
		return blockRecord{}, "checksum mismatch"
	}
	rec := blockRecord{
		raw: raw, seq: binary.LittleEndian.Uint64(raw[4:]), ts: int64(binary.LittleEndian.Uint64(raw[12:])),
		subject: body[:subject], data: rest,
	}
	switch {
	case rec.seq&blockTomb != 0:
		rec.kind, rec.seq = blockTombstone, rec.seq&^blockTomb
		return rec, ""
	case rec.seq&blockErased != 0 || rec.seq == 0:
		rec.kind, rec.seq = blockErasure, rec.seq&^blockErased
		return rec, ""
	}
	if !bytes.HasPrefix(rec.subject, r.prefix) {
		return blockRecord{}, "not a subject of the stream"
	}
	if headers {
		n := int(binary.LittleEndian.Uint32(body[subject:]))
		if n < 0 || n > len(rest) || !bytes.HasPrefix(rest, natsHeaderLine) || !bytes.HasSuffix(rest[:n], natsHeaderEnd) {
			return blockRecord{}, "impossible length of headers"
		}
		rec.headers, rec.data = rest[:n], rest[n:]
	}
	return rec, ""
}

// doubtful reports whether the subject of a record may be longer or shorter than
// it says: without headers, the checksum does not tell.
func (r *blockReader) doubtful(rec blockRecord) bool {
	return r.objects && rec.kind == blockMessage && len(rec.headers) == 0 && len(rec.data) > 0 && rec.data[0] != '{'
}

// restore makes a good record of b, whose lengths may all be wrong: they are
// taken from what stands between the records around it, and the checksum tells
// whether they are right. nil: they are not.
func (r *blockReader) restore(b []byte) []byte {
	if len(b) < blockRecordMin || len(b) > blockRecordMax {
		return nil
	}
	for _, subject := range r.subjectLengths(b) {
		out := slices.Clone(b)
		total := uint32(len(b))
		rest := out[blockHeader+subject : len(out)-blockHash]
		if len(rest) >= 4 && bytes.HasPrefix(rest[4:], natsHeaderLine) {
			end := bytes.Index(rest[4:], natsHeaderEnd)
			if end < 0 {
				continue
			}
			binary.LittleEndian.PutUint32(rest, uint32(end+len(natsHeaderEnd)))
			total |= blockHeaders
		}
		binary.LittleEndian.PutUint32(out, total)
		binary.LittleEndian.PutUint16(out[20:], uint16(subject))
		if rec, why := r.record(out); why == "" && !r.doubtful(rec) {
			return out
		}
	}
	return nil
}

// subjectLengths guesses how long the subject of b is.
func (r *blockReader) subjectLengths(b []byte) []int {
	body := b[blockHeader : len(b)-blockHash]
	var out []int
	if i := bytes.Index(body, natsHeaderLine); i >= 4 {
		out = append(out, i-4)
	}
	if said := int(binary.LittleEndian.Uint16(b[20:])); said <= len(body) {
		out = append(out, said)
	}
	if i := bytes.IndexByte(body, '{'); i > 0 { // a JSON value without headers
		out = append(out, i)
	}
	return out
}

// scan verifies a whole block and hands every good record to visit, which may
// be nil; behind a part that does not verify it goes on at the next record that
// does. Of the newest block of a stream the end may be a record that was not
// written to its end.
func (r *blockReader) scan(buf []byte, newest bool, visit func(blockRecord)) blockScan {
	s := blockScan{index: r.index, size: int64(len(buf))}
	for off := 0; off < len(buf); {
		rec, why := r.record(buf[off:])
		if why == "" && r.doubtful(rec) && r.restore(rec.raw) != nil {
			why = "impossible length of the subject"
		}
		if why == "" {
			s.take(rec)
			if visit != nil {
				visit(rec)
			}
			off += len(rec.raw)
			continue
		}
		next := r.resync(buf, off+1, s.last)
		hole := blockHole{from: off, to: next, after: s.last, why: why}
		if fixed := r.restore(buf[off:next]); fixed != nil {
			rec, _ := r.record(fixed)
			hole.restored = true
			s.take(rec)
			if visit != nil {
				visit(rec)
			}
		} else if next == len(buf) && newest && r.unfinished(buf[off:], s.last) {
			s.torn = len(buf) - off
			return s
		}
		s.holes = append(s.holes, hole)
		off = next
	}
	return s
}

// take notes a good record.
func (s *blockScan) take(rec blockRecord) {
	if rec.kind == blockTombstone {
		s.tombs = append(s.tombs, rec.seq)
		return
	}
	if rec.seq <= s.last { // as the server does: such a record is passed over
		return
	}
	s.last, s.lastTS = rec.seq, rec.ts
	if rec.kind == blockErasure {
		return
	}
	for i := len(s.holes) - 1; i >= 0 && s.holes[i].before == 0; i-- {
		s.holes[i].before = rec.seq
	}
	s.messages++
	if n := len(s.live); n > 0 && s.live[n-1].last+1 == rec.seq {
		s.live[n-1].last = rec.seq
		return
	}
	s.live = append(s.live, span{rec.seq, rec.seq})
}

// resync returns where the next good record begins, at or after off.
func (r *blockReader) resync(buf []byte, off int, last uint64) int {
	for ; off+blockRecordMin <= len(buf); off++ {
		b := buf[off:]
		total := binary.LittleEndian.Uint32(b) &^ blockHeaders
		if total < blockRecordMin || int64(total) > int64(len(b)) {
			continue
		}
		seq := binary.LittleEndian.Uint64(b[4:])
		switch {
		case seq&(blockTomb|blockErased) != 0:
			if total != blockRecordMin && seq&blockTomb != 0 || seq&^(blockTomb|blockErased) > last+resyncAhead {
				continue
			}
		case seq <= last || seq > last+resyncAhead:
			continue
		}
		if _, why := r.record(b); why == "" {
			return off
		}
	}
	return len(buf)
}

// unfinished reports whether b is the beginning of a record whose end was never
// written, as a killed process leaves it, rather than a damaged record.
func (r *blockReader) unfinished(b []byte, last uint64) bool {
	if len(b) < blockHeader {
		return true
	}
	total := binary.LittleEndian.Uint32(b) &^ blockHeaders
	if int64(total) <= int64(len(b)) || total > blockRecordMax {
		return false
	}
	seq := binary.LittleEndian.Uint64(b[4:])
	if seq&(blockTomb|blockErased) != 0 {
		return total == blockRecordMin
	}
	subject := b[blockHeader:min(len(b), blockHeader+int(binary.LittleEndian.Uint16(b[20:])))]
	n := min(len(subject), len(r.prefix))
	return (last == 0 || seq == last+1) && bytes.Equal(subject[:n], r.prefix[:n])
}

// placeholder appends a record that keeps seq, and everything below it, from
// being given out again: what the server itself writes for a skipped message.
func (r *blockReader) placeholder(dst []byte, seq uint64, ts int64) []byte {
	return r.empty(dst, seq|blockErased, ts)
}

// tombstone appends a record that says the message of seq is deleted.
func (r *blockReader) tombstone(dst []byte, seq uint64, ts int64) []byte {
	return r.empty(dst, seq|blockTomb, ts)
}

func (r *blockReader) empty(dst []byte, seq uint64, ts int64) []byte {
	at := len(dst)
	dst = append(dst, make([]byte, blockHeader)...)
	b := dst[at:]
	binary.LittleEndian.PutUint32(b, blockRecordMin)
	binary.LittleEndian.PutUint64(b[4:], seq)
	binary.LittleEndian.PutUint64(b[12:], uint64(ts))
	return append(dst, r.checksum(b[4:20], nil, nil)...)
}
