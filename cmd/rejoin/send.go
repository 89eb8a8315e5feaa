package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"rejoin/client"
	"rejoin/protocol"
)

const (
	sendWait  = time.Minute     // a restart in a crash loop is up to 30 s away
	sendQuiet = 2 * time.Second // so long nobody wonders
)

func (a *app) sendCommand() *cobra.Command {
	var asJSON bool
	var id string
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "send SID TEXT | send SID --json CMD",
		Short: "Tell a session's agent something",
		Long: `Sends a text as a prompt to the agent of a session or, with --json, one JSON value as
the agent's own command, byte for byte. A text or command of - is read from standard input;
a newline at the end of a text is not part of it.

It is sent again under the same command id until the server has answered, so that it
takes effect once. While a session waits for its restart so does send, up to --wait.`,
		Args: exactly("SID", "TEXT or CMD"),
		RunE: func(cmd *cobra.Command, args []string) error {
			text := args[1]
			if text == "-" {
				b, err := io.ReadAll(io.LimitReader(a.in, requestBytesMax))
				if err != nil {
					return fmt.Errorf("read standard input: %w", err)
				}
				text = string(b)
				if !asJSON {
					text = strings.TrimSuffix(strings.TrimSuffix(text, "\n"), "\r")
				}
			}
			if asJSON && !json.Valid([]byte(text)) {
				return usagef("CMD is not a JSON value")
			}
			if wait <= 0 {
				return usagef("--wait: want a positive duration such as 60s")
			}
			if id != "" && !protocol.ValidCommandID(id) {
				return usagef("--command-id: want 1 to %d printable ASCII characters", protocol.CommandIDBytesMax)
			}
			return a.withClient(cmd.Context(), func(ctx context.Context, c *conn) error {
				return a.send(ctx, c, args[0], text, asJSON, wait, client.SendOptions{CommandID: id})
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "send a JSON value to the agent as it is")
	cmd.Flags().StringVar(&id, "command-id", "", "name the command; the same id never takes effect twice")
	cmd.Flags().DurationVar(&wait, "wait", sendWait, "how long to try when the session is down, or the server goes away meanwhile")
	return a.clientFlags(cmd)
}

func (a *app) send(ctx context.Context, c *conn, sid, text string, asJSON bool, wait time.Duration, opts client.SendOptions) error {
	info, err := c.session(ctx, sid)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, wait, fmt.Errorf("gave up after %v", wait))
	defer cancel()
	delay := delayTeller{out: a.err}
	late := time.AfterFunc(sendQuiet, delay.patienceEnds)
	defer late.Stop()
	opts.OnRetry = delay.retry
	var r protocol.SendResult
	if asJSON {
		r, err = c.Send(ctx, info.ID, json.RawMessage(text), opts)
	} else {
		r, err = c.Prompt(ctx, info.ID, text, opts)
	}
	var rpc *client.RPCError
	if !asJSON && errors.As(err, &rpc) && rpc.Reason() == protocol.ReasonUnsupported {
		return &hintedError{err, fmt.Sprintf("This session's agent takes JSON: `rejoin send %s --json '…'`.", info.ID)}
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

// delayTeller says once why a command takes long. Safe for concurrent use.
type delayTeller struct {
	out io.Writer

	mu   sync.Mutex
	late bool
	why  string // of the last attempt
	said bool
}

// retry notes why the command is sent again.
func (d *delayTeller) retry(err error) {
	why := "no answer from the server, trying again"
	var rpc *client.RPCError
	switch {
	case !errors.As(err, &rpc):
	case rpc.Reason() == protocol.ReasonSessionUnavailable:
		why = "session is down, waiting for its restart"
	default:
		why = "not taken yet, trying again: " + rpc.Message
	}
	d.note(func() { d.why = why })
}

// patienceEnds notes that it takes long.
func (d *delayTeller) patienceEnds() { d.note(func() { d.late = true }) }

func (d *delayTeller) note(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
	if d.late && d.why != "" && !d.said {
		d.said = true
		fmt.Fprintln(d.out, d.why)
	}
}
