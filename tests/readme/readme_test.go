package readme

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"rejoin/tests/harness"
)

// What README.md shows and this test treats apart: the server in the first
// terminal, and the tests, which would run this one again.
const (
	serve    = "go run ./cmd/rejoin serve\n"
	runTests = "go test ./...\n"
	address  = "127.0.0.1:9800" // the default, as a reader would have it
)

// TestReadme runs the commands of README.md as they stand there, in one shell
// beside the server, in a copy of the tree with a home of its own. It needs the
// default port, so it runs only when README=1 asks for it.
func TestReadme(t *testing.T) {
	if os.Getenv("README") != "1" {
		t.Skip("set README=1 to run the commands of README.md; port 9800 must be free")
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatalf("port 9800, which README.md uses, is not free: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	blocks := shellBlocks(t)
	tree, home := copyTree(t), t.TempDir()
	env := environment(t, home)
	server := exec.Command("bash", "-c", serve)
	server.Dir, server.Env = tree, env
	server.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out := &strings.Builder{}
	server.Stdout, server.Stderr = out, out
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Wait() }()
	lock := filepath.Join(home, ".local", "share", "rejoin", "lock")
	t.Cleanup(func() {
		stopServer(t, lock)
		_ = syscall.Kill(-server.Process.Pid, syscall.SIGTERM) // the go command, if it still waits
		if err := <-ended; err != nil {
			t.Logf("the go command: %v", err) // a signal ended it
		}
		if t.Failed() {
			t.Logf("the server in the first terminal:\n%s", out)
		}
	})
	if !harness.Within(3*time.Minute, func() bool { return listens() || len(ended) > 0 }) || len(ended) > 0 {
		t.Fatal("the server of README.md does not come up")
	}
	runShell(t, tree, env, blocks)
}

// shellMax bounds all blocks together: they build, and start servers, on a machine
// that may have other things to do.
const shellMax = 10 * time.Minute

// endCluster waits until nothing runs of the split system, and ends what a shell
// that failed has left.
func endCluster(t *testing.T, env []string) {
	t.Helper()
	home := strings.TrimPrefix(env[0], "HOME=")
	files, err := filepath.Glob(filepath.Join(home, ".local", "share", "rejoin-cluster", "*.pid"))
	if err != nil {
		t.Error(err)
	}
	for _, path := range files {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // it has just ended
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
		if err != nil || !harness.Living(pid) {
			continue
		}
		t.Errorf("%s still runs", filepath.Base(path))
		_ = syscall.Kill(pid, syscall.SIGTERM) // it may just have ended
		harness.Within(12*time.Second, func() bool { return !harness.Living(pid) })
	}
}

// runShell runs blocks in one shell.
func runShell(t *testing.T, tree string, env, blocks []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), shellMax)
	defer cancel()
	shell := exec.CommandContext(ctx, "bash", "-c", "set -eux\n"+strings.Join(blocks, ""))
	shell.Dir, shell.Env = tree, env
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	shell.WaitDelay = 5 * time.Second                                                        // a server that the shell started keeps the pipe
	shell.Cancel = func() error { return syscall.Kill(-shell.Process.Pid, syscall.SIGTERM) } // and what it started
	defer endCluster(t, env)
	printed, err := shell.CombinedOutput()
	t.Logf("%s", printed)
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		t.Errorf("README.md: %v", err)
	}
}

// shellBlocks returns the ```sh blocks but for those that the test treats apart,
// and those about pi.
func shellBlocks(t *testing.T) []string {
	t.Helper()
	var blocks []string
	seen := map[string]bool{}
	general, _ := readme(t)
	for _, b := range fenced(general, "sh") {
		seen[b] = true
		if b != serve && b != runTests {
			blocks = append(blocks, b)
		}
	}
	if !seen[serve] || !seen[runTests] || len(blocks) < 4 {
		t.Fatalf("README.md does not show what it must: %q", blocks)
	}
	return blocks
}

// readme returns README.md without its section about pi, and that section.
func readme(t *testing.T) (general, pi string) {
	t.Helper()
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), "\n## With pi\n")
	pi, after, more := strings.Cut(rest, "\n## ")
	if !found || !more {
		t.Fatal("README.md has no section about pi")
	}
	return before + "\n## " + after, pi
}

