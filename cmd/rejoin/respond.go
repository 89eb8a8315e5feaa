package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"rejoin/client"
	"rejoin/protocol"
)

func (a *app) respondCommand() *cobra.Command {
	var asJSON bool
	var id string
	cmd := &cobra.Command{
		Use:   "respond SID INTERACTION allow|deny|answer|cancel [VALUE]",
		Short: "Answer a question of a session's agent",
		Long: `Answers an open question; ` + "`rejoin snapshot SID`" + ` lists them. The first answer counts.
VALUE is the text of an answer, or the id of an option; with --json any JSON value.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 4 {
				return nil
			}
			return exactly("SID", "INTERACTION", "allow, deny, answer or cancel")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains([]string{protocol.RespondAllow, protocol.RespondDeny, protocol.RespondAnswer, protocol.RespondCancel}, args[2]) {
				return usagef("%q is none of allow, deny, answer and cancel", args[2])
			}
			value, err := answerValue(args[3:], asJSON)
			if err != nil {
				return err
			}
			if id != "" && !protocol.ValidCommandID(id) {
				return usagef("--command-id: want 1 to %d printable ASCII characters", protocol.CommandIDBytesMax)
			}
			return a.withClient(cmd.Context(), func(ctx context.Context, c *conn) error {
				return a.respond(ctx, c, args, value, id)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "VALUE is a JSON value")
	cmd.Flags().StringVar(&id, "command-id", "", "name the command; the same id never takes effect twice")
	return a.clientFlags(cmd)
}

// answerValue is VALUE as JSON; nil when there is none.
func answerValue(args []string, asJSON bool) (json.RawMessage, error) {
	switch {
	case len(args) == 0:
		return nil, nil
	case !asJSON:
		return json.Marshal(args[0])
	case !json.Valid([]byte(args[0])):
		return nil, usagef("VALUE is not a JSON value")
	}
	return json.RawMessage(args[0]), nil
}

func (a *app) respond(ctx context.Context, c *conn, args []string, value json.RawMessage, id string) error {
	info, err := c.session(ctx, args[0])
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, fmt.Errorf("respond: %w", context.DeadlineExceeded))
	defer cancel()
	r, err := c.Respond(ctx, info.ID, args[1], args[2], value, client.SendOptions{CommandID: id})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.out, "answered: event %d, command %s\n", r.Seq, r.CommandID)
	return err
}
