package journal

import (
	"testing"

	"github.com/oklog/ulid/v2"
)

// Every row of the fence rule, and what lies between two rows. Proves I-J3
// together with TestFenceBetweenWriters.
func TestJudge(t *testing.T) {
	mine, former, foreign := ulid.ULID{1}, ulid.ULID{2}, ulid.ULID{3}
	me, other := writerID{1}, writerID{2}
	known, unknown := chainHash{1}, chainHash{2}
	// A writer of run 5 that has written up to position 100 and has a record
	// with base 20 in flight.
	stood := stand{epoch: mine, ends: former, run: 5, writer: me, acked: true, expect: 100, prev: known, base: 20, part: 1, crc: 77}
	fresh := stood
	fresh.acked = false
	// What it finds: its own newest acknowledged record.
	found := func(change func(*Record)) *Record {
		r := &Record{pos: 100, sum: known, header: header{epoch: mine, run: 5, writer: me, base: 19, part: 1, crc: 66}}
		if change != nil {
			change(r)
		}
		return r
	}
	predecessor := func(pos uint64, sum chainHash) *Record {
		return &Record{pos: pos, sum: sum, header: header{epoch: former, run: 4, writer: other, base: 19, part: 1, crc: 66}}
	}
	for _, tc := range []struct {
		name string
		at   stand
		last *Record
		want ruling
	}{
		{"row 1: empty", stood, nil, ruledMissing},
		{"row 1: empty, first record", fresh, nil, ruledMissing},
		{"row 2: foreign epoch", stood, found(func(r *Record) { r.epoch = foreign }), ruledFenced},
		{"row 2 before 5: foreign epoch, else my record", stood, found(func(r *Record) { r.epoch, r.base, r.crc = foreign, 20, 77 }), ruledFenced},
		{"row 3: larger run", stood, found(func(r *Record) { r.run, r.writer = 6, other }), ruledFenced},
		{"row 3: larger run in the former epoch", fresh, found(func(r *Record) { r.epoch, r.run = former, 6 }), ruledFenced},
		{"row 3 before 6", fresh, found(func(r *Record) { r.run, r.pos = 6, 103 }), ruledFenced},
		{"row 4: same run, other writer", stood, found(func(r *Record) { r.writer = other }), ruledFenced},
		{"row 4 before 5: the same record of another writer", stood, found(func(r *Record) { r.writer, r.base, r.crc = other, 20, 77 }), ruledFenced},
		{"row 5: lost acknowledgement", stood, found(func(r *Record) { r.pos, r.base, r.crc, r.sum = 103, 20, 77, unknown }), ruledMine},
		{"row 5: lost acknowledgement of the first record", fresh, found(func(r *Record) { r.pos, r.base, r.crc, r.sum = 103, 20, 77, unknown }), ruledMine},
		{"row 5 not: other part", stood, found(func(r *Record) { r.pos, r.base, r.part, r.crc, r.sum = 103, 20, 2, 77, unknown }), ruledRolledBack},
		{"row 5 not: other CRC", stood, found(func(r *Record) { r.pos, r.base, r.crc, r.sum = 103, 20, 78, unknown }), ruledRolledBack},
		{"as I left it", stood, found(nil), ruledAgain},
		{"as I read it", fresh, predecessor(100, known), ruledAgain},
		{"row 6: late record of the predecessor", fresh, predecessor(103, unknown), ruledRetake},
		{"row 6 not: I have an acknowledged record", stood, predecessor(103, unknown), ruledRolledBack},
		{"row 7: shorter", stood, found(func(r *Record) { r.pos, r.base, r.sum = 97, 18, unknown }), ruledRolledBack},
		{"row 7: shorter than what I read", fresh, predecessor(97, unknown), ruledRolledBack},
		{"row 7: another record at my position", stood, predecessor(100, unknown), ruledRolledBack},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := judge(tc.at, tc.last); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}
