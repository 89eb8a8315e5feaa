package main

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var testKey = []byte("\x00\x01\xfe\xffabcdefghijklmnopqrstuvwxyz0123456789")

func TestParseKey(t *testing.T) {
	for name, c := range map[string]struct {
		in   string
		want []byte
	}{
		"raw":              {string(testKey), testKey},
		"raw with an LF":   {string(testKey) + "\n", append(bytes.Clone(testKey), '\n')},
		"hex":              {hex.EncodeToString(testKey) + "\n", testKey},
		"HEX":              {strings.ToUpper(hex.EncodeToString(testKey)), testKey},
		"base64":           {base64.StdEncoding.EncodeToString(testKey) + "\n", testKey},
		"empty":            {"", nil},
		"a pass phrase":    {"correct horse battery staple, and a lot more of it", nil},
		"short hex":        {hex.EncodeToString(testKey[:31]), nil},
		"short base64":     {base64.StdEncoding.EncodeToString(testKey[:31]), nil},
		"short raw":        {string(testKey[:31]), nil},
		"zeros":            {strings.Repeat("\x00", 32), nil},
		"zeros in hex":     {strings.Repeat("0", 64), nil},
		"hex with a space": {hex.EncodeToString(testKey[:20]) + " " + hex.EncodeToString(testKey[20:]), nil},
	} {
		got, err := parseKey([]byte(c.in))
		if !bytes.Equal(got, c.want) || (err == nil) != (c.want != nil) {
			t.Errorf("%s: %x, %v", name, got, err)
		}
	}
}

func TestKeyFileIsPrivate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, []byte(hex.EncodeToString(testKey)), 0o600); err != nil {
		t.Fatal(err)
	}
	if key, err := readKeyFile(path); err != nil || !bytes.Equal(key, testKey) {
		t.Errorf("%x, %v", key, err)
	}
	for _, mode := range []os.FileMode{0o640, 0o604, 0o644} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := readKeyFile(path); err == nil || !strings.Contains(err.Error(), "chmod it to 0600") {
			t.Errorf("mode %04o: %v", mode, err)
		}
	}
	if _, err := readKeyFile(t.TempDir()); err == nil || !strings.Contains(err.Error(), "no regular file") {
		t.Errorf("a directory: %v", err)
	}
	if _, err := readKeyFile("/nowhere/key"); err == nil || !strings.Contains(err.Error(), "key file /nowhere/key: no such file") {
		t.Errorf("none: %v", err)
	}
	big := filepath.Join(t.TempDir(), "big")
	if err := os.WriteFile(big, bytes.Repeat(testKey, 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readKeyFile(big); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Errorf("a large one: %v", err)
	}
}

// FuzzParseKey: whatever stands in the file, it is a key of the least length or
// refused.
func FuzzParseKey(f *testing.F) {
	f.Add([]byte(hex.EncodeToString(testKey)))
	f.Add(testKey)
	f.Add([]byte(base64.StdEncoding.EncodeToString(testKey)))
	f.Fuzz(func(t *testing.T, b []byte) {
		if key, err := parseKey(b); err == nil && (len(key) < 32 || len(key) > len(b)) {
			t.Errorf("a key of %d bytes from %d", len(key), len(b))
		}
	})
}
