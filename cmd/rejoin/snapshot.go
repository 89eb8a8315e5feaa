package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"rejoin/client"
	"rejoin/protocol"
)

// snapshotParams of get_snapshot.
type snapshotParams struct {
	SessionID string        `json:"sessionId"`
	At        *protocol.Seq `json:"at,omitempty"`
}

func (a *app) snapshotCommand() *cobra.Command {
	var at count
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "snapshot SID",
		Short: "Print what a session's events add up to",
		Long: `Prints the state of a session: what its agent is, does and waits for, and the
transcript. With --at it is the state after that event, any that is kept.`,
		Args: exactly("SID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(cmd.Context(), func(ctx context.Context, c *conn) error {
				info, err := c.session(ctx, args[0])
				if err != nil {
					return err
				}
				p := snapshotParams{SessionID: info.ID}
				if cmd.Flags().Changed("at") {
					p.At = new(protocol.Seq(at))
				}
				var raw json.RawMessage
				if err := c.ask(ctx, "get_snapshot", p, &raw); err != nil {
					return err
				}
				if asJSON {
					_, err := fmt.Fprintf(a.out, "%s\n", raw)
					return err
				}
				var snap struct {
					client.Snapshot
					Damaged bool `json:"damaged"`
				}
				if err := json.Unmarshal(raw, &snap); err != nil {
					return fmt.Errorf("answer of get_snapshot: %w", err)
				}
				s, err := snap.Decode()
				if err != nil {
					return err
				}
				w := bufio.NewWriter(a.out)
				printState(w, s)
				if snap.Damaged {
					fmt.Fprintf(w, "\nDamaged: a part of the history cannot be read, and this is what the rest adds up to. `rejoin verify %s` tells more.\n", info.ID)
				}
				return w.Flush()
			})
		},
	}
	f := cmd.Flags()
	f.Var(&at, "at", "the state after this event (default: now)")
	f.BoolVar(&asJSON, "json", false, "print the server's answer as it is")
	return a.clientFlags(cmd)
}

// printState prints a state for people; w keeps the first error.
func printState(w *bufio.Writer, s *protocol.State) {
	line := func(format string, args ...any) { fmt.Fprintln(w, plainLine(fmt.Sprintf(format, args...))) }
	agent := s.Agent.Name
	if s.Agent.Model != "" {
		agent += " " + s.Agent.Model
	}
	line("session %s, %s, %s, run %d, event %d of epoch %s", s.SessionID, agent, s.Status, s.Run, s.Seq, s.Epoch)
	if s.Title != "" {
		line("title: %s", s.Title)
	}
	if e := s.Exit; e != nil {
		line("the program %s", describeExit(e.Reason, e.Code, e.Signal))
	}
	if s.ItemsDropped > 0 {
		line("(%d earlier items are not in it)", s.ItemsDropped)
	}
	for i := range s.Items {
		fmt.Fprintln(w)
		printItem(w, &s.Items[i])
	}
	if len(s.Pending)+len(s.Queue.Steering)+len(s.Queue.FollowUp) > 0 {
		fmt.Fprintln(w)
	}
	for _, q := range s.Queue.Steering {
		line("waits: %s", q)
	}
	for _, q := range s.Queue.FollowUp {
		line("waits for later: %s", q)
	}
	for i := range s.Pending {
		q := &s.Pending[i]
		line("? %s %s: %s %s", q.InteractionID, q.Kind, q.Title, q.Message)
		for n, o := range q.Options {
			line("    %d %s", n+1, o.Label)
		}
		if q.OptionsOmitted > 0 {
			line("    … %d more are not at hand", q.OptionsOmitted)
		}
	}
}

func printItem(w *bufio.Writer, it *protocol.Item) {
	how := ""
	if it.Status != protocol.ItemDone {
		how = " (" + it.Status + ")"
	}
	if it.Truncated > 0 {
		how += fmt.Sprintf(" (%d bytes are left out)", it.Truncated)
	}
	what := string(it.Kind)
	if t := it.Tool; t != nil {
		what += " " + t.Name + " " + t.Args
	}
	fmt.Fprintf(w, "[%d] %s%s\n", it.FirstSeq, plainLine(what), plainLine(how))
	text := it.Text
	if it.Tool != nil && it.Tool.Output != "" {
		text += it.Tool.Output
	}
	if text = strings.TrimRight(plain(text), "\n"); text != "" {
		fmt.Fprintln(w, text)
	}
}
