package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// What nats-config says to start names files where they will be: a server's where it
// is installed, with the folder to copy there, a role's where they were written.
func TestNATSConfigTells(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "nats")
	for installed, want := range map[string]string{
		"":          "nats-server -c " + dir + "/b/nats.conf\n",
		"/etc/nats": "nats-server -c /etc/nats/nats.conf # where what is in " + dir + "/b has been copied to\n",
	} {
		args := []string{"nats-config", "--dir", dir, "--servers", "a,b"}
		if installed != "" {
			args = append(args, "--install-dir", installed)
		}
		code, out, errOut := runApp(t, nil, args...)
		if code != exitOK || !strings.Contains(out, want) {
			t.Errorf("installed in %q: %d, want %q\n%s%s", installed, code, want, out, errOut)
		}
		if role := "--nats-ca " + dir + "/ca.pem --nats-creds " + dir + "/worker.nk --nats-system-creds " + dir + "/system.nk\n"; !strings.Contains(out, role) {
			t.Errorf("installed in %q: no %q\n%s", installed, role, out)
		}
	}
}
