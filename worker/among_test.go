package worker

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"rejoin/agent"
	"rejoin/agent/jsonl"
	"rejoin/journal"
	"rejoin/protocol"
)

// fakeRegistry knows which runs are the newest.
type fakeRegistry struct {
	noRegistry
	newest  map[protocol.Key]protocol.Run
	unknown error // unless nil, Deleted's answer
}

func (r fakeRegistry) Confirm(_ context.Context, k protocol.Key, run protocol.Run) error {
	newest, ok := r.newest[k]
	switch {
	case !ok:
		return journal.ErrUnavailable
	case newest != run:
		return ErrNotOwner
	}
	return nil
}

func (r fakeRegistry) Deleted(_ context.Context, k protocol.Key) (bool, error) {
	_, ok := r.newest[k]
	return !ok, r.unknown
}

func keyOf(id string) protocol.Key { return protocol.Key{Workspace: "default", Session: id} }

// newFakeWorker is one of several workers, without any of them.
func newFakeWorker(tb testing.TB, reg Registry) *Worker {
	tb.Helper()
	w, err := newWorker(Config{
		ID: "w", Presence: &Presence{}, DataDir: tb.TempDir(), SessionsMax: 3, Adapters: map[string]agent.Adapter{"jsonl": jsonl.Adapter{}},
	}, reg, places{instance: "i", cluster: "c1"})
	if err != nil {
		tb.Fatal(err)
	}
	return w
}

// add puts a live session into the worker that has no child.
func (w *Worker) add(id string, run protocol.Run) *session {
	s := w.newSession(&protocol.SessionRecord{Workspace: "default", ID: id, Run: run, Restart: protocol.RestartResume}, jsonl.Adapter{})
	s.phase, s.child = phaseLive, &child{}
	w.sessions[s.key] = s
	return s
}

func (s *session) isFenced() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked, why, _, _ := s.stops.times()
	return errors.Is(s.failed, journal.ErrFenced) && s.phase == phaseStopping && asked && why == endFenced
}

// Proves I-B2: what has a newer run is ended, of what nothing is known nothing happens,
// the rest goes on.
func TestConfirmRuns(t *testing.T) {
	w := newFakeWorker(t, fakeRegistry{newest: map[protocol.Key]protocol.Run{keyOf("own"): 2, keyOf("newer"): 3, keyOf("warm"): 3}})
	own, newer, unknown, warm := w.add("own", 2), w.add("newer", 2), w.add("unknown", 2), w.add("warm", 2)
	for _, s := range []*session{own, newer, unknown} {
		s.frost.held = map[int]*process{}
	}
	if err := w.confirm(t.Context(), false); !errors.Is(err, journal.ErrUnavailable) {
		t.Errorf("confirm: %v", err)
	}
	if own.frozen() || own.isFenced() {
		t.Error("an own session does not go on")
	}
	if !newer.frozen() || !newer.isFenced() {
		t.Error("a session with a newer run is not ended as it is")
	}
	if !unknown.frozen() || unknown.isFenced() {
		t.Error("a session of which nothing is known does not stay as it is")
	}
	if warm.isFenced() {
		t.Error("a session that was never stopped was looked at")
	}
	own.frost.held = map[int]*process{}
	if err := w.confirm(t.Context(), true); !errors.Is(err, journal.ErrUnavailable) {
		t.Errorf("confirm all: %v", err)
	}
	if !warm.isFenced() {
		t.Error("a session that was never stopped was not looked at")
	}
	if !own.frozen() {
		t.Error("a session goes on before the worker has said that it is there")
	}
}

// Proves I-B2 for a child that is silent: the registry's news are enough.
func TestNewerRunIsSeen(t *testing.T) {
	w := newFakeWorker(t, noRegistry{})
	entry := func(run protocol.Run, deleted bool) journal.Entry {
		value, err := json.Marshal(protocol.SessionRecord{Workspace: "default", ID: "s", Run: run})
		if err != nil {
			t.Fatal(err)
		}
		return journal.Entry{Key: "default.s", Value: value, Revision: 1, Deleted: deleted}
	}
	w.seeRun(journal.Entry{})
	w.seeRun(entry(9, false)) // it is not here
	s := w.add("s", 2)
	for _, e := range []journal.Entry{entry(1, false), entry(2, false), entry(3, true), {Key: "default.other", Value: []byte("x")}, {Key: "default.s", Value: []byte("x")}} {
		w.seeRun(e)
		if s.isFenced() {
			t.Fatalf("ended by %+v", e)
		}
	}
	w.seeRun(entry(3, false))
	if !s.isFenced() {
		t.Error("the session goes on")
	}
}

// A child that is being ended has had its time when the worker is cut off: the session
// may go on elsewhere.
func TestFreezeOfAStoppingSession(t *testing.T) {
	w := newFakeWorker(t, noRegistry{})
	s := w.add("s", 2)
	s.requestStop(endStopped, protocol.GraceMax)
	w.freeze()
	_, why, _, killAt := s.stops.times()
	if left := time.Until(killAt); left > fenceGrace || why != endStopped || s.frozen() {
		t.Errorf("killed in %v, why %d, frozen %v", left, why, s.frozen())
	}
}

