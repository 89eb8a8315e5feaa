package broker_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"rejoin/broker"
	"rejoin/journal"
	"rejoin/protocol"
	"rejoin/tests/harness"
)

func (w *world) send(id, command, value string) protocol.SendResult {
	w.tb.Helper()
	r, err := w.broker.Command(w.ctx, admin, id, protocol.CommandInput{ID: command, Command: protocol.RawJSON(value)})
	if err != nil {
		w.tb.Fatalf("send: %v", err)
	}
	return r
}

// TestRecover: after a kill each session that was live is interrupted, with an
// outcome for each open command, and a second recovery adds nothing.
// Proves I-B3.
func TestRecover(t *testing.T) {
	w := newWorld(t)
	w.start(false)
	live := w.startSession(broker.StartParams{SessionID: "live"})
	w.worker.print(w.ctx, key("live"), `{"n":1}`)
	w.send("live", "a", `1`)
	w.send("live", "b", `2`)
	w.worker.append(w.ctx, w.worker.session(key("live")), protocol.CommandOutcome{Type: protocol.TypeCommandOutcome, CommandID: "a", Outcome: protocol.OutcomeDone})
	w.startSession(broker.StartParams{SessionID: "ended"})
	if err := w.broker.Stop(w.ctx, admin, "ended", 0); err != nil {
		t.Fatal(err)
	}
	// Its owner died between the last record and the registry.
	w.startSession(broker.StartParams{SessionID: "untold"})
	w.worker.append(w.ctx, w.worker.session(key("untold")), protocol.SessionEnd{Type: protocol.TypeSessionEnd, Reason: protocol.EndExited, ExitCode: ptr(3)})

	want := []string{
		"1 1 session_start", `2 1 {"n":1}`, "3 1 command a", "4 1 command b", "5 1 command_outcome a done",
		"6 2 command_outcome b interrupted", "7 2 session_interrupted server_restart",
	}
	for range 2 {
		w.kill()
		w.start(false)
		wantHistory(t, w.history("live"), want...)
		info := w.info("live")
		if info.State != "interrupted" || info.Head != 7 || info.Run != 2 || info.Epoch != live.Epoch || info.PID != nil {
			t.Errorf("live: %+v", info)
		}
		wantHistory(t, w.history("ended"), "1 1 session_start", "2 1 session_end stopped")
		wantHistory(t, w.history("untold"), "1 1 session_start", "2 1 session_end exited")
		if info := w.info("untold"); info.State != "exited" || info.Exit == nil || *info.Exit.Code != 3 || info.Run != 1 {
			t.Errorf("untold: %+v", info)
		}
	}
	if err := w.broker.Stop(w.ctx, admin, "live", 0); err != nil {
		t.Fatal(err)
	}
	if err := w.broker.Stop(w.ctx, admin, "live", 0); err != nil {
		t.Fatal(err)
	}
	wantHistory(t, w.history("live"), append(want, "8 3 session_end stopped")...)
	if info := w.info("live"); info.State != "exited" || info.Exit.Code != nil || info.Exit.Signal != nil {
		t.Errorf("stopped: %+v", info)
	}
}

// TestRecoverOpenQuestions: what a lost owner held back was not written, what the
// child asked is over, and both are recorded before the end, once.
// Proves I-B3.
func TestRecoverOpenQuestions(t *testing.T) {
	w := newWorld(t)
	w.start(false)
	w.startSession(broker.StartParams{SessionID: "s", Agent: "talk"})
	s := w.worker.session(key("s"))
	for _, body := range []any{
		protocol.CommandEvent{Type: protocol.TypeCommand, CommandID: "given", Command: protocol.RawJSON(`1`)},
		protocol.CommandEvent{Type: protocol.TypeCommand, CommandID: "held", Command: protocol.RawJSON(`2`), Held: true},
		protocol.CommandEvent{Type: protocol.TypeCommand, CommandID: "released", Command: protocol.RawJSON(`3`), Held: true},
		protocol.CommandReleased{Type: protocol.TypeCommandReleased, CommandID: "released"},
	} {
		w.worker.append(w.ctx, s, body)
	}
	w.worker.print(w.ctx, key("s"), `{"type":"extension_ui_request","id":"q1","method":"confirm","title":"May I?"}`)
	w.worker.print(w.ctx, key("s"), `{"type":"extension_ui_request","id":"q2","method":"input","title":"Who?"}`)
	w.worker.append(w.ctx, s, protocol.InteractionResolved{
		Type: protocol.TypeInteraction, InteractionID: "1.q2", ResolvedBy: "me", Outcome: protocol.RespondAnswer,
	})
	for range 2 {
		w.kill()
		w.start(false)
		h := w.history("s")
		wantHistory(t, h[len(h)-5:],
			"9 2 command_outcome given interrupted", "10 2 command_outcome held discarded", "11 2 command_outcome released interrupted",
			"12 2 interaction_resolved 1.q1 rejoin interrupted", "13 2 session_interrupted server_restart")
		st, err := w.broker.CommandStatus(w.ctx, admin, "s", []string{"held"})
		if err != nil || st[0].Outcome != protocol.OutcomeDiscarded {
			t.Errorf("%+v, %v", st, err)
		}
	}
}

