package cli_test

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"rejoin/tests/harness"
)

func TestReadyData(t *testing.T) {
	s := harness.Start(t, harness.Options{Listen: []string{"tcp://127.0.0.1:0", "unix://" + filepath.Join(t.TempDir(), "r.sock")}})
	path := filepath.Join(s.Dir, "server.json")
	fi, err := os.Stat(path)
	if err != nil || fi.Mode().Perm() != 0o600 {
		t.Fatalf("%s: %v, %v", path, fi, err)
	}
	var local harness.Ready
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, &local)
	}
	if err != nil || local.PID != s.Ready.PID || local.Listeners[0] != s.Ready.Listeners[0] || local.DataDir != s.Dir || local.TokenFile != filepath.Join(s.Dir, "token") {
		t.Errorf("%s: %+v, %v", path, local, err)
	}
	if fi, err := os.Stat(local.TokenFile); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("token file: %v, %v", fi, err)
	}
	if token := strings.TrimSpace(want(t, s.Dir, "token")); token != s.Token() || len(token) != 32 {
		t.Errorf("token prints %q", token)
	}
	elsewhere := t.TempDir() // no data directory: server and token are given
	want(t, elsewhere, "ls", "--server", s.Ready.Listeners[1].URL, "--token", s.Token())
	s.Says(s.Ready.Listeners[0].URL, s.Ready.Listeners[1].URL, s.Dir, "start", "attach SID")
	first := s.Token()
	s.Hides(first)
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s after the end: %v", path, err)
	}
	s.Run()
	if s.Token() != first {
		t.Error("the token changed with a restart")
	}
}

func TestAuthorisation(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	refused(t, s.Dir, 4, "invalid token\nGive the server's token", "ls", "--token", "wrong")
	refused(t, t.TempDir(), 4, "authenti", "ls", "--server", s.URL())
	cmd := command(harness.Context(t), t, t.TempDir(), "ls", "--server", s.URL())
	cmd.Env = append(cmd.Env, "REJOIN_TOKEN="+s.Token())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("with REJOIN_TOKEN: %v: %s", err, out)
	}
}

// Proves I-A1: the token of a server reaches neither its log nor its children.
func TestTokenFromTheEnvironment(t *testing.T) {
	const token = "hush-0123456789"
	s := harness.Start(t, harness.Options{Env: []string{"REJOIN_TOKEN=" + token}})
	refused(t, s.Dir, 4, "", "ls")
	refused(t, s.Dir, 1, "no token file", "token")
	out := want(t, s.Dir, "start", "--token", token, "--adapter", "lines", "--", "sh", "-c", "env; cat")
	events := want(t, s.Dir, "events", strings.TrimSpace(out), "--token", token)
	if !strings.Contains(events, "REJOIN_SESSION=") {
		t.Fatalf("the child printed no environment: %s", events)
	}
	if strings.Contains(events, token) {
		t.Error("the child was given the token")
	}
	s.Hides(token)
}

func TestNoAuth(t *testing.T) {
	s := harness.Start(t, harness.Options{Args: []string{"--no-auth"}})
	if s.Ready.TokenFile != "" {
		t.Errorf("token file %s", s.Ready.TokenFile)
	}
	want(t, t.TempDir(), "ls", "--server", s.URL())
}