// Nothing is taken from a run that has ended already: its end is its own.
func TestLoseAfterTheEnd(t *testing.T) {
	w := newFakeWorker(t, noRegistry{})
	s := w.add("s", 2)
	s.phase = phaseEnded
	s.lose(ErrNotOwner)
	if s.failed != nil || s.lost() {
		t.Errorf("failed: %v", s.failed)
	}
}

func TestRefusal(t *testing.T) {
	w := newFakeWorker(t, noRegistry{})
	fresh := func(id string, run protocol.Run) *session {
		return w.newSession(&protocol.SessionRecord{Workspace: "default", ID: id, Run: run}, jsonl.Adapter{})
	}
	here := w.add("here", 1)
	tests := []struct {
		name      string
		set       func(on bool)
		reason    protocol.Reason
		spareNext bool // the next run of a session that is here is let in
	}{
		{"draining", func(on bool) { w.draining = on }, protocol.ReasonSessionUnavailable, false},
		{"away", func(on bool) { w.presence.frozen.Store(on) }, protocol.ReasonJournalUnavailable, true},
		{"files", func(on bool) { w.clearing[keyOf("new")] = map[bool]int{true: 1}[on] }, protocol.ReasonSessionUnavailable, true},
		{"full", func(on bool) { w.cfg.SessionsMax = map[bool]int{true: 1, false: 3}[on] }, protocol.ReasonOverloaded, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if err := w.refusal(fresh("new", 1), nil); err != nil {
				t.Fatalf("before: %v", err)
			}
			tt.set(true)
			defer tt.set(false)
			e, ok := protocol.AsError(w.refusal(fresh("new", 1), nil))
			if !ok || e.Reason != tt.reason || !e.Retryable {
				t.Errorf("refusal: %v", e)
			}
			if err := w.refusal(fresh("here", 1), here); err != nil {
				t.Errorf("a repeated start: %v", err)
			}
			if err := w.refusal(fresh("here", 2), here); (err == nil) != tt.spareNext {
				t.Errorf("the next run of a session that is here: %v", err)
			}
		})
	}
}

// files makes what a session has besides its log.
func files(tb testing.TB, dir, id string) (stderr, private string) {
	tb.Helper()
	stderr, private = filepath.Join(dir, stderrTop, "default", id), filepath.Join(dir, sessionsDir, "default", id)
	for _, d := range []string{stderr, private} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			tb.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(stderr, "1.log"), []byte("x"), 0o600); err != nil {
		tb.Fatal(err)
	}
	return stderr, private
}

func there(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func TestFilesOfForgottenSessions(t *testing.T) {
	reg := fakeRegistry{newest: map[protocol.Key]protocol.Run{keyOf("kept"): 1}}
	w := newFakeWorker(t, reg)
	dir := w.cfg.DataDir
	keptErr, kept := files(t, dir, "kept")
	goneErr, gone := files(t, dir, "gone")
	hereErr, _ := files(t, dir, "here")
	w.add("here", 1)
	odd := filepath.Join(dir, stderrTop, "default", "not a session")
	if err := os.Mkdir(odd, 0o700); err != nil {
		t.Fatal(err)
	}
	w.removeForgotten(t.Context())
	for path, want := range map[string]bool{keptErr: true, kept: true, goneErr: false, gone: false, hereErr: true, odd: true} {
		if there(path) != want {
			t.Errorf("%s: there %v, want %v", path, !want, want)
		}
	}

	// Another cluster knows none of these sessions: that is no reason to remove anything.
	goneErr, _ = files(t, dir, "gone")
	w.places.cluster = "c2"
	w.removeForgotten(t.Context())
	if !there(goneErr) {
		t.Error("files of another cluster's session were removed")
	}
	w.places.cluster = "c1"
	w.reg = fakeRegistry{unknown: journal.ErrUnavailable}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	w.removeForgotten(ctx)
	if !there(goneErr) {
		t.Error("files were removed while the registry did not answer")
	}
}

func TestErrandsOfFiles(t *testing.T) {
	w := newFakeWorker(t, noRegistry{})
	stderr, private := files(t, w.cfg.DataDir, "s")
	if r := w.stderrOf(keyOf("s"), 0); r.Text != "x" || r.Error != nil {
		t.Errorf("stderr: %+v", r)
	}
	if r := w.stderrOf(keyOf("s"), 7); r.Text != "" || r.Error != nil {
		t.Errorf("stderr of a run that wrote nothing: %+v", r)
	}
	if r := w.stderrOf(keyOf("../s"), 1); r.Error == nil {
		t.Errorf("stderr outside: %+v", r)
	}
	s := w.add("s", 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r := w.removeFiles(ctx, keyOf("s")); r.Error == nil || !r.Error.Retryable || !there(stderr) {
		t.Errorf("while the session is here: %+v", r)
	}
	w.forget(s)
	for range 2 {
		if r := w.removeFiles(t.Context(), keyOf("s")); r.Error != nil || there(stderr) || there(private) {
			t.Errorf("remove: %+v", r)
		}
	}
}
