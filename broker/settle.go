package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"rejoin/journal"
	"rejoin/protocol"
	"rejoin/snapshot"
)

// Why an epoch begins.
const (
	// reasonUncleanBoot: the machine stopped with events acknowledged that may not
	// have reached the disk.
	reasonUncleanBoot = "unclean_boot"
	// reasonRolledBack: the log ends before what is known to have been in it.
	reasonRolledBack = "rolled_back"
)

// errComplete says that the log of a session lacks nothing any more.
var errComplete = errors.New("broker: the log is at its end already")

// finale finds out what the log of a session without an owner still lacks.
type finale struct {
	folds  *snapshot.Reader
	log    journal.Log
	last   closing
	cut    string         // why continuity is broken: a new epoch comes first; empty: it is not
	before protocol.Epoch // the epoch that ends then
	high   protocol.Seq   // the highest seq that registry and checkpoints know

	history *snapshot.History // of the log up to at
	at      protocol.Seq
}

// read folds the log up to tail, unless that is done.
func (f *finale) read(ctx context.Context, tail journal.Tail) error {
	if f.history != nil && f.at == tail.Head {
		return nil
	}
	load := func() (*snapshot.History, error) { return f.folds.Load(ctx, f.log, tail.Head) }
	if f.cut != "" {
		load = func() (*snapshot.History, error) { return f.folds.LoadLost(ctx, f.log) }
	}
	h, err := load()
	if err != nil {
		return err
	}
	f.history, f.at = h, tail.Head
	return nil
}

// missing returns the bodies that bring the log to its end, the first of which
// gets the seq base.
func (f *finale) missing(base protocol.Seq) []any {
	var out []any
	if f.cut != "" {
		out = append(out, protocol.EpochStart{
			Type: protocol.TypeEpochStart, PreviousEpoch: f.before, PreviousHead: base - 1, Reason: f.cut,
		})
	}
	for _, id := range f.history.Ledger.Open() {
		o := protocol.CommandOutcome{Type: protocol.TypeCommandOutcome, CommandID: id, Outcome: protocol.OutcomeInterrupted}
		if known, _ := f.history.Ledger.Lookup(id); known.Held {
			o.Outcome = protocol.OutcomeDiscarded // its release would be here before any byte of it reached the child
		}
		out = append(out, o)
	}
	for i := range f.history.State.Pending {
		out = append(out, protocol.InteractionResolved{
			Type: protocol.TypeInteraction, InteractionID: f.history.State.Pending[i].InteractionID,
			ResolvedBy: protocol.ClientRejoin, Outcome: protocol.InteractionInterrupted,
		})
	}
	if end := f.last(f.history.State.Status); end != nil {
		out = append(out, end)
	}
	return out
}

// settle brings the log of a session without an owner to its end: a new epoch
// first when continuity is broken, then an outcome for each command that has
// none, then what last says. It writes only what is missing, and corrects the
// registry from what the log adds up to. The caller holds the session's lock.
func (b *Broker) settle(ctx context.Context, k protocol.Key, last closing) error { // I-B3
	seen := b.registry.record(k)
	if seen == nil {
		return protocol.ErrSessionNotFound(k.Session)
	}
	// Before the tail: a checkpoint above it then means that events were lost.
	high, err := b.folds.High(ctx, logOf(seen))
	if err != nil {
		return fmt.Errorf("read the checkpoints of %s: %w", k, err)
	}
	tail, err := b.tailOf(ctx, seen, max(seen.Head, high))
	if err != nil {
		return fmt.Errorf("read the head of %s: %w", k, err)
	}
	f := &finale{folds: b.folds, log: logOf(seen), last: last, before: seen.Epoch, high: max(seen.Head, high)}
	switch {
	case b.node.UncleanBoot() && !seen.Settled:
		f.cut = reasonUncleanBoot
	case tail.Empty || tail.Head < f.high:
		f.cut = reasonRolledBack
	case b.node.LostTail(logOf(seen), seen.Settled):
		f.cut = reasonDamaged
	}
	if err := f.read(ctx, tail); err != nil {
		return err
	}
	if len(f.missing(0)) == 0 {
		return b.correct(ctx, seen, f.history.State)
	}
	w, err := b.write(ctx, f.takeover(b, seen, tail))
	if errors.Is(err, errComplete) { // another broker's record, or the owner's last; they could not correct the registry, since the newest run is ours
		return b.correct(ctx, w.rec, f.history.State)
	}
	if err != nil {
		return err
	}
	for _, e := range w.events {
		b.folds.Apply(f.history.State, w.epoch, e)
	}
	return b.correct(ctx, w.rec, f.history.State)
}

