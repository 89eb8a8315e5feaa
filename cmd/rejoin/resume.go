package main

import (
	"context"

	"github.com/spf13/cobra"

	"rejoin/client"
)

func (a *app) resumeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "resume SID",
		Short: "Run an ended or interrupted session's program again",
		Args:  exactly("SID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(cmd.Context(), func(ctx context.Context, c *conn) error {
				info, err := c.session(ctx, args[0])
				if err != nil {
					return err
				}
				p := struct {
					SessionID string `json:"sessionId"`
					CommandID string `json:"commandId"`
				}{info.ID, client.NewCommandID()}
				return c.ask(ctx, "resume_session", p, nil)
			})
		},
	}
	return a.clientFlags(cmd)
}
