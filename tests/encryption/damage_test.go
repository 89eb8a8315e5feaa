package encryption_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"rejoin/tests/harness"
)

// session is what is asked of get_session.
type session struct {
	Epoch string
	Head  uint64
}

func sessionOf(t *testing.T, c *harness.Client, sid string) session {
	t.Helper()
	return harness.Do[session](t, c, "get_session", map[string]any{"sessionId": sid})
}

// longest is the block of a shard that holds most.
func longest(t *testing.T, dir string) (path string) {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", "J*", "msgs", "*.blk"))
	if err != nil {
		t.Fatal(err)
	}
	var size int64
	for _, p := range all {
		fi, err := os.Stat(p)
		if err != nil {
			t.Fatal(err)
		}
		if fi.Size() > size {
			path, size = p, fi.Size()
		}
	}
	return path
}

// Proves I-J2 where it cannot be kept: after a kill, one bit of an encrypted block
// costs every record behind it. That is told, the block is kept as it was, and the
// session goes on in another epoch, so that nobody takes new events for those that
// are gone.
func TestFlippedBitIsTold(t *testing.T) {
	for _, cipher := range []string{"chacha", "aes"} {
		t.Run(cipher, func(t *testing.T) {
			s := harness.Start(t, harness.Options{Args: []string{"--encrypt-key-file", newKey(t), "--encrypt-cipher", cipher}})
			c := harness.Dial(t, s)
			sid := harness.Do[struct {
				SessionID string `json:"sessionId"`
			}](t, c, "start_session", map[string]any{
				"argv": []string{"sh", "-c", "i=0; while [ $i -lt 300 ]; do i=$((i+1)); echo line $i; done; cat"}, "adapter": "lines",
			}).SessionID
			var before session
			harness.Eventually(t, "the child has printed everything", func() bool {
				before = sessionOf(t, c, sid)
				return before.Head >= 1+300 // and session_start
			})
			s.Kill9()
			path := longest(t, s.Dir)
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			b[len(b)/2] ^= 0x10
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
			s.Run()
			s.Says("journal damaged")
			kept, err := filepath.Glob(filepath.Join(s.Dir, "quarantine", "*", "J*", filepath.Base(path)))
			if err != nil || len(kept) != 1 {
				t.Errorf("kept are %v, %v", kept, err)
			} else if is, err := os.ReadFile(kept[0]); err != nil || string(is) != string(b) {
				t.Errorf("the block is not kept as it was: %v", err)
			}
			c = harness.Dial(t, s)
			if after := sessionOf(t, c, sid); after.Epoch == before.Epoch {
				t.Errorf("the epoch goes on, at %d after %d", after.Head, before.Head)
			}
			st, err := c.Subscribe(harness.Context(t), sid, map[string]any{"after": before.Head, "epoch": before.Epoch})
			if err != nil {
				t.Fatal(err)
			}
			if a := st.Attached(); a.Mode != "snapshot" || a.Reason != "epoch" {
				t.Errorf("who had seen everything is answered %+v", a)
			}
		})
	}
}

// A kill alone is no damage, and keeps the epoch.
func TestKillIsNoDamage(t *testing.T) {
	s := harness.Start(t, harness.Options{Args: []string{"--encrypt-key-file", newKey(t)}})
	sid := talk(t, s)
	before := sessionOf(t, harness.Dial(t, s), sid)
	s.Kill9()
	s.Run()
	if after := sessionOf(t, harness.Dial(t, s), sid); after.Epoch != before.Epoch {
		t.Error("another epoch has begun")
	}
	reads(t, s, sid)
	if _, err := os.Stat(filepath.Join(s.Dir, "quarantine")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("something is in quarantine: %v", err)
	}
}
