package encryption_test

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rejoin/tests/harness"
)

func TestMain(m *testing.M) { harness.Main(m, nil) }

// newKey writes a key file.
func newKey(t *testing.T) string {
	t.Helper()
	var key [32]byte
	if _, err := rand.Read(key[:]); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, []byte(hex.EncodeToString(key[:])+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// The words that a session leaves: what its child prints, on both streams, what
// it is told, its title.
var words = []string{"printed-kumquat", "stderr-kumquat", "told-kumquat", "title-kumquat"}

// talk starts a session that leaves the words, and waits until they are stored.
func talk(t *testing.T, s *harness.Server) (sid string) {
	t.Helper()
	c := harness.Dial(t, s)
	sid = harness.Do[struct {
		SessionID string `json:"sessionId"`
	}](t, c, "start_session", map[string]any{
		"argv": []string{"sh", "-c", "echo printed-$0; echo stderr-$0 >&2; cat", "kumquat"}, "adapter": "lines",
	}).SessionID
	call := func(method string, params any) string {
		t.Helper()
		return string(harness.Do[json.RawMessage](t, c, method, params))
	}
	call("set_title", map[string]any{"sessionId": sid, "title": "title-kumquat"})
	call("send", map[string]any{"sessionId": sid, "command": "told-kumquat"})
	harness.Eventually(t, "what it said is stored", func() bool {
		log := call("read_events", map[string]any{"sessionId": sid, "after": 0, "limit": 1000})
		return strings.Contains(log, `"text":"printed-kumquat"`) && strings.Contains(log, `"text":"told-kumquat"`) &&
			strings.Contains(call("read_stderr", map[string]any{"sessionId": sid}), "stderr-kumquat")
	})
	return sid
}

// found lists where the words stand in clear under dir.
func found(t *testing.T, dir string) (where []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		for _, w := range words {
			if bytes.Contains(b, []byte(w)) {
				where = append(where, w+" in "+path)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return where
}

// Nothing of a session can be read in an encrypted directory; with the key
// everything is there again.
func TestNothingIsReadable(t *testing.T) {
	for _, cipher := range []string{"chacha", "aes"} {
		t.Run(cipher, func(t *testing.T) {
			s := harness.Start(t, harness.Options{Args: []string{"--encrypt-key-file", newKey(t), "--encrypt-cipher", cipher}})
			sid := talk(t, s)
			s.Kill9() // also what a stop would have tidied up
			for _, w := range found(t, s.Dir) {
				t.Errorf("%s", w)
			}
			s.Run()
			reads(t, s, sid)
		})
	}
	t.Run("control", func(t *testing.T) {
		s := harness.Start(t, harness.Options{})
		talk(t, s)
		s.Kill9() // as above
		where := found(t, s.Dir)
		for _, w := range words {
			if !slices.ContainsFunc(where, func(at string) bool { return strings.HasPrefix(at, w) }) {
				t.Errorf("without encryption %s is not found, only %v: this test does not see it", w, where)
			}
		}
	})
}

// reads checks that what talk left can be read.
func reads(t *testing.T, s *harness.Server, sid string) {
	t.Helper()
	c := harness.Dial(t, s)
	log := harness.Do[json.RawMessage](t, c, "read_events", map[string]any{"sessionId": sid, "after": 0, "limit": 1000})
	stderr := harness.Do[json.RawMessage](t, c, "read_stderr", map[string]any{"sessionId": sid})
	for _, w := range words {
		if !strings.Contains(string(log), w) && !strings.Contains(string(stderr), w) {
			t.Errorf("%s is lost", w)
		}
	}
}

// digest is the names, modes and bytes of everything under dir.
func digest(t *testing.T, dir string) string {
	t.Helper()
	h := sha256.New()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		_, _ = h.Write([]byte(path + info.Mode().String()))
		if d.IsDir() {
			return nil
		}
		b, err := os.ReadFile(path)
		_, _ = h.Write(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// A key that does not fit is refused, and nothing has changed.
func TestRefusalsHarmNothing(t *testing.T) {
	key := newKey(t)
	sealed := harness.New(t, harness.Options{})
	sealed.Run("--encrypt-key-file", key)
	sid := talk(t, sealed)
	sealed.Kill9()
	clear := harness.Start(t, harness.Options{})
	clearSID := talk(t, clear)
	clear.Kill9()

	open := filepath.Join(t.TempDir(), "open")
	if err := os.WriteFile(open, []byte(strings.Repeat("0123456789abcdef", 4)), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		s    *harness.Server
		args []string
		says string
	}{
		{"a wrong key", sealed, []string{"--encrypt-key-file", newKey(t)}, "is encrypted with key"},
		{"no key", sealed, nil, "give it with --encrypt-key-file"},
		{"another cipher", sealed, []string{"--encrypt-key-file", key, "--encrypt-cipher", "aes"}, "a directory keeps its cipher"},
		{"a key that others can read", sealed, []string{"--encrypt-key-file", open}, "chmod it to 0600"},
		{"no key file", sealed, []string{"--encrypt-key-file", key + "x"}, "no such file"},
		{"a key for a directory in clear", clear, []string{"--encrypt-key-file", key}, "is not encrypted"},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := digest(t, c.s.Dir)
			if err := c.s.TryRun(c.args...); err == nil {
				t.Fatal("the server started")
			}
			if !strings.Contains(c.s.LogTail(), c.says) {
				t.Errorf("it does not say %q\n%s", c.says, c.s.LogTail())
			}
			if digest(t, c.s.Dir) != before {
				t.Error("the data directory has changed")
			}
		})
	}
	t.Run("the file that names the key is lost", func(t *testing.T) {
		path := filepath.Join(sealed.Dir, "encryption")
		b, err := os.ReadFile(path)
		if err == nil {
			err = os.Remove(path)
		}
		if err != nil {
			t.Fatal(err)
		}
		before := digest(t, sealed.Dir)
		for _, args := range [][]string{nil, {"--encrypt-key-file", key}} {
			if err := sealed.TryRun(args...); err == nil {
				t.Fatal("the server started")
			}
		}
		if digest(t, sealed.Dir) != before {
			t.Error("the data directory has changed")
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	})
	sealed.Run("--encrypt-key-file", key)
	reads(t, sealed, sid)
	clear.Run()
	reads(t, clear, clearSID)
}
