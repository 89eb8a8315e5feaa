package journal

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/klauspost/compress/s2"
	"github.com/oklog/ulid/v2"

	"rejoin/protocol"
)

// A stored record is the whole data of one stream message: a fixed header and a
// body. Numbers are big endian.
//
//	offset size field
//	     0    2 magic 'R' 'J'
//	     2    1 version: 1
//	     3    1 flags: 0
//	     4    1 codec of the body: 0 as it is, 1 S2 block
//	     5    3 zero
//	     8   16 epoch: the ULID's binary form
//	    24    8 run
//	    32   16 writer: random, made by OpenWriter
//	    48    8 base: seq of the first event
//	    56    4 count of events
//	    60    2 part, from 1
//	    62    2 parts: 1 for a whole record
//	    64    4 length of the body before compression
//	    68    4 total: CRC-32C of the whole event line of a set of parts, else 0
//	    72    4 CRC-32C of all other bytes of the record
//	    76   32 prev: SHA-256 of the previous record of the log, zeros in the first
//	   108      body
//
// The body of a whole record is its event lines, each followed by LF. An event
// line over protocol.PartBytesMax is a set of records of one writer, one after
// the other, same base, count 1, parts 1 to n, whose bodies joined are the line
// without LF; the event exists when the last of them is stored.
const (
	recordVersion = 1
	headerSize    = 108
	offCRC        = 72
	offPrev       = 76

	codecNone = 0
	codecS2   = 1

	// bodyBytesMax bounds what a decoder allocates for one record and one joined event.
	bodyBytesMax = 64 << 20
	partsMax     = 64
	// compressFrom is the body size above which S2 is tried.
	compressFrom = 1 << 10
)

