package broker_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"rejoin/broker"
	"rejoin/journal"
	"rejoin/protocol"
	"rejoin/tests/harness"
)

func ptr[T any](v T) *T { return &v }

func TestStopAndResume(t *testing.T) {
	w := newWorld(t)
	w.start(true)
	id := w.startSession(broker.StartParams{}).ID
	for range 2 {
		if err := w.broker.Stop(w.ctx, admin, id, 0); err != nil {
			t.Fatalf("stop: %v", err)
		}
	}
	if info := w.info(id); info.State != "exited" || info.Exit == nil || info.Exit.Reason != protocol.EndStopped || info.Head != 2 {
		t.Errorf("stopped: %+v", info)
	}
	_, err := w.broker.Resume(w.ctx, admin, id, "", &protocol.Expect{Head: ptr(protocol.Seq(7))})
	wantReason(t, err, protocol.ReasonConflict)
	_, err = w.broker.Resume(w.ctx, admin, id, "", &protocol.Expect{Turn: ptr("t")})
	wantReason(t, err, protocol.ReasonUnsupported)
	info, err := w.broker.Resume(w.ctx, admin, id, "", &protocol.Expect{Head: ptr(protocol.Seq(2)), Status: ptr(protocol.StatusEnded), Run: ptr(protocol.Run(1))})
	if err != nil || info.Run != 2 || info.Status != protocol.StatusIdle {
		t.Fatalf("resume: %+v, %v", info, err)
	}
	again, err := w.broker.Resume(w.ctx, admin, id, "c", &protocol.Expect{Run: ptr(protocol.Run(1))})
	if err != nil || again.Run != 2 {
		t.Errorf("resume again: %+v, %v", again, err)
	}
	wantHistory(t, w.history(id), "1 1 session_start", "2 1 session_end stopped", "3 2 session_resumed")
}

// TestResumeRace: concurrent resumes make one run.
// Proves I-B2.
func TestResumeRace(t *testing.T) {
	w := newWorld(t)
	w.start(true)
	id := w.startSession(broker.StartParams{}).ID
	if err := w.broker.Stop(w.ctx, admin, id, time.Second); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			info, err := w.broker.Resume(w.ctx, admin, id, "", nil)
			if err != nil || info.Run != 2 {
				t.Errorf("resume: %+v, %v", info, err)
			}
		})
	}
	wg.Wait()
	if n := w.worker.count(protocol.OpResume); n != 1 {
		t.Errorf("%d resumes", n)
	}
}