// mend settles a session without an owner whose log ends before what is known to
// have been in it, so that its next run begins in a new epoch. It returns the
// session's record as it is then. The caller holds the session's lock.
func (b *Broker) mend(ctx context.Context, seen *protocol.SessionRecord) (*protocol.SessionRecord, error) {
	if running(seen) {
		return seen, nil
	}
	high, err := b.folds.High(ctx, logOf(seen))
	if err != nil {
		return nil, fmt.Errorf("read the checkpoints of %s: %w", seen.Key(), err)
	}
	tail, err := b.tailOf(ctx, seen, max(seen.Head, high))
	if err != nil {
		return nil, fmt.Errorf("read the head of %s: %w", seen.Key(), err)
	}
	if !tail.Empty && tail.Head >= max(seen.Head, high) {
		return seen, nil
	}
	if err := b.settle(ctx, seen.Key(), interruptUnlessTerminal); err != nil {
		return nil, err
	}
	if now := b.registry.record(seen.Key()); now != nil {
		seen = now
	}
	return seen, nil
}

// takeover returns the write of what is missing, allowed as long as nobody took
// another run since seen.
func (f *finale) takeover(b *Broker, seen *protocol.SessionRecord, tail journal.Tail) takeover {
	t := takeover{
		key: seen.Key(), after: tail.Run,
		allow: func(r *protocol.SessionRecord) error {
			if r.Run != seen.Run || r.Deleted {
				return ErrNotOwner
			}
			return nil
		},
		bodies: func(ctx context.Context, t journal.Tail, base protocol.Seq) ([]any, error) {
			if err := f.read(ctx, t); err != nil {
				return nil, err
			}
			out := f.missing(base)
			if len(out) == 0 {
				return nil, errComplete
			}
			return out, nil
		},
	}
	t.minHead = f.high
	if f.cut != "" {
		b.log.Error("a session's log lost its end: a new epoch begins", slog.String(protocol.LogSession, seen.Key().String()),
			slog.String("reason", f.cut), slog.Uint64("head", uint64(tail.Head)), slog.Uint64("known", uint64(f.high)))
		t.epoch = protocol.NewEpoch(b.cfg.Now())
	}
	return t
}

// correct makes the registry say what the log of a session without an owner
// adds up to, while its newest run is run.
func (b *Broker) correct(ctx context.Context, rec *protocol.SessionRecord, s *protocol.State) error {
	floor := rec.Floor
	if s.Epoch != "" { // a lost owner may have trimmed
		var err error
		if floor, err = b.node.Floor(ctx, logOf(rec)); err != nil {
			return fmt.Errorf("read the floor of %s: %w", rec.Key(), err)
		}
	}
	now := b.nowMs()
	return b.registry.Update(ctx, rec.Key(), rec.Run, func(r *protocol.SessionRecord) {
		if r.Status != s.Status || r.Head != s.Seq {
			r.UpdatedAt = now
		}
		r.Status, r.Head, r.Floor = s.Status, s.Seq, floor
		if s.Epoch != "" {
			r.Epoch = s.Epoch
		}
		if s.Agent.Name != "" { // else the log does not hold its session_start any more
			r.Title = s.Title
		}
		r.Exit = exitOf(s, r.Exit)
		r.Owner, r.PID, r.PIDStart, r.BootID, r.Settled = "", 0, 0, "", false
	})
}

// exitOf keeps the stderr tail that the owner noted where it is about this end.
func exitOf(s *protocol.State, noted *protocol.Exit) *protocol.Exit {
	if s.Exit == nil || s.Status != protocol.StatusEnded {
		return nil
	}
	e := &protocol.Exit{Code: s.Exit.Code, Signal: s.Exit.Signal, Reason: s.Exit.Reason}
	if noted != nil && noted.Reason == e.Reason {
		e.StderrTail = noted.StderrTail
	}
	return e
}

// discard forgets a session of whose start nothing became durable.
func (b *Broker) discard(ctx context.Context, rec *protocol.SessionRecord) error {
	if err := b.registry.remove(ctx, rec.Key()); err != nil {
		return err
	}
	b.log.Info("unfinished start removed", slog.String(protocol.LogSession, rec.Key().String()))
	return b.starts.free(ctx, rec)
}
