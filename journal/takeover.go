package journal

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/oklog/ulid/v2"

	"rejoin/protocol"
)

// WriterConfig of OpenWriter.
type WriterConfig struct {
	Log Log
	Run protocol.Run // newest run of the session, taken by compare-and-set; every OpenWriter needs a run of its own
	// Epoch: empty continues the log's epoch. Set: the first record begins this
	// epoch (a new session, or broken continuity).
	Epoch protocol.Epoch
	// MinHead is the highest seq known to be durable from elsewhere. Seqs start
	// above it; a log that is shorter and has to continue its epoch gives ErrRolledBack.
	MinHead protocol.Seq
	// First builds the events of the first record from the log's tail (their Seq
	// is assigned by the writer: base, base+1 …, base = max(tail.Head, MinHead)+1).
	// It is called again when a late record of the predecessor is found.
	// Required; may not return no events; the first one stays below
	// protocol.PartBytesMax.
	First func(ctx context.Context, t Tail, base protocol.Seq) ([]*protocol.Event, error)
	// Deleted is asked when the log is empty though it should not be. Required.
	Deleted func(ctx context.Context) (bool, error)
	// Repair is asked before records that were acknowledged, and that the log has
	// lost, are stored again: it claims the session in the registry by
	// compare-and-set, and returns ErrFenced where a newer run exists. Nil: such a
	// log is given up (ErrRolledBack).
	Repair func(ctx context.Context) error
	// Failed is called once, from the writer's goroutine, after all thens, when
	// it can write no more (ErrFenced, ErrDamaged, ErrRolledBack). May be nil.
	Failed func(error)
}

func (c *WriterConfig) validate() error {
	switch {
	case c.Run == 0:
		return errors.New("journal: WriterConfig.Run is required")
	case c.Epoch != "" && !protocol.ValidEpoch(string(c.Epoch)):
		return fmt.Errorf("journal: WriterConfig.Epoch %q is no ULID", c.Epoch)
	case c.First == nil || c.Deleted == nil:
		return errors.New("journal: WriterConfig.First and Deleted are required")
	}
	return nil
}

// store is what a writer needs of the node; tests put faults between.
type store struct {
	publish func(ctx context.Context, subject string, data []byte, expect uint64) (uint64, error)
	last    func(ctx context.Context, l Log) (lastRecord, error)
	noted   func(l Log, base protocol.Seq, pos uint64) // told where a record is stored
	turn    *turnstile
	gate    *gate
	clock   func() time.Time
	keep    time.Duration // how long acknowledged records are retained at least, within the other bounds
	confirm time.Duration // how long a loss must be seen before it is believed
	log     *slog.Logger
}

// OpenWriter takes the log over: it returns when everything of First is
// durable. While the journal does not answer it waits until ctx ends, or until it
// is known to be sick (ErrUnavailable); whether the first record was stored is then
// unknown, and the run is used up. Errors: ErrFenced, ErrDamaged, ErrRolledBack,
// ErrUnavailable, ErrClosed, those of First, ctx's.
func (n *Node) OpenWriter(ctx context.Context, cfg WriterConfig) (*Writer, error) {
	if err := n.checkLog(cfg.Log); err != nil {
		return nil, err
	}
	life, abort := context.WithCancel(context.WithoutCancel(ctx))
	w, err := newWriter(store{
		publish: n.publish, last: n.last, noted: n.noteRecord, turn: n.turns[cfg.Log.Shard], gate: n.gates[cfg.Log.Shard],
		clock: n.clock, keep: max(2*n.cfg.Durability.Interval, retainedMin),
		confirm: n.confirm(),
		log:     n.log.With(slog.String(protocol.LogSession, cfg.Log.Key.String()), slog.Uint64(protocol.LogRun, uint64(cfg.Run))),
	}, cfg, abort)
	if err == nil {
		err = n.adopt(w)
	}
	if err != nil {
		abort()
		return nil, err
	}
	if err := w.open(ctx, life, func() { n.disown(w) }); err != nil {
		return nil, err
	}
	return w, nil
}

// adopt counts a writer, so that Close can end it and wait for it.
func (n *Node) adopt(w *Writer) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return ErrClosed
	}
	w.counters = &n.counters
	n.writers[w] = struct{}{}
	n.writing.Add(1)
	return nil
}

func (n *Node) disown(w *Writer) {
	n.mu.Lock()
	delete(n.writers, w)
	n.mu.Unlock()
	n.writing.Done()
}

func newWriter(st store, cfg WriterConfig, abort func()) (*Writer, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	w := &Writer{
		store: st, cfg: cfg, subject: subjectOf(cfg.Log),
		wake: make(chan struct{}, 1), abort: abort, done: make(chan struct{}),
		ticket:  make(chan struct{}, 1),
		opening: true,
		filling: new(batch), active: new(batch),
	}
	w.at.run = cfg.Run
	if _, err := rand.Read(w.at.writer[:]); err != nil {
		return nil, fmt.Errorf("journal: make writer id: %w", err)
	}
	return w, nil
}

