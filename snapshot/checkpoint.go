package snapshot

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"strconv"
	"sync"

	"github.com/klauspost/compress/zstd"

	"rejoin/journal"
	"rejoin/protocol"
)

// A stored checkpoint is a fixed header, the adapter's name and a zstd frame of
// the encoded state and the ledger's last page. Numbers are big endian.
//
//	offset size field
//	     0    2 magic 'R' 'S'
//	     2    1 version: 1
//	     3    1 length of the adapter's name
//	     4   26 epoch
//	    30    8 seq
//	    38    8 run
//	    46    8 ts of that event
//	    54    8 bytes of all events so far
//	    62    4 fold version
//	    66    4 full pages of the ledger, stored by themselves
//	    70    8 base of the record that holds seq
//	    78    8 last of it
//	    86    8 its stream sequence
//	    94   32 its chain hash
//	   126   32 state hash: SHA-256 of the encoded state
//	   158    4 length of the encoded state
//	   162    4 length of the ledger
//	   166    4 CRC-32C of all other bytes
//	   170      adapter's name, zstd frame
const (
	checkpointVersion = 1
	checkpointHeader  = 170
	checkpointCRC     = 166

	// bodyBytesMax bounds what a decoder allocates. A state stays far below it
	// (protocol.StateItemsBytes and the other bounds there).
	bodyBytesMax = 64 << 20
)

// header is what a checkpoint says besides state and ledger.
type header struct {
	epoch protocol.Epoch
	seq   protocol.Seq
	run   protocol.Run
	ts    int64  // ms since 1970
	bytes uint64 // of all events so far
	fold  protocol.FoldVersion
	pages int
	place journal.Place
	hash  [sha256.Size]byte
}

// aligned reports whether a log may be trimmed to right behind the checkpoint.
func (h *header) aligned() bool { return h.place.Aligned(h.seq) }

// checkpoint is a decoded one.
type checkpoint struct {
	header
	state   *protocol.State
	encoded []byte // of state
	ledger  ledgerCut
}

// checkpointName is under what the checkpoint at seq is stored.
func checkpointName(seq protocol.Seq) string { return strconv.FormatUint(uint64(seq), 10) }

// checkpointSeq is the inverse of checkpointName.
func checkpointSeq(name string) (protocol.Seq, bool) {
	n, err := strconv.ParseUint(name, 10, 63)
	return protocol.Seq(n), err == nil && n > 0 && checkpointName(protocol.Seq(n)) == name
}

// The coders have no state between calls and start no goroutine.
var (
	packer = sync.OnceValue(func() *zstd.Encoder {
		e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(2), zstd.WithEncoderCRC(false))
		if err != nil {
			panic("snapshot: zstd encoder: " + err.Error()) // constant options
		}
		return e
	})
	unpacker = sync.OnceValue(func() *zstd.Decoder {
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(2), zstd.WithDecoderMaxMemory(bodyBytesMax))
		if err != nil {
			panic("snapshot: zstd decoder: " + err.Error()) // constant options
		}
		return d
	})
)

// encodeCheckpoint returns the stored form; state is encoded already.
func encodeCheckpoint(h *header, state []byte, ledger *ledgerCut) ([]byte, error) {
	if !protocol.ValidEpoch(string(h.epoch)) {
		return nil, fmt.Errorf("snapshot: checkpoint of epoch %q", h.epoch)
	}
	if len(h.fold.Adapter) > math.MaxUint8 {
		return nil, fmt.Errorf("snapshot: checkpoint: the adapter's name has %d bytes", len(h.fold.Adapter))
	}
	rest := encodeLedger(ledger)
	if len(state)+len(rest) > bodyBytesMax {
		return nil, fmt.Errorf("snapshot: checkpoint of %d bytes is too large", len(state)+len(rest))
	}
	b := make([]byte, checkpointHeader, checkpointHeader+len(h.fold.Adapter)+(len(state)+len(rest))/4)
	b[0], b[1], b[2], b[3] = 'R', 'S', checkpointVersion, byte(len(h.fold.Adapter))
	copy(b[4:30], h.epoch)
	binary.BigEndian.PutUint64(b[30:], uint64(h.seq))
	binary.BigEndian.PutUint64(b[38:], uint64(h.run))
	binary.BigEndian.PutUint64(b[46:], uint64(h.ts))
	binary.BigEndian.PutUint64(b[54:], h.bytes)
	binary.BigEndian.PutUint32(b[62:], uint32(h.fold.Version))
	binary.BigEndian.PutUint32(b[66:], uint32(h.pages))
	binary.BigEndian.PutUint64(b[70:], uint64(h.place.Base))
	binary.BigEndian.PutUint64(b[78:], uint64(h.place.Last))
	binary.BigEndian.PutUint64(b[86:], h.place.Pos)
	copy(b[94:126], h.place.Sum[:])
	copy(b[126:158], h.hash[:])
	binary.BigEndian.PutUint32(b[158:], uint32(len(state)))
	binary.BigEndian.PutUint32(b[162:], uint32(len(rest)))
	b = append(b, h.fold.Adapter...)
	b = packer().EncodeAll(append(append(make([]byte, 0, len(state)+len(rest)), state...), rest...), b)
	binary.BigEndian.PutUint32(b[checkpointCRC:], checkpointSum(b))
	return b, nil
}

