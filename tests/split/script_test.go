package split_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"rejoin/tests/harness"
)

// TestLocalClusterRefuses: deploy/local-cluster.sh says what is wrong with a flag or a
// port, and writes nothing that would stay wrong.
func TestLocalClusterRefuses(t *testing.T) {
	t.Parallel()
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		kept string
		args []string
		says string
	}{
		"no number":         {"", []string{"--nats-port", "abc"}, "--nats-port needs a number, not abc"},
		"another port":      {"4555", []string{"--nats-port", "4556"}, "have port 4555: --nats-port cannot change it"},
		"no flag":           {"", []string{"--accept-durability", "--no-auth"}, "--accept-durability is none of this script's flags"},
		"no flag, at last":  {"", []string{"--no-auth", "--nonsense"}, "--nonsense is none of this script's flags"},
		"no flag, a value":  {"", []string{"--nonsense=1"}, "--nonsense is none of this script's flags"},
		"no flag at all":    {"", []string{"start"}, "start is none of this script's flags"},
		"a switch's value":  {"", []string{"--allow-argv", "true"}, "true is none of this script's flags"},
		"the value missing": {"", []string{"--no-auth", "--log-level"}, "--log-level needs a value"},
	} {
		dir := t.TempDir()
		kept := filepath.Join(dir, "nats-port")
		if c.kept != "" {
			if err := os.WriteFile(kept, []byte(c.kept), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.CommandContext(t.Context(), filepath.Join(root, "deploy", "local-cluster.sh"), append([]string{"--data-dir", dir}, c.args...)...)
		cmd.Env = append(os.Environ(), "REJOIN_BIN=/bin/false", "NATS_SERVER_BIN=/bin/false")
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(string(out), c.says) {
			t.Errorf("%s: %v, %s", name, err, out)
		}
		if b, err := os.ReadFile(kept); string(b) != c.kept || (err != nil) != (c.kept == "") {
			t.Errorf("%s: the port that is kept is %q now: %v", name, b, err)
		}
	}
}
