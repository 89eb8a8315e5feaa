package blackbox

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rejoin/tests/harness"
)

type containment struct {
	Cgroups    int
	Group, Why string
	Limits     []string
}

func contained(t *testing.T, c *harness.Client) containment {
	t.Helper()
	return harness.Do[struct{ Containment containment }](t, c, "server_status", nil).Containment
}

// needGroups skips where the system lets this process make no control groups.
func needGroups(t *testing.T, c *harness.Client, limits ...string) {
	t.Helper()
	is := contained(t, c)
	if is.Cgroups == 0 {
		t.Skipf("no control groups on this system: %s", is.Why)
	}
	for _, limit := range limits {
		if !slices.Contains(is.Limits, limit) {
			t.Skipf("no controller %s on this system", limit)
		}
	}
}

func configured(t *testing.T, yaml string, args ...string) *harness.Server {
	t.Helper()
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	return harness.Start(t, harness.Options{Args: append([]string{"--config", path}, args...)})
}

// TestHiddenDescendantsInTheirGroup: with control groups it is known whose a process
// is, whatever it does: it ends with its session, and after a kill -9 before the
// next server is ready. Proves I-W3.
func TestHiddenDescendantsInTheirGroup(t *testing.T) {
	harness.Covers(t, "I-W3")
	s := harness.Start(t, harness.Options{})
	cl := harness.Dial(t, s)
	needGroups(t, cl)
	older, first := hidden(t, cl)
	younger, second := hidden(t, cl)
	must(t, cl, "stop_session", map[string]any{"sessionId": younger, "graceMs": 1000})
	if harness.Living(second) || !harness.Living(first) {
		t.Errorf("after its session's end one lives: %v; the other session's lives: %v", harness.Living(second), harness.Living(first))
	}
	group := contained(t, cl).Group
	s.Kill9()
	if !harness.Living(first) {
		t.Fatal("it died with the server: the test shows nothing")
	}
	s.Run()
	if harness.Living(first) {
		t.Error("it outlived the next start")
	}
	if i := get(t, harness.Dial(t, s), older); i.Status != "interrupted" {
		t.Errorf("its session is %s", i.Status)
	}
	if code := s.Term(); code != 0 {
		t.Errorf("the server ended with %d", code)
	}
	if _, err := os.Stat(group); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", group, err)
	}
}

// TestForkBombMeetsItsLimit: a child's processes stay below the limit of its agent,
// another session does not notice, and a stop ends them all.
func TestForkBombMeetsItsLimit(t *testing.T) {
	argv, err := json.Marshal(harness.ChildArgv("script", "bomb", "200"))
	if err != nil {
		t.Fatal(err)
	}
	s := configured(t, `
agents:
  bomb: {adapter: jsonl, argv: `+string(argv)+`, limits: {pids: 60}}
  calm: {adapter: lines, argv: [cat]}
default: calm
`)
	cl := harness.Dial(t, s)
	needGroups(t, cl, "pids")
	calm := harness.Do[struct{ SessionID string }](t, cl, "start_session", nil).SessionID
	watch := subscribe(t, cl, calm, fromStart)
	bomb := harness.Do[struct{ SessionID string }](t, cl, "start_session", map[string]any{"agent": "bomb"}).SessionID
	count := func() int { return len(harness.MarkedBy("REJOIN_SESSION", "default/"+bomb)) }
	st := subscribe(t, cl, bomb, fromStart)
	if started := n(ofType(t, st, "t")); started < 10 || started >= 60 {
		t.Errorf("%d processes were made, the limit is 60 with threads", started)
	}
	if n := count(); n < 10 || n > 60 {
		t.Errorf("%d processes live, the limit is 60", n)
	}
	send(t, cl, calm, "a", "still here")
	if got := said(t, watch); got != "still here" {
		t.Errorf("the other session said %q", got)
	}
	must(t, cl, "stop_session", map[string]any{"sessionId": bomb, "graceMs": 400})
	if n := count(); n != 0 {
		t.Errorf("%d processes are left", n)
	}
	send(t, cl, calm, "b", "and here")
	if got := said(t, watch); got != "and here" {
		t.Errorf("the other session said %q", got)
	}
}

// TestMemoryLimit: the kernel's kill shows in the end of the run.
func TestMemoryLimit(t *testing.T) {
	s := configured(t, `
agents:
  eater: {adapter: lines, argv: [sh, -c, 'exec tail /dev/zero'], limits: {memory: 32MiB}}
  calm: {adapter: lines, argv: [cat]}
default: calm
`)
	cl := harness.Dial(t, s)
	needGroups(t, cl, "memory")
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(groups)) {
		if _, path, ok := strings.Cut(line, ":memory:"); ok && strings.TrimSpace(path) != "/" && os.Getenv("REJOIN_TEST_CGROUPS") == "" {
			t.Skipf("the memory group %s is whoever's started this test; REJOIN_TEST_CGROUPS=1 uses it", strings.TrimSpace(path))
		}
	}
	eater := harness.Do[struct{ SessionID string }](t, cl, "start_session", map[string]any{"agent": "eater"}).SessionID
	e := body[struct{ Reason, Detail string }](t, ofType(t, subscribe(t, cl, eater, fromStart), "session_end"))
	if e.Reason != "exited" || e.Detail != "oom_killed" {
		t.Errorf("the end is %+v", e)
	}
	if x := harness.Do[struct{ Exit struct{ Detail string } }](t, cl, "get_session", map[string]any{"sessionId": eater}).Exit; x.Detail != "oom_killed" {
		t.Errorf("the exit is %+v", x)
	}
}

// TestLimitThatCannotBeEnforced: nothing starts without a limit that its agent
// requires.
func TestLimitThatCannotBeEnforced(t *testing.T) {
	s := configured(t, `
agents:
  must: {adapter: lines, argv: [cat], limits: {pids: 100}}
  may: {adapter: lines, argv: [cat], limits: {pids: 100, enforce: preferred}}
default: may
`, "--cgroups", "off")
	cl := harness.Dial(t, s)
	if is := contained(t, cl); is.Cgroups != 0 || is.Why != "switched off" || len(is.Limits) != 0 {
		t.Errorf("containment is %+v", is)
	}
	e := refuse(t, cl, -32009, "start_session", map[string]any{"agent": "must"})
	if e.Data.Reason != "unsupported" || e.Message != "failed to start: limit of pids cannot be enforced: control groups are switched off" {
		t.Errorf("refused with %+v", e)
	}
	if left := harness.Do[[]info](t, cl, "list_sessions", nil); len(left) != 0 {
		t.Errorf("sessions are left: %+v", left)
	}
	must(t, cl, "start_session", map[string]any{"agent": "may"})
	s.Says(`level=ERROR msg="agent cannot start" agent=must`, `level=WARN msg="agent runs without its limits" agent=may`, `msg="run without its limits"`)
}
