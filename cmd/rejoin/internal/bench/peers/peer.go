package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"rejoin/cmd/rejoin/internal/bench"
)

// A peer is a server that is measured.
type peer struct {
	name  string
	what  string
	cant  []string // rows that it cannot do
	own   bool     // it is rejoin, which has rows of its own
	start func(ctx context.Context, o *options, row string) (bench.Target, func() error, error)
}

// options of a run.
type options struct {
	bin   string // where the peers' programs are
	dir   string // where they may write
	quick bool
	wrap  []string // for rejoin's server
}

// peers are all of them; ratios are of the others to the first.
func peers() []peer {
	return []peer{
		{"rejoin", "rejoin, --durability always (the default)", nil, true, startRejoin("always")},
		{"rejoin-20ms", "rejoin, --durability 20ms", nil, true, startRejoin("20ms")},
		{"raw", "a shared log in memory, a cursor per observer, nothing else", nil, false, startRaw},
		{"centrifugo", "Centrifugo, memory engine with history and recovery", nil, false, startCentrifugo},
		{"nats", "nats-server, core: no history", []string{"resume", "replay"}, false, startNATS},
		{"jetstream", "nats-server, JetStream file store, a consumer per observer", []string{"idle"}, false, startJetStream},
	}
}

// startRejoin runs rejoin as `rejoin bench` does.
func startRejoin(durability string) func(context.Context, *options, string) (bench.Target, func() error, error) {
	return func(ctx context.Context, o *options, _ string) (bench.Target, func() error, error) {
		s, err := bench.StartServer(ctx, bench.ServerConfig{Binary: filepath.Join(o.bin, "rejoin"), Dir: o.dir, Durability: durability, Wrap: o.wrap})
		if err != nil {
			return nil, nil, err
		}
		t, leave, err := bench.NewRejoin(ctx, s)
		if err != nil {
			return nil, nil, errors.Join(err, s.Close())
		}
		return t, func() error {
			leave()
			return s.Close()
		}, nil
	}
}

// server is the process of a peer as a Target.
type server struct {
	address string
	cmd     *exec.Cmd
	make    func(ctx context.Context, name string) (*stream, error)
}

// PIDs is the process.
func (s *server) PIDs() []int { return []int{s.cmd.Process.Pid} }

// Stream makes one under a new name.
func (s *server) Stream(ctx context.Context, size int) (bench.Stream, error) {
	st, err := s.make(ctx, "s"+strings.ToLower(rand.Text()))
	if err != nil {
		return nil, err
	}
	st.lines = bench.NewLines(size)
	return st, nil
}

// freeAddress is one on which nobody listens.
func freeAddress(ctx context.Context) (string, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// run starts a program in a directory of its own and waits until it listens. config,
// unless empty, is a file that the program is told with -c.
func run(ctx context.Context, o *options, program, config string, args ...string) (_ *server, stop func() error, err error) {
	address, err := freeAddress(ctx)
	if err != nil {
		return nil, nil, err
	}
	dir, err := os.MkdirTemp(o.dir, "peer-")
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, nil, err
	}
	fill := strings.NewReplacer("HOST", host, "PORT", port, "ADDRESS", address, "DIR", dir)
	if config != "" {
		path := filepath.Join(dir, "config.json")
		if err := os.WriteFile(path, []byte(fill.Replace(config)), 0o600); err != nil {
			return nil, nil, err
		}
		args = append(args, "-c", path)
	}
	for i := range args {
		args[i] = fill.Replace(args[i])
	}
	cmd := exec.Command(program, args...) //nolint:noctx // stop ends it
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, nil, fmt.Errorf("%w (tests/bench/peers/run.sh installs the peers)", err)
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait() // it is killed
		close(exited)
	}()
	stop = func() error {
		_ = cmd.Process.Kill() // it may have ended by itself
		<-exited
		return os.RemoveAll(dir)
	}
	for {
		c, _, err := dial(ctx, address)
		if err == nil {
			return &server{address: address, cmd: cmd}, stop, c.Close()
		}
		select {
		case <-exited:
			return nil, nil, fmt.Errorf("%s: %s", program, cmd.ProcessState)
		case <-ctx.Done():
			return nil, nil, errors.Join(context.Cause(ctx), stop())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// startRaw runs this program as the raw server.
func startRaw(ctx context.Context, o *options, _ string) (bench.Target, func() error, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	s, stop, err := run(ctx, o, self, "", rawCommand, "ADDRESS")
	if err != nil {
		return nil, nil, err
	}
	s.make = func(ctx context.Context, name string) (*stream, error) {
		c, _, err := dial(ctx, s.address, step{"PUB " + name + " 0\n", "OK\n"})
		if err != nil {
			return nil, err
		}
		st := &stream{subscribe: func(ctx context.Context, after int64) (net.Conn, []byte, error) {
			return dial(ctx, s.address, step{fmt.Sprintf("SUB %s %d\n", name, after), "OK\n"})
		}}
		st.send, st.close = publisher(c, func(dst, line []byte) []byte { return append(append(dst, line...), '\n') })
		return st, nil
	}
	return s, stop, nil
}
