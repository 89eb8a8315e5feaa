// Package kill_test kills the server in the middle of everything, again and
// again, and compares what it says afterwards with books that rejoin does not
// keep: the child's own and those of ten clients.
package kill_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"rejoin/tests/harness"
	"rejoin/tests/model"
)

const (
	roundsFull       = 30
	roundsShort      = 3
	roundsPerSession = 4
	eventsBeforeKill = 5000
	ordersBeforeKill = 20
	steadyLines      = 1_000_000 // more than any round lets the child print
	burstLines       = 20_000
)

// durabilities alternate from start to start of the server.
var durabilities = []string{"always", "20ms"}

// Environment: KILL_ROUNDS, KILL_SEED, and REJOIN_BIN for another binary.
func TestKill(t *testing.T) {
	harness.Covers(t, "I-J1", "I-J2", "I-J3", "I-J4", "I-B1", "I-B3", "I-W1", "I-W2", "I-W3")
	rounds := harness.Setting(t, "KILL_ROUNDS", roundsFull)
	if testing.Short() && os.Getenv("KILL_ROUNDS") == "" {
		rounds = roundsShort
	}
	seed := harness.Setting(t, "KILL_SEED", int(time.Now().UnixNano()&0xffffff))
	t.Logf("%d rounds, KILL_SEED=%d", rounds, seed)
	k := &killer{
		t: t, dir: t.TempDir(), rng: rand.New(rand.NewPCG(uint64(seed), 1)),
		server: harness.New(t, harness.Options{Listen: []string{harness.FixedPort(t)}}),
	}
	k.server.Run("--durability", durabilities[0])
	printf(t, "round session    mode    killed-on  events  before   after  orders  before   after  retried  recovered  log")
	for round := range rounds {
		k.round(round)
	}
	k.finish()
	k.checkKept()
}

// printf shows a row while the test runs.
func printf(t *testing.T, format string, args ...any) {
	t.Helper()
	fmt.Printf(format+"\n", args...)
}

// killer is the test's state over all rounds.
type killer struct {
	t      *testing.T
	dir    string
	rng    *rand.Rand
	server *harness.Server
	starts int
	w      *world
	lived  int                   // rounds of w
	kept   map[string]*model.Log // sessions that ended and were not deleted
	gone   []string              // sessions that were deleted
}

// row is what a round prints.
type row struct {
	round, starts          int
	on                     string
	headBefore, headAtKill uint64 // of the log
	headAfter              uint64
	sentBefore, sentAtKill int64
	sentAfter              int64
	retried                int
	recovered              time.Duration
}

func (k *killer) round(round int) {
	k.t.Helper()
	if k.w == nil {
		k.w, k.lived = newWorld(k.t, k.server, k.dir), 0
	}
	r := &row{round: round, starts: k.starts, on: []string{onEvent, onAck, onInput}[k.rng.IntN(3)]}
	k.kill(r)
	k.restart(r)
	k.verify(r)
	k.resume(r)
	k.print(r)
	if k.lived++; k.lived == roundsPerSession {
		k.finish()
	}
}

// kill floods, sends, and springs the trap in the middle.
func (k *killer) kill(r *row) {
	k.t.Helper()
	w := k.w
	c := harness.Dial(k.t, k.server)
	r.headBefore, r.sentBefore = w.info(c).Head, w.sentOrders.Load()
	p := &trap{
		seq: r.headBefore + eventsBeforeKill + uint64(k.rng.IntN(8000)), acks: w.acks.Load() + ordersBeforeKill + int64(k.rng.IntN(40)),
		on: r.on, kill: k.server.KillNow, caught: make(chan struct{}),
	}
	w.trap.Store(p)
	w.level.Store(model.Talking)
	ctx := harness.Context(k.t)
	if k.rng.IntN(3) == 0 {
		k.give(ctx, c, "big", 5<<20)
	}
	if k.rng.IntN(3) == 0 {
		k.give(ctx, c, "burst", burstLines)
	}
	k.give(ctx, c, "steady", steadyLines)
	asked := false
	harness.Eventually(k.t, fmt.Sprintf("event %d and %d acknowledgements, then the kill", p.seq, p.acks), func() bool {
		w.check()
		if p.due(w) && !asked {
			asked = true
			k.give(ctx, c, "kill", 0)
		}
		select {
		case <-p.caught:
			return true
		case <-k.server.Exited():
			return true
		default:
			return false
		}
	})
	<-k.server.Exited()
	w.trap.Store(nil)
	w.level.Store(model.Silent)
	r.sentAtKill = w.sentOrders.Load()
	if p.err != nil || !k.server.Killed() {
		k.t.Fatalf("the server ended by itself, or could not be killed: %v\n%s", p.err, k.server.LogTail())
	}
}

