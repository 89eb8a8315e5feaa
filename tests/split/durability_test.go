package split_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"rejoin/journal/natsconf"
	"rejoin/tests/harness"
)

// natsAlone starts one server with what nats-config writes, but with its sync
// interval replaced, and returns the flags of a role there.
func natsAlone(t *testing.T, interval string) (flags func(role string) []string) {
	t.Helper()
	dir := t.TempDir()
	cfg := natsconf.Config{Dir: dir, StoreDir: filepath.Join(dir, "store"), Servers: []string{strings.TrimPrefix(harness.FixedPort(t), "tcp://")}}
	w, err := natsconf.Write(cfg)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(w.Configs[0])
	if err != nil {
		t.Fatal(err)
	}
	before, after, found := strings.Cut(string(b), ", sync_interval: always")
	if !found {
		t.Fatalf("no interval in\n%s", b)
	}
	if err := os.WriteFile(w.Configs[0], []byte(before+interval+after), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, exec.Command(harness.NATSBinary(t), "-c", w.Configs[0], "-l", filepath.Join(dir, "log")))
	return func(role string) []string {
		return []string{"serve", "--roles", role, "--nats", w.URLs[0], "--nats-ca", w.CA, "--nats-creds", filepath.Join(dir, role+".nk")}
	}
}

// run starts a process that gets SIGTERM at the end of the test, which it must not
// have come to before, and ends in order by that.
func run(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	cmd.Stderr = t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(cmd.Process.Signal(syscall.SIGTERM), cmd.Wait()); err != nil {
			t.Errorf("%v: %v", cmd.Args, err)
		}
	})
}

// TestDefaultSyncIsRefused: a role does not serve over servers that sync every two
// minutes, unless that was accepted; then server_status says what they keep.
func TestDefaultSyncIsRefused(t *testing.T) {
	flags := natsAlone(t, "")
	dir := t.TempDir()
	system := filepath.Join(filepath.Dir(flags("broker")[6]), "system.nk")
	asking := func(role string, more ...string) []string {
		return append(append(flags(role), "--nats-system-creds", system, "--data-dir", filepath.Join(dir, role)), more...)
	}
	for _, role := range []string{"broker", "worker", "gateway"} {
		args := asking(role)
		if role == "gateway" {
			args = append(args, "--token", "t", "--listen", "tcp://127.0.0.1:0")
		}
		if code, text := tryRejoin(t, args...); code != 1 || !strings.Contains(text, "sync every 2m0s") || !strings.Contains(text, "--accept-durability") {
			t.Errorf("%s: exit %d, %s", role, code, text)
		}
	}
	system = flags("gateway")[8]
	if code, text := tryRejoin(t, asking("broker")...); code != 1 || !strings.Contains(text, "is that a user of the system account?") || strings.Contains(text, "nats: ") {
		t.Errorf("the system's credentials are a gateway's: exit %d, %s", code, text)
	}
	system = filepath.Join(filepath.Dir(system), "system.nk")
	ready := filepath.Join(dir, "ready")
	run(t, exec.Command(harness.Binary(t), asking("broker", "--accept-durability")...))
	run(t, exec.Command(harness.Binary(t), asking("gateway", "--accept-durability", "--token", "t", "--listen", "tcp://127.0.0.1:0", "--ready-file", ready)...))
	if got := durability(t, ready); got != "2m0s" {
		t.Errorf("durability is %q", got)
	}
}

// TestUnknownSyncIsAccepted: without anybody who could say it, what the servers keep
// is unknown, and shown so.
func TestUnknownSyncIsAccepted(t *testing.T) {
	flags := natsAlone(t, ", sync_interval: 1s")
	dir := t.TempDir()
	ready := filepath.Join(dir, "ready")
	run(t, exec.Command(harness.Binary(t), append(flags("broker"), "--accept-durability")...))
	run(t, exec.Command(harness.Binary(t), append(flags("gateway"), "--data-dir", dir, "--accept-durability", "--token", "t", "--listen", "tcp://127.0.0.1:0", "--ready-file", ready)...))
	if got := durability(t, ready); got != "unknown" {
		t.Errorf("durability is %q", got)
	}
}

// durability waits for a gateway and asks it.
func durability(t *testing.T, ready string) string {
	t.Helper()
	var r harness.Ready
	if !harness.Within(2*harness.Patience, func() bool {
		b, err := os.ReadFile(ready)
		return err == nil && json.Unmarshal(b, &r) == nil && len(r.Listeners) == 1
	}) {
		t.Fatal("the gateway does not get ready")
	}
	c, err := harness.Connect(harness.Context(t), "tcp", strings.TrimPrefix(r.Listeners[0].URL, "tcp://"), "t")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // it says nothing of interest
	return harness.Do[struct{ Durability string }](t, c, "server_status", nil).Durability
}

// TestRefusedAtOnce: what cannot be, on the command line, is a usage error that
// names the flag, before anything is touched.
func TestRefusedAtOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "none")
	nats := []string{"--nats", "tls://127.0.0.1:1", "--nats-durability", "always"}
	for _, c := range []struct {
		says string
		args []string
	}{
		{"--roles gateway needs --nats", []string{"--roles", "gateway"}},
		{"--nats-ca is for roles", []string{"--nats-ca", "f"}},
		{"--label is for workers", []string{"--label", "a=b"}},
		{"--durability is for a journal of its own", append(nats, "--roles", "broker", "--durability", "1s")},
		{"--durability is for a journal of its own", append(nats, "--roles", "broker", "--durability", "always")},
		{"--listen is for the role gateway", append(nats, "--roles", "broker,worker", "--listen", "tcp://127.0.0.1:0")},
		{"--worker-id is for the role worker", append(nats, "--roles", "gateway", "--worker-id", "w")},
		{"--allow-argv is for the role broker", append(nats, "--roles", "gateway", "--allow-argv")},
		{`--label "a b"`, append(nats, "--roles", "worker", "--label", "a b")},
		{"--label repo is given twice", append(nats, "--roles", "worker", "--label", "repo=a", "--label", "repo=b")},
		{"gateways that serve the same sessions must know the same tokens", append(nats, "--roles", "gateway")},
		{"nobody knows what the NATS servers keep", []string{"--roles", "broker", "--nats", "tls://127.0.0.1:1"}},
		{"--accept-durability is for roles", []string{"--accept-durability"}},
	} {
		code, text := tryRejoin(t, append([]string{"serve", "--data-dir", dir}, c.args...)...)
		if code != 2 || !strings.Contains(text, c.says) {
			t.Errorf("%q: exit %d, %s", c.args, code, text)
		}
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("a refused start made the data directory")
	}
}

// TestTwoGatewaysOfOneDirectory: the second one is refused, whatever it listens on.
func TestTwoGatewaysOfOneDirectory(t *testing.T) {
	flags := natsAlone(t, ", sync_interval: always")
	dir := t.TempDir()
	args := func(n int) []string {
		return append(flags("gateway"), "--data-dir", filepath.Join(dir, "data"), "--nats-durability", "always", "--token", "t",
			"--listen", "tcp://127.0.0.1:0", "--ready-file", filepath.Join(dir, fmt.Sprint(n)))
	}
	run(t, exec.Command(harness.Binary(t), append(flags("broker"), "--nats-durability", "always")...))
	run(t, exec.Command(harness.Binary(t), args(1)...))
	durability(t, filepath.Join(dir, "1"))
	if code, text := tryRejoin(t, args(2)...); code != 1 || !strings.Contains(text, "another gateway runs with the data directory") {
		t.Errorf("exit %d, %s", code, text)
	}
}
