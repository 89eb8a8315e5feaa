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
	return fmt.Sprintf("events %d to %d are skipped (%s)", next, s.Seq, plainLine(s.Reason))
}

// sayJump tells which events are not shown where next was due, and how to see those
// of them that are kept. Info is as old as the command.
func (a *app) sayJump(ctx context.Context, c *conn, info protocol.SessionInfo, next protocol.Seq, s *client.Snapshot) error {
	var now protocol.SessionInfo
	if err := c.ask(ctx, "get_session", sessionParams{info.ID}, &now); err == nil {
		info = now // else the floor that is known serves
	}
	says := skipped(next, s)
	shows := func(after protocol.Seq) string {
		return fmt.Sprintf("`rejoin events %s --after %d` shows %d to %d", info.ID, after, after+1, s.Seq)
	}
	switch {
	case s.Reason == string(protocol.ReasonTrimmed) && next < info.Floor && info.Floor <= s.Seq:
		says = fmt.Sprintf("%s; continuing at %d; %s", notKept(next, info.Floor-1), s.Seq, shows(info.Floor-1))
	case s.Reason == string(protocol.ReasonDamaged) && next <= s.Seq:
		if after, ok := behindDamage(ctx, c, info.ID, max(next, info.Floor), protocol.Cursor{Epoch: s.Epoch, Seq: s.Seq}); ok {
			says += "; " + shows(after)
		}
	}
	_, err := fmt.Fprintln(a.err, says)
	return err
}

// readEventsParams of read_events.
type readEventsParams struct {
	SessionID string         `json:"sessionId"`
	After     protocol.Seq   `json:"after"`
	Epoch     protocol.Epoch `json:"epoch,omitempty"`
	Limit     int            `json:"limit"`
}

// behindDamage looks for where a log that cannot be read at next can be read again:
// what is right behind after can be, what is before it cannot. It doubles its steps
// and then halves them, so a stretch that can be read between two others may be
// stepped over. Not ok says that there is none before last, or that nobody tells.
func behindDamage(ctx context.Context, c *conn, session string, next protocol.Seq, last protocol.Cursor) (after protocol.Seq, ok bool) {
	var err error
	reads := func(after protocol.Seq) bool {
		if err != nil {
			return false
		}
		err = c.ask(ctx, "read_events", readEventsParams{session, after, last.Epoch, 1}, nil)
		var rpc *client.RPCError
		if errors.As(err, &rpc) && rpc.Reason() == protocol.ReasonDamaged {
			err = nil
			return false
		}
		return err == nil
	}
	bad, good := next-1, next-1
	for step := protocol.Seq(1); good >= last.Seq || !reads(good); step *= 2 {
		if err != nil || good+1 >= last.Seq {
			return 0, false
		}
		bad, good = good, min(good+step, last.Seq-1)
	}
	for good > bad+1 {
		if middle := bad + (good-bad)/2; reads(middle) {
			good = middle
		} else {
			bad = middle
		}
	}
	return good, err == nil
}
