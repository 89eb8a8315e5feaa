package snapshot

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
	"strconv"

	"rejoin/protocol"
)

// pageEntries is how many commands one page of a ledger holds. A full page is
// stored by itself, and again when something in it changes: a checkpoint holds
// only the last page, so that its size does not grow with the session.
const pageEntries = 256

// pageName is under what page n is stored.
func pageName(n int) string { return "l" + strconv.Itoa(n) }

// ledgerCut is a ledger at one moment, as far as it has to be stored.
type ledgerCut struct {
	pages    int             // full ones
	changed  map[int][]entry // full pages to be stored
	rest     []entry         // the last page
	resolved []protocol.InteractionResolved
}

// cut copies what changed since the last cut, and the pages in again. What cut
// returned and could not be stored has to be asked for again.
func (l *Ledger) cut(again map[int]struct{}) ledgerCut {
	c := ledgerCut{pages: len(l.order) / pageEntries, changed: make(map[int][]entry), resolved: slices.Clone(l.resolved)}
	for _, set := range []map[int]struct{}{l.dirty, again} {
		for n := range set {
			if n < c.pages && c.changed[n] == nil {
				c.changed[n] = copyEntries(l.order[n*pageEntries : (n+1)*pageEntries])
			}
		}
	}
	c.rest = copyEntries(l.order[c.pages*pageEntries:])
	clear(l.dirty)
	return c
}

func copyEntries(from []*entry) []entry {
	to := make([]entry, len(from))
	for i, e := range from {
		to[i] = *e
	}
	return to
}

// again marks pages as to be stored.
func (l *Ledger) again(pages map[int][]entry) {
	for n := range pages {
		l.dirty[n] = struct{}{}
	}
}

// restore appends what a page held; it is stored as it is.
func (l *Ledger) restore(entries []entry, stored bool) error {
	for _, e := range entries {
		if _, known := l.entries[e.id]; known {
			return fmt.Errorf("%w: a command is in the ledger twice", ErrDamaged)
		}
		l.add(e.id, e.Admitted)
		if stored {
			delete(l.dirty, l.entries[e.id].page)
		}
	}
	return nil
}

// take appends what a page held, but what the ledger has already; it is to be
// stored.
func (l *Ledger) take(entries []entry) {
	for _, e := range entries {
		if _, known := l.entries[e.id]; !known {
			l.add(e.id, e.Admitted)
		}
	}
}

// A stored page is 'R' 'L', version 1, zero, a CRC-32C of what follows, and the
// entries.
const pageHeader = 8

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func encodePage(entries []entry) []byte {
	b := append(make([]byte, 0, pageHeader+96*len(entries)), 'R', 'L', 1, 0, 0, 0, 0, 0)
	b = appendEntries(b, entries)
	binary.BigEndian.PutUint32(b[4:], crc32.Checksum(b[pageHeader:], castagnoli))
	return b
}

// decodePage is strict and total. Errors are ErrDamaged.
func decodePage(b []byte) ([]entry, error) {
	if len(b) < pageHeader || b[0] != 'R' || b[1] != 'L' || b[2] != 1 || b[3] != 0 {
		return nil, fmt.Errorf("%w: not a ledger page", ErrDamaged)
	}
	if crc32.Checksum(b[pageHeader:], castagnoli) != binary.BigEndian.Uint32(b[4:]) {
		return nil, fmt.Errorf("%w: checksum of a ledger page", ErrDamaged)
	}
	d := decoder{rest: b[pageHeader:]}
	entries := d.entries()
	if d.bad || len(d.rest) > 0 || len(entries) != pageEntries || !bytes.Equal(encodePage(entries), b) {
		return nil, fmt.Errorf("%w: ledger page", ErrDamaged)
	}
	return entries, nil
}

// outcomes are as they are stored.
var outcomes = []protocol.Outcome{
	protocol.OutcomeAdmitted, protocol.OutcomeDone, protocol.OutcomeFailed, protocol.OutcomeDiscarded, protocol.OutcomeInterrupted,
}

func appendEntries(b []byte, entries []entry) []byte {
	b = binary.AppendUvarint(b, uint64(len(entries)))
	for i := range entries {
		e := &entries[i]
		b = appendBytes(b, e.id)
		b = append(b, e.Hash[:]...)
		b = binary.AppendUvarint(b, uint64(e.Seq))
		flags := byte(slices.Index(outcomes, e.Outcome)) // the ledger has no others
		if e.Held {
			flags |= 0x80
		}
		b = append(b, flags)
		b = appendBytes(b, e.Result)
	}
	return b
}

func appendBytes[T string | []byte | protocol.RawJSON](b []byte, v T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(v))), v...)
}

// encodeLedger returns what a checkpoint itself holds of a ledger.
func encodeLedger(c *ledgerCut) []byte {
	b := appendEntries(nil, c.rest)
	b = binary.AppendUvarint(b, uint64(len(c.resolved)))
	for _, r := range c.resolved {
		b = appendBytes(b, r.Type)
		b = appendBytes(b, r.InteractionID)
		b = appendBytes(b, r.ResolvedBy)
		b = appendBytes(b, r.Outcome)
	}
	return b
}

// decodeLedger is the inverse of encodeLedger, strict and total. Errors are
// ErrDamaged.
func decodeLedger(b []byte) (ledgerCut, error) {
	d := decoder{rest: b}
	c := ledgerCut{rest: d.entries()}
	for range d.count(4) {
		c.resolved = append(c.resolved, protocol.InteractionResolved{
			Type: string(d.bytes()), InteractionID: string(d.bytes()), ResolvedBy: string(d.bytes()), Outcome: string(d.bytes()),
		})
	}
	if d.bad || len(d.rest) > 0 || len(c.rest) >= pageEntries || len(c.resolved) > ResolvedMax || !bytes.Equal(encodeLedger(&c), b) {
		return c, fmt.Errorf("%w: ledger of a checkpoint", ErrDamaged)
	}
	return c, nil
}

// A decoder takes bytes apart; once bad, it stays so.
type decoder struct {
	rest []byte
	bad  bool
}

func (d *decoder) uint() uint64 {
	n, size := binary.Uvarint(d.rest)
	if size <= 0 {
		d.bad, d.rest = true, nil
		return 0
	}
	d.rest = d.rest[size:]
	return n
}

// count reads a number of things of at least size bytes each.
func (d *decoder) count(size int) int {
	n := d.uint()
	if n > uint64(len(d.rest)/size) {
		d.bad = true
		return 0
	}
	return int(n)
}

func (d *decoder) take(n int) []byte {
	if n > len(d.rest) {
		d.bad, d.rest = true, nil
		return nil
	}
	b := d.rest[:n:n]
	d.rest = d.rest[n:]
	return b
}

func (d *decoder) bytes() []byte { return d.take(d.count(1)) }

const entryBytesMin = 1 + 32 + 1 + 1 + 1

func (d *decoder) entries() []entry {
	n := d.count(entryBytesMin)
	list := make([]entry, 0, n)
	for range n {
		var e entry
		e.id = string(d.bytes())
		copy(e.Hash[:], d.take(len(e.Hash)))
		e.Seq = protocol.Seq(d.uint())
		flags := d.take(1)
		if d.bad || int(flags[0]&0x7f) >= len(outcomes) || e.id == "" {
			d.bad = true
			return nil
		}
		e.Outcome, e.Held = outcomes[flags[0]&0x7f], flags[0]&0x80 != 0
		if result := d.bytes(); len(result) > 0 {
			e.Result = append(e.Result, result...)
		}
		list = append(list, e)
	}
	return list
}
