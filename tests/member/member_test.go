package member_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"rejoin/tests/harness"
)

// blocks of the streams of sessions.
var blocks = []string{"$G", "streams", "J*", "msgs", "*.blk"}

// TestMembers: three servers keep the journal together; what one acknowledged outlasts
// each of them, all of them at once, and the store of any one.
func TestMembers(t *testing.T) {
	s := newTrio(t)
	s.run(0, 1, 2)
	c1, c2 := s.dial(1), s.dial(2)
	type status struct {
		Durability string
		Cluster    struct{ Brokers, Workers, Gateways, Replicas int }
	}
	var is status
	harness.Eventually(t, "each knows the others", func() bool {
		is = harness.Do[status](t, c1, "server_status", nil)
		return is.Cluster.Workers == 3 && is.Cluster.Gateways == 3 && is.Cluster.Brokers == 3
	})
	if is.Durability != "always" || is.Cluster.Replicas != 3 {
		t.Errorf("a member says %+v", is)
	}
	near, far := s.start(c2, 1), s.start(c2, 0)
	s.talk(c2, near, 60)
	s.talk(c2, far, 60)

	t.Run("one is killed", func(t *testing.T) {
		s.t = t
		s.members[0].Kill9()
		s.talk(c2, near, 5)
		s.kept(c1, near, far)
		if got := harness.Do[answer](t, c1, "get_session", map[string]any{"sessionId": near.id}); got.Status == "interrupted" {
			t.Errorf("the session on another member is %s", got.Status)
		}
		s.run(0)
		s.kept(s.dial(0), near, far)
	})
	t.Run("all are killed", func(t *testing.T) {
		s.t = t
		for _, m := range s.members {
			m.Kill9()
		}
		s.members[0].Begin()
		harness.Eventually(t, "a member waits for another", func() bool { return s.said(0, "no other member is connected") })
		out, err := exec.CommandContext(harness.Context(t), harness.Binary(t), "doctor", "--data-dir", s.members[0].Dir).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "has begun to start in "+s.members[0].Dir) {
			t.Errorf("doctor: %v, %s", err, out)
		}
		s.members[0].Kill9()
		s.run(0, 1, 2)
		for i := range s.members {
			s.kept(s.dial(i), near, far)
			if r := s.reports(i); r != "" {
				t.Errorf("member %d found damage after a kill: %s", i, r)
			}
		}
	})
	for _, d := range []struct {
		name   string
		damage func(i int)
		tells  string
	}{
		{"a block does not verify", func(i int) { s.flip(s.largest(i, blocks...)) }, "checksum mismatch"},
		{"a description is gone", func(i int) { s.remove(s.largest(i, "$G", "streams", "J0", "meta.inf")) }, "meta.inf"},
		{"a stream is gone", func(i int) { s.remove(filepath.Join(s.members[i].Dir, "jetstream", "$G", "streams", "J1")) }, "the directory is gone"},
		{"a log does not verify", func(i int) { s.flip(s.largest(i, "$SYS", "_js_", "S-*", "msgs", "*.blk")) }, "checksum mismatch"},
		{"the list of streams does not verify", func(i int) { s.flip(s.largest(i, "$SYS", "_js_", "_meta_", "snapshots", "snap.*")) }, "the list of streams"},
		{"the disk is another", func(i int) { s.remove(s.members[i].Dir) }, ""},
	} {
		t.Run(d.name, func(t *testing.T) {
			s.t = t
			s.members[1].Term() // in order, so that there is a snapshot of everything
			d.damage(1)
			s.run(1)
			if tells := s.reports(1); !strings.Contains(tells, d.tells) {
				t.Errorf("the report says %s, nothing of %q", tells, d.tells)
			}
			// Without another member, half of every quorum is the one that was filled.
			s.members[0].Kill9()
			s.kept(s.dial(1), near, far)
			s.run(0)
		})
	}
	t.Run("two are damaged", func(t *testing.T) { s.t = t; s.testTwoDamaged(near, far) })
	s.t = t
}

