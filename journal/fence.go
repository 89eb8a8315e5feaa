package journal

import (
	"github.com/oklog/ulid/v2"

	"rejoin/protocol"
)

// A ruling is what a writer does after the server said "wrong last sequence".
type ruling uint8

const (
	ruledAgain      ruling = iota // the log is as I left it: the same record once more
	ruledMissing                  // row 1: no record at all; ask the registry
	ruledFenced                   // rows 2, 3, 4: another owner writes
	ruledMine                     // row 5: my own record, its acknowledgement was lost
	ruledRetake                   // row 6: a late record of my predecessor; take over again
	ruledRolledBack               // row 7: records that were acknowledged are gone
)

// stand is where a writer stands when it publishes a record.
type stand struct {
	epoch  ulid.ULID
	ends   ulid.ULID // the epoch that my first record ends; epoch itself when it continues one
	run    protocol.Run
	writer writerID
	acked  bool      // a record of mine is acknowledged
	expect uint64    // position of the newest record I know; 0 for a new log
	prev   chainHash // of that record

	// The record in flight.
	base protocol.Seq
	part uint16
	crc  uint32
}

// judge compares the newest record of the log (nil: none), read through the
// leader API, with where the writer stands. The first row that matches decides.
func judge(m stand, last *Record) ruling {
	switch {
	case last == nil:
		return ruledMissing // 1
	case last.epoch != m.epoch && last.epoch != m.ends:
		return ruledFenced // 2
	case last.run > m.run:
		return ruledFenced // 3
	case last.run == m.run && last.writer != m.writer:
		return ruledFenced // 4
	case last.run == m.run && last.base == m.base && last.part == m.part && last.crc == m.crc:
		return ruledMine // 5
	case last.pos == m.expect && last.sum == m.prev:
		return ruledAgain
	case !m.acked && last.pos > m.expect:
		return ruledRetake // 6
	}
	// Shorter than what I know, or another record in the place of mine: positions
	// are given anew after a truncation.
	return ruledRolledBack // 7
}
