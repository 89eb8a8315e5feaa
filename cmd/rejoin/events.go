package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"rejoin/client"
	"rejoin/protocol"
)

const outBufferBytes = 64 << 10

func (a *app) eventsCommand() *cobra.Command {
	var after count
	var follow, asJSON bool
	cmd := &cobra.Command{
		Use:   "events SID",
		Short: "Print a session's events",
		Long: `Prints a session's events. Those that retention has removed are named on stderr; when
they were asked for with --after, or were removed before their turn came, the exit code is 1.`,
		Args: exactly("SID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(cmd.Context(), func(ctx context.Context, c *conn) error {
				info, err := c.session(ctx, args[0])
				if err != nil {
					return err
				}
				from, missed := max(info.Floor, 1)-1, false
				if cmd.Flags().Changed("after") {
					if missed = protocol.Seq(after) < from; missed {
						fmt.Fprintln(a.err, notKept(protocol.Seq(after)+1, from))
					}
					from = max(from, protocol.Seq(after))
				}
				o := client.SubscribeOptions{After: &from, OnLink: a.linkTeller()}
				if !follow {
					o.Until = info.Head
				}
				if follow || from < info.Head {
					jumped, err := a.events(ctx, c, info, o, asJSON)
					if err != nil {
						return err
					}
					missed = missed || jumped
				}
				if missed {
					return &exitError{exitFailed}
				}
				return nil
			})
		},
	}
	f := cmd.Flags()
	f.Var(&after, "after", "print the events after this number (default: all that are kept)")
	f.BoolVarP(&follow, "follow", "f", false, "go on with new events as they come")
	f.BoolVar(&asJSON, "json", false, "one JSON object per line instead of a short form")
	return a.clientFlags(cmd)
}

// notKept says that retention has removed the events from first to last.
func notKept(first, last protocol.Seq) string {
	return span(first, last) + " not kept"
}

// events prints messages until the subscription ends or the user does. Jumped says
// that a snapshot stood for some of them.
func (a *app) events(ctx context.Context, c *conn, info protocol.SessionInfo, o client.SubscribeOptions, asJSON bool) (jumped bool, err error) {
	show := printEvent
	if asJSON {
		show = printEventJSON
	}
	next := *o.After + 1
	err = a.follow(ctx, c, info.ID, o, func(w *bufio.Writer, m client.Message) error {
		switch m.Kind {
		case client.KindEvent:
			next = m.Seq + 1
			return show(w, info.ID, m.Event)
		case client.KindSnapshot:
			err := a.across(ctx, c, jump{info, next, o.Until, m.Snapshot}, func(e client.Event) error { return show(w, info.ID, e) })
			jumped, next = true, m.Seq+1
			return err
		case client.KindEnd:
			return a.sayGone(info.ID, m.End)
		case client.KindSynced:
		}
		return nil
	})
	return jumped, err
}

// sayGone tells why the server ended a subscription, unless it was asked to. The
// end of the token is an error.
func (a *app) sayGone(session string, end *client.End) error {
	switch end.Reason {
	case "until":
		return nil
	case "forbidden":
		_, err := fmt.Fprintf(a.err, "session %s: the token was revoked, was changed or has expired\n", session)
		return errors.Join(err, &exitError{exitUnauthorised})
	}
	_, err := fmt.Fprintf(a.err, "session %s is %s\n", session, plainLine(end.Reason))
	return err
}

// errDone ends follow in order.
var errDone = errors.New("done")

// follow subscribes and hands each message to f, which prints to w; w is flushed
// whenever nothing more is at hand.
func (a *app) follow(ctx context.Context, c *conn, session string, o client.SubscribeOptions,
	f func(w *bufio.Writer, m client.Message) error,
) error {
	first, cancel := context.WithTimeoutCause(ctx, requestTimeout, fmt.Errorf("subscribe: %w", context.DeadlineExceeded))
	sub, err := c.Subscribe(first, session, o)
	cancel()
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(a.out, outBufferBytes)
	for err == nil {
		if !sub.Ready() {
			if err = w.Flush(); err != nil {
				break
			}
		}
		var m client.Message
		if m, err = sub.Next(ctx); err == nil {
			err = f(w, m)
		}
	}
	if errors.Is(err, io.EOF) || errors.Is(err, errDone) || ctx.Err() != nil {
		err = nil // the end, or the user's wish
	}
	return errors.Join(err, w.Flush(), sub.Close())
}

// printEventJSON prints an event as read_events shows it.
func printEventJSON(w *bufio.Writer, session string, e client.Event) error {
	line := protocol.AppendEventLine(nil, &e.Event)
	if _, err := w.Write(protocol.AppendEventObject(w.AvailableBuffer(), session, line)); err != nil {
		return err
	}
	return w.WriteByte('\n')
}