// give sends one order on a connection of its own.
func (k *killer) give(ctx context.Context, c *harness.Client, kind string, n int) {
	k.t.Helper()
	if err := tolerate(k.w.observers[0].give(ctx, c, kind, n)); err != nil {
		k.t.Fatalf("order %s: %v", kind, err)
	}
}

func (k *killer) restart(r *row) {
	k.t.Helper()
	began := time.Now()
	k.starts++
	k.server.Run("--durability", durabilities[k.starts%len(durabilities)])
	r.recovered = time.Since(began)
	for _, pid := range harness.MarkedBy("REJOIN_SESSION", k.w.session) {
		k.t.Fatalf("broke I-W3: process %d of the session lives after the restart", pid)
	}
}

// verify judges everything that was seen while the session has no owner.
func (k *killer) verify(r *row) {
	k.t.Helper()
	w, c := k.w, harness.Dial(k.t, k.server)
	i := w.info(c)
	if i.State != "interrupted" || i.Status != "interrupted" || i.PID != nil {
		k.t.Fatalf("broke the failure table: after kill -9 and a restart the session is %+v", i)
	}
	l := readLog(k.t, c, w.session)
	if last(l) != "session_interrupted" {
		k.t.Fatalf("the log of an interrupted session ends with %s", last(l))
	}
	r.headAtKill = l.Head()
	k.judge(c, l, false, 0)
	r.retried = checkRetries(k.t, c, w, l, false)
	checkConflict(k.t, c, w, l)
	w.check()
}

// judge holds everything that was seen against the promises; whole is a run that
// ended in order, or none. While the child lives, l is read to its end after what
// clients saw is taken, so that it has all of that even if the child prints on.
func (k *killer) judge(c *harness.Client, l *model.Log, alive bool, whole uint64) {
	k.t.Helper()
	h := k.w.rec.History()
	if alive {
		if _, err := model.ReadMore(k.t.Context(), c, k.w.session, l); err != nil {
			k.t.Fatal(err)
		}
	}
	books, err := model.ReadBooks(k.dir, k.w.session, lastRun(l), func(run uint64) bool { return run == whole })
	if err != nil {
		k.t.Fatal(err)
	}
	h.Logs, h.Alive, h.Books, h.Booked = []model.Log{*l}, alive, books, true
	if err := h.Validate(); err != nil {
		k.t.Fatal(err)
	}
}

// resume gives the session its next run and lets the round end in peace.
func (k *killer) resume(r *row) {
	k.t.Helper()
	w, c := k.w, harness.Dial(k.t, k.server)
	was := w.info(c)
	params := map[string]any{"sessionId": w.session, "commandId": fmt.Sprintf("resume-%d", r.round)}
	harness.Do[json.RawMessage](k.t, c, "resume_session", params)
	harness.Do[json.RawMessage](k.t, c, "resume_session", params)
	if now := w.info(c); now.State != "running" || now.Run <= was.Run || now.Epoch != was.Epoch {
		k.t.Fatalf("broke I-J3: resumed from %+v to %+v", was, now)
	}
	acks := w.acks.Load()
	w.level.Store(model.Talking)
	if err := w.observers[0].give(harness.Context(k.t), c, "burst", 300); err != nil {
		k.t.Fatalf("order burst: %v", err)
	}
	harness.Eventually(k.t, "commands are acknowledged after the resume", func() bool {
		w.check()
		return w.acks.Load() >= acks+ordersBeforeKill
	})
	w.settle()
	r.sentAfter = w.sentOrders.Load()
	l := w.whole(c)
	r.headAfter = l.Head()
	k.judge(c, l, true, 0)
	r.retried += checkRetries(k.t, c, w, l, true)
	k.judge(c, l, true, 0)
}