// Why a record does not decode; all of them are reported wrapped in ErrDamaged.
var (
	errRecordShort   = errors.New("short record")
	errRecordMagic   = errors.New("not a record")
	errRecordVersion = errors.New("record of an unknown version")
	errRecordHeader  = errors.New("header out of range")
	errRecordCRC     = errors.New("checksum mismatch")
	errRecordBody    = errors.New("body does not decode")
	errRecordLines   = errors.New("event lines do not match the count")
	errRecordParts   = errors.New("parts do not fit together")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// chainHash is what a record's prev holds of its predecessor.
type chainHash [sha256.Size]byte

// hashRecord returns the chain hash of a stored record's bytes.
func hashRecord(data []byte) chainHash { return sha256.Sum256(data) }

// writerID tells two writers of one run apart.
type writerID [16]byte

// header is the decoded fixed part of a record.
type header struct {
	epoch  ulid.ULID
	run    protocol.Run
	writer writerID
	base   protocol.Seq
	count  uint32
	part   uint16
	parts  uint16
	raw    uint32
	total  uint32
	crc    uint32
	prev   chainHash
	codec  byte
}

// Record is one decoded record, or an event joined from its parts: immutable,
// shared by reference.
type Record struct {
	header
	epochText protocol.Epoch
	lines     []byte   // event lines, each with its LF; of a single part: its piece of the line
	ends      []uint32 // where in lines the LF of each line is; nil for a single part
	pos       uint64   // stream sequence of the (last) message it was read from; 0 when not read
	first     uint64   // stream sequence of its first message: pos, or that of part 1; 0 when not read
	back      uint64   // stream sequence of the message before its first one; 0: none
	sum       chainHash
}

// Epoch returns the epoch of every event of the record.
func (r *Record) Epoch() protocol.Epoch { return r.epochText }

// Run returns the run that wrote the record.
func (r *Record) Run() protocol.Run { return r.run }

// Base returns the seq of the record's first event.
func (r *Record) Base() protocol.Seq { return r.base }

// Last returns the seq of the record's last event.
func (r *Record) Last() protocol.Seq { return r.base + protocol.Seq(r.count) - 1 }

// Len returns the number of events.
func (r *Record) Len() int { return len(r.ends) }

// Line returns the stored line of event i, 0 ≤ i < Len, without its LF. The
// bytes are shared and must not be changed.
func (r *Record) Line(i int) []byte {
	start := uint32(0)
	if i > 0 {
		start = r.ends[i-1] + 1
	}
	end := r.ends[i]
	return r.lines[start:end:end]
}

// recordBytes is what a record holds besides its lines: the struct, the text of its
// epoch, and what the allocator rounds up.
const recordBytes = 320

// Size returns the bytes of memory that the record holds, about.
func (r *Record) Size() int { return len(r.lines) + 4*len(r.ends) + recordBytes }

// looseBytes is up to which size lines are copied out of the message that they came
// in: it has headers of several hundred bytes, which would be kept along with them.
const looseBytes = 4 << 10

// loosen lets go of the message that the record was decoded from, where that is
// worth a copy.
func (r *Record) loosen() {
	if r.codec != codecS2 && len(r.lines) <= looseBytes {
		r.lines = bytes.Clone(r.lines)
	}
}

// whole reports that the record is no part of a set.
func (r *Record) whole() bool { return r.parts == 1 }

// complete reports that every event of the record exists once it is stored: it
// is whole, or the last part of its set.
func (r *Record) complete() bool { return r.part == r.parts }

// head returns the seq of the newest event that exists once the record is the
// newest of its log.
func (r *Record) head() protocol.Seq {
	if r.complete() {
		return r.Last()
	}
	return r.base - 1
}

// appendRecord appends the stored form of a record to dst. h.codec, h.raw and
// h.crc are set here from body.
func appendRecord(dst []byte, h *header, body []byte) []byte {
	start := len(dst)
	dst = append(dst, make([]byte, headerSize)...)
	h.codec, h.raw = codecNone, uint32(len(body))
	if len(body) > compressFrom {
		if need := headerSize + s2.MaxEncodedLen(len(body)); cap(dst)-start < need {
			dst = append(make([]byte, 0, start+need), dst...)
		}
		packed := s2.Encode(dst[len(dst):cap(dst)], body)
		if len(packed) < len(body) {
			h.codec = codecS2
			dst = dst[:len(dst)+len(packed)]
		}
	}
	if h.codec == codecNone {
		dst = append(dst, body...)
	}
	rec := dst[start:]
	h.put(rec)
	h.crc = recordCRC(rec)
	binary.BigEndian.PutUint32(rec[offCRC:], h.crc)
	return dst
}

// put writes the header's fields but the CRC to the first headerSize bytes of b.
func (h *header) put(b []byte) {
	b[0], b[1], b[2], b[3] = 'R', 'J', recordVersion, 0
	b[4], b[5], b[6], b[7] = h.codec, 0, 0, 0
	copy(b[8:24], h.epoch[:])
	binary.BigEndian.PutUint64(b[24:], uint64(h.run))
	copy(b[32:48], h.writer[:])
	binary.BigEndian.PutUint64(b[48:], uint64(h.base))
	binary.BigEndian.PutUint32(b[56:], h.count)
	binary.BigEndian.PutUint16(b[60:], h.part)
	binary.BigEndian.PutUint16(b[62:], h.parts)
	binary.BigEndian.PutUint32(b[64:], h.raw)
	binary.BigEndian.PutUint32(b[68:], h.total)
	copy(b[offPrev:headerSize], h.prev[:])
}

// recordCRC is the CRC-32C of a record's bytes without the CRC field.
func recordCRC(rec []byte) uint32 {
	return crc32.Update(crc32.Checksum(rec[:offCRC], castagnoli), castagnoli, rec[offPrev:])
}

// lineCRC is the total of a set of parts: the CRC-32C of the line they make.
func lineCRC(line []byte) uint32 { return crc32.Checksum(line, castagnoli) }

// decodeHeader reads and checks the fixed part of a record, without its CRC:
// enough to find one's way, not to trust the events.
func decodeHeader(data []byte) (header, error) {
	var h header
	if len(data) < headerSize {
		return h, damaged(errRecordShort)
	}
	if data[0] != 'R' || data[1] != 'J' {
		return h, damaged(errRecordMagic)
	}
	if data[2] != recordVersion {
		return h, damaged(errRecordVersion)
	}
	h.codec = data[4]
	copy(h.epoch[:], data[8:24])
	h.run = protocol.Run(binary.BigEndian.Uint64(data[24:]))
	copy(h.writer[:], data[32:48])
	h.base = protocol.Seq(binary.BigEndian.Uint64(data[48:]))
	h.count = binary.BigEndian.Uint32(data[56:])
	h.part = binary.BigEndian.Uint16(data[60:])
	h.parts = binary.BigEndian.Uint16(data[62:])
	h.raw = binary.BigEndian.Uint32(data[64:])
	h.total = binary.BigEndian.Uint32(data[68:])
	h.crc = binary.BigEndian.Uint32(data[offCRC:])
	copy(h.prev[:], data[offPrev:headerSize])
	switch {
	case data[3] != 0, data[5] != 0, data[6] != 0, data[7] != 0,
		h.codec > codecS2,
		h.run == 0,
		h.base == 0 || uint64(h.base) > math.MaxInt64,
		h.raw == 0 || h.raw > bodyBytesMax,
		h.count == 0 || h.count > h.raw,
		h.part == 0 || h.part > h.parts || h.parts > partsMax,
		h.parts > 1 && h.count != 1,
		h.parts == 1 && h.total != 0:
		return h, damaged(errRecordHeader)
	}
	return h, nil
}

// decodeRecord decodes and verifies a stored record. It never panics and
// allocates no more than bodyBytesMax. The record may alias data, which must
// not change afterwards. Errors are ErrDamaged.
func decodeRecord(data []byte) (*Record, error) {
	h, err := decodeHeader(data)
	if err != nil {
		return nil, err
	}
	if recordCRC(data) != h.crc {
		return nil, damaged(errRecordCRC)
	}
	body := data[headerSize:len(data):len(data)]
	if h.codec == codecS2 {
		n, err := s2.DecodedLen(body)
		if err != nil || n != int(h.raw) {
			return nil, damaged(errRecordBody)
		}
		if body, err = s2.Decode(nil, body); err != nil {
			return nil, damaged(errRecordBody)
		}
	}
	if len(body) != int(h.raw) {
		return nil, damaged(errRecordBody)
	}
	r := &Record{header: h, epochText: protocol.Epoch(h.epoch.String()), lines: body}
	if !r.whole() {
		if bytes.IndexByte(body, '\n') >= 0 {
			return nil, damaged(errRecordLines)
		}
		return r, nil
	}
	if r.ends, err = lineEnds(body, h.count); err != nil {
		return nil, err
	}
	return r, nil
}

// lineEnds finds the LF of each of the count lines that body must consist of.
func lineEnds(body []byte, count uint32) ([]uint32, error) {
	if int(count) > len(body)/2 {
		return nil, damaged(errRecordLines)
	}
	ends := make([]uint32, 0, count)
	for at := 0; at < len(body); {
		n := bytes.IndexByte(body[at:], '\n')
		if n <= 0 || len(ends) == int(count) {
			return nil, damaged(errRecordLines)
		}
		ends = append(ends, uint32(at+n))
		at += n + 1
	}
	if len(ends) != int(count) {
		return nil, damaged(errRecordLines)
	}
	return ends, nil
}

// follows reports that part r comes right after part p of the same set.
func (r *Record) follows(p *Record) bool {
	return r.parts == p.parts && r.part == p.part+1 && r.writer == p.writer && r.run == p.run &&
		r.epoch == p.epoch && r.base == p.base && r.total == p.total
}

// joinParts makes the one event of a complete set of parts, in order. Errors
// are ErrDamaged. The result has
// the position and chain hash of the last part, and the predecessor of the first.
func joinParts(set []*Record) (*Record, error) {
	if len(set) == 0 || len(set) != int(set[0].parts) || set[0].part != 1 || set[0].whole() {
		return nil, damaged(errRecordParts)
	}
	size := 0
	for i, p := range set {
		if i > 0 && !p.follows(set[i-1]) {
			return nil, damaged(errRecordParts)
		}
		size += len(p.lines)
	}
	if size > bodyBytesMax {
		return nil, damaged(errRecordParts)
	}
	line := make([]byte, 0, size+1)
	for _, p := range set {
		line = append(line, p.lines...)
	}
	if lineCRC(line) != set[0].total {
		return nil, damaged(errRecordCRC)
	}
	last := set[len(set)-1]
	h := last.header
	h.prev = set[0].prev
	return &Record{
		header: h, epochText: last.epochText, pos: last.pos, sum: last.sum,
		first: set[0].pos, back: set[0].back,
		lines: append(line, '\n'), ends: []uint32{uint32(size)},
	}, nil
}

// damaged wraps the reason why stored bytes do not verify.
func damaged(err error) error { return fmt.Errorf("%w: %w", ErrDamaged, err) }
