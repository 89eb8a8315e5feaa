package harness

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Options of a server; the zero value runs the built binary with a free TCP port
// and a fresh data directory.
type Options struct {
	Bin     string   // zero: Binary
	DataDir string   // zero: a new temporary directory
	Listen  []string // zero: one free port on 127.0.0.1
	Args    []string // more flags of serve, before any "--"
	Env     []string // KEY=VALUE on top of this process's environment
	Roles   string   // of a process among others; zero: it is all of them, on its own
	Host    *Host    // where it runs; zero: here
}

// Ready is what the server writes to --ready-file.
type Ready struct {
	PID       int `json:"pid"`
	Listeners []struct {
		URL     string `json:"url"`
		Dialect string `json:"dialect"`
	} `json:"listeners"`
	TokenFile string `json:"tokenFile"`
	DataDir   string `json:"dataDir"`
}

// Server is one data directory and the process that serves it at the moment. Its
// methods are for one goroutine, but for Addr, Token, KillNow and Exited.
type Server struct {
	tb      testing.TB
	bin     string
	options Options
	listen  []string
	Dir     string // the data directory
	LogPath string // stdout and stderr of every process so far
	Ready   Ready  // of the process that runs

	cmd    *exec.Cmd
	exited chan struct{} // closed after the process was waited for
	token  string
}

// Start runs a server and waits until it is ready. At the end of the test it
// gets SIGTERM; when it does not end by that, the test fails.
func Start(tb testing.TB, o Options) *Server {
	tb.Helper()
	s := New(tb, o)
	s.Run()
	return s
}

// New returns a server that does not run yet.
func New(tb testing.TB, o Options) *Server {
	tb.Helper()
	s := &Server{tb: tb, options: o, bin: o.Bin, Dir: o.DataDir, listen: o.Listen}
	if s.bin == "" {
		s.bin = Binary(tb)
	}
	dir := tb.TempDir()
	if s.Dir == "" {
		s.Dir = filepath.Join(dir, "data")
	}
	if len(s.listen) == 0 && (o.Roles == "" || strings.Contains(o.Roles, "gateway")) {
		s.listen = []string{"tcp://" + o.Host.Addr() + ":0"}
	}
	s.LogPath = filepath.Join(dir, "server.log")
	tb.Cleanup(s.cleanup)
	return s
}

// Run starts the process with flags besides those of Options and waits until it
// is ready. The first listener keeps the port it got the first time.
func (s *Server) Run(flags ...string) {
	s.tb.Helper()
	if err := s.TryRun(flags...); err != nil {
		s.tb.Fatalf("start the server: %v\n%s", err, s.LogTail())
	}
}

// TryRun is Run for tests that expect a refusal: the error tells how the process
// ended.
func (s *Server) TryRun(flags ...string) error {
	ready, err := s.begin(flags)
	if err != nil {
		return err
	}
	return s.awaitReady(ready)
}

// Begin starts the process for tests of what it does instead of becoming ready.
func (s *Server) Begin(flags ...string) {
	s.tb.Helper()
	if _, err := s.begin(flags); err != nil {
		s.tb.Fatalf("start the server: %v", err)
	}
}

// begin starts the process and returns the file that it writes when it is ready.
func (s *Server) begin(flags []string) (ready string, err error) {
	ready = filepath.Join(s.tb.TempDir(), "ready.json")
	log, err := os.OpenFile(s.LogPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return "", err
	}
	defer func() { _ = log.Close() }() // the child has its own
	args := []string{"serve", "--data-dir", s.Dir, "--ready-file", ready}
	if s.options.Roles != "" {
		args = append(args, "--roles", s.options.Roles)
	}
	if s.options.Roles == "" || strings.Contains(s.options.Roles, "broker") {
		args = append(args, "--allow-argv")
	}
	for _, l := range s.listen {
		args = append(args, "--listen", l)
	}
	args = append(append(args, s.options.Args...), flags...)
	argv := s.options.Host.Command(append([]string{s.bin}, args...)...)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), s.options.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return "", err
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait() // the state it leaves in cmd is what tests look at
		close(exited)
	}()
	s.cmd, s.exited = cmd, exited
	return ready, nil
}

