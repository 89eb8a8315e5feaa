package broker

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"

	"rejoin/journal"
	"rejoin/protocol"
)

// A takeover is one record that the broker writes by a run of its own, with no
// child behind it. The caller holds the session's lock.
type takeover struct {
	key protocol.Key
	// after is a run that the new one must be above, whatever the registry says.
	after protocol.Run
	// allow looks at the record in the compare-and-set that grants the run.
	allow func(*protocol.SessionRecord) error
	// epoch and minHead as in journal.WriterConfig.
	epoch   protocol.Epoch
	minHead protocol.Seq
	// bodies returns the bodies of the record's events; base is the first one's seq.
	bodies func(ctx context.Context, t journal.Tail, base protocol.Seq) ([]any, error)
}

// written is what a takeover put into the log.
type written struct {
	rec    *protocol.SessionRecord // with the run granted
	epoch  protocol.Epoch
	head   protocol.Seq
	events []*protocol.Event
}

// write grants the run and writes the record; it is durable when err is nil. With an
// error of bodies the run is granted all the same, and in what it returns.
// Errors: of allow and bodies; journal.ErrFenced when a newer run exists; the
// journal's.
func (b *Broker) write(ctx context.Context, t takeover) (written, error) { // I-J3
	if seen := b.registry.record(t.key); seen != nil {
		if h := b.node.ShardHealth(seen.Shard); h.State == journal.HealthSick {
			return written{}, fmt.Errorf("take over %s: %w: %s", t.key, journal.ErrUnavailable, h) // no run is used up
		}
	}
	rec, err := b.registry.change(ctx, t.key, func(r *protocol.SessionRecord) error {
		if err := t.allow(r); err != nil {
			return err
		}
		r.Run = max(r.Run, t.after) + 1
		r.Owner, r.Settled = "", false
		return nil
	})
	if err != nil {
		return written{}, err
	}
	out := written{rec: rec}
	w, err := b.node.OpenWriter(ctx, journal.WriterConfig{
		Log: logOf(rec), Run: rec.Run, Epoch: t.epoch, MinHead: t.minHead,
		First: func(ctx context.Context, tail journal.Tail, base protocol.Seq) ([]*protocol.Event, error) {
			bodies, err := t.bodies(ctx, tail, base)
			if err != nil {
				return nil, err
			}
			out.events, err = b.events(rec.Run, base, bodies)
			return out.events, err
		},
		Deleted: func(ctx context.Context) (bool, error) { return b.registry.Deleted(ctx, t.key) },
		Failed: func(err error) {
			b.log.Warn("takeover lost the log", slog.String(protocol.LogSession, t.key.String()), slog.Any(protocol.LogError, err))
		},
	})
	if err != nil {
		return out, fmt.Errorf("take over %s: %w", t.key, err)
	}
	out.epoch, out.head = w.Epoch(), w.Head()
	if err := w.Close(ctx); err != nil {
		return written{}, fmt.Errorf("close the log of %s: %w", t.key, err)
	}
	return out, nil
}

// events makes broker events of bodies, numbered from base.
func (b *Broker) events(run protocol.Run, base protocol.Seq, bodies []any) ([]*protocol.Event, error) {
	out := make([]*protocol.Event, 0, len(bodies))
	now := b.nowMs()
	for i, body := range bodies {
		line, err := encode(body)
		if err != nil {
			return nil, fmt.Errorf("encode event: %w", err)
		}
		e := &protocol.Event{
			Seq: base + protocol.Seq(i), TS: now, Run: run, Source: protocol.SourceBroker,
			Body: bytes.TrimSuffix(line, []byte{'\n'}),
		}
		if o, ok := body.(protocol.CommandOutcome); ok {
			e.CommandID = o.CommandID
		}
		out = append(out, e)
	}
	return out, nil
}

// A closing chooses the last event of a run that nobody owns any more, from the
// status its log adds up to; nil when the log says it all.
type closing func(protocol.Status) any

// interruptUnlessTerminal closes the run of an owner that a restart took along.
var interruptUnlessTerminal = interrupt(protocol.InterruptedRestart)

// interrupt closes the run of an owner that was lost for that reason.
func interrupt(reason string) closing {
	return func(s protocol.Status) any {
		if terminal(s) {
			return nil
		}
		return protocol.SessionInterrupted{Type: protocol.TypeSessionInterrupted, Reason: reason}
	}
}

// endUnlessEnded ends a session that has no child, interrupted or not.
func endUnlessEnded(reason string) closing {
	return func(s protocol.Status) any {
		if s == protocol.StatusEnded {
			return nil
		}
		return protocol.SessionEnd{Type: protocol.TypeSessionEnd, Reason: reason}
	}
}

// endUnlessTerminal ends a run whose child never came to be.
func endUnlessTerminal(s protocol.Status) any {
	if terminal(s) {
		return nil
	}
	return protocol.SessionEnd{Type: protocol.TypeSessionEnd, Reason: protocol.EndLost}
}

func terminal(s protocol.Status) bool { return s.State() != "running" }
