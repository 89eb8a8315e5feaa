package broker_test

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"rejoin/broker"
	"rejoin/protocol"
	"rejoin/tests/harness"
)

func TestStart(t *testing.T) {
	w := newWorld(t)
	w.start(true)
	info := w.startSession(broker.StartParams{Name: "n", Title: "t", Cwd: w.dir})
	if info.State != "running" || info.Status != protocol.StatusIdle || info.Agent != "plain" || info.Title != "t" || info.Run != 1 ||
		info.Cwd != w.dir || info.Head != 1 || info.Floor != 1 || info.PID == nil {
		t.Errorf("info: %+v", info)
	}
	argv := w.worker.session(key(info.ID)).rec.Argv
	if argv[1] != "--id="+info.ID || argv[3] != "--in="+w.dir || len(argv[2]) != len("--agent=")+36 {
		t.Errorf("argv: %q", argv)
	}
	wantHistory(t, w.history(info.ID), "1 1 session_start")

	second := w.startSession(broker.StartParams{Agent: "open", Args: []string{"{cwd}"}, Env: map[string]string{"COLOR": "no"}, SessionID: "chosen"})
	rec := w.worker.session(key("chosen")).rec
	if second.ID != "chosen" || !slices.Equal(rec.Argv, []string{"prog", "{cwd}"}) || !slices.Equal(rec.ResumeArgv, []string{"prog", "--resume=chosen", "{cwd}"}) ||
		!slices.Equal(rec.Env, []string{"A=1", "COLOR=no"}) {
		t.Errorf("record: %+v", rec)
	}
	third := w.startSession(broker.StartParams{Argv: []string{"/bin/thing", "{cwd}"}, Adapter: "lines"})
	rec = w.worker.session(key(third.ID)).rec
	if third.Agent != "thing" || third.Adapter != "lines" || !slices.Equal(rec.Argv, []string{"/bin/thing", "{cwd}"}) {
		t.Errorf("record: %+v", rec)
	}
}

func TestStartRefuses(t *testing.T) {
	w := newWorld(t)
	w.start(false)
	w.startSession(broker.StartParams{SessionID: "taken"})
	w.startSession(broker.StartParams{SessionID: "gone"})
	if err := w.broker.Delete(w.ctx, admin, "gone"); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name   string
		who    broker.Principal
		params broker.StartParams
		want   protocol.Reason
		text   string
	}{
		{"unknown agent", admin, broker.StartParams{Agent: "nobody"}, protocol.ReasonInvalidParams, "again, home, lost, open, plain"},
		{"args not allowed", admin, broker.StartParams{Args: []string{"x"}}, protocol.ReasonInvalidParams, "args"},
		{"env not allowed", admin, broker.StartParams{Env: map[string]string{"COLOR": "x"}}, protocol.ReasonInvalidParams, "COLOR"},
		{"reserved env", admin, broker.StartParams{Argv: []string{"x"}, Env: map[string]string{"REJOIN_RUN": "x"}}, protocol.ReasonInvalidParams, "REJOIN_RUN"},
		{"argv of an operator", operator, broker.StartParams{Argv: []string{"x"}}, protocol.ReasonForbidden, ""},
		{"observer", observer, broker.StartParams{}, protocol.ReasonForbidden, ""},
		{"unknown adapter", admin, broker.StartParams{Argv: []string{"x"}, Adapter: "klingon"}, protocol.ReasonInvalidParams, "klingon"},
		{"bad session id", admin, broker.StartParams{SessionID: "a.b"}, protocol.ReasonInvalidParams, "sessionId"},
		{"taken", admin, broker.StartParams{SessionID: "taken"}, protocol.ReasonConflict, "taken"},
		{"used and deleted", admin, broker.StartParams{SessionID: "gone"}, protocol.ReasonConflict, "gone"},
		{"no such cwd", admin, broker.StartParams{Cwd: w.dir + "/nowhere"}, protocol.ReasonInvalidParams, "nowhere"},
		{"no such default cwd", admin, broker.StartParams{DefaultCwd: w.dir + "/nowhere"}, protocol.ReasonInvalidParams, "nowhere"},
		{"no such configured cwd", admin, broker.StartParams{Agent: "lost", DefaultCwd: w.dir}, protocol.ReasonInvalidParams, "agent lost is configured with"},
		{"title too long", admin, broker.StartParams{Title: strings.Repeat("x", 257)}, protocol.ReasonInvalidParams, "title"},
		{"restart", admin, broker.StartParams{Restart: "always"}, protocol.ReasonInvalidParams, "restart"},
		{"server's command id", admin, broker.StartParams{CommandID: "rj:1"}, protocol.ReasonInvalidParams, "commandId"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := w.broker.Start(w.ctx, tt.who, tt.params)
			e := refusal(t, err, tt.want)
			if !strings.Contains(e.Message, tt.text) {
				t.Errorf("message %q does not name %q", e.Message, tt.text)
			}
		})
	}
	if list, err := w.broker.List(w.ctx, admin, broker.ListParams{}); err != nil || len(list) != 1 {
		t.Errorf("a refused start left something: %+v, %v", list, err)
	}
}

