package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"rejoin/protocol"
)

func (a *app) workersCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "workers",
		Short: "List the workers",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withClient(cmd.Context(), func(ctx context.Context, c *conn) error {
				var raw json.RawMessage
				if err := c.ask(ctx, "list_workers", nil, &raw); err != nil {
					return err
				}
				if asJSON {
					_, err := fmt.Fprintf(a.out, "%s\n", raw)
					return err
				}
				var all []protocol.WorkerInfo
				if err := json.Unmarshal(raw, &all); err != nil {
					return fmt.Errorf("answer of list_workers: %w", err)
				}
				return a.workerTable(all)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the server's answer as it is")
	return a.clientFlags(cmd)
}

func (a *app) workerTable(all []protocol.WorkerInfo) error {
	if len(all) == 0 {
		_, err := fmt.Fprintln(a.err, "There are no workers; `rejoin serve --roles worker --nats ...` runs one.")
		return err
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tSTATE\tSESSIONS\tCAPACITY\tLABELS\tVERSION")
	for _, i := range all {
		capacity := "-"
		if i.Capacity > 0 {
			capacity = fmt.Sprint(i.Capacity)
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\t%s\n", plainLine(i.ID), plainLine(i.State), i.Sessions, capacity, plainLine(labelList(i.Labels)), plainLine(i.Version))
	}
	return w.Flush()
}

// labelList is labels as --label takes them.
func labelList(labels map[string]string) string {
	if len(labels) == 0 {
		return "-"
	}
	words := make([]string, 0, len(labels))
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		words = append(words, name+"="+labels[name])
	}
	return strings.Join(words, ",")
}

func (a *app) workerCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "worker",
		Short: "Drain a worker",
		Args:  cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return usagef("there is no command %q of worker; `rejoin workers` lists them", args[0])
		},
	}
	cmd.AddCommand(a.workerDrainCommand())
	return cmd
}

// drainParams of drain_worker.
type drainParams struct {
	Worker string `json:"worker"`
	protocol.DrainParams
}

func (a *app) workerDrainCommand() *cobra.Command {
	var p drainParams
	cmd := &cobra.Command{
		Use:   "drain ID",
		Short: "Have a worker take no new sessions",
		Long: `Has a worker take no new sessions: starts and resumes go to others. What runs there
goes on until it ends, or with --resume ends there and is resumed by another worker, as
far as its restart policy is resume and there is one with its labels. A drained worker
that is stopped interrupts nothing that has ended.`,
		Args: exactly("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if p.Undo && p.Move {
				return usagef("--undo and --resume exclude each other")
			}
			p.Worker = args[0]
			return a.withClient(cmd.Context(), func(ctx context.Context, c *conn) error {
				var is protocol.WorkerInfo
				if err := c.ask(ctx, "drain_worker", p, &is); err != nil {
					return err
				}
				text := fmt.Sprintf("Worker %s takes no new sessions; %d run there", plainLine(is.ID), is.Sessions)
				switch {
				case p.Undo:
					text = fmt.Sprintf("Worker %s takes sessions again", plainLine(is.ID))
				case p.Move:
					text += fmt.Sprintf(", %d of them move", is.Moving)
				}
				_, err := fmt.Fprintln(a.err, text+".")
				return err
			})
		},
	}
	f := cmd.Flags()
	f.BoolVar(&p.Undo, "undo", false, "have it take sessions again")
	f.BoolVar(&p.Move, "resume", false, "move sessions whose restart policy is resume to other workers")
	return a.clientFlags(cmd)
}
