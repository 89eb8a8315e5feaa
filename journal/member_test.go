package journal

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPeersAreBehind(t *testing.T) {
	whole := peerSays{Name: "b", Current: true}
	for _, c := range []struct {
		name string
		says groupSays
		want string
	}{
		{"both have it", groupSays{"a", []peerSays{whole, {Name: "me", Offline: true, Lag: 7}}}, ""},
		{"a name that is not known yet", groupSays{"a", []peerSays{whole, {Name: "unknown", Peer: peerID("me"), Offline: true}}}, ""},
		{"no leader", groupSays{"", []peerSays{whole}}, "no leader"},
		{"a leader that has gone", groupSays{"me", []peerSays{whole, {Name: "a", Current: true}}}, "its leader was this member"},
		{"behind", groupSays{"a", []peerSays{{Name: "b", Current: true, Lag: 1}}}, "the member b has not all of it"},
		{"not seen", groupSays{"a", []peerSays{{Name: "b"}}}, "the member b has not all of it"},
		{"away", groupSays{"a", []peerSays{{Name: "b", Current: true, Offline: true}}}, "the member b has not all of it"},
		{"one copy", groupSays{"a", nil}, "1 other members have it, not 2"},
	} {
		if got := c.says.behind("me"); c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestPeerIDs: as Raft has them in its files.
func TestPeerIDs(t *testing.T) {
	if got := peerID("m0"); got != "gY0OD2fs" {
		t.Errorf("m0 is %s", got)
	}
}

func TestSnapshotsOfGroups(t *testing.T) {
	const group = "S-R3F-x"
	body := make([]byte, 40)
	body[0], body[8] = 3, 9 // term and index
	sum := newDigest(group)
	_, _ = sum.Write(body) // a hash never fails
	good := sum.Sum(body)
	bad := append([]byte(nil), good...)
	bad[20] ^= 1
	for _, c := range []struct {
		name  string
		files map[string][]byte
		want  string
	}{
		{"none", nil, ""},
		{"sound", map[string][]byte{"snap.3.9": good}, ""},
		{"the newest counts", map[string][]byte{"snap.2.10": bad, "snap.3.9": good, "snap.4.1.tmp": bad}, ""},
		{"damaged", map[string][]byte{"snap.3.9": bad}, "checksum mismatch"},
		{"of another index", map[string][]byte{"snap.3.8": good}, "checksum mismatch"},
		{"cut", map[string][]byte{"snap.3.9": good[:20]}, "cut off"},
	} {
		dir := t.TempDir()
		if err := os.MkdirAll(filepath.Join(dir, groupSnaps), 0o700); err != nil {
			t.Fatal(err)
		}
		for name, b := range c.files {
			if err := os.WriteFile(filepath.Join(dir, groupSnaps, name), b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if _, got := scanSnapshot(dir, group); c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