// TestTwoBrokers: of two brokers over one registry one grants the run, and each
// hears of what the other did.
// Proves I-B2.
func TestTwoBrokers(t *testing.T) {
	w := newWorld(t)
	w.start(true)
	other := w.newBroker()
	if err := other.Recover(w.ctx); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.ctx)
	var running sync.WaitGroup
	running.Go(func() {
		if err := other.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	defer running.Wait()
	defer cancel()
	id := w.startSession(broker.StartParams{}).ID
	harness.Eventually(t, "the other broker hears of the session", func() bool {
		_, err := other.Info(w.ctx, admin, id)
		return err == nil
	})
	for run := protocol.Run(2); run < 20; run++ {
		if err := w.broker.Stop(w.ctx, admin, id, 0); err != nil {
			t.Fatal(err)
		}
		harness.Eventually(t, "the other broker hears of its end", func() bool {
			info, err := other.Info(w.ctx, admin, id)
			return err == nil && info.State == "exited"
		})
		var wg sync.WaitGroup
		for _, b := range []*broker.Broker{w.broker, other, w.broker, other} {
			wg.Go(func() {
				if info, err := b.Resume(w.ctx, admin, id, "", nil); err != nil || info.Run != run {
					t.Errorf("run %d: %+v, %v", run, info, err)
				}
			})
		}
		wg.Wait()
		if n := w.worker.count(protocol.OpResume); n != int(run)-1 {
			t.Fatalf("run %d: %d resumes", run, n)
		}
	}
}

// TestConfirm: whether a run is the newest is not answered from a copy that may be
// old.
// Proves I-B2.
func TestConfirm(t *testing.T) {
	w := newWorld(t)
	w.start(true)
	other := w.newBroker() // it watches nothing: its copy stays as it was read last
	if err := other.Recover(w.ctx); err != nil {
		t.Fatal(err)
	}
	reg := other.Registry()
	id := w.startSession(broker.StartParams{}).ID
	if err := reg.Confirm(w.ctx, key(id), 1); err != nil {
		t.Fatalf("the newest run: %v", err)
	}
	if err := w.broker.Stop(w.ctx, admin, id, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := w.broker.Resume(w.ctx, admin, id, "", nil); err != nil {
		t.Fatal(err)
	}
	if err := reg.Confirm(w.ctx, key(id), 1); !errors.Is(err, broker.ErrNotOwner) {
		t.Errorf("an older run: %v", err)
	}
	if err := reg.Confirm(w.ctx, key(id), 2); err != nil {
		t.Errorf("the newest run: %v", err)
	}
	if err := reg.Confirm(w.ctx, key("nobody"), 1); !errors.Is(err, broker.ErrNotOwner) {
		t.Errorf("an unknown session: %v", err)
	}
}

// A run whose end the registry does not know yet is not running: resuming it
// must not be answered with an empty success.
func TestResumeBeforeTheEndIsRecorded(t *testing.T) {
	w := newWorld(t)
	w.start(true)
	s := w.startSession(broker.StartParams{})
	ended := s
	ended.State, ended.Status, ended.PID = "exited", protocol.StatusEnded, nil
	w.worker.setRefuse(func(req protocol.WorkerRequest) *protocol.WorkerReply {
		switch req.Op {
		case protocol.OpInfo:
			return &protocol.WorkerReply{Infos: []protocol.LiveInfo{{Workspace: protocol.DefaultWorkspace, SessionInfo: ended}}}
		case protocol.OpStop: // the child is dead, its end not durable
			return &protocol.WorkerReply{}
		case protocol.OpStart, protocol.OpResume, protocol.OpCommand, protocol.OpStatus, protocol.OpTitle,
			protocol.OpStderr, protocol.OpFiles, protocol.OpDrain, protocol.OpUndrain:
		}
		return nil
	})
	_, err := w.broker.Resume(w.ctx, admin, s.ID, "", nil)
	wantReason(t, err, protocol.ReasonJournalUnavailable)
	w.worker.setRefuse(nil)
	w.worker.exit(w.ctx, key(s.ID),
		protocol.SessionEnd{Type: protocol.TypeSessionEnd, Reason: protocol.EndStopped})
	again, err := w.broker.Resume(w.ctx, admin, s.ID, "", nil)
	if err != nil || again.Run != s.Run+1 || again.State != "running" {
		t.Fatalf("got %+v, %v", again, err)
	}
}

func TestResumeFails(t *testing.T) {
	w := newWorld(t)
	w.start(true)
	id := w.startSession(broker.StartParams{}).ID
	w.worker.exit(w.ctx, key(id), protocol.SessionEnd{Type: protocol.TypeSessionEnd, Reason: protocol.EndExited, ExitCode: ptr(0)})
	w.worker.setRefuse(func(r protocol.WorkerRequest) *protocol.WorkerReply {
		if r.Op == protocol.OpResume {
			return &protocol.WorkerReply{Error: protocol.Errorf(protocol.ReasonInvalidParams, "failed to start prog: gone")}
		}
		return nil
	})
	_, err := w.broker.Resume(w.ctx, admin, id, "", nil)
	wantReason(t, err, protocol.ReasonInvalidParams)
	if info := w.info(id); info.State != "exited" || info.Exit == nil || info.Exit.Reason != protocol.EndExited {
		t.Errorf("after a failed resume: %+v", info)
	}
	w.worker.setRefuse(nil)
	if info, err := w.broker.Resume(w.ctx, admin, id, "", nil); err != nil || info.Status != protocol.StatusIdle {
		t.Errorf("resume: %+v, %v", info, err)
	}
}

func TestDelete(t *testing.T) {
	w := newWorld(t)
	w.start(true)
	var told atomic.Int32
	defer w.broker.OnDeleted(func(k protocol.Key) { told.Add(1) })()
	id := w.startSession(broker.StartParams{}).ID
	tail := filepath.Join(w.dir, "stderr", "default", id)
	if err := os.MkdirAll(tail, 0o700); err != nil {
		t.Fatal(err)
	}
	wantReason(t, w.broker.Delete(w.ctx, stranger, id), protocol.ReasonSessionNotFound)
	wantReason(t, w.broker.Delete(w.ctx, observer, id), protocol.ReasonForbidden)
	for range 2 {
		if err := w.broker.Delete(w.ctx, admin, id); err != nil {
			t.Fatalf("delete: %v", err)
		}
	}
	if told.Load() != 1 {
		t.Errorf("told %d times", told.Load())
	}
	wantHistory(t, w.history(id), "3 2 session_deleted")
	if w.worker.session(key(id)) != nil {
		t.Error("the child lives")
	}
	if _, err := os.Stat(tail); !os.IsNotExist(err) {
		t.Errorf("stderr is left: %v", err)
	}
	_, err := w.broker.Info(w.ctx, admin, id)
	wantReason(t, err, protocol.ReasonSessionNotFound)
	_, err = w.broker.Log(w.ctx, admin, id)
	wantReason(t, err, protocol.ReasonSessionNotFound)
	wantReason(t, w.broker.Stop(w.ctx, admin, id, 0), protocol.ReasonSessionNotFound)
	w.kill()
	w.start(false)
	wantHistory(t, w.history(id), "3 2 session_deleted")
}

// TestDeleteFinishes: a delete that a crash cut off is finished by recovery.
func TestDeleteFinishes(t *testing.T) {
	w := newWorld(t)
	w.start(false)
	id := w.startSession(broker.StartParams{}).ID
	if err := w.broker.Registry().Update(w.ctx, key(id), 1, func(r *protocol.SessionRecord) { r.Deleting = true }); err != nil {
		t.Fatal(err)
	}
	w.kill()
	w.start(false)
	wantHistory(t, w.history(id), "2 2 session_deleted")
	if err := w.broker.Delete(w.ctx, admin, id); err != nil {
		t.Errorf("delete again: %v", err)
	}
}

func TestTitle(t *testing.T) {
	w := newWorld(t)
	w.start(true)
	id := w.startSession(broker.StartParams{}).ID
	if err := w.broker.SetTitle(w.ctx, admin, id, "live"); err != nil {
		t.Fatal(err)
	}
	if info := w.info(id); info.Title != "live" {
		t.Errorf("title: %q", info.Title)
	}
	if err := w.broker.Stop(w.ctx, admin, id, 0); err != nil {
		t.Fatal(err)
	}
	if err := w.broker.SetTitle(w.ctx, admin, id, "<ended>"); err != nil {
		t.Fatal(err)
	}
	info := w.info(id)
	if info.Title != "<ended>" || info.State != "exited" || info.Head != 4 {
		t.Errorf("info: %+v", info)
	}
	wantReason(t, w.broker.SetTitle(w.ctx, admin, id, "\xff"), protocol.ReasonInvalidParams)
	if info, err := w.broker.Resume(w.ctx, admin, id, "", nil); err != nil || info.Run != 3 || info.Title != "<ended>" {
		t.Errorf("resume after an event of the broker's own run: %+v, %v", info, err)
	}
}

func TestList(t *testing.T) {
	w := newWorld(t)
	w.start(true)
	var ids []string
	for _, agent := range []string{"plain", "open", "plain", "open"} {
		ids = append(ids, w.startSession(broker.StartParams{Agent: agent}).ID)
		next := time.Now().UnixMilli()
		harness.Eventually(t, "a millisecond passes", func() bool { return time.Now().UnixMilli() > next })
	}
	if err := w.broker.Stop(w.ctx, admin, ids[1], 0); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		who  broker.Principal
		p    broker.ListParams
		want []int
	}{
		{"all, newest first", admin, broker.ListParams{}, []int{3, 2, 1, 0}},
		{"observer", observer, broker.ListParams{}, []int{3, 2, 1, 0}},
		{"limit", admin, broker.ListParams{Limit: 2}, []int{3, 2}},
		{"before", admin, broker.ListParams{Before: ids[2]}, []int{1, 0}},
		{"state", admin, broker.ListParams{State: "exited"}, []int{1}},
		{"agent", admin, broker.ListParams{Agent: "open"}, []int{3, 1}},
		{"state and limit", admin, broker.ListParams{State: "running", Limit: 2}, []int{3, 2}},
		{"another workspace", stranger, broker.ListParams{}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			list, err := w.broker.List(w.ctx, tt.who, tt.p)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, s := range list {
				got = append(got, s.ID)
			}
			var want []string
			for _, i := range tt.want {
				want = append(want, ids[i])
			}
			wantHistory(t, got, want...)
		})
	}
}