// open takes over and starts the writer's goroutine, which ends with life;
// ended is called once the writer will do nothing more, also when open fails.
func (w *Writer) open(ctx, life context.Context, ended func()) error {
	if err := w.takeover(ctx, life); err != nil {
		w.abort()
		w.mu.Lock()
		w.err = err
		w.mu.Unlock()
		close(w.done)
		ended()
		return err
	}
	w.opening = false
	go func() {
		defer ended()
		defer close(w.done)
		defer w.abort()
		w.run(life)
	}()
	if err := w.Flush(ctx); err != nil {
		w.abort()
		<-w.done
		return fmt.Errorf("take over %s: %w", w.cfg.Log.Key, err)
	}
	return nil
}

// takeover reads the tail and stores the first record, again for each late
// record of the predecessor.
func (w *Writer) takeover(ctx, life context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(life, cancel)()
	for try := 0; ; try++ {
		last, err := w.readLast(ctx)
		if err == nil {
			err = w.begin(ctx, last)
		}
		if err == nil {
			err = w.commit(ctx)
		} else if isLoss(err) && !w.believe(last.rec) {
			if err = pause(ctx, try); err == nil {
				continue
			}
		}
		if !errors.Is(err, errRetake) {
			if err != nil {
				return fmt.Errorf("take over %s: %w", w.cfg.Log.Key, ending(life, err))
			}
			return nil
		}
		w.log.Info("late record of the former owner: take over again", slog.Int("try", try+1))
	}
}

// readLast reads the newest record until the journal answers.
func (w *Writer) readLast(ctx context.Context) (lastRecord, error) {
	for try := 0; ; try++ {
		elected := w.gate.term.next()
		last, err := w.last(ctx, w.cfg.Log)
		if err == nil || !errors.Is(err, ErrUnavailable) {
			return last, err
		}
		if err := w.hopeless(); err != nil {
			return lastRecord{}, err
		}
		if err := pauseUntil(ctx, try, elected); err != nil {
			return lastRecord{}, err
		}
	}
}

// begin puts the events of the first record after last into the active batch.
func (w *Writer) begin(ctx context.Context, last lastRecord) error {
	t := last.tail()
	if err := w.stand(ctx, last); err != nil {
		return err
	}
	base := max(t.Head, w.cfg.MinHead) + 1
	events, err := w.cfg.First(ctx, t, base)
	if err != nil {
		return err
	}
	if len(events) == 0 {
		return errors.New("journal: WriterConfig.First returned no event")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.active.reset()
	w.head, w.backlogBytes, w.backlogEvents = base-1, 0, 0
	w.durable.Store(uint64(base - 1))
	for _, e := range events {
		if err := w.add(w.active, e, nil); err != nil {
			return err
		}
	}
	if w.active.ends[0] > protocol.PartBytesMax {
		return ErrEventTooLarge
	}
	return nil
}

// stand places the writer after last, if it may write there at all.
func (w *Writer) stand(ctx context.Context, last lastRecord) error {
	w.at.acked, w.at.expect, w.at.prev = false, 0, chainHash{}
	epoch := w.cfg.Epoch
	if last.rec == nil {
		if epoch == "" {
			return w.missing(ctx)
		}
	} else {
		if last.rec.run >= w.cfg.Run {
			return ErrFenced
		}
		if epoch == "" {
			epoch = last.rec.Epoch()
			if w.cfg.MinHead > last.rec.head() {
				return fmt.Errorf("%w: log ends at %d, known to be durable is %d", ErrRolledBack, last.rec.head(), w.cfg.MinHead)
			}
		}
		w.at.expect, w.at.prev = last.rec.pos, last.rec.sum
	}
	id, err := ulid.ParseStrict(string(epoch))
	if err != nil {
		return fmt.Errorf("journal: epoch %q: %w", epoch, err)
	}
	w.at.epoch, w.at.ends = id, id
	if last.rec != nil {
		w.at.ends = last.rec.epoch
	}
	w.epoch.Store(&epoch)
	return nil
}

// missing says what an empty log means: the session was deleted, or it lost
// its records.
func (w *Writer) missing(ctx context.Context) error {
	for try := 0; ; try++ {
		deleted, err := w.cfg.Deleted(ctx)
		switch {
		case err == nil && deleted:
			return ErrFenced
		case err == nil:
			return fmt.Errorf("%w: the log is empty", ErrDamaged)
		}
		w.log.Warn("ask whether the session is deleted", slog.Any(protocol.LogError, err))
		if err := pause(ctx, try); err != nil {
			return err
		}
	}
}
