package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// FuzzConfig: any file is taken or refused, never more; what is taken is printed
// as a file that is taken, too, and prints the same.
func FuzzConfig(f *testing.F) {
	for _, s := range []string{
		"", "default: a\nagents: {a: {adapter: jsonl, argv: [cat]}}\n",
		"listen: ['unix:///run/x.sock', 'tcp://127.0.0.1:0']\nlimits: {maxEventBytes: 2MiB, authTimeout: 3s}\n",
		"retention: {maxAge: 48h, maxBytes: 64MiB, maxEvents: 10}\n", "agents: {a: &x {adapter: rpi, argv: [rpi], options: {noTools: true}}, b: *x}\n",
		"agents: {a: {adapter: jsonl, argv: [cat], env: {A: b}, envAllow: ['GIT_*'], cwd: /tmp, allowArgs: true, stderr: event, restart: resume}}\n",
		"durability: 20ms\n", "unknown: 1\n", "- 1\n", "a: [", "\x00", "limits: {authTimeout: 1e9}\n", "? a\n", "!!binary x", "--- a\n--- b\n", "listen: [tls://127.0.0.1:1]\ntls: {cert: /c, key: /k}\n",
	} {
		f.Add([]byte(s))
	}
	path := filepath.Join(f.TempDir(), "config.yaml")
	f.Fuzz(func(t *testing.T, b []byte) {
		one, ok := loaded(t, path, b)
		if !ok {
			return
		}
		again, ok := loaded(t, path, one)
		if !ok {
			t.Fatalf("%q is taken, and printed as %q, which is not", b, one)
		}
		if !bytes.Equal(one, again) {
			t.Fatalf("%q is printed as %q, and that as %q", b, one, again)
		}
	})
}

// loaded returns how a configuration is printed, if it is taken.
func loaded(t *testing.T, path string, b []byte) (printed []byte, ok bool) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	s := defaultSettings()
	if s.load(path) != nil || s.resolve() != nil {
		return nil, false
	}
	var out bytes.Buffer
	if err := s.print(&out); err != nil {
		t.Fatalf("%q is taken and cannot be printed: %v", b, err)
	}
	return out.Bytes(), true
}