// fenced returns the blocks of a language in a text.
func fenced(text, language string) []string {
	var blocks []string
	var in *strings.Builder
	for line := range strings.Lines(text) {
		switch {
		case line == "```"+language+"\n":
			in = &strings.Builder{}
		case line == "```\n" && in != nil:
			blocks = append(blocks, in.String())
			in = nil
		case in != nil:
			in.WriteString(line)
		}
	}
	return blocks
}

func listens() bool {
	c, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return false
	}
	return c.Close() == nil
}

// copyTree copies what a clone would hold.
func copyTree(t *testing.T) string {
	t.Helper()
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	to := t.TempDir()
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		switch {
		case d.IsDir() && rel != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "tests"):
			return filepath.SkipDir
		case d.IsDir():
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		case rel == "rejoin" || !d.Type().IsRegular():
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o600)
		if info, err := d.Info(); err != nil {
			return err
		} else if info.Mode()&0o100 != 0 {
			mode = 0o700 // a script
		}
		return os.WriteFile(filepath.Join(to, rel), b, mode)
	})
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// environment is a user's on a machine with nothing but Go: a home of its own,
// the caches that the tests have.
func environment(t *testing.T, home string) []string {
	t.Helper()
	env := []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8"}
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOPATH", "GOPROXY", "GOFLAGS", "GONOSUMDB", "GOSUMDB", "GONOSUMCHECK", "GOPRIVATE", "GOTOOLCHAIN"} {
		b, err := exec.Command("go", "env", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		if v := strings.TrimSpace(string(b)); v != "" {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// stopServer ends the server that holds the lock file.
func stopServer(t *testing.T, lock string) {
	t.Helper()
	b, err := os.ReadFile(lock)
	if err != nil {
		return // none has run
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Errorf("%s: %v", lock, err)
		return
	}
	if syscall.Kill(pid, syscall.SIGTERM) == nil && !harness.Within(12*time.Second, func() bool { return !harness.Living(pid) }) {
		t.Errorf("server %d still runs 12 s after SIGTERM", pid)
	}
}

// TestFlagsAreDocumented compares the flags of `rejoin serve` with the table of
// docs/operations.md, both ways.
func TestFlagsAreDocumented(t *testing.T) {
	help, err := exec.CommandContext(harness.Context(t), harness.Binary(t), "serve", "--help").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, help)
	}
	known := map[string]bool{}
	for _, word := range strings.Fields(string(help)) {
		if name, ok := strings.CutPrefix(word, "--"); ok && name != "" && name != "help" {
			known[strings.TrimRight(name, ",.;)")] = true
		}
	}
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile(filepath.Join(root, "docs", "operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	for line := range strings.Lines(string(doc)) {
		cell, ok := strings.CutPrefix(line, "| `--")
		if !ok {
			continue
		}
		cell, _, _ = strings.Cut(cell, " | ")
		for _, flag := range strings.Split(cell, "`--") {
			name := strings.FieldsFunc(flag, func(r rune) bool { return r == ' ' || r == '`' })[0]
			documented[name] = true
			if !known[name] {
				t.Errorf("docs/operations.md has --%s, `rejoin serve` has not", name)
			}
		}
	}
	for name := range known {
		if !documented[name] {
			t.Errorf("docs/operations.md does not have --%s", name)
		}
	}
	if len(known) < 10 {
		t.Fatalf("only these flags were found: %v", known)
	}
}

// TestCommandsAreThere: what the documents call exists.
func TestCommandsAreThere(t *testing.T) {
	for _, name := range []string{"serve", "start", "ls", "attach", "send", "respond", "events", "snapshot", "verify", "stop", "resume", "delete", "logs", "token", "version", "nats-config", "workers", "worker drain", "token add", "token ls", "token revoke", "bench", "health", "doctor"} {
		out, err := exec.CommandContext(harness.Context(t), harness.Binary(t), append(strings.Fields(name), "--help")...).CombinedOutput()
		if err != nil || !regexp.MustCompile(`(?m)^ +rejoin `+name+`( |$)`).Match(out) { // of a name that it does not know there is its parent's help
			t.Errorf("rejoin %s --help: %v\n%s", name, err, out)
		}
	}
}