// TestStartOnce: the same command id gives the same session, across restarts too.
// Proves I-B1 (start_session).
func TestStartOnce(t *testing.T) {
	w := newWorld(t)
	w.start(false)
	hold := make(chan struct{})
	w.worker.setHold(hold)
	params := broker.StartParams{CommandID: "c 1", Title: "x"}
	ids := make([]string, 5)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			info, err := w.broker.Start(w.ctx, admin, params)
			if err != nil {
				t.Errorf("start: %v", err)
			}
			ids[i] = info.ID
		})
	}
	harness.Eventually(t, "a start is in work", func() bool { return w.worker.count(protocol.OpStart) == 1 })
	_, err := w.broker.Start(w.ctx, admin, broker.StartParams{CommandID: "c 1", Title: "y"})
	wantReason(t, err, protocol.ReasonConflict)
	w.worker.setHold(nil)
	close(hold)
	wg.Wait()
	for _, id := range ids {
		if id != ids[0] || id == "" {
			t.Fatalf("ids: %q", ids)
		}
	}
	if n := w.worker.count(protocol.OpStart); n != 1 {
		t.Errorf("%d starts", n)
	}

	w.kill()
	w.start(false)
	info, err := w.broker.Start(w.ctx, admin, params)
	if err != nil || info.ID != ids[0] {
		t.Errorf("after a restart: %+v, %v", info, err)
	}
	_, err = w.broker.Start(w.ctx, admin, broker.StartParams{CommandID: "c 1"})
	wantReason(t, err, protocol.ReasonConflict)
	if err := w.broker.Delete(w.ctx, admin, ids[0]); err != nil {
		t.Fatal(err)
	}
	_, err = w.broker.Start(w.ctx, admin, params)
	wantReason(t, err, protocol.ReasonSessionNotFound)
}

// TestStartFails: a failed start leaves nothing, and its command id and session id free.
func TestStartFails(t *testing.T) {
	w := newWorld(t)
	w.start(true)
	w.worker.setRefuse(func(r protocol.WorkerRequest) *protocol.WorkerReply {
		if r.Op == protocol.OpStart {
			return &protocol.WorkerReply{Error: protocol.Errorf(protocol.ReasonInvalidParams, "failed to start prog: not found")}
		}
		return nil
	})
	_, err := w.broker.Start(w.ctx, admin, broker.StartParams{CommandID: "c", SessionID: "s"})
	wantReason(t, err, protocol.ReasonInvalidParams)
	if list, err := w.broker.List(w.ctx, admin, broker.ListParams{}); err != nil || len(list) != 0 {
		t.Errorf("left: %+v, %v", list, err)
	}
	w.worker.setRefuse(nil)
	info := w.startSession(broker.StartParams{CommandID: "c", SessionID: "s", Title: "other params"})
	if info.ID != "s" || info.Title != "other params" {
		t.Errorf("info: %+v", info)
	}
}

// TestStartUnanswered: a worker that died over a start leaves it to the next recovery.
func TestStartUnanswered(t *testing.T) {
	w := newWorld(t)
	w.start(false)
	w.worker.unreg()
	_, err := w.broker.Start(w.ctx, admin, broker.StartParams{CommandID: "c", SessionID: "s"})
	if e := refusal(t, err, protocol.ReasonSessionUnavailable); !e.Retryable {
		t.Errorf("not retryable: %v", e)
	}
	if list, err := w.broker.List(w.ctx, admin, broker.ListParams{}); err != nil || len(list) != 0 {
		t.Errorf("left: %+v, %v", list, err)
	}
}

// TestDirectory: the request's directory, else the agent's, else the default.
func TestDirectory(t *testing.T) {
	w := newWorld(t)
	w.start(true)
	own := t.TempDir()
	for _, c := range []struct {
		params broker.StartParams
		want   string
	}{
		{broker.StartParams{Agent: "home", DefaultCwd: own}, "/"},
		{broker.StartParams{Agent: "home", Cwd: own, DefaultCwd: "/nowhere"}, own},
		{broker.StartParams{DefaultCwd: own}, own},
		{broker.StartParams{Argv: []string{"x"}, DefaultCwd: own}, own},
	} {
		if info := w.startSession(c.params); info.Cwd != c.want {
			t.Errorf("%+v: runs in %s, want %s", c.params, info.Cwd, c.want)
		}
	}
}

// TestStartWithLabels: a worker without the labels that are wanted runs nothing.
func TestStartWithLabels(t *testing.T) {
	w := newWorld(t)
	w.start(true)
	_, err := w.broker.Start(w.ctx, admin, broker.StartParams{Labels: map[string]string{"repo": "a"}})
	if e := refusal(t, err, protocol.ReasonSessionUnavailable); !e.Retryable || e.Message != "no worker with label repo=a is running" {
		t.Errorf("refused: %+v", e)
	}
	_, err = w.broker.Start(w.ctx, admin, broker.StartParams{Labels: map[string]string{"a b": ""}})
	wantReason(t, err, protocol.ReasonInvalidParams)
	if n := w.worker.count(protocol.OpStart); n != 0 {
		t.Errorf("%d starts", n)
	}
}
