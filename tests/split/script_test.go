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

// TestLocalClusterRefuses: deploy/local-cluster.sh says what is wrong with a port, and
// writes nothing that would stay wrong.
func TestLocalClusterRefuses(t *testing.T) {
	t.Parallel()
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ kept, port, says string }{
		"no number":    {"", "abc", "--nats-port needs a number, not abc"},
		"another port": {"4555", "4556", "have port 4555: --nats-port cannot change it"},
	} {
		dir := t.TempDir()
		kept := filepath.Join(dir, "nats-port")
		if c.kept != "" {
			if err := os.WriteFile(kept, []byte(c.kept), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.CommandContext(t.Context(), filepath.Join(root, "deploy", "local-cluster.sh"), "--data-dir", dir, "--nats-port", c.port)
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