// TestRestart: a session that fails by itself is started again; one that is stopped is not.
func TestRestart(t *testing.T) {
	w := newWorld(t)
	w.start(true)
	id := w.startSession(broker.StartParams{Agent: "again"}).ID
	w.worker.exit(w.ctx, key(id), protocol.SessionEnd{Type: protocol.TypeSessionEnd, Reason: protocol.EndExited, ExitCode: ptr(1)})
	_, err := w.broker.Command(w.ctx, admin, id, protocol.CommandInput{Command: protocol.RawJSON(`1`)})
	if e := refusal(t, err, protocol.ReasonSessionUnavailable); !e.Retryable {
		t.Error("a restart is scheduled: retryable")
	}
	if info := w.info(id); !info.Restarting || info.State != "exited" {
		t.Errorf("a restart is scheduled: %+v", info)
	}
	harness.Eventually(t, "the session runs again", func() bool {
		return w.info(id).Run == 2 && w.info(id).Status == protocol.StatusIdle && !w.info(id).Restarting
	})
	if err := w.broker.Stop(w.ctx, admin, id, 0); err != nil {
		t.Fatal(err)
	}
	if info := w.info(id); info.Restarting {
		t.Errorf("nobody starts it again: %+v", info)
	}
	_, err = w.broker.Command(w.ctx, admin, id, protocol.CommandInput{Command: protocol.RawJSON(`1`)})
	if e := refusal(t, err, protocol.ReasonSessionUnavailable); e.Retryable {
		t.Error("nobody starts it again: not retryable")
	}
	wantHistory(t, w.history(id), "1 1 session_start", "2 1 session_end exited", "3 2 session_resumed", "4 2 session_end stopped")
}

