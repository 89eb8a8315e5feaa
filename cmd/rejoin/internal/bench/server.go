package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ServerConfig says how a row's server runs.
type ServerConfig struct {
	Binary     string   // of rejoin
	Dir        string   // where its data directory, and its log, are made
	Durability string   // of the journal
	Wrap       []string // a command that runs the server, such as strace with its flags; empty: none
}

// Server is a rejoin server in a process of its own, with a data directory that is
// removed at the end.
type Server struct {
	cfg     ServerConfig
	dir     string
	log     *os.File
	cmd     *exec.Cmd
	exited  chan struct{}
	address string
	token   string
	admin   string
	pid     int
	Started time.Duration // of the newest process: from its start until it was ready
}

const (
	readyMax = 2 * time.Minute // for a start after kill -9 of a large journal on a busy machine
	stopMax  = time.Minute     // the server promises 10 s, on a machine that is its own
)

var errServer = errors.New("bench: the server ended")

// StartServer runs a server and waits until it is ready. Close it.
func StartServer(ctx context.Context, cfg ServerConfig) (*Server, error) {
	dir, err := os.MkdirTemp(cfg.Dir, "rejoin-bench-")
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, dir: dir}
	if s.log, err = os.Create(filepath.Join(dir, "server.log")); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := s.run(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// run starts a process on the data directory.
func (s *Server) run(ctx context.Context) error {
	ready := filepath.Join(s.dir, "ready.json")
	if err := os.Remove(ready); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	args := append(append([]string{}, s.cfg.Wrap...), s.cfg.Binary, "serve", "--data-dir", filepath.Join(s.dir, "data"), "--ready-file", ready,
		"--listen", "tcp://127.0.0.1:0", "--admin", "127.0.0.1:0", "--allow-argv", "--durability", s.cfg.Durability, "--log-level", "warn")
	cmd := exec.Command(args[0], args[1:]...) //nolint:noctx // it is stopped in order, by Close
	cmd.Stdout, cmd.Stderr = s.log, s.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for the bench, which then stops the server
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the server: %w", err)
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ended is in cmd.ProcessState
		close(exited)
	}()
	s.cmd, s.exited = cmd, exited
	for {
		b, err := os.ReadFile(ready)
		if err == nil {
			s.Started = time.Since(began)
			return s.readReady(b)
		}
		if time.Since(began) > readyMax {
			return fmt.Errorf("the server is not ready after %v%s", readyMax, s.logTail())
		}
		select {
		case <-exited:
			return fmt.Errorf("%w: %s%s", errServer, cmd.ProcessState, s.logTail())
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Millisecond):
		}
	}
}

func (s *Server) readReady(b []byte) error {
	var r struct {
		PID       int
		Listeners []struct{ URL string }
		TokenFile string
		Admin     string
	}
	if err := json.Unmarshal(b, &r); err != nil || len(r.Listeners) != 1 {
		return fmt.Errorf("ready file %q: %w", b, err)
	}
	u, err := url.Parse(r.Listeners[0].URL)
	if err != nil {
		return err
	}
	token, err := os.ReadFile(r.TokenFile)
	s.pid, s.address, s.admin, s.token = r.PID, u.Host, r.Admin, strings.TrimSpace(string(token))
	return err
}

// Stop ends the process by SIGTERM, and by SIGKILL when it does not.
func (s *Server) Stop() error {
	return s.signal(syscall.SIGTERM)
}

// Kill ends the process by SIGKILL.
func (s *Server) Kill() error { return s.signal(syscall.SIGKILL) }

func (s *Server) signal(sig syscall.Signal) error {
	if s.cmd == nil {
		return nil
	}
	pid := s.pid
	if pid == 0 { // it never was ready: what wraps it would leave it behind
		pid, sig = -s.cmd.Process.Pid, syscall.SIGKILL
	}
	if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("end the server: %w", err)
	}
	limit := time.NewTimer(stopMax)
	defer limit.Stop()
	select {
	case <-s.exited:
		s.cmd, s.pid = nil, 0
		return nil
	case <-limit.C:
	}
	err := errors.Join(fmt.Errorf("the server still ran %v after %v", stopMax, sig), syscall.Kill(pid, syscall.SIGKILL))
	<-s.exited
	s.cmd, s.pid = nil, 0
	return err
}

// Restart ends the process by sig and starts another one.
func (s *Server) Restart(ctx context.Context, end func() error) error {
	if err := end(); err != nil {
		return err
	}
	return s.run(ctx)
}

// Close stops the server and removes its directory.
func (s *Server) Close() error {
	return errors.Join(s.Stop(), s.log.Close(), os.RemoveAll(s.dir))
}

func (s *Server) logTail() string {
	b, err := os.ReadFile(s.log.Name())
	if err != nil {
		return ""
	}
	return "\n" + string(b[max(0, len(b)-4<<10):])
}

// PIDs are those whose processor time and memory count.
func (s *Server) PIDs() []int { return []int{s.pid} }

// heap is what the server's Go heap holds after a collection, in bytes. What lies in
// pools survives the first one.
func (s *Server) heap(ctx context.Context) (float64, error) {
	for range 2 {
		if _, err := s.get(ctx, "/debug/pprof/heap?gc=1"); err != nil {
			return 0, err
		}
	}
	b, err := s.get(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	const name = "\ngo_memstats_heap_alloc_bytes "
	_, rest, found := bytes.Cut(b, []byte(name))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	v, err := strconv.ParseFloat(string(line), 64)
	if !found || err != nil {
		return 0, fmt.Errorf("metrics have no%s", name)
	}
	return v, nil
}

// profile takes a profile of the server for so long and writes it to path.
func (s *Server) profile(ctx context.Context, path string, d time.Duration) error {
	b, err := s.get(ctx, fmt.Sprintf("/debug/pprof/profile?seconds=%d", max(1, int(d.Seconds()))))
	if err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o600)
}

func (s *Server) get(ctx context.Context, path string) (_ []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.admin+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", path, resp.Status)
	}
	return io.ReadAll(resp.Body)
}
