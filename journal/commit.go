package journal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"rejoin/protocol"
)

// Bounds of the pause between two attempts.
const (
	pauseMin = 10 * time.Millisecond
	pauseMax = time.Second
	// bulkyFor is how long an idle writer keeps large buffers.
	bulkyFor = time.Second
)

// errRetake: a late record of the predecessor was found (row 6).
var errRetake = errors.New("journal: log grew during takeover")

// run publishes until the writer is closed, aborted or has failed.
func (w *Writer) run(ctx context.Context) {
	for {
		for w.collect() {
			if err := w.commit(ctx); err != nil {
				w.fail(ending(ctx, err))
				return
			}
		}
		if w.finished() {
			return
		}
		if err := w.idle(ctx); err != nil {
			w.fail(ErrClosed)
			return
		}
	}
}

// idle waits for something to do. What a burst left in buffers is let go when
// the next one does not follow soon.
func (w *Writer) idle(ctx context.Context) error {
	var quiet *time.Timer
	var still <-chan time.Time
	if w.bulky() {
		quiet = time.NewTimer(bulkyFor)
		defer quiet.Stop()
		still = quiet.C
	}
	for {
		select {
		case <-w.wake:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-still:
			if w.shrink(); len(w.kept.list) > 0 {
				quiet.Reset(w.keep)
			}
		}
	}
}

// bulky reports that the writer holds more memory than an idle one should.
func (w *Writer) bulky() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.active.bulky() || w.filling.bulky() || cap(w.rec) > idleBytesMax || len(w.kept.list) > 0
}

func (w *Writer) shrink() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.active = new(batch)
	if len(w.filling.ends) == 0 {
		w.filling = new(batch)
	}
	w.rec = nil
	w.kept.expire(w.clock().UnixNano(), w.keep)
	w.kept.spare = nil
}

// collect reports whether there are events to write, without taking them off
// the filling batch: it goes on filling until the record's turn has come.
func (w *Writer) collect() bool {
	if !w.active.done() {
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.filling.ends) > 0
}

// finished ends the writer when it is closing and has written everything.
func (w *Writer) finished() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.filling.ends) > 0 {
		return false
	}
	if w.closing {
		w.err = ErrClosed
		w.notify()
		return true
	}
	return false
}

// commit waits for a turn, cuts the next record (or set of parts) and returns
// when it is durable and its thens have been called.
func (w *Writer) commit(ctx context.Context) error {
	w.since.Store(w.clock().UnixNano())
	defer w.since.Store(0)
	if err := w.turn.enter(ctx, w.ticket); err != nil {
		return err
	}
	c := w.cut()
	line := c.body[:len(c.body)-1]
	var err error
	if c.count > 1 || len(line) <= protocol.PartBytesMax {
		err = w.put(ctx, w.header(c), c.body)
	} else {
		err = w.putParts(ctx, w.header(c), line)
	}
	if err != nil {
		return err
	}
	last := w.active.base + protocol.Seq(c.first+c.count) - 1
	w.durable.Store(uint64(last))
	w.counters.durable(c.count)
	w.active.finish(c.first, c.count, nil)
	w.mu.Lock()
	w.notify()
	w.mu.Unlock()
	return nil
}

// cut takes the next record's events, from the filling batch once the active
// one is used up.
func (w *Writer) cut() cut {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.active.done() {
		w.active.reset()
		w.active, w.filling = w.filling, w.active
	}
	c := w.active.cut()
	w.backlogBytes -= len(c.body)
	w.backlogEvents -= c.count
	w.notify()
	return c
}

func (w *Writer) header(c cut) header {
	return header{
		epoch: w.at.epoch, run: w.at.run, writer: w.at.writer,
		base: w.active.base + protocol.Seq(c.first), count: uint32(c.count), part: 1, parts: 1,
	}
}

// putParts stores one large event. The turn, held when it is called, is taken
// anew for each part, so that other sessions get theirs.
func (w *Writer) putParts(ctx context.Context, h header, line []byte) error {
	h.parts = uint16((len(line) + protocol.PartBytesMax - 1) / protocol.PartBytesMax)
	h.total = lineCRC(line)
	for h.part = 1; h.part <= h.parts; h.part++ {
		if h.part > 1 {
			w.since.Store(w.clock().UnixNano())
			if err := w.turn.enter(ctx, w.ticket); err != nil {
				return err
			}
		}
		n := min(len(line), protocol.PartBytesMax)
		if err := w.put(ctx, h, line[:n]); err != nil {
			return err
		}
		line = line[n:]
	}
	return nil
}

// put seals one record and publishes it, byte for byte the same, until its
// outcome is known. It is called with a turn and returns without.
func (w *Writer) put(ctx context.Context, h header, body []byte) error {
	h.prev = w.at.prev
	w.rec = appendRecord(w.rec[:0], &h, body)
	w.at.base, w.at.part, w.at.crc = h.base, h.part, h.crc
	began := time.Now()
	pos, err := w.deliver(ctx)
	if err != nil {
		return err
	}
	w.gate.stored(len(w.rec))
	w.counters.stored(len(w.rec), time.Since(began))
	w.at.acked, w.at.expect, w.at.prev = true, pos, hashRecord(w.rec)
	w.kept.add(&h, w.rec, w.at.prev, w.clock().UnixNano(), w.keep)
	if h.part == 1 {
		w.noted(w.cfg.Log, h.base, pos)
	}
	return nil
}

