package journal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"rejoin/protocol"
)

// Bounds of what a writer retains of its acknowledged records: the newest, up to
// all three.
const (
	retainedBytesMax   = 4 << 20
	retainedRecordsMax = 1024
	retainedMin        = time.Second // for so long, or two sync intervals if that is longer
)

// retained are the newest acknowledged records of a writer, byte for byte: a
// store that was opened anew may have lost the last of them. When they pass a
// bound the oldest go. They belong to the writer's goroutine.
type retained struct {
	list  []retainedRecord // in order
	bytes int
	spare []byte // of one that went
}

type retainedRecord struct {
	data      []byte
	base      protocol.Seq
	first     bool // it is not a later part of a set
	prev, sum chainHash
	stored    int64 // ns since 1970
}

// add takes in a record that was acknowledged at the time now.
func (r *retained) add(h *header, data []byte, sum chainHash, now int64, keep time.Duration) {
	r.list = append(r.list, retainedRecord{
		data: append(r.spare, data...), base: h.base, first: h.part == 1, prev: h.prev, sum: sum, stored: now,
	})
	r.spare = nil
	r.bytes += len(data)
	for len(r.list) > 1 && (r.bytes > retainedBytesMax || len(r.list) > retainedRecordsMax) {
		r.drop()
	}
	r.expire(now, keep)
}

// expire drops what is older than keep.
func (r *retained) expire(now int64, keep time.Duration) {
	for len(r.list) > 0 && now-r.list[0].stored > int64(keep) {
		r.drop()
	}
}

func (r *retained) drop() {
	gone := &r.list[0]
	r.bytes -= len(gone.data)
	if cap(gone.data) <= idleBytesMax {
		r.spare = gone.data[:0]
	}
	*gone = retainedRecord{}
	if r.list = r.list[1:]; len(r.list) == 0 {
		r.list = nil
	}
}

// behind returns the records that come after last, the newest one of the log
// (nil: it is empty); ok is false where they do not join it exactly.
func (r *retained) behind(last *Record) (list []retainedRecord, ok bool) {
	var sum chainHash
	if last != nil {
		sum = last.sum
	}
	for i := range r.list {
		if r.list[i].prev == sum {
			return r.list[i:], true
		}
	}
	n := len(r.list)
	return nil, n > 0 && last != nil && r.list[n-1].sum == last.sum // it is all there, elsewhere
}

// restore stores again, byte for byte, what the log lost behind last. It returns
// errAgain when the record in flight may be tried once more, ErrRolledBack when
// what is retained does not join, ErrFenced when the registry names another owner.
func (w *Writer) restore(ctx context.Context, last *Record) error {
	lost, ok := w.kept.behind(last)
	if !ok || w.cfg.Repair == nil {
		return ErrRolledBack
	}
	if err := w.cfg.Repair(ctx); err != nil {
		return fmt.Errorf("claim a log that was rolled back: %w", err)
	}
	expect := uint64(0)
	if last != nil {
		expect = last.pos
	}
	for i := range lost {
		r := &lost[i]
		if err := w.turn.enter(ctx, w.ticket); err != nil {
			return err
		}
		pos, err := w.publish(ctx, w.subject, r.data, expect)
		w.turn.leave()
		if err != nil { // what is stored is found by the next look
			return fmt.Errorf("store a lost record again: %w", err)
		}
		if r.first {
			w.noted(w.cfg.Log, r.base, pos)
		}
		expect = pos
	}
	w.at.expect = expect
	w.log.Warn("the log lost records that were acknowledged; they are stored again", slog.Int("records", len(lost)))
	return errAgain
}

// rolledBack deals with a log that lost records behind last. Errors as settle's.
func (w *Writer) rolledBack(ctx context.Context, last *Record) error {
	err := w.restore(ctx, last)
	switch {
	case !errors.Is(err, ErrRolledBack):
		return err
	case last == nil:
		return w.missing(ctx)
	}
	return fmt.Errorf("%w: newest record has run %d, seq %d", ErrRolledBack, last.run, last.head())
}
