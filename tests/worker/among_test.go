package worker_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"rejoin/journal"
	"rejoin/protocol"
	"rejoin/tests/harness"
	"rejoin/worker"
)

// stateOf is the letter of proc(5) for what a process does; empty when it is gone.
func stateOf(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	return fields[0]
}

func (f family) stopped() bool { return stateOf(f.PID) == "T" && stateOf(f.Grandchild) == "T" }

func (f family) running() bool {
	return harness.Living(f.PID) && harness.Living(f.Grandchild) && stateOf(f.PID) != "T" && stateOf(f.Grandchild) != "T"
}

func (f family) dead() bool { return !harness.Living(f.PID) && !harness.Living(f.Grandchild) }

// family reads the pids from the log, which the broker's node sees while the worker is
// cut off.
func (m *member) families(ss ...*sess) []family {
	out := make([]family, 0, len(ss))
	for _, s := range ss {
		out = append(out, s.family())
	}
	return out
}

func TestWorkerAmongSeveral(t *testing.T) {
	f := newFleet(t)
	m := f.join("w1", nil)
	e := f.entry("w1")
	if e.ID != "w1" || protocol.WorkerOf(e.Owner) != "w1" || e.Labels["repo"] != "a" || e.Capacity != 10 || e.Version != "test" || e.Draining || e.Left || e.Lost {
		t.Errorf("entry: %+v", e)
	}
	s := m.begin("s", "", harness.ChildArgv("stderr")...)
	if rec := s.record(); rec.Owner != e.Owner || rec.Host != "w1" || rec.PID == 0 {
		t.Errorf("record: %+v", rec)
	}
	s.awaitChild(`{"ready":true}`)
	harness.Eventually(t, "the entry counts the session", func() bool { return f.entry("w1").Sessions == 1 })

	if r := m.ask(s.req(protocol.OpStderr)); !strings.HasSuffix(r.Text, "the end\n") || len(r.Text) > protocol.StderrTailBytes {
		t.Errorf("stderr: %d bytes, %+v", len(r.Text), r.Error)
	}
	if r := m.ask(protocol.WorkerRequest{Op: protocol.OpDrain}); r.Error != nil || !f.entry("w1").Draining {
		t.Errorf("drain: %+v, %+v", r, f.entry("w1"))
	}
	_, r := m.launch(protocol.OpStart, m.record("late", "jsonl", harness.ChildArgv("echo")))
	if reasonOf(r) != protocol.ReasonSessionUnavailable || !r.Error.Retryable {
		t.Errorf("start while draining: %+v", r)
	}
	if r := s.send("c", `1`, nil); r.Result == nil {
		t.Errorf("a command while draining: %+v", r)
	}
	if r := m.ask(protocol.WorkerRequest{Op: protocol.OpUndrain}); r.Error != nil || f.entry("w1").Draining {
		t.Errorf("undrain: %+v", r)
	}
	late, r := m.launch(protocol.OpStart, m.record("late", "jsonl", harness.ChildArgv("echo")))
	if r.Info == nil {
		t.Fatalf("start after the drain: %+v", r)
	}

	s.stop(0)
	if r := m.ask(s.req(protocol.OpFiles)); r.Error != nil {
		t.Errorf("files: %+v", r)
	}
	if _, err := os.Stat(filepath.Join(m.dir, "stderr", protocol.DefaultWorkspace, "s")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("stderr of a session whose files were removed: %v", err)
	}
	m.stop()
	if e := f.entry("w1"); !e.Left || e.Lost || e.Sessions != 0 {
		t.Errorf("entry of a worker that has stopped: %+v", e)
	}
	if rec := late.record(); rec.Status != protocol.StatusEnded || rec.Owner != "" || rec.Host != "w1" {
		t.Errorf("record of its session: %+v", rec)
	}
}

