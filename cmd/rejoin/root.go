package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// app is one run of the program, with its surroundings made explicit so that
// tests can run commands in their own process.
type app struct {
	in     io.Reader
	out    io.Writer
	err    io.Writer
	getenv func(string) string

	server  string // --server
	token   string // --token
	dataDir string // --data-dir
	tls     clientTLS

	ends func() // what a server does last, behind the last word about it; nil: nothing
}

// run executes the command line and returns the exit code.
func (a *app) run(ctx context.Context, args []string) int {
	code := a.execute(ctx, args)
	if a.ends != nil {
		a.ends()
	}
	return code
}

func (a *app) execute(ctx context.Context, args []string) int {
	root := a.root()
	root.SetArgs(args)
	ran, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	code := exitCode(err)
	var quiet *exitError
	if errors.As(err, &quiet) {
		return code
	}
	fmt.Fprintf(a.err, "rejoin: %s\n", sentence(err))
	if code == exitUsage {
		fmt.Fprintf(a.err, "`%s --help` shows how it is used.\n", ran.CommandPath())
	} else if h := hint(err); h != "" {
		fmt.Fprintln(a.err, h)
	}
	return code
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "rejoin",
		Short:         "Sessions that outlive their clients",
		Long:          "rejoin runs coding agents, or any program that speaks lines, in sessions that clients can leave and rejoin at exactly the event they had reached.",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.ArbitraryArgs, // an unknown command is our usage error
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
				return usagef("there is no command %q; did you mean %s?", args[0], strings.Join(near, " or "))
			}
			return usagef("there is no command %q", args[0])
		},
	}
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{err} })
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SuggestionsMinimumDistance = 2
	f := root.PersistentFlags()
	f.StringVar(&a.dataDir, "data-dir", "", "data directory of the local server (default $XDG_DATA_HOME/rejoin or ~/.local/share/rejoin)")
	root.AddCommand(
		a.serveCommand(), a.startCommand(), a.lsCommand(), a.sendCommand(), a.eventsCommand(), a.attachCommand(),
		a.snapshotCommand(), a.respondCommand(), a.verifyCommand(), a.stopCommand(), a.resumeCommand(), a.deleteCommand(), a.logsCommand(), a.tokenCommand(), a.versionCommand(),
		a.natsConfigCommand(), a.workersCommand(), a.workerCommand(), a.demoAgentCommand(), a.healthCommand(), a.doctorCommand(), a.benchCommand(), a.benchChildCommand(),
	)
	return root
}

// clientFlags adds the flags of commands that talk to a server.
func (a *app) clientFlags(cmd *cobra.Command) *cobra.Command {
	f := cmd.Flags()
	f.StringVar(&a.server, "server", "", "URL of the server, or of several that serve the same sessions, with commas between (default: REJOIN_SERVER; that of the data directory; without --data-dir else tcp://127.0.0.1:9800)")
	f.StringVar(&a.token, "token", "", "token of the server (default: REJOIN_TOKEN, else the local server's token file)")
	a.tls.addFlags(cmd)
	return cmd
}

// exactly is cobra.ExactArgs with our usage error; names are the arguments'.
func exactly(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return usagef("%s is missing", names[len(args)])
		case len(args) > len(names):
			return usagef("unexpected argument %q", args[len(names)])
		}
		return nil
	}
}

// dashArgs splits the arguments at --; what stands before it is an error.
func dashArgs(cmd *cobra.Command, args []string) ([]string, error) {
	if at := cmd.ArgsLenAtDash(); at > 0 || (at < 0 && len(args) > 0) {
		return nil, usagef("unexpected argument %q; a program to run comes after --", args[0])
	}
	return args, nil
}

// interruptible returns a context that ends with the first SIGINT or SIGTERM; a
// second one ends the program.
func interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// dataDirectory is the data directory that the command line, or else the
// environment, names.
func (a *app) dataDirectory() (string, error) {
	if a.dataDir != "" {
		return filepath.Abs(a.dataDir)
	}
	if dir := a.getenv("XDG_DATA_HOME"); filepath.IsAbs(dir) { // XDG: a relative path is to be ignored
		return filepath.Join(dir, "rejoin"), nil
	}
	home := a.getenv("HOME")
	if home == "" {
		return "", usagef("neither XDG_DATA_HOME nor HOME is set; name a data directory with --data-dir")
	}
	return filepath.Join(home, ".local", "share", "rejoin"), nil
}