func checkpointSum(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(b[:checkpointCRC], castagnoli), castagnoli, b[checkpointHeader:])
}

// decodeHeader reads the part of a checkpoint that is not packed. Errors are
// ErrDamaged.
func decodeHeader(b []byte) (header, error) {
	var h header
	if len(b) < checkpointHeader || b[0] != 'R' || b[1] != 'S' || b[2] != checkpointVersion || len(b) < checkpointHeader+int(b[3]) {
		return h, fmt.Errorf("%w: not a checkpoint", ErrDamaged)
	}
	if checkpointSum(b) != binary.BigEndian.Uint32(b[checkpointCRC:]) {
		return h, fmt.Errorf("%w: checksum of a checkpoint", ErrDamaged)
	}
	h.epoch = protocol.Epoch(b[4:30])
	h.seq = protocol.Seq(binary.BigEndian.Uint64(b[30:]))
	h.run = protocol.Run(binary.BigEndian.Uint64(b[38:]))
	h.ts = int64(binary.BigEndian.Uint64(b[46:]))
	h.bytes = binary.BigEndian.Uint64(b[54:])
	h.fold = protocol.FoldVersion{
		Adapter: string(b[checkpointHeader : checkpointHeader+int(b[3])]), Version: int(binary.BigEndian.Uint32(b[62:])),
	}
	h.pages = int(binary.BigEndian.Uint32(b[66:]))
	h.place = journal.Place{
		Epoch: h.epoch, Base: protocol.Seq(binary.BigEndian.Uint64(b[70:])), Last: protocol.Seq(binary.BigEndian.Uint64(b[78:])),
		Pos: binary.BigEndian.Uint64(b[86:]),
	}
	copy(h.place.Sum[:], b[94:126])
	copy(h.hash[:], b[126:158])
	if !protocol.ValidEpoch(string(h.epoch)) || h.seq == 0 || h.place.Base == 0 || h.place.Base > h.seq || h.place.Last < h.seq || uint64(h.place.Last) > math.MaxInt64 {
		return h, fmt.Errorf("%w: header of a checkpoint", ErrDamaged)
	}
	return h, nil
}

// decodeCheckpoint is strict and total: what it accepts encodes to the same
// state and ledger, and the state is what the header says. Errors are
// ErrDamaged.
func decodeCheckpoint(b []byte) (*checkpoint, error) {
	h, err := decodeHeader(b)
	if err != nil {
		return nil, err
	}
	stateLen, ledgerLen := int(binary.BigEndian.Uint32(b[158:])), int(binary.BigEndian.Uint32(b[162:]))
	if stateLen+ledgerLen > bodyBytesMax {
		return nil, fmt.Errorf("%w: lengths of a checkpoint", ErrDamaged)
	}
	body, err := unpacker().DecodeAll(b[checkpointHeader+len(h.fold.Adapter):], nil)
	if err != nil {
		return nil, fmt.Errorf("%w: unpack a checkpoint: %w", ErrDamaged, err)
	}
	if len(body) != stateLen+ledgerLen {
		return nil, fmt.Errorf("%w: length of a checkpoint", ErrDamaged)
	}
	c := &checkpoint{header: h, encoded: body[:stateLen:stateLen]}
	if sha256.Sum256(c.encoded) != h.hash {
		return nil, fmt.Errorf("%w: hash of a state", ErrDamaged)
	}
	if c.state, err = Decode(c.encoded); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if s := c.state; s.Epoch != h.epoch || s.Seq != h.seq || s.Run != h.run || s.Agent.Adapter != h.fold.Adapter {
		return nil, fmt.Errorf("%w: a checkpoint holds another state", ErrDamaged)
	}
	if c.ledger, err = decodeLedger(body[stateLen:]); err != nil {
		return nil, err
	}
	c.ledger.pages = h.pages
	return c, nil
}

// verify reports whether stored bytes are those that were to be stored.
func verify(want, got []byte) error {
	if !bytes.Equal(want, got) {
		return fmt.Errorf("%w: it reads back otherwise", ErrDamaged)
	}
	return nil
}