// Proves I-B2 when nothing of the child reaches the log: the registry's word ends it.
func TestSilentChildOfASessionThatWentOn(t *testing.T) {
	harness.Covers(t, "I-B2")
	f := newFleet(t)
	m := f.join("w1", nil)
	other := m.begin("other", "", harness.ChildArgv("kin")...)
	s := m.begin("s", "", harness.ChildArgv("kin")...)
	fs := m.families(s, other)
	f.grant(s.key)
	harness.Eventually(t, "the child is dead", fs[0].dead)
	harness.Eventually(t, "the session is forgotten", func() bool { return m.ask(s.req(protocol.OpInfo)).NotOwner })
	if got := types(s.events()); got[len(got)-1] != "child" {
		t.Errorf("events: %v", got)
	}
	if rec := s.record(); rec.Run != 2 || rec.Status == protocol.StatusEnded {
		t.Errorf("record: %+v", rec)
	}
	if !fs[1].running() {
		t.Error("the other session is ended, too")
	}
}

// Proves I-B2 among two processes of one id.
func TestNewerProcessOfTheWorker(t *testing.T) {
	harness.Covers(t, "I-B2")
	f := newFleet(t)
	old := f.join("w1", nil)
	s := old.begin("s", protocol.RestartResume, harness.ChildArgv("kin")...)
	fam := s.family()
	before := len(s.events())
	young := f.join("w1", nil)
	err := <-old.ended
	if !errors.Is(err, worker.ErrSuperseded) {
		t.Errorf("Run: %v", err)
	}
	old.ended <- nil // for its stop
	if !fam.dead() {
		t.Error("a child of the older process is alive")
	}
	if got := s.events(); len(got) != before {
		t.Errorf("the older process wrote %v", types(got[before:]))
	}
	if rec := s.record(); rec.Owner != old.owner || rec.Status == protocol.StatusEnded {
		t.Errorf("record: %+v", rec) // a broker settles it
	}
	if _, err := old.try(protocol.WorkerRequest{Op: protocol.OpInfo}); err == nil {
		t.Error("the older process still answers")
	}
	if e := f.entry("w1"); e.Owner != young.owner || e.Left {
		t.Errorf("entry: %+v", e)
	}
}

