package main

import (
	"context"
	"errors"
	"fmt"

	"rejoin/client"
	"rejoin/protocol"
)

// skipped says which events a snapshot stands for, where next was due.
func skipped(next protocol.Seq, s *client.Snapshot) string {
	switch {
	case s.Seq < next:
		return fmt.Sprintf("the session goes on after event %d (%s)", s.Seq, plainLine(s.Reason))
	case s.Reason == string(protocol.ReasonTrimmed):
		return fmt.Sprintf("events %d to %d are skipped: some of them are not kept", next, s.Seq)
	}
	return fmt.Sprintf("%s skipped (%s)", span(next, s.Seq), plainLine(s.Reason))
}

// A jump is where a snapshot stands for events: from next on, for what reads up to
// last. Info is as old as the command.
type jump struct {
	info protocol.SessionInfo
	next protocol.Seq
	last protocol.Seq // zero: no end
	*client.Snapshot
}

// across tells which events are not shown, and how to see those of them that are kept.
// Of a damaged log it shows all that can be read.
func (a *app) across(ctx context.Context, c *conn, j jump, show func(client.Event) error) error {
	if j.Reason == string(protocol.ReasonDamaged) && j.next <= j.Seq {
		return a.acrossDamage(ctx, c, j, show)
	}
	var now protocol.SessionInfo
	if err := c.ask(ctx, "get_session", sessionParams{j.info.ID}, &now); err == nil {
		j.info = now // else the floor that is known serves
	}
	says := skipped(j.next, j.Snapshot)
	if floor := j.info.Floor; j.Reason == string(protocol.ReasonTrimmed) && j.next < floor && floor <= j.Seq {
		says = fmt.Sprintf("%s; continuing at %d; `rejoin events %s --after %d` shows %d to %d",
			notKept(j.next, floor-1), j.Seq, j.info.ID, floor-1, floor, j.Seq)
	}
	_, err := fmt.Fprintln(a.err, says)
	return err
}

// acrossDamage goes from one stretch that can be read to the next, and names what
// is between them.
func (a *app) acrossDamage(ctx context.Context, c *conn, j jump, show func(client.Event) error) error {
	last := j.Seq
	if j.last > 0 {
		last = min(last, j.last)
	}
	for next := j.next; next <= last; {
		events, err := c.ReadEvents(ctx, j.info.ID, next-1, j.Epoch)
		for _, e := range events {
			if e.Seq > last {
				return nil
			}
			if err := show(e); err != nil {
				return err
			}
			next = e.Seq + 1
		}
		var refused *client.RPCError
		if err != nil && !errors.As(err, &refused) {
			return err
		}
		if len(events) > 0 {
			continue
		}
		until, why := last, j.Reason
		if refused != nil {
			why = string(refused.Reason())
			if after, ok := refused.Next(); ok && after >= next {
				until = min(after, last)
			}
		}
		if _, err := fmt.Fprintf(a.err, "%s skipped (%s)\n", span(next, until), plainLine(why)); err != nil {
			return err
		}
		next = until + 1
	}
	return nil
}

// span names the events from first to last, with the verb that goes with them.
func span(first, last protocol.Seq) string {
	if first == last {
		return fmt.Sprintf("event %d is", first)
	}
	return fmt.Sprintf("events %d to %d are", first, last)
}
