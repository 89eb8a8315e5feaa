package split_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"rejoin/tests/harness"
)

// testDoctor: it says what there is of each role, and what the NATS servers keep.
func testDoctor(t *testing.T, c *cluster) {
	asked := c.rejoin(t, "--data-dir", t.TempDir(), "doctor", "--server", c.a+","+c.b)
	nats := filepath.Join(c.dir, "nats")
	var servers []string
	for _, port := range c.ports() {
		servers = append(servers, "tls://127.0.0.1:"+port)
	}
	before := c.rejoin(t, "--data-dir", t.TempDir(), "doctor", "--server", c.a, "--", "--roles", "worker", "--nats", strings.Join(servers, ","),
		"--nats-ca", filepath.Join(nats, "ca.pem"), "--nats-creds", filepath.Join(nats, "worker.nk"), "--nats-system-creds", filepath.Join(nats, "system.nk"))
	for text, lines := range map[string][]string{
		asked:  {"ok durability always", "ok journal ok", "ok brokers 2", "ok gateways 2", "ok workers 2", "ok replicas 3"},
		before: {"ok nats one answers, of 3 that are known", "ok durability always, as all 3 servers say"},
	} {
		said := strings.Join(strings.Fields(text), " ")
		for _, line := range lines {
			if !strings.Contains(said, line) {
				t.Errorf("%q is missing in\n%s", line, text)
			}
		}
	}
}

// TestDoctorOfUnsureServers: servers that sync every two minutes keep every role from
// starting; of those that nobody has asked nothing is known.
func TestDoctorOfUnsureServers(t *testing.T) {
	flags := natsAlone(t, "")("worker")[1:] // without serve
	system := filepath.Join(filepath.Dir(flags[5]), "system.nk")
	look := func(more ...string) (code int, said string) {
		t.Helper()
		args := append([]string{"doctor", "--data-dir", t.TempDir(), "--"}, flags...)
		cmd := exec.CommandContext(harness.Context(t), harness.Binary(t), append(args, more...)...)
		out, _ := cmd.CombinedOutput() // its status is looked at below
		return cmd.ProcessState.ExitCode(), strings.Join(strings.Fields(string(out)), " ")
	}
	if !harness.Within(harness.Patience, func() bool { // the servers are on their way up
		_, said := look("--accept-durability")
		return strings.Contains(said, "warn nats one answers, of 1 that are known")
	}) {
		t.Fatal("the servers do not come up")
	}
	for _, tt := range []struct {
		name string
		more []string
		code int
		says string
	}{
		{"default", []string{"--nats-system-creds", system}, 1, "fail durability the servers sync every 2m0s: no role starts"},
		{"accepted", []string{"--nats-system-creds", system, "--accept-durability"}, 0, "warn durability the servers sync every 2m0s"},
		{"unknown", []string{"--accept-durability"}, 0, "warn durability nobody knows"},
		{"declared", []string{"--nats-durability", "always"}, 0, "ok durability always, as --nats-durability says"},
		{"refused", nil, 1, "fail configuration"},
	} {
		if code, said := look(tt.more...); code != tt.code || !strings.Contains(said, tt.says) {
			t.Errorf("%s: exit code %d, want %d and %q in\n%s", tt.name, code, tt.code, tt.says, said)
		}
	}
}
