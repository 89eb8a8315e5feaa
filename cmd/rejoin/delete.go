package main

import (
	"context"

	"github.com/spf13/cobra"
)

func (a *app) deleteCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "delete SID",
		Short: "Stop a session and remove its events for good",
		Args:  exactly("SID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(cmd.Context(), func(ctx context.Context, c *conn) error {
				info, err := c.session(ctx, args[0])
				if err != nil {
					return err
				}
				return c.ask(ctx, "delete_session", sessionParams{info.ID}, nil)
			})
		},
	}
	return a.clientFlags(cmd)
}