// deliver publishes w.rec until it is stored and returns its position.
func (w *Writer) deliver(ctx context.Context) (uint64, error) {
	warned := false
	for try := 0; ; try++ {
		elected := w.gate.term.next()
		pos, err := w.attempt(ctx)
		w.turn.leave()
		if isWrongLast(err) {
			pos, err = w.settle(ctx)
		}
		if err == nil {
			w.doubt = suspicion{}
			if warned {
				w.log.Info("journal takes records again")
			}
			return pos, nil
		}
		if final(err) {
			return 0, err
		}
		if !warned && w.Stalled() {
			warned = true
			w.log.Warn("journal takes no records", slog.Int(protocol.LogBytes, len(w.rec)), slog.Any(protocol.LogError, err))
		}
		w.gate.refused(err)
		if err := w.again(ctx, try, elected); err != nil {
			return 0, err
		}
	}
}

// attempt publishes w.rec once, to the leader of the moment.
func (w *Writer) attempt(ctx context.Context) (uint64, error) {
	ctx, end := w.gate.term.within(ctx)
	defer end()
	return w.publish(ctx, w.subject, w.rec, w.at.expect)
}

// hopeless ends a takeover from a server that is sick: somebody waits for the
// answer, and can ask again. A writer that has its log waits as long as it takes.
func (w *Writer) hopeless() error {
	if h := w.gate.Health(); w.opening && h.State == HealthSick {
		return fmt.Errorf("%w: %s", ErrUnavailable, h)
	}
	return nil
}

// again waits until another attempt makes sense and has its turn: at once where
// the shard has elected another leader since the last one.
func (w *Writer) again(ctx context.Context, try int, elected <-chan struct{}) error {
	if err := pauseUntil(ctx, try, elected); err != nil {
		return err
	}
	if err := w.hopeless(); err != nil {
		return err
	}
	if err := w.gate.awaitServer(ctx); err != nil {
		return err
	}
	return w.turn.enter(ctx, w.ticket)
}

// errAgain: the log is as the writer left it, so the refusal was for another moment.
var errAgain = errors.New("journal: wrong last sequence, but the log is as expected")

// settle finds out what "wrong last sequence" means: the position of the
// record if it is stored, an error that is final, or one that asks for another
// attempt.
func (w *Writer) settle(ctx context.Context) (uint64, error) {
	last, err := w.last(ctx, w.cfg.Log)
	if err != nil {
		return 0, err
	}
	r := judge(w.at, last.rec)
	if r.loss(w.at, last.rec) && !w.believe(last.rec) {
		return 0, errDoubt
	}
	switch r {
	case ruledMine:
		return last.rec.pos, nil
	case ruledFenced:
		return 0, ErrFenced
	case ruledRetake:
		return 0, errRetake
	case ruledRolledBack:
		return 0, w.rolledBack(ctx, last.rec)
	case ruledMissing:
		if w.at.acked {
			return 0, w.rolledBack(ctx, nil)
		}
		if err := w.missing(ctx); w.at.expect != 0 || errors.Is(err, ErrFenced) {
			return 0, err
		}
	case ruledAgain:
	}
	return 0, errAgain
}

// final reports that another attempt cannot help.
func final(err error) bool {
	return errors.Is(err, ErrFenced) || errors.Is(err, ErrDamaged) || errors.Is(err, ErrRolledBack) || errors.Is(err, errRetake)
}

func isWrongLast(err error) bool {
	var api *apiError
	return errors.As(err, &api) && api.ErrCode == apiWrongLast
}

// ending turns the error of a writer whose life has ended into ErrClosed.
func ending(life context.Context, err error) error {
	if life.Err() != nil && !final(err) {
		return ErrClosed
	}
	return err
}

// fail ends the writer: every event that is not durable is told, then Failed,
// unless the writer was only closed.
func (w *Writer) fail(err error) {
	w.mu.Lock()
	w.err = err
	rest := w.filling
	w.filling = new(batch)
	w.notify()
	w.mu.Unlock()
	// finish skips what has been told already.
	w.active.finish(0, len(w.active.thens), err)
	rest.finish(0, len(rest.thens), err)
	if errors.Is(err, ErrClosed) {
		return
	}
	w.log.Error("journal writer ends", slog.Any(protocol.LogError, err))
	if w.cfg.Failed != nil {
		w.cfg.Failed(err)
	}
}

// pause waits before attempt try+2: 10 ms doubling to 1 s, with jitter of half.
func pause(ctx context.Context, try int) error { return pauseUntil(ctx, try, nil) }

// pauseUntil is pause, or shorter: until sooner is closed.
func pauseUntil(ctx context.Context, try int, sooner <-chan struct{}) error {
	d := min(pauseMin<<min(try, 10), pauseMax)
	d = d/2 + rand.N(d/2)
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-sooner:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
