package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"rejoin/snapshot"
)

// verifyTimeout bounds a verification: a log of a few gigabytes is read whole.
const verifyTimeout = 10 * time.Minute

// verifyReport is the answer of verify_session.
type verifyReport struct {
	Clean bool `json:"clean"`
	snapshot.Report
}

func (a *app) verifyCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "verify SID",
		Short: "Check a session's log and checkpoints",
		Long: `Has the server fold a session's log anew, check every record on the way, and compare
every checkpoint with what its events add up to. The exit code is 1 when something does
not fit.`,
		Args: exactly("SID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(cmd.Context(), func(ctx context.Context, c *conn) error {
				info, err := c.session(ctx, args[0])
				if err != nil {
					return err
				}
				ctx, cancel := context.WithTimeoutCause(ctx, verifyTimeout, fmt.Errorf("verify: %w", context.DeadlineExceeded))
				defer cancel()
				raw, err := c.Call(ctx, "verify_session", sessionParams{info.ID})
				if err != nil {
					return err
				}
				return a.reportVerify(raw, asJSON)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the server's answer as it is")
	return a.clientFlags(cmd)
}

func (a *app) reportVerify(raw json.RawMessage, asJSON bool) error {
	var r verifyReport
	if err := json.Unmarshal(raw, &r); err != nil {
		return fmt.Errorf("answer of verify_session: %w", err)
	}
	var err error
	if asJSON {
		_, err = fmt.Fprintf(a.out, "%s\n", raw)
	} else {
		for _, p := range r.Problems {
			fmt.Fprintln(a.out, plainLine(p))
		}
		_, err = fmt.Fprintf(a.out, "events %d to %d, %d folded; %d checkpoints, %d compared, %d of another fold; %d problems\n",
			r.Floor, r.Head, r.Events, r.Checkpoints, r.Compared, r.OtherFold, len(r.Problems))
	}
	if err == nil && !r.Clean {
		return &exitError{exitFailed}
	}
	return err
}
