package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"rejoin/protocol"
)

func (a *app) stopCommand() *cobra.Command {
	var grace time.Duration
	cmd := &cobra.Command{
		Use:   "stop SID",
		Short: "End a session's program; its events stay",
		Args:  exactly("SID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if grace < 0 || grace > protocol.GraceMax {
				return usagef("--grace: want a duration up to %v", protocol.GraceMax)
			}
			return a.withClient(cmd.Context(), func(ctx context.Context, c *conn) error {
				info, err := c.session(ctx, args[0])
				if err != nil {
					return err
				}
				p := struct {
					SessionID string `json:"sessionId"`
					GraceMs   int64  `json:"graceMs,omitempty"`
				}{info.ID, grace.Milliseconds()}
				return c.askWithin(ctx, requestTimeout+grace, "stop_session", p, nil)
			})
		},
	}
	cmd.Flags().DurationVar(&grace, "grace", protocol.GraceDefault, "how long the program may take to end by itself")
	return a.clientFlags(cmd)
}
