package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rejoin/protocol"
)

func TestSecretOfTheCluster(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	for n, says := range map[int]string{
		protocol.ClusterSecretBytesMin - 1: "holds 15 characters: want 16 or more",
		protocol.ClusterSecretBytesMin:     "",
	} {
		want := strings.Repeat("s", n)
		if err := os.WriteFile(path, []byte(want+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		switch got, err := readSecret(path); {
		case says == "" && (err != nil || got != want):
			t.Errorf("%d characters: %q, %v", n, got, err)
		case says != "" && (err == nil || !strings.Contains(err.Error(), says)):
			t.Errorf("%d characters: %v, want %q", n, err, says)
		}
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := readSecret(path); err == nil || !strings.Contains(err.Error(), "0600") {
		t.Errorf("a secret that others read: %v", err)
	}
}
