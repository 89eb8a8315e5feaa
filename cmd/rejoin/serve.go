package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"rejoin/cmd/rejoin/internal/logqueue"
	"rejoin/journal"
	"rejoin/protocol"
)

// stopMax is when the watchdog ends a stop that hangs: within the 10 s that are
// promised. watchdogLog is what it allows for saying so, and logEndMax what a stop
// allows for the rest of the log.
const (
	stopMax     = 9500 * time.Millisecond
	watchdogLog = 100 * time.Millisecond
	logEndMax   = 2 * time.Second
)

func (a *app) serveCommand() *cobra.Command {
	var in *serveInput
	var printOnly bool
	cmd := &cobra.Command{
		Use:   "serve [flags] [-- CHILD ARGV...]",
		Short: "Run a server",
		Long: `Runs a server: everything in one process; or with --nats the roles that --roles names,
which meet those of other processes on NATS servers; or with --cluster-name all roles, as one
of three servers that keep the journal together. The program after -- becomes the default agent; without one, and without --config, it is the built-in demo agent.

SIGTERM or SIGINT stops it in order within 10 seconds; a second one at once. SIGHUP
has it read again what may change while it runs.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			child, err := dashArgs(cmd, args)
			if err != nil {
				return err
			}
			s, err := a.serveSettings(cmd, in, child)
			if err != nil {
				return err
			}
			if printOnly {
				return s.print(a.out)
			}
			return a.serve(cmd.Context(), s)
		},
	}
	in = serveFlags(cmd)
	cmd.Flags().BoolVar(&printOnly, "print-config", false, "print the configuration that results and exit")
	return cmd
}

// serveInput is what the flags of serve say.
type serveInput struct {
	flags  settings
	config string
	labels []string
}

// serveFlags adds the flags that say what a server is.
func serveFlags(cmd *cobra.Command) *serveInput {
	in := &serveInput{flags: defaultSettings()}
	flags := &in.flags
	f := cmd.Flags()
	f.StringArrayVar(&flags.Listen, "listen", nil, "URL to listen on, tcp://host:port, tls://host:port or unix:///path; repeatable; port 0 picks a free one (default "+listenDefault+")")
	f.StringVar(&in.config, "config", "", "YAML file with agents, default, listen, durability, limits and more; unknown keys are errors")
	f.StringVar(&flags.token, "token", "", "token that clients must give (default: REJOIN_TOKEN, else one made once in DATA-DIR/token)")
	f.StringVar(&flags.tokenFile, "token-file", "", "file with that token")
	f.StringVar(&flags.Tokens, "tokens", "", "file with more tokens, as rejoin token add writes it (default: DATA-DIR/tokens.yaml if there is one)")
	f.BoolVar(&flags.noAuth, "no-auth", false, "ask for no token")
	f.BoolVar(&flags.insecure, "insecure", false, "allow listening beyond this machine without TLS")
	f.StringVar(&flags.TLS.Cert, "tls-cert", "", "certificate of tls:// listeners, PEM, with those between it and the root")
	f.StringVar(&flags.TLS.Key, "tls-key", "", "private key of that certificate, PEM")
	f.StringVar(&flags.TLS.ClientCA, "tls-client-ca", "", "CA that must have signed a certificate of each tls:// client, PEM")
	f.StringVar(&flags.Encryption.KeyFile, "encrypt-key-file", "", "file with the key that the journal is encrypted with: 32 random bytes or more, raw, hex or base64; mode 0600")
	f.StringVar((*string)(&flags.Encryption.Cipher), "encrypt-cipher", "", "chacha or aes (default: that of the data directory, chacha for a new one)")
	f.StringVar(&flags.Durability, "durability", flags.Durability, "always, or how often the journal is synced to disk (1ms to 10m)")
	f.BoolVar(&flags.AllowArgv, "allow-argv", false, "let clients start any program")
	f.StringArrayVar(&flags.EnvAllow, "env-allow", nil, "variable of this environment that programs get, or a prefix with * after it; repeatable (default: see docs/operations.md)")
	f.StringVar(&flags.Cgroups, "cgroups", flags.Cgroups, "auto: each run in a control group of its own, where the system allows it; or off")
	f.Var(&flags.Limits.MaxRequestBytes, "max-request-bytes", "longest line of a client")
	f.Var(&flags.Limits.MaxEventBytes, "max-event-bytes", "longest line of a program")
	f.Var(&flags.Limits.AuthTimeout, "auth-timeout", "how long a client may take to authenticate")
	f.Var(&flags.Limits.WriteTimeout, "write-timeout", "how long a client may take no byte")
	f.StringVar(&flags.Admin, "admin", "", "host:port for metrics, health and profiles; without a token, so for this machine only (default: none)")
	roleFlags(cmd, flags, &in.labels)
	clusterFlags(cmd, flags)
	f.StringVar(&flags.readyFile, "ready-file", "", "file to write once everything listens")
	f.StringVar(&flags.LogFormat, "log-format", flags.LogFormat, "text or json")
	f.StringVar(&flags.LogLevel, "log-level", flags.LogLevel, "debug, info, warn or error")
	return in
}

// serveSettings puts together defaults, file and flags: flags win over the file.
func (a *app) serveSettings(cmd *cobra.Command, in *serveInput, child []string) (_ *settings, err error) {
	flags := &in.flags
	if flags.Worker.Labels, err = parseLabels("--label", in.labels); err != nil {
		return nil, err
	}
	s := defaultSettings()
	if in.config != "" {
		if err := s.load(in.config); err != nil {
			return nil, err
		}
	}
	s.flagged = map[string]bool{} // now: an empty file decodes to zero settings
	sets := map[string]func(){
		"label":             func() { s.Worker.Labels = flags.Worker.Labels },
		"listen":            func() { s.Listen = flags.Listen },
		"tls-cert":          func() { s.TLS.Cert = flags.TLS.Cert },
		"tls-key":           func() { s.TLS.Key = flags.TLS.Key },
		"tls-client-ca":     func() { s.TLS.ClientCA = flags.TLS.ClientCA },
		"encrypt-key-file":  func() { s.Encryption.KeyFile = flags.Encryption.KeyFile },
		"encrypt-cipher":    func() { s.Encryption.Cipher = flags.Encryption.Cipher },
		"tokens":            func() { s.Tokens = flags.Tokens },
		"admin":             func() { s.Admin = flags.Admin },
		"durability":        func() { s.Durability = flags.Durability },
		"allow-argv":        func() { s.AllowArgv = flags.AllowArgv },
		"env-allow":         func() { s.EnvAllow = flags.EnvAllow },
		"cgroups":           func() { s.Cgroups = flags.Cgroups },
		"max-request-bytes": func() { s.Limits.MaxRequestBytes = flags.Limits.MaxRequestBytes },
		"max-event-bytes":   func() { s.Limits.MaxEventBytes = flags.Limits.MaxEventBytes },
		"auth-timeout":      func() { s.Limits.AuthTimeout = flags.Limits.AuthTimeout },
		"write-timeout":     func() { s.Limits.WriteTimeout = flags.Limits.WriteTimeout },
		"log-format":        func() { s.LogFormat = flags.LogFormat },
		"log-level":         func() { s.LogLevel = flags.LogLevel },
	}
	maps.Copy(sets, roleSetters(&s, flags))
	maps.Copy(sets, clusterSetters(&s, flags))
	for name, set := range sets {
		if cmd.Flags().Changed(name) {
			s.flagged[name] = true
			set()
		}
	}
	for _, name := range []string{"token", "token-file", "no-auth"} {
		s.flagged[name] = cmd.Flags().Changed(name)
	}
	s.token, s.tokenFile, s.noAuth, s.insecure = flags.token, flags.tokenFile, flags.noAuth, flags.insecure
	if cmd.Flags().Changed("token") && strings.TrimSpace(s.token) == "" {
		return nil, usagef("--token is empty; --no-auth serves without one")
	}
	if s.token == "" && s.tokenFile == "" && !s.noAuth {
		s.token = a.getenv("REJOIN_TOKEN")
	}
	s.readyFile, s.child = flags.readyFile, child
	dir, err := a.dataDirectory()
	if err != nil {
		return nil, err
	}
	s.dataDir = dir
	return &s, s.resolve()
}

// errStopped is the cause of an orderly stop.
var errStopped = errors.New("stopped by a signal")

// serve runs a server until a signal comes or a part of it fails.
func (a *app) serve(ctx context.Context, s *settings) error {
	if err := os.Unsetenv("REJOIN_TOKEN"); err != nil { // no child may inherit it (I-A1)
		return fmt.Errorf("clear REJOIN_TOKEN: %w", err)
	}
	lines := logqueue.Open(logqueue.Config{To: a.err, Missed: s.missedLines})
	a.err = lines // whatever is said from here on is said in order and keeps nobody waiting
	logger := s.logger(lines)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	dog := watchSignals(logger, lines, cancel)
	a.ends = func() {
		lines.Close(logEndMax)
		dog.stop()
	}
	err := a.runServer(ctx, s, logger, lines)
	if errors.Is(context.Cause(ctx), errStopped) && errors.Is(err, context.Canceled) {
		return nil // stopped before it was ready
	}
	return err
}

func (a *app) runServer(ctx context.Context, s *settings, logger *slog.Logger, lines *logqueue.Queue) error {
	var again reloads
	unwatch := again.watch(logger) // from the start: a SIGHUP must not end the process
	defer unwatch()
	srv, err := build(ctx, s, &again, logger)
	if err != nil {
		return explain(err)
	}
	srv.lines = lines
	started, end := context.WithCancel(ctx)
	tidied := make(chan struct{})
	go func() {
		defer close(tidied)
		tidy(started, tidyAfter)
	}()
	defer func() {
		end()
		<-tidied
	}()
	return srv.run(ctx, func() error { return a.announce(s, srv) })
}

// announce tells files, log and people that the server is ready.
func (a *app) announce(s *settings, srv *server) error {
	r := srv.ready()
	if s.is(protocol.RoleGateway) { // commands look there for where it listens
		if err := r.write(serverFile(s.dataDir)); err != nil {
			return err
		}
	}
	if s.readyFile != "" {
		if err := r.write(s.readyFile); err != nil {
			return err
		}
	}
	if s.LogFormat == "json" {
		if s.split() {
			srv.log.Info("ready", slog.Any("roles", s.roles))
		}
		for _, l := range r.Listeners {
			srv.log.Info("listening", slog.String("url", l.URL))
		}
		return nil
	}
	_, err := io.WriteString(a.err, a.readyText(s, r))
	return err
}

// readyText tells people that the server is ready.
func (a *app) readyText(s *settings, r readyData) string {
	var b strings.Builder
	fmt.Fprintf(&b, "rejoin %s is ready\n", version())
	if s.split() {
		fmt.Fprintf(&b, "  as            %s\n", strings.Join(s.roleNames(), ", "))
	}
	if r.Worker != "" {
		fmt.Fprintf(&b, "  named         %s\n", r.Worker)
	}
	if !s.is(protocol.RoleGateway) {
		return b.String()
	}
	for _, l := range r.Listeners {
		fmt.Fprintf(&b, "  listening on  %s\n", l.URL)
	}
	fmt.Fprintf(&b, "  data in       %s\n", s.dataDir)
	switch {
	case s.noAuth:
		fmt.Fprintf(&b, "  token         none is asked for\n")
	case r.TokenFile != "":
		fmt.Fprintf(&b, "  token in      %s\n", r.TokenFile)
	default:
		fmt.Fprintf(&b, "  token         the one that was given\n")
	}
	where := ""
	if a.dataDir != "" {
		where = " --data-dir " + a.dataDir
	}
	fmt.Fprintf(&b, "  to begin      rejoin%s start   and then   rejoin%s attach SID\n", where, where)
	return b.String()
}

// explain adds to an error of the start what to do about it.
func explain(err error) error {
	var locked *journal.LockedError
	switch {
	case errors.As(err, &locked):
		return fmt.Errorf("%w; stop that server, or give this one another --data-dir", err)
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%w; another server may be running there, --listen tcp://127.0.0.1:0 picks a free port", err)
	}
	return err
}

// watchdog handles the signals of a server: the first begins the stop, the second
// or stopMax later ends the process.
type watchdog struct {
	log     *slog.Logger
	lines   *logqueue.Queue // where log writes
	signals chan os.Signal
	pipe    chan os.Signal
	done    chan struct{}
	wg      sync.WaitGroup
}

func watchSignals(logger *slog.Logger, lines *logqueue.Queue, stop context.CancelCauseFunc) *watchdog {
	d := &watchdog{log: logger, lines: lines, signals: make(chan os.Signal, 2), pipe: make(chan os.Signal, 1), done: make(chan struct{})}
	signal.Notify(d.signals, os.Interrupt, syscall.SIGTERM)
	// With SIGPIPE asked for, a log that nobody reads any more is a failed write
	// and not the end; unlike an ignored signal this is not inherited by children.
	signal.Notify(d.pipe, syscall.SIGPIPE)
	d.wg.Go(func() { d.watch(stop) })
	return d
}

func (d *watchdog) stop() {
	signal.Stop(d.signals)
	signal.Stop(d.pipe)
	close(d.done)
	d.wg.Wait()
}

func (d *watchdog) watch(stop context.CancelCauseFunc) {
	select {
	case s := <-d.signals:
		limit := time.NewTimer(stopMax)
		defer limit.Stop()
		d.log.Info("stopping", slog.String("signal", s.String()))
		stop(errStopped)
		select {
		case <-d.done:
		case <-d.signals:
			d.exit()
		case <-limit.C:
			d.log.Error("the stop hangs; ending the process", slog.Duration("after", stopMax), slog.Int(protocol.LogPID, os.Getpid()))
			d.exit()
		}
	case <-d.done:
	}
}

// exit ends the process, with what the log takes at once.
func (d *watchdog) exit() {
	d.lines.Close(watchdogLog)
	os.Exit(exitFailed)
}