// TestResumeNamesTheAgentsSession: a later run is started with the agent's own
// name of its session as the agent last told it, or from the beginning when it
// told none; what a client gave as an argument is left alone.
func TestResumeNamesTheAgentsSession(t *testing.T) {
	w := newWorld(t)
	w.start(false)
	var asked []string
	w.worker.setRefuse(func(r protocol.WorkerRequest) *protocol.WorkerReply {
		if r.Op == protocol.OpResume {
			asked = append(asked, strings.Join(r.Record.ResumeArgv, " "))
		}
		return nil
	})
	w.startSession(broker.StartParams{SessionID: "s", Agent: "talk", Args: []string{"{agentSessionId}"}})
	for _, told := range []string{"", "first", "second"} {
		if told != "" {
			w.worker.print(w.ctx, key("s"), `{"type":"response","command":"get_state","success":true,"data":{"sessionId":"`+told+`"}}`)
		}
		if err := w.broker.Stop(w.ctx, admin, "s", 0); err != nil {
			t.Fatal(err)
		}
		if _, err := w.broker.Resume(w.ctx, admin, "s", "", nil); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"pi {agentSessionId}", "pi --session=first {agentSessionId}", "pi --session=second {agentSessionId}"}
	if !slices.Equal(asked, want) {
		t.Errorf("resumed with %q, want %q", asked, want)
	}
}

// TestRecoverHalfStart: a start that was cut off before its first record leaves
// nothing, and its ids free.
func TestRecoverHalfStart(t *testing.T) {
	w := newWorld(t)
	w.start(false)
	w.startSession(broker.StartParams{SessionID: "whole", CommandID: "c0"})
	w.kill()
	w.boot()
	params := broker.StartParams{SessionID: "half", CommandID: "c1"}
	sum := sha256.Sum256([]byte(params.CommandID))
	startKey := "default." + hex.EncodeToString(sum[:])
	w.store("starts", startKey, map[string]any{"sessionId": "half", "paramsHash": "x", "at": 1})
	w.store("starts", "default."+strings.Repeat("0", 64), map[string]any{"sessionId": "never", "paramsHash": "x", "at": 1})
	w.store("sessions", "default.half", protocol.SessionRecord{
		Workspace: "default", ID: "half", Shard: w.node.ShardOf(key("half")), Epoch: protocol.NewEpoch(time.Now()), Run: 1, Owner: "w1",
		Status: protocol.StatusStarting, Agent: "plain", Adapter: "jsonl", Argv: []string{"prog"}, StartKey: startKey,
	})
	if err := w.broker.Recover(w.ctx); err != nil {
		t.Fatal(err)
	}
	list, err := w.broker.List(w.ctx, admin, broker.ListParams{})
	if err != nil || len(list) != 1 || list[0].ID != "whole" {
		t.Errorf("list: %+v, %v", list, err)
	}
	bucket, err := w.node.Bucket(w.ctx, "starts")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range []string{startKey, "default." + strings.Repeat("0", 64)} {
		if _, err := bucket.Get(w.ctx, k); !errors.Is(err, journal.ErrNotFound) {
			t.Errorf("reservation %s: %v", k, err)
		}
	}
	if info := w.startSession(params); info.ID != "half" {
		t.Errorf("start: %+v", info)
	}
	if info := w.startSession(broker.StartParams{SessionID: "whole", CommandID: "c0"}); info.Status != protocol.StatusInterrupted {
		t.Errorf("the whole one: %+v", info)
	}
}

func (w *world) store(bucket, key string, value any) {
	w.tb.Helper()
	b, err := w.node.Bucket(w.ctx, bucket)
	if err != nil {
		w.tb.Fatal(err)
	}
	data, err := json.Marshal(value)
	if err != nil {
		w.tb.Fatal(err)
	}
	if _, err := b.Create(w.ctx, key, data); err != nil {
		w.tb.Fatal(err)
	}
}

