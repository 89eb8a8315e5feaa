package main

import (
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

var gatewayLine = regexp.MustCompile(`gateway-[ab] on +tcp://(\S+)`)

// TestMeasureSplit: the roles of a split system, each with processes of its own.
// Everybody is at the first gateway.
func TestMeasureSplit(t *testing.T) {
	measuring(t)
	dir, at, _ := cluster(t)
	groups := map[string][]int{}
	files, err := filepath.Glob(filepath.Join(dir, "*.pid"))
	if err != nil || len(files) < 9 {
		t.Fatalf("%d processes, %v", len(files), err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
		if err != nil {
			t.Fatal(err)
		}
		role, _, _ := strings.Cut(filepath.Base(f), "-")
		groups[role] = append(groups[role], pid)
	}
	paced := gather(t, at, pacedSessions, harness.ChildArgv("paced", strconv.Itoa(pacedEvents)))
	const events = pacedSessions * pacedEvents
	run := func() map[string]float64 {
		before := map[string]time.Duration{}
		for role, pids := range groups {
			before[role] = cpu(t, pids...)
		}
		paced.prompt(pacedEvents)
		spent := map[string]float64{}
		for role, pids := range groups {
			spent[role] = perUnit(cpu(t, pids...)-before[role], events)
		}
		return spent
	}
	rounds := func(what string) {
		best := run()
		for range measureRounds - 1 {
			for role, v := range run() {
				best[role] = min(best[role], v)
			}
		}
		t.Logf("%s: µs per event: workers %.1f, gateways %.1f, brokers %.1f, NATS servers %.1f", what, best["worker"], best["gateway"], best["broker"], best["nats"])
	}
	rounds("nobody watches")
	heard := make(chan int, pacedSessions*pacedObservers)
	watch := func(each int) {
		for _, id := range paced.sessions {
			for range each {
				paced.watcher(id, heard)
			}
		}
	}
	watch(1)
	rounds("one client each")
	watch(pacedObservers - 1)
	rounds(strconv.Itoa(pacedObservers) + " clients each")
}

// cluster runs deploy/local-cluster.sh until the test ends; a and b are its gateways.
func cluster(t *testing.T) (dir string, a, b address) {
	t.Helper()
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	said := filepath.Join(dir, "said")
	out, err := os.Create(said)
	if err != nil {
		t.Fatal(err)
	}
	const token = "a-token-of-this-test-only"
	cmd := exec.Command(filepath.Join(root, "deploy", "local-cluster.sh"), "--data-dir", filepath.Join(dir, "data"), "--listen", "tcp://127.0.0.1:0", "--allow-argv", "--token", token)
	cmd.Env = append(os.Environ(), "REJOIN_BIN="+harness.PlainBinary(t), "NATS_SERVER_BIN="+harness.NATSBinary(t))
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended by itself
		_ = cmd.Wait()                          // the same
		_ = out.Close()
	})
	text := func() string {
		b, _ := os.ReadFile(said) // it is there
		return string(b)
	}
	if !harness.Within(4*harness.Patience, func() bool { return strings.Contains(text(), "to begin") }) {
		t.Fatalf("the cluster does not come up:\n%s", text())
	}
	m := gatewayLine.FindAllStringSubmatch(text(), -1)
	if len(m) != 2 {
		t.Fatalf("two gateways are not named in:\n%s", text())
	}
	return filepath.Join(dir, "data"), address{"tcp", m[0][1], token}, address{"tcp", m[1][1], token}
}
