package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"rejoin/protocol"
)

func (a *app) lsCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List the sessions",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withClient(cmd.Context(), func(ctx context.Context, c *conn) error {
				var raw json.RawMessage
				if err := c.ask(ctx, "list_sessions", nil, &raw); err != nil {
					return err
				}
				if asJSON {
					_, err := fmt.Fprintf(a.out, "%s\n", raw)
					return err
				}
				var all []protocol.SessionInfo
				if err := json.Unmarshal(raw, &all); err != nil {
					return fmt.Errorf("answer of list_sessions: %w", err)
				}
				return a.table(all, time.Now())
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the server's answer as it is")
	return a.clientFlags(cmd)
}

func (a *app) table(all []protocol.SessionInfo, now time.Time) error {
	if len(all) == 0 {
		_, err := fmt.Fprintln(a.err, "There are no sessions; `rejoin start` starts one.")
		return err
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tSTATUS\tAGENT\tEVENTS\tUPDATED\tTITLE")
	for _, s := range all {
		status := string(s.Status)
		if s.Exit != nil && s.Status == protocol.StatusEnded {
			status = describeExit(s.Exit.Reason, s.Exit.Code, s.Exit.Signal)
		}
		if s.Blocked != "" {
			status += ", waits: " + plainLine(journalWord(s.Blocked))
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\n", s.ID, status, plainLine(s.Agent), s.Head,
			ago(now.Sub(time.UnixMilli(s.UpdatedAt))), plainLine(s.Title))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	told := map[string]bool{}
	for _, s := range all {
		if s.Blocked != "" && !told[s.Blocked] {
			told[s.Blocked] = true
			fmt.Fprintln(a.err, plainLine(s.Blocked))
		}
	}
	return nil
}

// journalWord is the state in what blocks a session, without its reason.
func journalWord(blocked string) string {
	word, _, _ := strings.Cut(blocked, ":")
	return word
}

// ago is a duration for people.
func ago(d time.Duration) string {
	switch {
	case d < 2*time.Second:
		return "now"
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s ago", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h ago", int(d.Hours()))
	}
	return fmt.Sprintf("%d days ago", int(d.Hours()/24))
}
