package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rejoin/client"
	"rejoin/protocol"
	"rejoin/snapshot"
)

// verifyTimeout bounds the verification of one session: a log of a few gigabytes
// is read whole.
const verifyTimeout = 10 * time.Minute

// verifyReport is the answer of verify_session.
type verifyReport struct {
	SessionID string `json:"sessionId"`
	Clean     bool   `json:"clean"`
	snapshot.Report
}

// verifyParams of verify_session.
type verifyParams struct {
	SessionID  string     `json:"sessionId"`
	Head       bool       `json:"head,omitempty"`
	ExpectHead *chainHead `json:"expectHead,omitempty"`
}

// chainHead is what --head prints and --expect-head takes.
type chainHead struct {
	Epoch  string `json:"epoch"`
	Seq    uint64 `json:"seq"`
	SHA256 string `json:"sha256"`
}

func (h chainHead) String() string { return fmt.Sprintf("%s %d %s", h.Epoch, h.Seq, h.SHA256) }

// expectedHead reads what --head printed, from the argument itself or from the file
// that it names.
func expectedHead(arg string) (*chainHead, error) {
	text := arg
	if len(strings.Fields(arg)) != 3 {
		b, err := os.ReadFile(arg)
		if err != nil {
			return nil, usagef("--expect-head %s: neither EPOCH SEQ SHA256 nor a file: %v", arg, cause(err))
		}
		text = string(b)
	}
	f := strings.Fields(text)
	h := &chainHead{}
	if len(f) == 3 {
		var err error
		h.Epoch, h.SHA256 = f[0], f[2]
		if h.Seq, err = strconv.ParseUint(f[1], 10, 64); err == nil {
			return h, nil
		}
	}
	return nil, usagef("--expect-head %s: want EPOCH SEQ SHA256, as verify --head prints it", arg)
}

func (a *app) verifyCommand() *cobra.Command {
	var asJSON, all, head bool
	var expect string
	cmd := &cobra.Command{
		Use:   "verify SID | --all",
		Short: "Check a session's log, checkpoints and ledger",
		Long: `Has the server fold a session's log anew, check every record on the way (checksum,
chain, density), and compare every checkpoint and its ledger with what its events add
up to. The exit code is 0 when all of it fits and 1 when something does not.
With --all every session is checked. With --head nothing is checked: the head of the
chain is printed, epoch, seq and SHA-256, to be signed and kept elsewhere. --expect-head
takes such a head, or a file with it, and also checks that the log still holds that very
record, however much has come since: then nothing before it was changed.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if all {
				return exactly()(cmd, args)
			}
			return exactly("SID")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if all && head {
				return usagef("--head is about one session")
			}
			p := verifyParams{}
			if cmd.Flags().Changed("expect-head") {
				if all || head {
					return usagef("--expect-head is about one session, which is checked")
				}
				var err error
				if p.ExpectHead, err = expectedHead(expect); err != nil {
					return err
				}
			}
			return a.withClient(cmd.Context(), func(ctx context.Context, c *conn) error {
				if all {
					return a.verifyAll(ctx, c, asJSON)
				}
				info, err := c.session(ctx, args[0])
				if err != nil {
					return err
				}
				if head {
					return a.chainHead(ctx, c, info.ID, asJSON)
				}
				p.SessionID = info.ID
				clean, err := a.verify(ctx, c, p, "", asJSON)
				if err == nil && !clean {
					return &exitError{exitFailed}
				}
				return err
			})
		},
	}
	f := cmd.Flags()
	f.BoolVar(&asJSON, "json", false, "print the server's answer as it is, one line per session")
	f.BoolVar(&all, "all", false, "check every session")
	f.BoolVar(&head, "head", false, "print the head of the chain: epoch, seq, SHA-256")
	f.StringVar(&expect, "expect-head", "", "a head of the chain that --head printed once, or a file with it, that the log must still hold")
	return a.clientFlags(cmd)
}

// verifyAll checks every session, also when one is not clean.
func (a *app) verifyAll(ctx context.Context, c *conn, asJSON bool) error {
	var list []protocol.SessionInfo
	if err := c.ask(ctx, "list_sessions", nil, &list); err != nil {
		return err
	}
	bad := 0
	for i := range list {
		clean, err := a.verify(ctx, c, verifyParams{SessionID: list[i].ID}, list[i].ID+": ", asJSON)
		var rpc *client.RPCError
		if errors.As(err, &rpc) && rpc.Code == protocol.CodeSessionNotFound {
			continue // deleted meanwhile
		}
		if err != nil {
			return err
		}
		if !clean {
			bad++
		}
	}
	if !asJSON {
		if _, err := fmt.Fprintf(a.out, "%d sessions, %d with problems\n", len(list), bad); err != nil {
			return err
		}
	}
	if bad > 0 {
		return &exitError{exitFailed}
	}
	return nil
}

// verify checks one session and prints what was found, each line behind prefix.
func (a *app) verify(ctx context.Context, c *conn, p verifyParams, prefix string, asJSON bool) (clean bool, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, verifyTimeout, fmt.Errorf("verify: %w", context.DeadlineExceeded))
	defer cancel()
	raw, err := c.Call(ctx, "verify_session", p)
	if err != nil {
		return false, err
	}
	var r verifyReport
	if err := json.Unmarshal(raw, &r); err != nil {
		return false, fmt.Errorf("answer of verify_session: %w", err)
	}
	if asJSON {
		_, err = fmt.Fprintf(a.out, "%s\n", raw)
		return r.Clean, err
	}
	for _, p := range r.Problems {
		fmt.Fprintln(a.out, prefix+plainLine(p))
	}
	_, err = fmt.Fprintf(a.out, "%sevents %d to %d, %d folded; %d checkpoints, %d compared, %d of another fold; %d command ids; %d problems\n",
		prefix, r.Floor, r.Head, r.Events, r.Checkpoints, r.Compared, r.OtherFold, r.Commands, len(r.Problems))
	return r.Clean, err
}

// chainHead prints the head of a session's chain.
func (a *app) chainHead(ctx context.Context, c *conn, id string, asJSON bool) error {
	var raw json.RawMessage
	if err := c.ask(ctx, "verify_session", verifyParams{SessionID: id, Head: true}, &raw); err != nil {
		return err
	}
	if asJSON {
		_, err := fmt.Fprintf(a.out, "%s\n", raw)
		return err
	}
	var h chainHead
	if err := json.Unmarshal(raw, &h); err != nil {
		return fmt.Errorf("answer of verify_session: %w", err)
	}
	_, err := fmt.Fprintln(a.out, h)
	return err
}