func (k *killer) print(r *row) {
	k.t.Helper()
	printf(k.t, "%5d %-10.10s %-7s %-9s %7d %7d %7d %7d %7d %7d %8d %9.2fs %4d", r.round+1, k.w.session, durabilities[r.starts%len(durabilities)], r.on,
		r.headAfter-r.headBefore, r.headAtKill-r.headBefore, r.headAfter-r.headAtKill,
		r.sentAfter-r.sentBefore, r.sentAtKill-r.sentBefore, r.sentAfter-r.sentAtKill, r.retried, r.recovered.Seconds(), r.headAfter)
	if r.headAtKill-r.headBefore < eventsBeforeKill || r.sentAtKill-r.sentBefore < ordersBeforeKill || r.headAfter <= r.headAtKill || r.sentAfter <= r.sentAtKill {
		k.t.Fatalf("round %d did not kill in the middle of enough", r.round+1)
	}
}

// finish stops the session in order: its last run is complete, a fresh reader
// gets the whole log; every second session is deleted.
func (k *killer) finish() {
	k.t.Helper()
	if k.w == nil {
		return
	}
	w, c := k.w, harness.Dial(k.t, k.server)
	harness.Do[json.RawMessage](k.t, c, "stop_session", map[string]any{"sessionId": w.session})
	l := w.whole(c)
	if last(l) != "session_end" {
		k.t.Fatalf("the log of a stopped session ends with %s", last(l))
	}
	k.judge(c, l, false, lastRun(l))
	k.checkFresh(c, w.session, l)
	w.end()
	if k.kept == nil {
		k.kept = map[string]*model.Log{}
	}
	if (len(k.kept)+len(k.gone))%2 == 0 {
		k.kept[w.session] = l
	} else {
		harness.Do[json.RawMessage](k.t, c, "delete_session", map[string]any{"sessionId": w.session})
		k.gone = append(k.gone, w.session)
	}
	k.w = nil
}

// checkFresh lets a new client read everything from the start.
func (k *killer) checkFresh(c *harness.Client, session string, l *model.Log) {
	k.t.Helper()
	ctx := harness.Context(k.t)
	s, err := c.Subscribe(ctx, session, map[string]any{"from": "start", "until": l.Head()})
	if err != nil {
		k.t.Fatal(err)
	}
	for i := range l.Events {
		e, err := s.Next(ctx)
		if err != nil {
			k.t.Fatalf("a fresh reader at event %d of %d: %v", i+1, l.Head(), err)
		}
		got := model.Event{Seq: e.Seq, TS: e.TS, Run: e.Run, Source: e.Source, CommandID: e.CommandID, Body: e.Body}
		if got.Hash() != l.Events[i].Hash() {
			k.t.Fatalf("broke I-J4: a fresh reader got\n  %.300s\nthe log has\n  %.300s", got.Body, l.Events[i].Body)
		}
	}
	if end, err := s.End(ctx); err != nil || end.Reason != "until" {
		k.t.Fatalf("the fresh reader's end: %+v, %v", end, err)
	}
}

// checkKept restarts once more: ended sessions are unchanged, deleted ones are
// unknown.
func (k *killer) checkKept() {
	k.t.Helper()
	k.server.Kill9()
	k.server.Run("--durability", "always")
	c := harness.Dial(k.t, k.server)
	for session, want := range k.kept {
		got := readLog(k.t, c, session)
		if got.Head() != want.Head() || got.Epoch != want.Epoch {
			k.t.Fatalf("broke I-J2: session %s had %d events in epoch %s, after the last restart %d in %s",
				session, want.Head(), want.Epoch, got.Head(), got.Epoch)
		}
		for i := range want.Events {
			if a, b := &got.Events[i], &want.Events[i]; a.Hash() != b.Hash() {
				k.t.Fatalf("broke I-J2: event %d of ended session %s changed\n  %.300s\n  %.300s", i+1, session, b.Body, a.Body)
			}
		}
	}
	for _, session := range k.gone {
		if _, err := c.Call(harness.Context(k.t), "get_session", map[string]any{"sessionId": session}); err == nil {
			k.t.Fatalf("deleted session %s is known after a restart", session)
		}
	}
}
