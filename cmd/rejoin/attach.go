package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"rejoin/client"
	"rejoin/cmd/rejoin/internal/tui"
	"rejoin/cmd/rejoin/internal/waits"
	"rejoin/protocol"
)

// attachTail is how many earlier events attach shows unless told otherwise.
const attachTail = 200

func (a *app) attachCommand() *cobra.Command {
	var after count
	var asJSON, asLines bool
	cmd := &cobra.Command{
		Use:   "attach SID",
		Short: "Show a session as it goes on",
		Long: `Shows what a session's agent says as it comes, after the last 200 events of what was
before. A link that breaks is made again, and what came in between is shown: nothing is
missed and nothing comes twice. It ends when the program ends and no restart of it is
planned, or with Ctrl-C; the session goes on.

On a terminal it shows the session's state instead: the transcript, the agent's questions,
answered with a key, what waits for it, and a line to speak to it. --plain, --json and
--after show lines there, too.`,
		Args: exactly("SID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withPatientClient(cmd.Context(), func(ctx context.Context, c *conn) error {
				info, err := c.session(ctx, args[0])
				if err != nil {
					return err
				}
				if a.onTerminal() && !asJSON && !asLines && !cmd.Flags().Changed("after") {
					return a.attachScreen(ctx, c, info)
				}
				from := max(info.Floor, 1) - 1
				if info.Head > from+attachTail {
					from = info.Head - attachTail
				}
				if cmd.Flags().Changed("after") {
					from = protocol.Seq(after)
				}
				return a.attach(ctx, c, info, from, asJSON)
			})
		},
	}
	f := cmd.Flags()
	f.Var(&after, "after", "begin after this event")
	f.BoolVar(&asLines, "plain", false, "show lines on a terminal, too")
	f.BoolVar(&asJSON, "json", false, "print the events as JSON, one per line")
	return a.clientFlags(cmd)
}

// attachScreen shows a session on the terminal until the user leaves.
func (a *app) attachScreen(ctx context.Context, c *conn, info protocol.SessionInfo) error {
	err := tui.Run(ctx, tui.Config{Client: c.Client, Session: info.ID, Folds: adapters(), In: a.in, Out: a.out})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.err, "left session %[1]s; `rejoin attach %[1]s` comes back to it\n", info.ID)
	return err
}

// onTerminal reports whether somebody sits at both ends.
func (a *app) onTerminal() bool {
	for _, end := range []any{a.in, a.out} {
		f, ok := end.(*os.File)
		if !ok {
			return false
		}
		if _, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS); err != nil {
			return false
		}
	}
	return true
}

func (a *app) attach(ctx context.Context, c *conn, info protocol.SessionInfo, from protocol.Seq, asJSON bool) error {
	ctx, stop := context.WithCancel(ctx)
	var asking sync.WaitGroup
	asking.Go(func() { waits.Watch(ctx, c.Client, info.ID, a.sayWaits) })
	defer asking.Wait()
	defer stop()
	v := view{notes: a.err}
	o := client.SubscribeOptions{After: &from, OnLink: a.linkTeller()}
	ended, crashed, next := "", protocol.Run(0), from+1
	show := func(w *bufio.Writer, e client.Event) error {
		ended = ""
		if end, ok := sessionEnd(e); ok {
			ended, crashed = describeExit(end.Reason, end.ExitCode, end.Signal), 0
			if end.Reason == protocol.EndExited && (end.Signal != nil || end.ExitCode != nil && *end.ExitCode != 0) {
				crashed = e.Run
			}
		}
		if asJSON {
			return printEventJSON(w, info.ID, e)
		}
		return v.event(w, e)
	}
	return a.follow(ctx, c, info.ID, o, func(w *bufio.Writer, m client.Message) error {
		switch m.Kind {
		case client.KindEvent:
			next = m.Seq + 1
			if err := show(w, m.Event); err != nil {
				return err
			}
		case client.KindSnapshot:
			if err := a.across(ctx, c, jump{info, next, 0, m.Snapshot}, func(e client.Event) error { return show(w, e) }); err != nil {
				return err
			}
			next = m.Seq + 1
		case client.KindEnd:
			return a.sayGone(info.ID, m.End)
		case client.KindSynced:
			v.synced = true
		}
		if v.synced && ended != "" {
			if crashed != 0 {
				again, err := a.awaitRestart(ctx, c, w, info.ID, crashed, ended)
				if err != nil || again {
					ended = ""
					return err
				}
			}
			return a.sayEnded(w, info.ID, ended)
		}
		return nil
	})
}

// sayWaits tells that the session waits for the journal, or does no more.
func (a *app) sayWaits(why string) {
	if why == "" {
		fmt.Fprintln(a.err, "the session goes on")
		return
	}
	fmt.Fprintf(a.err, "the session waits: %s\n", plainLine(why))
}

// restartPoll is how often attach asks whether a crashed program runs again.
const restartPoll = 200 * time.Millisecond

// awaitRestart returns whether a program that crashed in that run is started again
// by the session's policy, once that is known.
func (a *app) awaitRestart(ctx context.Context, c *conn, w *bufio.Writer, session string, run protocol.Run, how string) (bool, error) {
	if err := w.Flush(); err != nil {
		return false, err
	}
	tick := time.NewTicker(restartPoll)
	defer tick.Stop()
	for said := false; ; {
		var now protocol.SessionInfo
		err := c.ask(ctx, "get_session", sessionParams{session}, &now)
		var rpc *client.RPCError
		switch {
		case ctx.Err() != nil:
			return false, ctx.Err()
		case errors.As(err, &rpc) && rpc.Code == protocol.CodeSessionNotFound:
			return true, nil // the subscription tells
		case errors.As(err, &rpc) && !rpc.Retryable(), errors.Is(err, client.ErrClosed):
			return false, err
		case err != nil: // the server is away
		case now.Run > run:
			return true, nil
		case now.State != protocol.StatusIdle.State() && !now.Restarting:
			return false, nil
		case now.Restarting && !said:
			said = true
			if _, err := fmt.Fprintf(a.err, "the program of session %s %s; it restarts soon\n", session, how); err != nil {
				return false, err
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// sayEnded tells that the program is gone and how to go on.
func (a *app) sayEnded(w *bufio.Writer, session, how string) error {
	if err := w.Flush(); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(a.err, "the program of session %s %s; `rejoin resume %s` runs it again\n", session, how, session); err != nil {
		return err
	}
	return errDone
}

// linkTeller says on stderr what becomes of a subscription's link.
func (a *app) linkTeller() func(client.Link) {
	var down bool
	return func(l client.Link) {
		switch l.State {
		case client.LinkConnected:
			if down {
				fmt.Fprintf(a.err, "rejoined at seq %d\n", l.Cursor.Seq)
			}
			down = false
		case client.LinkLost:
			if !down {
				fmt.Fprintf(a.err, "link lost: %v, reconnecting\n", l.Err)
				down = true
			}
		case client.LinkConnecting:
		}
	}
}
