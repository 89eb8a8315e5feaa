package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rejoin/tests/harness"
)

// finding is one of `rejoin doctor`.
type finding struct{ State, What, Text, Do string }

// doctor runs it and returns its exit status and findings by what they are of.
func doctor(t *testing.T, dir string, args ...string) (code int, found map[string]finding) {
	t.Helper()
	r := run(t, dir, append([]string{"doctor", "--json"}, args...)...)
	var report struct {
		OK       bool
		Findings []finding
	}
	if err := json.Unmarshal([]byte(r.out), &report); err != nil {
		t.Fatalf("exit code %d, %v\n%s%s", r.code, err, r.out, r.err)
	}
	if report.OK != (r.code == 0) {
		t.Errorf("exit code %d and ok %v", r.code, report.OK)
	}
	found = map[string]finding{}
	for _, f := range report.Findings {
		found[f.What] = f
	}
	return r.code, found
}

func wantFinding(t *testing.T, found map[string]finding, what, state, says string) {
	t.Helper()
	f, ok := found[what]
	if !ok || f.State != state || !strings.Contains(f.Text, says) {
		t.Errorf("%s: %+v, want %s and %q", what, f, state, says)
	}
	if state != "ok" && f.Do == "" {
		t.Errorf("%s: nothing says what to do: %+v", what, f)
	}
}

// Before the start: what a start would find. Nothing is made by looking.
func TestDoctorBeforeTheStart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	free := harness.FixedPort(t)
	code, found := doctor(t, dir, "--", "--listen", free, "--durability", "20ms")
	if code != 0 {
		t.Errorf("exit code %d: %v", code, found)
	}
	for what, says := range map[string]string{
		"configuration": "", "server": "none runs", "system": "Linux", "data directory": "made by the first start", "fsync": " ms",
		"journal": "in the last 20ms", "listener " + free: "can be opened", "agent demo": "this program", "token": "made by the first start",
	} {
		wantFinding(t, found, what, "ok", says)
	}
	for _, what := range []string{"clock", "file system", "free space", "open files", "containment"} { // as this machine is
		if _, ok := found[what]; !ok {
			t.Errorf("nothing is said of %s", what)
		}
	}
	if _, err := os.Lstat(dir); !os.IsNotExist(err) {
		t.Errorf("the data directory is there: %v", err)
	}
	out := run(t, dir, "doctor", "--", "--listen", free)
	if out.code != 0 || !strings.Contains(out.out, "ok    data directory ") {
		t.Errorf("exit code %d\n%s%s", out.code, out.out, out.err)
	}
}

// What keeps a server from starting, or from being safe, is named with what to do.
func TestDoctorFindsWhatIsWrong(t *testing.T) {
	other := harness.Start(t, harness.Options{})
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	tokens := filepath.Join(dir, "tokens.yaml")
	for path, text := range map[string]string{tokens: "", filepath.Join(dir, "token"): "x\n"} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil { //nolint:gosec // that is what is wrong with it
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, "quarantine", "then"), 0o700); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "c.yaml")
	yaml := "agents: {lost: {adapter: jsonl, argv: [no-such-program]}, odd: {adapter: jsonl, argv: [cat], cwd: /nowhere}, fine: {adapter: jsonl, argv: [cat], limits: {memory: 1GiB}}}\n" +
		"default: fine\ncgroups: \"off\"\nlimits: {maxConnections: 1000000000}\nlisten: ['" + other.URL() + "']\n"
	if err := os.WriteFile(config, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	code, found := doctor(t, dir, "--config", config)
	if code != 1 {
		t.Errorf("exit code %d: %v", code, found)
	}
	wantFinding(t, found, "data directory", "warn", "mode 0755")
	wantFinding(t, found, "quarantine", "warn", "1 starts")
	wantFinding(t, found, "open files", "warn", "may need 1000")
	wantFinding(t, found, "agent lost", "fail", "executable file not found")
	wantFinding(t, found, "agent odd", "fail", "working directory /nowhere")
	wantFinding(t, found, "agent fine", "ok", "/cat")
	wantFinding(t, found, "limits of fine", "fail", "memory cannot be enforced")
	wantFinding(t, found, "listener "+other.URL(), "fail", "address already in use")
	wantFinding(t, found, "token", "warn", "mode 0644")
	wantFinding(t, found, "token file", "fail", "mode 0644")

	if code, found := doctor(t, dir, "--", "--durability", "soon"); code != 1 {
		t.Errorf("exit code %d: %v", code, found)
	} else {
		wantFinding(t, found, "configuration", "fail", "soon")
	}
	refused(t, dir, 2, "after --", "doctor", "--", "--no-such-flag")
	if code, found := doctor(t, dir, "--server", harness.FixedPort(t)); code != 1 {
		t.Errorf("exit code %d: %v", code, found)
	} else {
		wantFinding(t, found, "server", "fail", "refused")
	}
}

// After the start: what the server says of itself, beside what it stands on.
func TestDoctorOfARunningServer(t *testing.T) {
	s := harness.Start(t, harness.Options{Args: []string{"--admin", "127.0.0.1:0"}})
	code, found := doctor(t, s.Dir)
	if code != 0 {
		t.Errorf("exit code %d: %v", code, found)
	}
	for what, says := range map[string]string{
		"ready": "http://127.0.0.1:", "server": "up for", "durability": "always", "journal": "ok, ", "data directory": s.Dir,
		"listeners": s.URL(), "token": filepath.Join(s.Dir, "token"), "token file": "none",
	} {
		wantFinding(t, found, what, "ok", says)
	}
	if code, found := doctor(t, s.Dir, "--token", "wrong"); code != 1 {
		t.Errorf("exit code %d: %v", code, found)
	} else {
		wantFinding(t, found, "server", "fail", "invalid token")
	}
}
