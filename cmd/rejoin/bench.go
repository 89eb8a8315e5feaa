package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"rejoin/cmd/rejoin/internal/bench"
	"rejoin/journal"
)

func (a *app) benchCommand() *cobra.Command {
	var rows, durabilities []string
	var asJSON, quick bool
	var dir, wrap, profiles string
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure this program on this machine",
		Long: `Runs rows of load, each against a server of its own that this program starts from
itself with the default configuration, in a temporary data directory: a real child
prints, authenticated clients on real sockets check seqs, epoch and the SHA-256 of all
bytes. A row in which anything differs is void, and the exit code is 1.

Server CPU per delivery or event is the figure to compare; rates and latencies carry
whatever else the machine does. Compare medians of alternating runs. A figure that
misses what it must reach on a machine with two processors of its own has a "!".

Rows:
` + benchRows(),
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, d := range durabilities {
				if _, err := journal.ParseDurability(d); err != nil {
					return usagef("--%w", err)
				}
			}
			self, err := os.Executable() // not thisProgram, which a wrapper would take for itself
			if err != nil {
				return err
			}
			cfg := bench.Config{
				Server:       bench.ServerConfig{Binary: self, Dir: dir, Wrap: strings.Fields(wrap)},
				Durabilities: durabilities, Rows: rows, Scale: bench.Scale{Quick: quick}, Profiles: profiles,
				Progress: func(text string) { fmt.Fprintln(a.err, text) },
			}
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			return a.bench(ctx, cfg, asJSON)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&rows, "rows", nil, "rows to run, separated by commas (default: all)")
	f.StringSliceVar(&durabilities, "durability", []string{"always"}, "durabilities to run each row at, side by side: always,20ms")
	f.BoolVar(&quick, "quick", false, "a little of each row: that it works, not how fast")
	f.BoolVar(&asJSON, "json", false, "print the report as JSON")
	f.StringVar(&dir, "dir", "", "where data directories are made, and so the device that is measured (default: the temporary directory)")
	f.StringVar(&wrap, "wrap", "", "command that runs the server, such as strace with its flags")
	f.StringVar(&profiles, "profiles", "", "directory for a processor profile of the server in each row")
	return cmd
}

func benchRows() string {
	var b strings.Builder
	for _, r := range bench.Rows() {
		fmt.Fprintf(&b, "  %-9s %s\n", r.Name, r.What)
	}
	return b.String()
}

func (a *app) bench(ctx context.Context, cfg bench.Config, asJSON bool) error {
	r, err := bench.Run(ctx, cfg)
	if errors.Is(err, bench.ErrNoRow) {
		return usagef("--rows: %w", err)
	}
	if err != nil {
		return err
	}
	r.Version = version()
	if asJSON {
		var b []byte
		if b, err = r.JSON(); err == nil {
			_, err = a.out.Write(b)
		}
	} else {
		err = r.Write(a.out)
	}
	if err == nil && r.Void() {
		err = &exitError{exitFailed}
	}
	return err
}

// benchChildCommand is the child of the rows, started by the servers of a bench.
func (a *app) benchChildCommand() *cobra.Command {
	return &cobra.Command{
		Use:    bench.ChildCommand + " SOCKET BYTES",
		Hidden: true,
		Args:   exactly("SOCKET", "BYTES"),
		RunE: func(_ *cobra.Command, args []string) error {
			size, err := strconv.Atoi(args[1])
			if err != nil {
				return usagef("BYTES: %w", err)
			}
			return bench.Child(args[0], size, a.in, a.out)
		},
	}
}