// TestUncleanBoot: sessions that may have lost acknowledged events begin a new epoch.
func TestUncleanBoot(t *testing.T) {
	w := newWorld(t)
	w.every = 300 * time.Millisecond
	w.start(true)
	live := w.startSession(broker.StartParams{SessionID: "live", Title: "kept"})
	w.send("live", "a", `1`)
	w.startSession(broker.StartParams{SessionID: "settled"})
	if err := w.broker.Stop(w.ctx, admin, "settled", 0); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "it is settled", func() bool {
		settled := false
		err := w.broker.Registry().Update(w.ctx, key("settled"), 1, func(r *protocol.SessionRecord) { settled = r.Settled })
		return err == nil && settled
	})
	// The registry knows of more than the log holds.
	if err := w.broker.Registry().Update(w.ctx, key("live"), 1, func(r *protocol.SessionRecord) { r.Head = 9 }); err != nil {
		t.Fatal(err)
	}
	plain := w.startSession(broker.StartParams{SessionID: "plain"})
	settledEpoch := w.info("settled").Epoch
	w.kill()
	w.powerCut()
	w.start(true)
	wantHistory(t, w.history("live"), "1 1 session_start", "2 1 command a",
		"10 2 epoch_start unclean_boot", "11 2 command_outcome a interrupted", "12 2 session_interrupted server_restart")
	info := w.info("live")
	if info.Epoch == live.Epoch || info.Head != 12 || info.Floor != 10 || info.State != "interrupted" || info.Title != "kept" {
		t.Errorf("live: %+v", info)
	}
	wantHistory(t, w.history("plain"), "1 1 session_start", "2 2 epoch_start unclean_boot", "3 2 session_interrupted server_restart")
	if info := w.info("plain"); info.Epoch == plain.Epoch || info.Floor != 2 {
		t.Errorf("plain: %+v", info)
	}
	if info := w.info("settled"); info.Epoch != settledEpoch || info.Head != 2 {
		t.Errorf("settled: %+v", info)
	}
	snap, err := w.folds.Latest(w.ctx, w.log("live"), 0)
	if err != nil || snap.Epoch != info.Epoch || snap.Seq != 12 {
		t.Errorf("snapshot: %+v, %v", snap, err)
	}
	r := w.send("live", "a", ` 1 `)
	if !r.Duplicate || r.Seq != 2 {
		t.Errorf("the ledger does not reach over the epoch: %+v", r)
	}
	w.kill()
	w.start(true) // settled: the same boot again keeps the epoch
	if again := w.info("live"); again.Epoch != info.Epoch || again.Head != 12 {
		t.Errorf("again: %+v", again)
	}
	if next, err := w.broker.Resume(w.ctx, admin, "live", "", nil); err != nil || next.Epoch != info.Epoch || next.Run != 3 {
		t.Errorf("resume: %+v, %v", next, err)
	}
}

// TestRecoverLostLog: a session whose log is gone though it had one goes on in a
// new epoch, above every seq that was known.
func TestRecoverLostLog(t *testing.T) {
	w := newWorld(t)
	w.boot()
	epoch := protocol.NewEpoch(time.Now())
	w.store("sessions", "default.lost", protocol.SessionRecord{
		Workspace: "default", ID: "lost", Shard: w.node.ShardOf(key("lost")), Epoch: epoch, Run: 4, Owner: "w1", Head: 9, Floor: 1,
		Status: protocol.StatusIdle, Agent: "plain", Adapter: "jsonl", Argv: []string{"prog"}, Title: "kept",
	})
	if err := w.broker.Recover(w.ctx); err != nil {
		t.Fatal(err)
	}
	wantHistory(t, w.history("lost"), "10 5 epoch_start rolled_back", "11 5 session_interrupted server_restart")
	if info := w.info("lost"); info.Epoch == epoch || info.Head != 11 || info.Floor != 10 || info.Title != "kept" {
		t.Errorf("info: %+v", info)
	}
}

// TestRecoverResumes: policy resume brings an interrupted session back.
func TestRecoverResumes(t *testing.T) {
	w := newWorld(t)
	w.start(true)
	w.startSession(broker.StartParams{SessionID: "s", Agent: "again"})
	w.kill()
	w.start(true)
	harness.Eventually(t, "it runs again", func() bool { return w.info("s").Status == protocol.StatusIdle && w.info("s").Run == 3 })
	wantHistory(t, w.history("s"), "1 1 session_start", "2 2 session_interrupted server_restart", "3 3 session_resumed")
}

