package blackbox

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rejoin/tests/harness"
)

// TestUnixSocket: the same protocol, private to its owner, replaced after a crash.
func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rejoin.sock")
	s := harness.Start(t, harness.Options{Listen: []string{"unix://" + path}})
	run := func() {
		t.Helper()
		cl := harness.Dial(t, s)
		session := start(t, cl, "count", "1", "100", "0", "echo")
		numbered(t, subscribe(t, cl, session, fromStart), 1, 100)
	}
	run()
	i, err := os.Stat(path)
	if err != nil || i.Mode().Perm()&0o077 != 0 {
		t.Fatalf("the socket is %v, %v", i.Mode(), err)
	}
	s.Kill9()
	s.Run()
	run()
}

// TestSeveralListeners: one server, the same sessions.
func TestSeveralListeners(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rejoin.sock")
	s := harness.Start(t, harness.Options{Listen: []string{"tcp://127.0.0.1:0", "unix://" + path}})
	if len(s.Ready.Listeners) != 2 || strings.HasSuffix(s.Ready.Listeners[0].URL, ":0") || s.Ready.Listeners[0].Dialect != "native" {
		t.Fatalf("ready says %+v", s.Ready)
	}
	cl := harness.Dial(t, s)
	session := start(t, cl, "count", "1", "10", "0", "echo")
	other, err := harness.Connect(harness.Context(t), "unix", path, s.Token())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	numbered(t, subscribe(t, other, session, fromStart), 1, 10)
}

// TestUsage: mistakes on the command line end with status 2 and say what is wrong.
func TestUsage(t *testing.T) {
	for name, args := range map[string][]string{
		"unknown scheme":     {"--listen", "http://127.0.0.1:1"},
		"no auth for all":    {"--listen", "tcp://0.0.0.0:0", "--no-auth"},
		"unknown flag":       {"--nope"},
		"bad durability":     {"--durability", "sometimes"},
		"bad size":           {"--max-request-bytes", "many"},
		"missing config":     {"--config", "/nonexistent.yaml"},
		"token and no token": {"--token", "x", "--no-auth"},
	} {
		t.Run(name, func(t *testing.T) {
			s := harness.New(t, harness.Options{Args: args})
			err := s.TryRun()
			if err == nil {
				t.Fatal("the server started")
			}
			if !strings.Contains(err.Error(), "exit status 2") && name != "missing config" {
				t.Fatalf("%v\n%s", err, s.LogTail())
			}
		})
	}
}

// TestUnknownConfigKeys are errors that name the key.
func TestUnknownConfigKeys(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rejoin.yaml")
	if err := os.WriteFile(path, []byte("agents: {}\nlisten: [\"tcp://127.0.0.1:0\"]\nlimitz: 5\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := harness.New(t, harness.Options{Args: []string{"--config", path}})
	if err := s.TryRun(); err == nil || !strings.Contains(s.LogTail(), "limitz") {
		t.Fatalf("%v\n%s", err, s.LogTail())
	}
}
