package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rejoin/tests/harness"
)

func TestMain(m *testing.M) { harness.Main(m, nil) }

// runApp runs a command line in this process, in a home of its own.
func runApp(t *testing.T, env map[string]string, args ...string) (code int, out, errOut string) {
	t.Helper()
	var o, e bytes.Buffer
	home := t.TempDir()
	a := &app{in: strings.NewReader(""), out: &o, err: &e, getenv: func(name string) string {
		if v, ok := env[name]; ok || name != "HOME" {
			return v
		}
		return home
	}}
	code = a.run(t.Context(), args)
	return code, o.String(), e.String()
}

func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
