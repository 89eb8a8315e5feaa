package worker

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"rejoin/agent/jsonl"
	"rejoin/protocol"
	"rejoin/tests/harness"
)

// fakeGroup is a control group that holds nobody.
type fakeGroup struct {
	oom                            int
	refuse                         error
	entered, left, killed, removed atomic.Int32
}

func (g *fakeGroup) CloneFD() int         { return -1 }
func (g *fakeGroup) Enter() error         { g.entered.Add(1); return g.refuse }
func (g *fakeGroup) Leave() error         { g.left.Add(1); return nil }
func (g *fakeGroup) PIDs() ([]int, error) { return nil, nil }
func (g *fakeGroup) Kill() error          { g.killed.Add(1); return nil }
func (g *fakeGroup) OOMKills() int        { return g.oom }
func (g *fakeGroup) Remove() error        { g.removed.Add(1); return nil }

// run has a child live in the group up to its end and returns the last event.
func (g *fakeGroup) run(t *testing.T, script string, stop bool) (string, *protocol.Exit) {
	t.Helper()
	s, f, _ := newFakeSession(t, jsonl.Adapter{})
	s.w.forker.start()
	defer s.w.forker.stop()
	c, err := s.w.forker.spawn(harness.Context(t), "/bin/sh", []string{"sh", "-c", script}, os.Environ(), "", g)
	if err != nil {
		t.Fatal(err)
	}
	s.child = c
	exited := inBackground(c.watch)
	if stop {
		s.requestStop(endStopped, 100*time.Millisecond)
	}
	end := s.ladder()
	s.releaseChild()
	<-exited
	s.record(end, false)
	return f.bodies[len(f.bodies)-1], s.exit
}

// An out-of-memory kill is told by the last event and by the session's exit.
func TestOOMKillIsTold(t *testing.T) {
	g := &fakeGroup{oom: 2}
	last, exit := g.run(t, "kill -9 $$", false)
	if want := `{"type":"session_end","reason":"exited","exitCode":null,"signal":"SIGKILL","detail":"oom_killed"}`; last != want || exit.Detail != protocol.DetailOOM {
		t.Errorf("%s, exit %+v", last, exit)
	}
	if g.entered.Load() != 1 || g.left.Load() != 1 || g.removed.Load() != 1 {
		t.Errorf("entered %d times, left %d, removed %d", g.entered.Load(), g.left.Load(), g.removed.Load())
	}
	last, exit = (&fakeGroup{}).run(t, "kill -9 $$", false)
	if strings.Contains(last, "detail") || exit.Detail != "" {
		t.Errorf("without one: %s, exit %+v", last, exit)
	}
}

func TestLadderEndsTheGroup(t *testing.T) {
	g := &fakeGroup{}
	last, _ := g.run(t, `trap "" TERM; while :; do sleep 1; done`, true)
	if !strings.Contains(last, `"stopped"`) || g.killed.Load() == 0 {
		t.Errorf("%s; the group was killed %d times", last, g.killed.Load())
	}
}

// A thread that could not enter all of a group's hierarchies leaves those that it did.
func TestGroupThatCannotBeEntered(t *testing.T) {
	s, _, _ := newFakeSession(t, jsonl.Adapter{})
	s.w.forker.start()
	defer s.w.forker.stop()
	g := &fakeGroup{refuse: errors.New("no")}
	if c, err := s.w.forker.spawn(harness.Context(t), "/bin/sh", []string{"sh"}, nil, "", g); c != nil || !errors.Is(err, g.refuse) || g.left.Load() != 1 {
		t.Errorf("%v, %v, left %d times", c, err, g.left.Load())
	}
}

func TestLimitsWithoutGroups(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	rec := &protocol.SessionRecord{Workspace: "default", ID: "s", Run: 1}
	if g, err := (*Containment)(nil).group(rec, log); g != nil || err != nil {
		t.Errorf("no limits: %v, %v", g, err)
	}
	rec.Limits = &protocol.ResourceLimits{PIDs: 1, Enforce: protocol.EnforcePreferred}
	if g, err := (*Containment)(nil).group(rec, log); g != nil || err != nil {
		t.Errorf("preferred: %v, %v", g, err)
	}
	for _, enforce := range []string{"", protocol.EnforceRequired} {
		rec.Limits.Enforce = enforce
		g, err := (*Containment)(nil).group(rec, log)
		if e, ok := protocol.AsError(err); g != nil || !ok || e.Reason != protocol.ReasonUnsupported {
			t.Errorf("required: %v, %v", g, err)
		}
	}
}

func TestListOfBases(t *testing.T) {
	path := filepath.Join(t.TempDir(), basesFile)
	for range 2 {
		if err := writeBases(path, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := writeBases(path, []string{"/a", "/b"}); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "/a\n/b\n" {
		t.Errorf("%q, %v", b, err)
	}
	if err := writeBases(path, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Error(err)
	}
	if err := writeBases(filepath.Join(path, "x"), []string{"/a"}); err == nil {
		t.Error("written below a file that is not there")
	}
}