func (s *Server) awaitReady(path string) error {
	var b []byte
	up := Within(Patience, func() bool {
		select {
		case <-s.exited:
			return true
		default:
		}
		var err error
		b, err = os.ReadFile(path)
		return err == nil
	})
	if len(b) == 0 {
		if up {
			return fmt.Errorf("the process ended: %s", s.cmd.ProcessState)
		}
		return fmt.Errorf("no ready file within %v", Patience)
	}
	s.Ready = Ready{}
	if err := json.Unmarshal(b, &s.Ready); err != nil {
		return fmt.Errorf("ready file: %w", err)
	}
	if s.Ready.PID != s.cmd.Process.Pid || len(s.Ready.Listeners) != len(s.listen) {
		return fmt.Errorf("ready file does not describe this server: %s", b)
	}
	for i, l := range s.Ready.Listeners {
		s.listen[i] = l.URL // a restart keeps the port
	}
	if s.Ready.TokenFile != "" {
		token, err := os.ReadFile(s.Ready.TokenFile)
		if err != nil {
			return fmt.Errorf("token: %w", err)
		}
		s.token = strings.TrimSpace(string(token))
	}
	return nil
}

// Addr returns network and address of the first listener.
func (s *Server) Addr() (network, address string) { return splitURL(s.listen[0]) }

func splitURL(raw string) (network, address string) {
	u, err := url.Parse(raw)
	if err != nil {
		return "tcp", raw
	}
	if u.Scheme == "unix" {
		return "unix", u.Path
	}
	return "tcp", u.Host
}

// URL returns the first listener as clients name it.
func (s *Server) URL() string { return s.listen[0] }

// Token returns the token of the data directory, or the one Use gave.
func (s *Server) Token() string { return s.token }

// Use sets the token for servers that run with --token.
func (s *Server) Use(token string) { s.token = token }

// Signal sends the newest process a signal.
func (s *Server) Signal(sig syscall.Signal) {
	s.tb.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.tb.Fatalf("%v: %v", sig, err)
	}
}

// PID returns the process id of the newest process.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// Exited is closed when the newest process has ended.
func (s *Server) Exited() <-chan struct{} { return s.exited }

// Killed reports whether the newest process has ended by SIGKILL, which nothing
// but a test sends it.
func (s *Server) Killed() bool {
	if s.Alive() {
		return false
	}
	status, ok := s.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// Alive reports whether the newest process still runs.
func (s *Server) Alive() bool {
	select {
	case <-s.exited:
		return false
	default:
		return s.cmd != nil
	}
}

// KillNow sends SIGKILL without waiting. Any goroutine may call it.
func (s *Server) KillNow() error { return s.cmd.Process.Signal(syscall.SIGKILL) }

// Kill9 kills the process and waits for its end.
func (s *Server) Kill9() {
	s.tb.Helper()
	if err := s.KillNow(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		s.tb.Fatalf("kill the server: %v", err)
	}
	<-s.exited
}

// Term sends SIGTERM and returns the exit status; a process that has not ended
// after the promised 10 s, and some grace for a busy machine, fails the test.
func (s *Server) Term() int {
	s.tb.Helper()
	began := time.Now()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		s.tb.Fatalf("end the server: %v", err)
	}
	limit := time.NewTimer(12 * time.Second * slowdown)
	defer limit.Stop()
	select {
	case <-s.exited:
	case <-limit.C:
		_ = s.cmd.Process.Signal(syscall.SIGABRT) // its goroutines go to the log
		<-s.exited
		s.tb.Fatalf("the server still ran %v after SIGTERM\n%s", time.Since(began), s.LogTail())
	}
	code := s.cmd.ProcessState.ExitCode()
	if RaceDetector && code == raceExitCode {
		return 0 // cleanup judges the reports
	}
	return code
}