func TestSecondServer(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	ready := filepath.Join(t.TempDir(), "ready.json")
	if err := os.WriteFile(ready, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	refused(t, s.Dir, 1, "is in use by process", "serve", "--listen", "tcp://127.0.0.1:0", "--ready-file", ready)
	if d := time.Since(began); d > harness.Patience/3 {
		t.Errorf("it took %v to say so", d)
	}
	if _, err := os.Stat(ready); err != nil {
		t.Errorf("the ready file of the first server: %v", err)
	}
	want(t, s.Dir, "ls") // the first goes on

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	refused(t, t.TempDir(), 1, "address already in use; another server", "serve", "--listen", "tcp://"+l.Addr().String())
}

// A child that ignores SIGTERM and a client that never reads do not delay the end.
func TestSigtermInTime(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	sid := start(t, s.Dir, "--", "sh", "-c", `trap "" TERM HUP; while :; do echo '{"n":1}'; sleep 0.01; done`)
	stalled := harness.DialWire(t, s)
	stalled.Authenticate(s.Token())
	stalled.Send(`{"id":1,"method":"subscribe","params":{"sessionId":"` + sid + `","from":"start"}}` + "\n")
	attached := runOn(t, s.Dir, "attach", sid, "--json")
	attached.out.shows(t, `{"n":1}`)
	began := time.Now()
	if code := s.Term(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	t.Logf("ended within %v", time.Since(began))
	attached.out.shows(t, `"type":"session_end"`) // the last event reaches clients before their links end
	if left := harness.Marked(s.Dir); len(left) > 0 {
		t.Errorf("processes %v are left", left)
	}
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	sid := start(t, s.Dir, "--", "sh", "-c", `trap "" TERM HUP; while :; do sleep 0.05; done`)
	pid := s.PID()
	if err := syscall.Kill(pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the stop begins", func() bool { return strings.Contains(s.LogTail(), "msg=stopping") })
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-s.Exited()
	s.Run() // kills what was left behind, before it calls the session interrupted
	events := want(t, s.Dir, "events", sid)
	if !strings.Contains(events, "session_interrupted") && !strings.Contains(events, "session_end") {
		t.Errorf("events after the restart: %s", events)
	}
}

// A log that nobody reads any more does not end the server.
func TestLogReaderGone(t *testing.T) {
	dir := t.TempDir()
	ready := filepath.Join(dir, "ready.json")
	cmd := command(harness.Context(t), t, filepath.Join(dir, "data"), "serve", "--listen", "tcp://127.0.0.1:0", "--ready-file", ready, "--log-level", "debug")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		_, _ = io.Copy(io.Discard, r) // ends when r is closed
	}()
	harness.Eventually(t, "the server is ready", func() bool {
		_, err := os.Stat(ready)
		return err == nil
	})
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	<-drained
	start(t, filepath.Join(dir, "data")) // is logged
	want(t, filepath.Join(dir, "data"), "ls")
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the server ended with %v", err)
	}
}

// A directory that is not a server's is not taken, nor closed to others.
func TestForeignDataDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "letter.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // that is what is tested
		t.Fatal(err)
	}
	refused(t, dir, 1, "holds other files and is open to others (mode 0755): name an empty directory, or chmod it to 0700", "serve", "--listen", "tcp://127.0.0.1:0")
	if fi, err := os.Stat(dir); err != nil || fi.Mode().Perm() != 0o755 {
		t.Errorf("its mode afterwards: %v, %v", fi, err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("its files afterwards: %v, %v", files, err)
	}
	for _, mode := range []os.FileMode{0o700, 0o755} { // closed by its owner; a server's own, opened
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		s := harness.Start(t, harness.Options{DataDir: dir})
		if fi, err := os.Stat(dir); err != nil || fi.Mode().Perm() != 0o700 {
			t.Errorf("mode %v: %v, %v", mode, fi, err)
		}
		s.Term()
	}
}

func TestConfiguredAgents(t *testing.T) {
	config := filepath.Join(t.TempDir(), "c.yaml")
	yaml := `
agents:
  echo: {adapter: lines, argv: [cat], title: x}
`
	if err := os.WriteFile(config, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, t.TempDir(), 2, `unknown field "title"`, "serve", "--config", config)
	yaml = `
agents:
  echo: {adapter: lines, argv: [sh, -c, 'echo "$GREETING"; exec cat'], env: {GREETING: good day}, allowArgs: true}
  other: {adapter: jsonl, argv: [cat]}
default: echo
limits: {maxEventBytes: 64KiB}
`
	if err := os.WriteFile(config, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	s := harness.Start(t, harness.Options{Args: []string{"--config", config}})
	sid := start(t, s.Dir)
	harness.Eventually(t, "the default agent greets", func() bool {
		return strings.Contains(want(t, s.Dir, "events", sid), `"text":"good day"`)
	})
	sid = start(t, s.Dir, "--agent", "other")
	if out := want(t, s.Dir, "events", sid); !strings.Contains(out, `"agent":"other","adapter":"jsonl"`) {
		t.Errorf("events: %s", out)
	}
}

func TestChildAfterTheDashes(t *testing.T) {
	s := harness.New(t, harness.Options{})
	s.Run("--", "sh", "-c", `echo '{"hello":1}'; exec cat`)
	sid := start(t, s.Dir)
	harness.Eventually(t, "the child speaks", func() bool {
		return strings.Contains(want(t, s.Dir, "events", sid), `{"hello":1}`)
	})
}

// A session of the demo agent can be resumed by a server that is another file:
// after an upgrade, or under go run.
func TestResumeAfterUpgrade(t *testing.T) {
	old := filepath.Join(t.TempDir(), "old-rejoin")
	b, err := os.ReadFile(harness.Binary(t))
	if err == nil {
		err = os.WriteFile(old, b, 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	first := harness.Start(t, harness.Options{Bin: old})
	sid := start(t, first.Dir)
	first.Kill9()
	if err := os.Remove(old); err != nil {
		t.Fatal(err)
	}
	second := harness.Start(t, harness.Options{DataDir: first.Dir})
	want(t, second.Dir, "resume", sid)
	want(t, second.Dir, "send", sid, "count 2")
	harness.Eventually(t, "the turn ends", func() bool {
		return strings.Contains(want(t, second.Dir, "events", sid), `{"type":"agent_end"`)
	})
}