func TestSettled(t *testing.T) {
	w := newWorld(t)
	w.every = 300 * time.Millisecond
	w.start(true)
	id := w.startSession(broker.StartParams{}).ID
	if err := w.broker.Stop(w.ctx, admin, id, 0); err != nil {
		t.Fatal(err)
	}
	settled := func() bool {
		done := false
		err := w.broker.Registry().Update(w.ctx, key(id), 1, func(r *protocol.SessionRecord) { done = r.Settled })
		return err == nil && done
	}
	harness.Eventually(t, "its end counts as on disk", settled)
}

func TestAuthenticate(t *testing.T) {
	w := newWorld(t)
	w.start(false)
	for token, want := range map[string]bool{"secret": true, "": false, "Secret": false, "secret ": false} {
		if p, ok := w.broker.Authenticate(token); ok != want || ok && p.Role != broker.RoleAdmin {
			t.Errorf("token %q: %v, %+v", token, ok, p)
		}
	}
	if !w.broker.AuthRequired() {
		t.Error("a token is configured")
	}
}

// unanswered has the puppet do what it is asked, and its answer lost.
func (w *world) unanswered(op protocol.WorkerOp, do bool) {
	w.worker.setRefuse(func(r protocol.WorkerRequest) *protocol.WorkerReply {
		if r.Op != op {
			return nil
		}
		if do {
			w.worker.do(w.ctx, r)
		}
		return &protocol.WorkerReply{}
	})
}

// TestAnswerLost: a start or resume whose answer is lost is undone, and may be repeated.
func TestAnswerLost(t *testing.T) {
	for _, do := range []bool{false, true} {
		w := newWorld(t)
		w.start(true)
		w.unanswered(protocol.OpStart, do)
		params := broker.StartParams{CommandID: "c"}
		_, err := w.broker.Start(w.ctx, admin, params)
		if e := refusal(t, err, protocol.ReasonOutcomeUnknown); !e.Retryable {
			t.Error("not retryable")
		}
		w.worker.setRefuse(nil)
		id := w.startSession(params).ID
		list, err := w.broker.List(w.ctx, admin, broker.ListParams{})
		if err != nil || len(list) != 1 || list[0].ID != id {
			t.Errorf("done %v: left %+v, %v", do, list, err)
		}
		if err := w.broker.Stop(w.ctx, admin, id, 0); err != nil {
			t.Fatal(err)
		}
		w.unanswered(protocol.OpResume, do)
		_, err = w.broker.Resume(w.ctx, admin, id, "", nil)
		wantReason(t, err, protocol.ReasonOutcomeUnknown)
		if info := w.info(id); info.State != "exited" {
			t.Errorf("done %v: after an unanswered resume: %+v", do, info)
		}
		w.worker.setRefuse(nil)
		if info, err := w.broker.Resume(w.ctx, admin, id, "", nil); err != nil || info.State != "running" {
			t.Errorf("done %v: resume: %+v, %v", do, info, err)
		}
		w.kill()
	}
}

