package readme

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"rejoin/tests/harness"
	"rejoin/tests/mockmodel"
	"rejoin/tests/realpi"
)

// TestReadmeWithPi runs what README.md says about two people and pi, with the real
// pi, whose model is scripted. Like TestReadme it needs the default port.
func TestReadmeWithPi(t *testing.T) {
	if os.Getenv("README") != "1" {
		t.Skip("set README=1 to run the commands of README.md; port 9800 must be free")
	}
	install := realpi.Find(t)
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatalf("port 9800, which README.md uses, is not free: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	model := mockmodel.Start(t)
	tree, home := t.TempDir(), t.TempDir()
	realpi.Settle(t, home, model.URL())
	env := environment(t, home)
	bin := filepath.Join(home, "bin")
	for i, v := range env {
		if path, ok := strings.CutPrefix(v, "PATH="); ok {
			env[i] = "PATH=" + bin + ":" + path
		}
	}
	writeProgram(t, filepath.Join(bin, "pi"), install)
	binary, err := os.ReadFile(harness.Binary(t))
	if err == nil {
		err = os.WriteFile(filepath.Join(tree, "rejoin"), binary, 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	_, text := readme(t)
	config := strings.ReplaceAll(strings.Join(fenced(text, "yaml"), ""), "/path/to/", filepath.Join(root, "tests", "pi", "testdata")+"/")
	blocks := fenced(text, "sh")
	if len(blocks) < 4 || !strings.Contains(config, "ask.ts") {
		t.Fatalf("README.md does not show what it must: %q, %s", blocks, config)
	}
	if err := os.WriteFile(filepath.Join(tree, "rejoin.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stopServer(t, filepath.Join(home, ".local", "share", "rejoin", "lock"))
		if t.Failed() {
			log, err := os.ReadFile(filepath.Join(tree, "server.log"))
			t.Logf("the server:\n%s%v", log, err)
		}
	})
	runShell(t, tree, env, blocks)
	if n := len(model.Requests()); n != 4 { // two prompts, and what came of each tool
		t.Errorf("the model was asked %d times", n)
	}
}

// writeProgram makes the program pi, as npm would, kept off the network.
func writeProgram(t *testing.T, path string, in realpi.Install) {
	t.Helper()
	text := "#!/bin/sh\n"
	for name, value := range realpi.Quiet() {
		text += fmt.Sprintf("export %s='%s'\n", name, value)
	}
	text += fmt.Sprintf("exec '%s' '%s' \"$@\"\n", in.Node, in.CLI)
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(harness.Context(t), path, "--version").CombinedOutput(); err != nil {
		t.Fatalf("pi --version: %v\n%s", err, out)
	}
}
