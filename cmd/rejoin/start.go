package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rejoin/client"
	"rejoin/protocol"
)

// startWatch is how long a new child is watched: one that ends within it has
// most likely not been what the user wanted.
const startWatch = 2 * time.Second

type startParams struct {
	Agent     string   `json:"agent,omitempty"`
	Cwd       string   `json:"cwd,omitempty"`
	Default   string   `json:"defaultCwd,omitempty"`
	Args      []string `json:"args,omitempty"`
	Argv      []string `json:"argv,omitempty"`
	Adapter   string   `json:"adapter,omitempty"`
	Name      string   `json:"name,omitempty"`
	Title     string   `json:"title,omitempty"`
	SessionID string   `json:"sessionId,omitempty"`
	Restart   string   `json:"restart,omitempty"`
	CommandID string   `json:"commandId"`

	Labels map[string]string `json:"labels,omitempty"`
}

type startResult struct {
	SessionID string               `json:"sessionId"`
	Session   protocol.SessionInfo `json:"session"`
}

func (a *app) startCommand() *cobra.Command {
	var p startParams
	var noWait bool
	var labels []string
	cmd := &cobra.Command{
		Use:   "start [-- ARGV...]",
		Short: "Start a session and print its id",
		Long: `Starts a session of the server's default agent, of --agent, or of the program after --
(which needs a server with --allow-argv). With --agent, what follows -- is appended to
that agent's command line where its configuration allows it.

The id of the session is all that goes to standard output. A program that ends within
two seconds is reported with the end of what it wrote to stderr; the exit code is 1 then.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			argv, err := dashArgs(cmd, args)
			if err != nil {
				return err
			}
			if p.Args, p.Argv = nil, argv; p.Agent != "" {
				p.Args, p.Argv = argv, nil
			}
			if p.Restart != "" && p.Restart != protocol.RestartNever && p.Restart != protocol.RestartResume {
				return usagef("--restart %s: want never or resume", p.Restart)
			}
			if p.SessionID != "" && !protocol.ValidSessionID(p.SessionID) {
				return usagef("--session-id %s: want 1 to %d of A-Z a-z 0-9 _ -", p.SessionID, protocol.SessionIDBytesMax)
			}
			if p.Labels, err = parseLabels("--label", labels); err != nil {
				return err
			}
			p.CommandID = client.NewCommandID()
			return a.withClient(cmd.Context(), func(ctx context.Context, c *conn) error {
				return a.start(ctx, c, p, noWait)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&p.Agent, "agent", "", "configured agent to start (default: the server's default)")
	f.StringVar(&p.Cwd, "cwd", "", "working directory (default: the agent's, else this one where the server is local)")
	f.StringVar(&p.Name, "name", "", "name of the session")
	f.StringVar(&p.Title, "title", "", "title of the session")
	f.StringVar(&p.SessionID, "session-id", "", "id of the session (default: a new one)")
	f.StringVar(&p.Adapter, "adapter", "", "how the program after -- speaks: jsonl, lines, pi, rpi, demo (default jsonl)")
	f.StringVar(&p.Restart, "restart", "", "never, or resume after a crash (default: the agent's)")
	f.StringArrayVar(&labels, "label", nil, "NAME=VALUE that the worker must have; repeatable")
	f.BoolVar(&noWait, "no-wait", false, "return at once instead of watching the program for two seconds")
	return a.clientFlags(cmd)
}

func (a *app) start(ctx context.Context, c *conn, p startParams, noWait bool) error {
	if p.Cwd == "" && c.target.local {
		dir, err := os.Getwd()
		if err != nil {
			return fmt.Errorf("find the working directory: %w", err)
		}
		p.Default = dir
	}
	var r startResult
	if err := c.ask(ctx, "start_session", p, &r); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(a.out, r.SessionID); err != nil || noWait {
		return err
	}
	ended, err := c.endsSoon(ctx, r.SessionID)
	if err != nil || !ended {
		return err
	}
	info, err := c.session(ctx, r.SessionID)
	if err != nil {
		return err
	}
	return a.reportEnd(ctx, c, info)
}

// endsSoon reports whether the first run of a session ends within startWatch.
func (c *conn) endsSoon(ctx context.Context, session string) (bool, error) {
	within, cancel := context.WithTimeout(ctx, startWatch)
	defer cancel()
	sub, err := c.Subscribe(within, session, client.SubscribeOptions{After: new(protocol.Seq(0))})
	for err == nil {
		var m client.Message
		if m, err = sub.Next(within); err == nil && m.Kind == client.KindEvent && eventType(m.Event) == protocol.TypeSessionEnd {
			return true, sub.Close()
		}
	}
	if sub != nil {
		err = errors.Join(err, sub.Close())
	}
	if within.Err() != nil && ctx.Err() == nil {
		return false, nil // it runs
	}
	return false, err
}

// reportEnd tells how a run ended, with the tail of its stderr, and fails.
func (a *app) reportEnd(ctx context.Context, c *conn, info protocol.SessionInfo) error {
	tail, err := c.stderr(ctx, info.ID, 0)
	if err != nil && info.Exit != nil {
		tail = info.Exit.StderrTail
	}
	if tail != "" {
		tail = strings.TrimSuffix(tail, "\n") + "\n"
		if _, err := io.WriteString(a.err, plain(tail)); err != nil {
			return err
		}
	}
	how := "ended"
	if info.Exit != nil {
		how = describeExit(info.Exit.Reason, info.Exit.Code, info.Exit.Signal)
	}
	return fmt.Errorf("the program of session %s %s right after its start", info.ID, how)
}
