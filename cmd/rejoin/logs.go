package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"rejoin/protocol"
)

func (a *app) logsCommand() *cobra.Command {
	var run count
	cmd := &cobra.Command{
		Use:   "logs SID",
		Short: "Print the end of what a session's program wrote to stderr",
		Args:  exactly("SID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(cmd.Context(), func(ctx context.Context, c *conn) error {
				info, err := c.session(ctx, args[0])
				if err != nil {
					return err
				}
				text, err := c.stderr(ctx, info.ID, protocol.Run(run))
				if err != nil {
					return err
				}
				_, err = io.WriteString(a.out, text)
				return err
			})
		},
	}
	cmd.Flags().Var(&run, "run", "of an earlier run (default: the newest)")
	return a.clientFlags(cmd)
}

// stderr reads what is kept of a run's stderr; run 0 is the newest.
func (c *conn) stderr(ctx context.Context, session string, run protocol.Run) (string, error) {
	p := struct {
		SessionID string       `json:"sessionId"`
		Run       protocol.Run `json:"run,omitempty"`
	}{session, run}
	var r struct {
		Text string `json:"text"`
	}
	err := c.ask(ctx, "read_stderr", p, &r)
	return r.Text, err
}
