package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"rejoin/client"
	"rejoin/protocol"
)

func (a *app) sendCommand() *cobra.Command {
	var asJSON bool
	var id string
	cmd := &cobra.Command{
		Use:   "send SID TEXT | send SID --json CMD",
		Short: "Tell a session's agent something",
		Long: `Sends a text as a prompt to the agent of a session or, with --json, one JSON value as
the agent's own command, byte for byte. A text or command of - is read from standard input.

It is sent again under the same command id until the server has answered, so that it
takes effect once.`,
		Args: exactly("SID", "TEXT or CMD"),
		RunE: func(cmd *cobra.Command, args []string) error {
			text := args[1]
			if text == "-" {
				b, err := io.ReadAll(io.LimitReader(a.in, requestBytesMax))
				if err != nil {
					return fmt.Errorf("read standard input: %w", err)
				}
				text = string(b)
			}
			if asJSON && !json.Valid([]byte(text)) {
				return usagef("CMD is not a JSON value")
			}
			if id != "" && !protocol.ValidCommandID(id) {
				return usagef("--command-id: want 1 to %d printable ASCII characters", protocol.CommandIDBytesMax)
			}
			return a.withClient(cmd.Context(), func(ctx context.Context, c *conn) error {
				return a.send(ctx, c, args[0], text, asJSON, client.SendOptions{CommandID: id})
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "send a JSON value to the agent as it is")
	cmd.Flags().StringVar(&id, "command-id", "", "name the command; the same id never takes effect twice")
	return a.clientFlags(cmd)
}

func (a *app) send(ctx context.Context, c *conn, sid, text string, asJSON bool, opts client.SendOptions) error {
	info, err := c.session(ctx, sid)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, fmt.Errorf("send: %w", context.DeadlineExceeded))
	defer cancel()
	var r protocol.SendResult
	if asJSON {
		r, err = c.Send(ctx, info.ID, json.RawMessage(text), opts)
	} else {
		r, err = c.Prompt(ctx, info.ID, text, opts)
	}
	if err != nil {
		return err
	}
	again := ""
	if r.Duplicate {
		again = " already"
	}
	_, err = fmt.Fprintf(a.out, "sent%s: event %d, command %s\n", again, r.Seq, r.CommandID)
	return err
}
