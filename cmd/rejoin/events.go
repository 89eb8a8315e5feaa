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
		Args:  exactly("SID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(cmd.Context(), func(ctx context.Context, c *conn) error {
				info, err := c.session(ctx, args[0])
				if err != nil {
					return err
				}
				o := client.SubscribeOptions{After: new(max(info.Floor, 1) - 1), OnLink: a.linkTeller()}
				if cmd.Flags().Changed("after") {
					o.After = new(protocol.Seq(after))
				}
				if !follow {
					if *o.After >= info.Head {
						return nil
					}
					o.Until = info.Head
				}
				return a.events(ctx, c, info.ID, o, asJSON)
			})
		},
	}
	f := cmd.Flags()
	f.Var(&after, "after", "print the events after this number (default: all that are kept)")
	f.BoolVarP(&follow, "follow", "f", false, "go on with new events as they come")
	f.BoolVar(&asJSON, "json", false, "one JSON object per line instead of a short form")
	return a.clientFlags(cmd)
}

// events prints messages until the subscription ends or the user does.
func (a *app) events(ctx context.Context, c *conn, session string, o client.SubscribeOptions, asJSON bool) error {
	show := printEvent
	if asJSON {
		show = printEventJSON
	}
	return a.follow(ctx, c, session, o, func(w *bufio.Writer, m client.Message) error {
		switch m.Kind {
		case client.KindEvent:
			return show(w, session, m.Event)
		case client.KindSnapshot:
			_, err := fmt.Fprintf(a.err, "the events up to %d are not kept (%s)\n", m.Seq, plainLine(m.Snapshot.Reason))
			return err
		case client.KindEnd:
			return a.sayGone(session, m.End)
		case client.KindSynced:
		}
		return nil
	})
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