// TestCutOffWorker: what could be started elsewhere is stopped; back again, what is
// still the worker's goes on where it was, what is not dies without another step.
// Proves I-B2.
func TestCutOffWorker(t *testing.T) {
	harness.Covers(t, "I-B2", "I-J1")
	f := newFleet(t)
	m := f.join("w1", nil)
	mine := m.begin("mine", protocol.RestartResume, harness.ChildArgv("kin")...)
	taken := m.begin("taken", protocol.RestartResume, harness.ChildArgv("kin")...)
	stays := m.begin("stays", protocol.RestartNever, harness.ChildArgv("kin")...)
	fs := m.families(mine, taken, stays)
	// What a child has stopped by itself, as job control does, stays so.
	shell := m.begin("shell", protocol.RestartResume, "sh", "-c", `sleep 1000 & kill -STOP $!; echo "{\"pid\":$$,\"grandchild\":$!}"; cat`)
	job := shell.family()
	eventually(t, "the shell has stopped its job", func() bool { return stateOf(job.Grandchild) == "T" })

	m.cut()
	eventually(t, "the families are stopped", func() bool { return fs[0].stopped() && fs[1].stopped() && job.stopped() })
	if !fs[2].running() {
		t.Error("a session that nobody starts elsewhere is stopped")
	}
	// Whoever runs all the same is stopped by a later look: one that did not stop within the
	// time of the first, or one that somebody let go on.
	eventually(t, "the first look is over", func() bool { return m.stats().Frozen == 3 })
	for _, pid := range []int{fs[0].Grandchild, fs[1].PID} {
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the families are stopped again", func() bool { return fs[0].stopped() && fs[1].stopped() && job.stopped() })
	f.grant(taken.key)
	f.giveUp("w1")
	m.mend()

	eventually(t, "the family goes on", fs[0].running)
	eventually(t, "the other one is dead", fs[1].dead)
	eventually(t, "the worker is there again", func() bool { e := f.entry("w1"); return !e.Lost && e.Owner == m.owner })
	if !fs[2].running() {
		t.Error("the session that was not stopped is ended")
	}
	for _, s := range []*sess{mine, stays, shell} {
		var r protocol.WorkerReply
		eventually(t, "a command is taken", func() bool { r = s.send("c1", `{"on":1}`, nil); return r.Result != nil })
		s.awaitChild(`{"on":1}`)
		if rec := s.record(); rec.Run != 1 || rec.Owner != m.owner {
			t.Errorf("record: %+v", rec)
		}
	}
	if stateOf(job.Grandchild) != "T" {
		t.Errorf("the shell's job is %q", stateOf(job.Grandchild))
	}
	eventually(t, "the session is forgotten", func() bool { return m.ask(taken.req(protocol.OpInfo)).NotOwner })
	if got := types(taken.events()); len(got) != 2 {
		t.Errorf("events after the takeover: %v", got)
	}
}

// A worker that has to stop while it is cut off lets stopped children go on, so that
// they end as they like to.
func TestStopOfACutOffWorker(t *testing.T) {
	harness.Covers(t, "I-W3")
	f := newFleet(t)
	m := f.join("w1", nil)
	note := filepath.Join(t.TempDir(), "note")
	s := m.begin("s", protocol.RestartResume, "sh", "-c", `echo '{"ready":1}'; cat; echo done > "$0"`, note)
	s.awaitChild(`{"ready":1}`)
	kin := m.begin("kin", protocol.RestartResume, harness.ChildArgv("kin")...)
	pid, fam := s.record().PID, kin.family()
	m.cut()
	eventually(t, "the children are stopped", func() bool { return stateOf(pid) == "T" && fam.stopped() })
	m.stop()
	if harness.Living(pid) || !fam.dead() {
		t.Error("children are alive")
	}
	if b, err := os.ReadFile(note); err != nil || string(b) != "done\n" {
		t.Errorf("the child did not end by itself: %q, %v", b, err)
	}
	if left := harness.Marked(m.dir); len(left) != 0 {
		t.Errorf("processes are left: %v", left)
	}
}

// TestOwnerThatOnlyWrites: a worker whose heartbeats do not go through, and whose records
// do, stops writing before brokers call it lost, so that a takeover which is always
// slower than the next record ends. Proves I-B2 and I-J3.
func TestOwnerThatOnlyWrites(t *testing.T) {
	harness.Covers(t, "I-B2", "I-J3", "I-W2")
	f := newFleet(t)
	m := f.join("w1", nil)
	taken := m.begin("taken", protocol.RestartNever, harness.ChildArgv("ticker")...)
	stays := m.begin("stays", protocol.RestartNever, harness.ChildArgv("ticker")...)
	taken.awaitChild(`{"n":1}`)
	pid := taken.record().PID
	m.mute()
	f.grant(taken.key)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	w, err := f.node.OpenWriter(ctx, journal.WriterConfig{
		Log: taken.log, Run: 2,
		First: func(ctx context.Context, tail journal.Tail, _ protocol.Seq) ([]*protocol.Event, error) {
			harness.Within(time.Second, func() bool { // as long as the former owner needs for one more
				now, err := f.node.Tail(ctx, taken.log)
				return err != nil || now.Head > tail.Head
			})
			return []*protocol.Event{{Source: protocol.SourceBroker, Body: []byte(`{"type":"session_interrupted","reason":"worker_lost"}`)}}, nil
		},
		Deleted: func(context.Context) (bool, error) { return false, nil },
	})
	if err != nil {
		t.Fatalf("the takeover does not end: %v", err)
	}
	if err := w.Close(harness.Context(t)); err != nil {
		t.Fatal(err)
	}
	other := protocol.Run(99) // refused before it is looked at
	if r := stays.send("c", `1`, &protocol.Expect{Run: &other}); reasonOf(r) != protocol.ReasonJournalUnavailable || !r.Error.Retryable {
		t.Errorf("a command meanwhile: %+v", r)
	}
	f.giveUp("w1")
	m.mend()

	eventually(t, "the child of the session that was taken is dead", func() bool { return !harness.Living(pid) })
	before := len(stays.events())
	eventually(t, "the other one goes on", func() bool { return len(stays.events()) > before+100 })
	for i, e := range stays.events()[1:] {
		if want := fmt.Sprintf(`{"n":%d}`, i+1); string(e.Body) != want {
			t.Fatalf("event %d is %s, want %s", e.Seq, e.Body, want)
		}
	}
	if got := taken.events(); typeOf(got[len(got)-1]) != "session_interrupted" {
		t.Errorf("events after the takeover: %v", types(got))
	}
	if rec := stays.record(); rec.Run != 1 || rec.Owner != m.owner {
		t.Errorf("record: %+v", rec)
	}
}