// TestLedgerWithoutOwner: what the log knows is answered from it.
// Proves I-B1 (without an owner).
func TestLedgerWithoutOwner(t *testing.T) {
	w := newWorld(t)
	w.start(true)
	id := w.startSession(broker.StartParams{}).ID
	first := w.send(id, "a", `{"x":1}`)
	minted := w.send(id, "", `1`)
	if minted.CommandID == "" {
		t.Error("no id was minted")
	}
	if again := w.send(id, "a", `{"x":1}`); !again.Duplicate || again.Seq != first.Seq {
		t.Errorf("live: %+v", again)
	}
	if err := w.broker.Stop(w.ctx, admin, id, 0); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if again := w.send(id, "a", "{ \"x\" : 1 }"); !again.Duplicate || again.Seq != first.Seq || again.SessionID != id || again.Status != "sent" {
			t.Errorf("ended: %+v", again)
		}
		_, err := w.broker.Command(w.ctx, admin, id, protocol.CommandInput{ID: "a", Command: protocol.RawJSON(`{"x":2}`)})
		wantReason(t, err, protocol.ReasonConflict)
		_, err = w.broker.Command(w.ctx, admin, id, protocol.CommandInput{ID: "b", Command: protocol.RawJSON(`{"x":1}`)})
		if e := refusal(t, err, protocol.ReasonSessionUnavailable); e.Retryable {
			t.Error("retryable without a restart")
		}
		st, err := w.broker.CommandStatus(w.ctx, observer, id, []string{"b", "a"})
		if err != nil || len(st) != 2 || st[0].Outcome != protocol.OutcomeUnknown || st[1].Outcome != protocol.OutcomeAdmitted || st[1].Seq != first.Seq {
			t.Errorf("status: %+v, %v", st, err)
		}
		w.kill()
		w.start(true)
	}
	_, err := w.broker.Command(w.ctx, admin, "nobody", protocol.CommandInput{ID: "a"})
	wantReason(t, err, protocol.ReasonSessionNotFound)
	_, err = w.broker.Command(w.ctx, stranger, id, protocol.CommandInput{ID: "a"})
	wantReason(t, err, protocol.ReasonSessionNotFound)
	_, err = w.broker.Command(w.ctx, observer, id, protocol.CommandInput{ID: "a"})
	wantReason(t, err, protocol.ReasonForbidden)
}

// TestKnownCommandWhileStarting: a known id is answered while the next run starts,
// whether its worker has heard of it or not; another command is to come again.
func TestKnownCommandWhileStarting(t *testing.T) {
	for name, reply := range map[string]*protocol.WorkerReply{
		"on its way": nil, "begun": {NotOwner: true, Starting: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.start(true)
			id := w.startSession(broker.StartParams{}).ID
			first := w.send(id, "a", `{"x":1}`)
			w.kill()
			w.start(true)
			hold := make(chan struct{})
			w.worker.setHold(hold)
			w.worker.setRefuse(func(req protocol.WorkerRequest) *protocol.WorkerReply {
				if req.Op == protocol.OpCommand {
					return reply
				}
				return nil
			})
			resumed := make(chan error, 1)
			go func() {
				_, err := w.broker.Resume(w.ctx, admin, id, "", nil)
				resumed <- err
			}()
			harness.Eventually(t, "the run starts", func() bool { return w.worker.count(protocol.OpResume) == 1 })
			if again := w.send(id, "a", `{"x":1}`); !again.Duplicate || again.Seq != first.Seq {
				t.Errorf("known: %+v", again)
			}
			_, err := w.broker.Command(w.ctx, admin, id, protocol.CommandInput{ID: "a", Command: protocol.RawJSON(`{"x":2}`)})
			wantReason(t, err, protocol.ReasonConflict)
			_, err = w.broker.Command(w.ctx, admin, id, protocol.CommandInput{ID: "b", Command: protocol.RawJSON(`1`)})
			if e := refusal(t, err, protocol.ReasonSessionUnavailable); !e.Retryable {
				t.Errorf("another: %v", e)
			}
			w.worker.setHold(nil)
			close(hold)
			if err := <-resumed; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestRecoverMany: a thousand live sessions are settled in parallel.
func TestRecoverMany(t *testing.T) {
	n := 1000
	if testing.Short() {
		n = 50
	}
	w := newWorld(t)
	w.start(false)
	var wg sync.WaitGroup
	room := make(chan struct{}, 16)
	for i := range n {
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			w.startSession(broker.StartParams{SessionID: fmt.Sprintf("s%04d", i)})
		})
	}
	wg.Wait()
	w.kill()
	w.boot()
	began := time.Now()
	if err := w.broker.Recover(w.ctx); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d sessions in %v", n, time.Since(began))
	list, err := w.broker.List(w.ctx, admin, broker.ListParams{State: "interrupted"})
	if err != nil || len(list) != n {
		t.Errorf("%d interrupted, %v", len(list), err)
	}
}