// Restart ends the process by SIGTERM, if it runs, and starts it again.
func (s *Server) Restart(flags ...string) {
	s.tb.Helper()
	if s.Alive() {
		s.Term()
	}
	s.Run(flags...)
}

// LogTail returns the end of the server's log.
func (s *Server) LogTail() string {
	b, err := os.ReadFile(s.LogPath)
	if err != nil {
		return "no log: " + err.Error()
	}
	const keep = 8 << 10
	if len(b) > keep {
		b = b[len(b)-keep:]
	}
	return "--- server log\n" + string(b) + "---"
}

// Says waits until the end of the log has each of those texts: a line is written
// moments after what it tells of.
func (s *Server) Says(texts ...string) {
	s.tb.Helper()
	for _, text := range texts {
		if !Within(Patience, func() bool { return strings.Contains(s.LogTail(), text) }) {
			s.tb.Errorf("the log does not say %q\n%s", text, s.LogTail())
		}
	}
}

// lastWord is what a server logs last when it ends in order.
const lastWord = "msg=stopped"

// Hides ends the server in order and fails the test when the log has one of those
// texts anywhere: while it ran a line could still be on its way.
func (s *Server) Hides(texts ...string) {
	s.tb.Helper()
	if code := s.Term(); code != 0 {
		s.tb.Errorf("the server ended with status %d", code)
	}
	b, err := os.ReadFile(s.LogPath)
	if err != nil {
		s.tb.Fatal(err)
	}
	if !strings.Contains(string(b), lastWord) {
		s.tb.Fatalf("the log does not tell of the end\n%s", s.LogTail())
	}
	for _, text := range texts {
		if strings.Contains(string(b), text) {
			s.tb.Errorf("the log has %q", text)
		}
	}
}

func (s *Server) cleanup() {
	if s.cmd != nil && s.Alive() {
		_ = s.cmd.Process.Signal(syscall.SIGCONT) // a test that failed may have stopped it
		if code := s.Term(); code != 0 {
			s.tb.Errorf("the server ended with status %d", code)
		}
	}
	b, err := os.ReadFile(s.LogPath)
	if err != nil && !errors.Is(err, os.ErrNotExist) { // it may never have run
		s.tb.Error(err)
	}
	if races := Races(string(b)); len(races) > 0 {
		s.tb.Errorf("the race detector spoke in the server\n%s", strings.Join(races, "\n"))
	}
	if s.tb.Failed() {
		s.tb.Log(s.LogTail())
	}
	for _, pid := range Marked(s.Dir) {
		s.tb.Errorf("process %d of this server is left", pid)
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may be gone by now
	}
	s.removeGroups()
}

// removeGroups removes the control groups of a server that was killed: the next
// one would, but there is none.
func (s *Server) removeGroups() {
	list, err := os.ReadFile(filepath.Join(s.Dir, "cgroups"))
	if err != nil {
		return // it made none, or removed them
	}
	for base := range strings.FieldsSeq(string(list)) {
		groups, err := filepath.Glob(filepath.Join(base, "*") + "/")
		if err != nil {
			s.tb.Errorf("groups in %s: %v", base, err)
		}
		for _, dir := range append(groups, base) {
			_ = syscall.Rmdir(dir) // it may be gone, or processes die in it: then it stays empty
		}
	}
}

// FixedPort returns a TCP listener on 127.0.0.1 for servers that are killed while
// clients reconnect: its port is free and outside the range from which the kernel
// takes ports for outgoing connections, so that none of those takes it meanwhile.
func FixedPort(tb testing.TB) string {
	tb.Helper()
	for range 200 {
		url := fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(12000))
		l, err := net.Listen("tcp", url)
		if err != nil {
			continue
		}
		if err := l.Close(); err != nil {
			tb.Fatalf("free a port: %v", err)
		}
		return "tcp://" + url
	}
	tb.Fatal("no free port")
	return ""
}