// TestOwnerLost: what a worker does not have any more is ended by the broker.
func TestOwnerLost(t *testing.T) {
	w := newWorld(t)
	w.start(true)
	id := w.startSession(broker.StartParams{}).ID
	w.send(id, "a", `1`)
	w.worker.lose(key(id))
	_, err := w.broker.Command(w.ctx, admin, id, protocol.CommandInput{ID: "b", Command: protocol.RawJSON(`1`)})
	wantReason(t, err, protocol.ReasonSessionUnavailable)
	if r := w.send(id, "a", `1`); !r.Duplicate {
		t.Errorf("known: %+v", r)
	}
	if err := w.broker.Stop(w.ctx, admin, id, 0); err != nil {
		t.Fatal(err)
	}
	wantHistory(t, w.history(id), "1 1 session_start", "2 1 command a", "3 2 command_outcome a interrupted", "4 2 session_end stopped")
	if info := w.info(id); info.State != "exited" || info.Run != 2 {
		t.Errorf("info: %+v", info)
	}
}

// TestFencedOwner: a worker that writes on after a delete is fenced.
// Proves I-J3.
func TestFencedOwner(t *testing.T) {
	w := newWorld(t)
	w.start(true)
	id := w.startSession(broker.StartParams{}).ID
	s := w.worker.session(key(id))
	w.worker.setRefuse(func(r protocol.WorkerRequest) *protocol.WorkerReply {
		if r.Op == protocol.OpStop {
			return &protocol.WorkerReply{} // it says so
		}
		return nil
	})
	if err := w.broker.Delete(w.ctx, admin, id); err != nil {
		t.Fatal(err)
	}
	e := &protocol.Event{Run: 1, Source: protocol.SourceChild, Body: []byte(`1`)}
	_, err := s.w.Append(e, nil)
	if err == nil {
		err = s.w.Flush(w.ctx)
	}
	if !errors.Is(err, journal.ErrFenced) {
		t.Errorf("append: %v", err)
	}
	err = w.broker.Registry().Update(w.ctx, key(id), 1, func(*protocol.SessionRecord) {})
	if !errors.Is(err, journal.ErrFenced) {
		t.Errorf("update: %v", err)
	}
	wantHistory(t, w.history(id), "2 2 session_deleted")
}

// TestWaitsForRecovery: requests that touch sessions wait until Recover is through.
func TestWaitsForRecovery(t *testing.T) {
	w := newWorld(t)
	w.start(false)
	id := w.startSession(broker.StartParams{}).ID
	w.kill()
	w.boot()
	got := make(chan protocol.SessionInfo, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		info, err := w.broker.Info(w.ctx, admin, id)
		if err != nil {
			t.Errorf("info: %v", err)
		}
		got <- info
	})
	harness.Holds(t, 20*time.Millisecond, "the request waits", func() bool { return len(got) == 0 })
	if err := w.broker.Recover(w.ctx); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if info := <-got; info.State != "interrupted" {
		t.Errorf("info: %+v", info)
	}
}

// ends is a log that ends something when it is told of an error.
type ends struct {
	slog.Handler
	end func()
}

func (e ends) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelError {
		e.end()
	}
	return e.Handler.Handle(ctx, r)
}

// TestRecoverBrokenOff: a registry that was read in part counts as not read.
func TestRecoverBrokenOff(t *testing.T) {
	w := newWorld(t)
	w.start(false)
	bucket, err := w.node.Bucket(w.ctx, protocol.BucketSessions)
	if err == nil {
		_, err = bucket.Create(w.ctx, "default.first", []byte("not a record"))
	}
	if err != nil {
		t.Fatal(err)
	}
	id := w.startSession(broker.StartParams{}).ID
	w.kill()
	part, end := context.WithCancel(w.ctx)
	w.more = func(c *broker.Config) { c.Logger = slog.New(ends{c.Logger.Handler(), end}) }
	w.boot()
	if err := w.broker.Recover(part); !errors.Is(err, context.Canceled) {
		t.Fatalf("Recover: %v", err)
	}
	if err := w.broker.Recover(w.ctx); err != nil {
		t.Fatalf("Recover again: %v", err)
	}
	if info, err := w.broker.Info(w.ctx, admin, id); err != nil || info.State != "interrupted" {
		t.Errorf("info: %+v, %v", info, err)
	}
}
