package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"rejoin/protocol"
)

// verdict of a finding.
type verdict string

const (
	good    verdict = "ok"
	doubted verdict = "warn" // it serves, but not as well, or not as surely, as it could
	bad     verdict = "fail" // it does not serve, or does not start
)

// finding is one thing that the doctor has looked at.
type finding struct {
	State verdict `json:"state"`
	What  string  `json:"what"`
	Text  string  `json:"text"`
	Do    string  `json:"do,omitempty"` // what to do about it
}

// doctor looks at a server and at what it stands on.
type doctor struct {
	app      *app
	s        *settings // of the server that is meant; with given false, those of one that is told nothing
	given    bool      // they were told
	ready    readyData // of the server that runs in the data directory
	running  bool
	findings []finding
}

func (d *doctor) say(state verdict, what, text, remedy string) {
	d.findings = append(d.findings, finding{state, what, text, remedy})
}

func (d *doctor) ok(what, format string, args ...any) {
	d.say(good, what, fmt.Sprintf(format, args...), "")
}
func (d *doctor) warn(what, text, remedy string) { d.say(doubted, what, text, remedy) }
func (d *doctor) fail(what, text, remedy string) { d.say(bad, what, text, remedy) }

func (d *doctor) failed() bool {
	return slices.ContainsFunc(d.findings, func(f finding) bool { return f.State == bad })
}

func (a *app) doctorCommand() *cobra.Command {
	var config, admin string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor [flags] [-- SERVE FLAGS...]",
		Short: "Look at a server, and at the machine below it, before and after the start",
		Long: `Looks at the server, and at what it stands on, and says what to do about what is wrong.
After -- come the flags that the server has, or will have:

  rejoin doctor -- --config rejoin.yaml --listen tls://0.0.0.0:9800

It changes nothing; a file in the data directory is written to see how long that takes,
and a control group is made, both are removed. A server that --server names on another machine is
asked, and this machine is left alone. Exit status 0 says that nothing has failed, 1 that something has.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			words, err := dashArgs(cmd, args)
			if err != nil {
				return err
			}
			if config != "" {
				words = append([]string{"--config", config}, words...)
			}
			d := &doctor{app: a, given: len(words) > 0}
			if err := d.settle(words); err != nil {
				return err
			}
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			d.examine(ctx, admin)
			if err := ctx.Err(); err != nil {
				return err
			}
			return d.report(asJSON)
		},
	}
	f := cmd.Flags()
	f.StringVar(&config, "config", "", "the server's configuration file, as after --")
	f.StringVar(&admin, "admin", "", "host:port that the server's --admin names (default: what the server of the data directory says)")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return a.clientFlags(cmd)
}

// settle finds out which server is meant. A configuration that is wrong is a
// finding, and the rest is looked at as if none were given.
func (d *doctor) settle(words []string) error {
	serve := &cobra.Command{Use: "serve"}
	in := serveFlags(serve)
	serve.Flags().StringVar(&d.app.dataDir, "data-dir", d.app.dataDir, "")
	if err := serve.ParseFlags(words); err != nil {
		return usagef("after --: %w", err)
	}
	child, err := dashArgs(serve, serve.Flags().Args())
	if err != nil {
		return err
	}
	d.s, err = d.app.serveSettings(serve, in, child)
	var wrong *usageError
	switch {
	case err == nil && d.given:
		d.ok("configuration", "can be used")
	case errors.As(err, &wrong) && d.given:
		d.fail("configuration", wrong.Error(), "correct it: a server does not start with it. What follows is of one without it")
		if d.s, err = d.app.serveSettings(&cobra.Command{}, &serveInput{flags: defaultSettings()}, nil); err != nil {
			return err
		}
		d.given = false
	case err != nil:
		return err
	}
	d.ready, d.running, err = findServer(d.s.dataDir)
	if err != nil {
		d.fail("data directory", err.Error(), "look at that file; a server that starts writes it anew")
	}
	return nil
}

// examine looks at everything: first what a server stands on, then the server.
func (d *doctor) examine(ctx context.Context, admin string) {
	t, err := d.app.target()
	here := err != nil || t.local // another machine's server says nothing of this one
	asked := d.askServer(ctx, admin)
	if !here {
		return
	}
	d.system()
	d.clock()
	if d.s.is(protocol.RoleWorker) || d.s.is(protocol.RoleGateway) {
		d.directory()
	}
	d.openFiles()
	d.journal(ctx, asked)
	if d.s.is(protocol.RoleWorker) {
		d.containment(asked)
		d.agents()
	}
	if d.s.is(protocol.RoleGateway) {
		d.listeners()
		d.tokens()
	}
}

// report prints the findings, the worst of which decide the exit status.
func (d *doctor) report(asJSON bool) error {
	var err error
	if asJSON {
		e := json.NewEncoder(d.app.out)
		e.SetEscapeHTML(false)
		err = e.Encode(struct {
			OK       bool      `json:"ok"`
			Findings []finding `json:"findings"`
		}{!d.failed(), d.findings})
	} else {
		err = d.table()
	}
	if err == nil && d.failed() {
		return &exitError{exitFailed}
	}
	return err
}

func (d *doctor) table() error {
	w := tabwriter.NewWriter(d.app.out, 0, 0, 2, ' ', 0)
	for _, f := range d.findings {
		text := f.Text
		if f.Do != "" {
			text += "  — " + f.Do
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", f.State, plainLine(f.What), plainLine(text))
	}
	return w.Flush()
}

// existing is the nearest of a path and the directories above it that is there.
func existing(path string) string {
	for !exists(path) && filepath.Dir(path) != path {
		path = filepath.Dir(path)
	}
	return path
}

// roughly is a number of bytes for people.
func roughly(n int64) string {
	const kib = 1 << 10
	if n < kib*kib*kib {
		return fmt.Sprintf("%.1f MiB", float64(n)/(kib*kib))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(kib*kib*kib))
}

// listed is words for people.
func listed(words []string) string { return strings.Join(words, ", ") }