func (s *trio) remove(path string) {
	s.t.Helper()
	if err := os.RemoveAll(path); err != nil {
		s.t.Fatal(err)
	}
}

// testTwoDamaged: what two lack may be in neither, so they refuse and change nothing;
// the third's store in the place of one of theirs is the way out.
func (s *trio) testTwoDamaged(all ...*session) {
	s.members[0].Term()
	s.members[1].Term()
	for _, i := range []int{0, 1} {
		if err := os.RemoveAll(filepath.Join(s.members[i].Dir, "quarantine")); err != nil {
			s.t.Fatal(err)
		}
		s.flip(s.largest(i, blocks...))
	}
	const why = "two members are damaged"
	for _, i := range []int{0, 1} {
		s.members[i].Begin()
	}
	// One says so and ends; the other may do so too, or wait for the one that ended.
	harness.Eventually(s.t, "a member says that two are damaged", func() bool { return s.said(0, why) || s.said(1, why) })
	for _, i := range []int{0, 1} {
		s.members[i].Kill9()
		if r := s.reports(i); r != "" {
			s.t.Errorf("member %d changed its store: %s", i, r)
		}
	}
	s.members[2].Kill9()
	store := filepath.Join(s.members[0].Dir, "jetstream")
	s.remove(store)
	if out, err := exec.Command("cp", "-a", filepath.Join(s.members[2].Dir, "jetstream"), store).CombinedOutput(); err != nil {
		s.t.Fatalf("copy the third's store: %v: %s", err, out)
	}
	s.run(0, 1, 2)
	s.members[2].Kill9()
	s.kept(s.dial(1), all...)
	s.run(2)
}

// TestRefusals: a directory is opened as what it is, and peers are let in by a secret.
func TestRefusals(t *testing.T) {
	s := newTrio(t)
	refused := func(i int, why string, flags ...string) {
		t.Helper()
		if err := s.members[i].TryRun(flags...); err == nil {
			t.Errorf("member %d started although: %s", i, why)
		}
		if !s.said(i, why) {
			t.Errorf("member %d does not say %q\n%s", i, why, s.members[i].LogTail())
		}
	}
	alone := harness.Start(t, harness.Options{DataDir: s.members[0].Dir})
	alone.Term()
	refused(0, "holds a journal of its own")
	s.remove(s.members[0].Dir)
	if err := os.MkdirAll(s.members[0].Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.members[0].Dir, "member"), []byte(`{"layout":1,"cluster":"trio","name":"m0","ready":true}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := harness.New(t, harness.Options{DataDir: s.members[0].Dir}).TryRun(); err == nil {
		t.Error("a server of its own opened a member's directory")
	}
	refused(0, "that of the member m0 of the cluster trio", "--cluster-name", "quartet")
	refused(1, "they exclude each other", "--nats", "nats://127.0.0.1:1")
	refused(1, "everyone who can reach it could join the cluster", "--cluster-listen", "0.0.0.0:16222", "--cluster-secret-file", "")
	refused(1, "is not encrypted", "--encrypt-key-file", filepath.Join(t.TempDir(), "key"))
}

// TestWaitsForMembers: who is new begins nothing until all three are there, says how
// many it waits for, and asks them again.
func TestWaitsForMembers(t *testing.T) {
	s := newTrio(t)
	s.members[0].Begin()
	harness.Eventually(t, "the first waits for two", func() bool { return s.said(0, "0 of the 2 other members of the cluster trio answer") })
	s.members[1].Begin()
	harness.Eventually(t, "the first waits for one", func() bool { return s.said(0, "1 of the 2 other members of the cluster trio answer") })
	s.run(2)
	c := s.dial(2)
	harness.Eventually(t, "all three work", func() bool {
		return harness.Do[struct{ Cluster struct{ Workers int } }](t, c, "server_status", nil).Cluster.Workers == 3
	})
}
