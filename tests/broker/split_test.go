package broker_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"rejoin/broker"
	"rejoin/journal"
	"rejoin/protocol"
	"rejoin/snapshot"
	"rejoin/tests/harness"
)

// split is a NATS server with the processes that meet there: brokers, the desks of
// gateways, and workers without children.
type split struct {
	tb   testing.TB
	ctx  context.Context
	nats *harness.NATSServers
	node *journal.Node // to look with
	buck *journal.Bucket
}

func newSplit(tb testing.TB) *split {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 2*time.Minute)
	tb.Cleanup(cancel)
	s := &split{tb: tb, ctx: ctx, nats: harness.NATS(tb, 1)}
	s.node = s.connect(true)
	var err error
	if s.buck, err = s.node.Bucket(s.ctx, protocol.BucketWorkers); err != nil {
		tb.Fatal(err)
	}
	return s
}

func (s *split) logger() *slog.Logger { return slog.New(slog.NewTextHandler(s.tb.Output(), nil)) }

// connect is a process of its own, as far as NATS can tell.
func (s *split) connect(create bool) *journal.Node {
	s.tb.Helper()
	return s.connectTo(create, s.nats.URLs()...)
}

func (s *split) connectTo(create bool, urls ...string) *journal.Node {
	s.tb.Helper()
	node, err := journal.Connect(s.ctx, journal.RemoteConfig{URLs: urls, Create: create, MaxBytes: 1 << 30, Logger: s.logger()})
	if err != nil {
		s.tb.Fatalf("connect: %v", err)
	}
	s.tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
		defer cancel()
		if err := node.Close(ctx); err != nil {
			s.tb.Errorf("close the journal: %v", err)
		}
	})
	return node
}

// broker starts a broker; halt ends it before the test does.
func (s *split) broker(more func(*broker.Config)) (b *broker.Broker, halt func()) {
	s.tb.Helper()
	return s.brokerOn(s.connect(true), more)
}

func (s *split) brokerOn(node *journal.Node, more func(*broker.Config)) (b *broker.Broker, halt func()) {
	s.tb.Helper()
	return s.run(more, node, broker.Config{
		Agents: map[string]broker.AgentConfig{
			"plain": {Adapter: "jsonl", Argv: []string{"prog"}},
			"again": {Adapter: "jsonl", Argv: []string{"prog", "{cwd}"}, Restart: protocol.RestartResume},
			"at-a":  {Adapter: "jsonl", Argv: []string{"prog"}, Labels: map[string]string{"repo": "a"}},
		},
		Default: "plain", Adapters: []string{"jsonl"}, Discover: true,
	})
}

// desk starts what a gateway without a broker has.
func (s *split) desk() *broker.Broker {
	s.tb.Helper()
	b, _ := s.run(nil, s.connect(false), broker.Config{Desk: true})
	return b
}

// awaitServes waits until a broker answers what a desk asks.
func (s *split) awaitServes(desk *broker.Broker) {
	s.tb.Helper()
	harness.Eventually(s.tb, "a broker serves", func() bool {
		e, ok := protocol.AsError(desk.Stop(s.ctx, admin, "nobody", 0))
		return ok && e.Reason == protocol.ReasonSessionNotFound
	})
}

func (s *split) run(more func(*broker.Config), node *journal.Node, cfg broker.Config) (*broker.Broker, func()) {
	s.tb.Helper()
	cfg.Logger = s.logger()
	if more != nil {
		more(&cfg)
	}
	b, err := broker.New(cfg, node, snapshot.NewReader(node, testFolds, 0))
	if err != nil {
		s.tb.Fatalf("broker: %v", err)
	}
	if err := b.Recover(s.ctx); err != nil {
		s.tb.Fatalf("Recover: %v", err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.ctx))
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	halt := sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			s.tb.Errorf("Run: %v", err)
		}
	})
	s.tb.Cleanup(halt)
	return b, halt
}

// hand is one life of a worker: a puppet with an entry that brokers know.
type hand struct {
	*puppet
	s     *split
	entry protocol.WorkerEntry

	quiet func() // ends its heartbeats
}

// worker begins a life of a worker, and its heartbeats.
func (s *split) worker(id, life string, capacity int, labels map[string]string) *hand {
	s.tb.Helper()
	node := s.connect(false)
	reg, err := broker.OpenRegistry(s.ctx, node)
	if err != nil {
		s.tb.Fatalf("registry: %v", err)
	}
	h := &hand{s: s, puppet: newPuppet(s.tb, protocol.OwnerName(id, life), node, reg, snapshot.NewReader(node, testFolds, 0))}
	s.tb.Cleanup(h.die)
	h.entry = protocol.WorkerEntry{ID: id, Owner: h.id, Dir: "/home/" + id, Labels: labels, Capacity: capacity, Version: "test"}
	h.write(func(*protocol.WorkerEntry) {})
	ctx, cancel := context.WithCancel(s.ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(protocol.HeartbeatEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				h.write(func(*protocol.WorkerEntry) {})
			case <-ctx.Done():
				return
			}
		}
	}()
	h.quiet = sync.OnceFunc(func() {
		cancel()
		<-ended
	})
	s.tb.Cleanup(h.quiet)
	return h
}

// write stores the worker's entry, changed, over whatever is there.
func (h *hand) write(change func(*protocol.WorkerEntry)) {
	h.mu.Lock()
	change(&h.entry)
	h.entry.Beat++
	entry := h.entry
	h.mu.Unlock()
	value, err := json.Marshal(entry)
	if err != nil {
		panic(err)
	}
	var rev uint64
	e, err := h.s.buck.Get(h.s.ctx, entry.ID)
	if errors.Is(err, journal.ErrNotFound) {
		rev, err = h.s.buck.Create(h.s.ctx, entry.ID, value)
	} else if err == nil {
		rev, err = h.s.buck.Update(h.s.ctx, entry.ID, value, e.Revision)
	}
	if err != nil && h.s.ctx.Err() == nil && !errors.Is(err, journal.ErrRevision) {
		h.s.tb.Errorf("entry of %s: %d, %v", entry.ID, rev, err)
	}
}

// kill ends the life without a word.
func (h *hand) kill() {
	h.quiet()
	h.die()
	stop, err := h.node.Bus().Serve("flush", func([]byte, func([]byte)) {}) // the server knows that nobody serves
	if err != nil {
		h.s.tb.Fatal(err)
	}
	stop()
}

func (s *split) entry(id string) (e protocol.WorkerEntry) {
	s.tb.Helper()
	got, err := s.buck.Get(s.ctx, id)
	if err == nil {
		err = json.Unmarshal(got.Value, &e)
	}
	if err != nil {
		s.tb.Fatalf("entry of %s: %v", id, err)
	}
	return e
}

// record is the session as the registry has it.
func (s *split) record(id string) *protocol.SessionRecord {
	s.tb.Helper()
	reg, err := broker.OpenRegistry(s.ctx, s.node)
	if err != nil {
		s.tb.Fatal(err)
	}
	rec, err := reg.Record(s.ctx, key(id))
	if err != nil || rec == nil {
		s.tb.Fatalf("record of %s: %v, %v", id, rec, err)
	}
	return rec
}

func (s *split) history(id string) []string {
	s.tb.Helper()
	w := &world{tb: s.tb, ctx: s.ctx, node: s.node}
	return w.history(id)
}

// awaitWorkers waits until b knows so many live workers.
func (s *split) awaitWorkers(b *broker.Broker, n int) {
	s.tb.Helper()
	harness.Eventually(s.tb, "the workers are known", func() bool {
		_, have := b.Census()
		return have == n
	})
}

func (s *split) start(b *broker.Broker, p broker.StartParams) protocol.SessionInfo {
	s.tb.Helper()
	info, err := b.Start(s.ctx, admin, p)
	if err != nil {
		s.tb.Fatalf("start: %v", err)
	}
	return info
}

// TestDesk: a gateway without a broker starts, commands, stops, resumes, names and
// deletes sessions, sees its own writes, and knows at once what others started.
// Proves I-R2.
func TestDesk(t *testing.T) {
	s := newSplit(t)
	b, _ := s.broker(nil)
	w := s.worker("w1", "1", 8, nil)
	s.awaitWorkers(b, 1)
	one, two := s.desk(), s.desk()
	for i := range 5 {
		info := s.start(one, broker.StartParams{Agent: "plain", Title: "t"})
		if info.State != "running" || info.Title != "t" {
			t.Fatalf("started: %+v", info)
		}
		for _, d := range []*broker.Broker{two, one, b} {
			got, err := d.Info(s.ctx, observer, info.ID)
			if err != nil || got.ID != info.ID || got.Status != protocol.StatusIdle {
				t.Fatalf("seen at once: %+v, %v", got, err)
			}
		}
		sent, err := two.Command(s.ctx, admin, info.ID, protocol.CommandInput{ID: "c", Command: protocol.RawJSON(`1`)})
		if err != nil || sent.Duplicate {
			t.Fatalf("command: %+v, %v", sent, err)
		}
		if err := two.Stop(s.ctx, admin, info.ID, 0); err != nil {
			t.Fatalf("stop: %v", err)
		}
		if got, err := two.Info(s.ctx, admin, info.ID); err != nil || got.State != "exited" {
			t.Fatalf("its own stop: %+v, %v", got, err)
		}
		again, err := one.Command(s.ctx, admin, info.ID, protocol.CommandInput{ID: "c", Command: protocol.RawJSON(`1`)})
		if err != nil || !again.Duplicate || again.Seq != sent.Seq {
			t.Fatalf("command again: %+v, %v", again, err)
		}
		next, err := one.Resume(s.ctx, admin, info.ID, "", nil)
		if err != nil || next.Run != 2 || next.State != "running" {
			t.Fatalf("resume: %+v, %v", next, err)
		}
		// Two has its own stop in mind: the owner of run 2 is looked up.
		if got, err := two.Command(s.ctx, admin, info.ID, protocol.CommandInput{ID: "d", Command: protocol.RawJSON(`2`)}); err != nil {
			t.Fatalf("command to run 2: %+v, %v", got, err)
		}
		if err := two.SetTitle(s.ctx, admin, info.ID, "new"); err != nil {
			t.Fatalf("title: %v", err)
		}
		list, err := two.List(s.ctx, admin, broker.ListParams{})
		if err != nil || len(list) != 1 || list[0].Title != "new" || list[0].Run != 2 {
			t.Fatalf("list: %+v, %v", list, err)
		}
		if err := one.Delete(s.ctx, admin, info.ID); err != nil {
			t.Fatalf("delete: %v", err)
		}
		if _, err := one.Info(s.ctx, admin, info.ID); err == nil {
			t.Fatal("it is seen after its own delete")
		}
		harness.Eventually(t, "the other desk hears of the delete", func() bool {
			list, err := two.List(s.ctx, admin, broker.ListParams{})
			return err == nil && len(list) == 0
		})
		if n := w.count(protocol.OpFiles); n != i+1 {
			t.Errorf("%d removals of files", n)
		}
	}
	wantReason(t, one.Stop(s.ctx, observer, "x", 0), protocol.ReasonForbidden)
	_, err := one.Start(s.ctx, operator, broker.StartParams{Argv: []string{"sh"}})
	wantReason(t, err, protocol.ReasonForbidden)
	_, err = one.Resume(s.ctx, admin, "nobody", "", nil)
	wantReason(t, err, protocol.ReasonSessionNotFound)
}

// TestDeskBehind: a desk whose copy of the registry is not kept up to date, because
// its watch does not run, finds sessions and their owners all the same, and sees
// what it did itself.
// Proves I-R2.
func TestDeskBehind(t *testing.T) {
	s := newSplit(t)
	b, _ := s.broker(nil)
	w1 := s.worker("w1", "1", 8, nil)
	s.awaitWorkers(b, 1)
	node := s.connect(false)
	d, err := broker.New(broker.Config{Desk: true, Logger: s.logger()}, node, snapshot.NewReader(node, testFolds, 0))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Recover(s.ctx); err != nil {
		t.Fatal(err)
	}
	id := s.start(b, broker.StartParams{}).ID
	send := func(command string) error {
		_, err := d.Command(s.ctx, admin, id, protocol.CommandInput{ID: command, Command: protocol.RawJSON(`1`)})
		return err
	}
	if err := send("a"); err != nil {
		t.Fatalf("a session that it has not heard of: %v", err)
	}
	w2 := s.worker("w2", "1", 8, nil)
	s.awaitWorkers(b, 2)
	w1.write(func(e *protocol.WorkerEntry) { e.Draining = true })
	harness.Eventually(t, "the broker knows of the drain", func() bool {
		list, err := b.Workers(s.ctx, admin)
		return err == nil && list[0].State == protocol.WorkerDraining
	})
	if err := b.Stop(s.ctx, admin, id, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Resume(s.ctx, admin, id, "", nil); err != nil || s.record(id).Owner != w2.id {
		t.Fatalf("resume: %+v, %v", s.record(id), err)
	}
	if info, err := d.Info(s.ctx, admin, id); err != nil || info.Run != 2 || info.State != "running" {
		t.Errorf("info: %+v, %v", info, err)
	}
	if err := send("b"); err != nil {
		t.Errorf("a session whose owner is another now: %v", err)
	}
	if st, err := d.CommandStatus(s.ctx, admin, id, []string{"b"}); err != nil || st[0].Outcome == protocol.OutcomeUnknown {
		t.Errorf("status: %+v, %v", st, err)
	}
	harness.Eventually(t, "a broker stops it", func() bool { return d.Stop(s.ctx, admin, id, 0) == nil })
	list, err := d.List(s.ctx, admin, broker.ListParams{State: "exited"})
	if err != nil || len(list) != 1 || list[0].Run != 2 {
		t.Errorf("its own stop: %+v, %v", list, err)
	}
	if err := d.Delete(s.ctx, admin, id); err != nil {
		t.Fatal(err)
	}
	if list, err := d.List(s.ctx, admin, broker.ListParams{}); err != nil || len(list) != 0 {
		t.Errorf("its own delete: %+v, %v", list, err)
	}
}

// TestDeskWithoutBroker: while no broker runs, what grants runs is refused
// retryable; the rest goes on.
func TestDeskWithoutBroker(t *testing.T) {
	s := newSplit(t)
	b, halt := s.broker(nil)
	s.worker("w1", "1", 8, nil)
	s.awaitWorkers(b, 1)
	d := s.desk()
	id := s.start(d, broker.StartParams{}).ID
	halt()
	_, err := d.Start(s.ctx, admin, broker.StartParams{})
	if e := refusal(t, err, protocol.ReasonSessionUnavailable); !e.Retryable {
		t.Errorf("not retryable: %+v", e)
	}
	wantReason(t, d.Stop(s.ctx, admin, id, 0), protocol.ReasonSessionUnavailable)
	if _, err := d.Command(s.ctx, admin, id, protocol.CommandInput{ID: "c", Command: protocol.RawJSON(`1`)}); err != nil {
		t.Errorf("command without a broker: %v", err)
	}
	if got, err := d.Info(s.ctx, admin, id); err != nil || got.Status != protocol.StatusIdle {
		t.Errorf("info without a broker: %+v, %v", got, err)
	}
	s.broker(nil)
	harness.Eventually(t, "the next broker stops it", func() bool { return d.Stop(s.ctx, admin, id, 0) == nil })
}

// TestLostOnce: two brokers hear at once that a worker is lost. Each of its sessions
// gets one run of recovery, and where the policy resumes one more, on the other
// worker.
// Proves I-B2, I-B3 (several brokers).
func TestLostOnce(t *testing.T) {
	s := newSplit(t)
	b1, _ := s.broker(nil)
	b2, _ := s.broker(nil)
	w1 := s.worker("w1", "1", 64, map[string]string{"repo": "a"})
	s.awaitWorkers(b1, 1)
	s.awaitWorkers(b2, 1)
	const n = 12
	ids := make(map[string]bool, n)
	for i := range n {
		agent := []string{"plain", "again"}[i%2]
		ids[s.start([]*broker.Broker{b1, b2}[i/2%2], broker.StartParams{Agent: agent}).ID] = agent == "again"
	}
	w2 := s.worker("w2", "1", 64, nil)
	s.awaitWorkers(b1, 2)
	s.awaitWorkers(b2, 2)
	w1.kill()
	w1.write(func(e *protocol.WorkerEntry) { e.Lost = true }) // as a broker does
	for id, again := range ids {
		want := []string{"1 1 session_start", "2 2 session_interrupted worker_lost"}
		if again {
			want = append(want, "3 3 session_resumed")
		}
		harness.Eventually(t, "the session is settled", func() bool { return len(s.history(id)) >= len(want) })
		wantHistory(t, s.history(id), want...)
	}
	harness.Eventually(t, "they run again", func() bool { return w2.count(protocol.OpResume) >= n/2 })
	for id, again := range ids {
		rec := s.record(id)
		switch {
		case again && (rec.Run != 3 || rec.Owner != w2.id || rec.Host != "w2" || len(rec.Restarted) != 1):
			t.Errorf("resumed: %+v", rec)
		case !again && (rec.Run != 2 || rec.Owner != "" || rec.Status != protocol.StatusInterrupted):
			t.Errorf("interrupted: %+v", rec)
		}
		info, err := b1.Info(s.ctx, admin, id)
		if err != nil || info.Restarting || again != (info.State == "running") {
			t.Errorf("as a client sees it: %+v, %v", info, err)
		}
	}
	if got := w2.count(protocol.OpResume); got != n/2 {
		t.Errorf("%d resumes of %d sessions", got, n/2)
	}
}

// TestLastWordsDuringTakeover: what a log lacks is written by somebody else after a
// broker was granted the run to write it with, and before it has: the owner's last
// words were on their way. The broker adds nothing, and the registry says what the log
// does.
// Proves I-B3 (a takeover that comes too late).
func TestLastWordsDuringTakeover(t *testing.T) {
	s := newSplit(t)
	link := harness.NewProxy(t, s.nats.Addr(0))
	b, _ := s.brokerOn(s.connectTo(true, "nats://"+link.Addr()), nil)
	w := s.worker("w1", "1", 8, nil)
	s.awaitWorkers(b, 1)
	id := s.start(b, broker.StartParams{}).ID
	if _, err := b.Command(s.ctx, admin, id, protocol.CommandInput{ID: "c", Command: protocol.RawJSON(`1`)}); err != nil {
		t.Fatal(err)
	}
	owner := w.session(key(id))
	granted := link.StallAt("HPUB $KV.sessions.default." + id + " ")
	w.quiet()
	w.write(func(e *protocol.WorkerEntry) { e.Lost = true }) // as a broker does
	select {
	case <-granted:
	case <-s.ctx.Done():
		t.Fatal("no run was granted")
	}
	w.append(s.ctx, owner, protocol.CommandOutcome{Type: protocol.TypeCommandOutcome, CommandID: "c", Outcome: protocol.OutcomeDone})
	w.append(s.ctx, owner, protocol.SessionEnd{Type: protocol.TypeSessionEnd, Reason: protocol.EndExited, ExitCode: ptr(0)})
	link.Flow()
	harness.Eventually(t, "the session is settled", func() bool { return s.record(id).Owner == "" && !running(s.record(id)) })
	if rec := s.record(id); rec.Run != 2 || rec.Status != protocol.StatusEnded || rec.Head != 4 || rec.Exit == nil || rec.Exit.Reason != protocol.EndExited {
		t.Errorf("record: %+v, exit %+v", rec, rec.Exit)
	}
	if got := s.history(id); len(got) != 4 || !strings.HasPrefix(got[3], "4 1 session_end") {
		t.Errorf("history: %q", got)
	}
}

func running(r *protocol.SessionRecord) bool {
	return r.Status != protocol.StatusEnded && r.Status != protocol.StatusInterrupted
}

// TestSilentWorker: a worker that writes nothing for WorkerLostAfter is called lost,
// one that writes is not; it is seen by both brokers, and its sessions go on
// elsewhere.
func TestSilentWorker(t *testing.T) {
	if testing.Short() {
		t.Skip("takes WorkerLostAfter")
	}
	s := newSplit(t)
	b, _ := s.broker(nil)
	s.broker(nil)
	w1 := s.worker("w1", "1", 1, nil)
	s.awaitWorkers(b, 1)
	id := s.start(b, broker.StartParams{Agent: "again"}).ID
	s.worker("w2", "1", 8, nil)
	s.awaitWorkers(b, 2)
	w1.kill()
	wantReason(t, b.Stop(s.ctx, admin, id, 0), protocol.ReasonSessionUnavailable) // it is not known whether it runs
	_, err := b.Command(s.ctx, admin, id, protocol.CommandInput{ID: "c", Command: protocol.RawJSON(`1`)})
	if e := refusal(t, err, protocol.ReasonSessionUnavailable); !e.Retryable {
		t.Errorf("a command meanwhile: %+v", e)
	}
	if !harness.Within(protocol.WorkerLostAfter+harness.Patience, func() bool { rec := s.record(id); return rec.Run == 3 && rec.Status == protocol.StatusIdle }) {
		t.Fatalf("not taken over: %+v, %+v", s.record(id), s.entry("w1"))
	}
	if !s.entry("w1").Lost || s.entry("w2").Lost {
		t.Errorf("entries: %+v, %+v", s.entry("w1"), s.entry("w2"))
	}
	wantHistory(t, s.history(id)[:2], "1 1 session_start", "2 2 session_interrupted worker_lost")
}

// TestWorkerComesAndGoes: the sessions of an earlier life of a worker, and of one
// that has left, are interrupted at once, those of the new life are left alone.
func TestWorkerComesAndGoes(t *testing.T) {
	s := newSplit(t)
	b, _ := s.broker(nil)
	w := s.worker("w1", "1", 8, nil)
	s.awaitWorkers(b, 1)
	id := s.start(b, broker.StartParams{}).ID
	w.kill()
	next := s.worker("w1", "2", 8, nil)
	harness.Eventually(t, "it is interrupted", func() bool { return len(s.history(id)) == 2 })
	wantHistory(t, s.history(id), "1 1 session_start", "2 2 session_interrupted worker_restart")
	harness.Eventually(t, "the registry says so", func() bool { return s.record(id).Status == protocol.StatusInterrupted })
	if info, err := b.Resume(s.ctx, admin, id, "", nil); err != nil || info.Run != 3 {
		t.Fatalf("resume: %+v, %v", info, err)
	}
	if rec := s.record(id); rec.Owner != next.id {
		t.Errorf("owner: %+v", rec)
	}
	next.kill()
	next.write(func(e *protocol.WorkerEntry) { e.Left = true })
	harness.Eventually(t, "it is interrupted again", func() bool { return len(s.history(id)) == 4 })
	wantHistory(t, s.history(id)[3:], "4 4 session_interrupted worker_stop")
	_, err := b.Start(s.ctx, admin, broker.StartParams{})
	if e := refusal(t, err, protocol.ReasonSessionUnavailable); !e.Retryable {
		t.Errorf("start without a worker: %+v", e)
	}
}

// TestBrokerComes: a broker that starts leaves sessions of live owners alone, and
// settles those whose owner is no more.
func TestBrokerComes(t *testing.T) {
	s := newSplit(t)
	b, halt := s.broker(nil)
	w1, w2 := s.worker("w1", "1", 1, nil), s.worker("w2", "1", 1, nil)
	s.awaitWorkers(b, 2)
	ids := []string{s.start(b, broker.StartParams{}).ID, s.start(b, broker.StartParams{}).ID}
	halt()
	gone, stays := w1, w2
	gone.kill()
	gone.write(func(e *protocol.WorkerEntry) { e.Lost = true })
	b, _ = s.broker(nil) // settles before it answers
	for _, id := range ids {
		info, err := b.Info(s.ctx, admin, id)
		if err != nil {
			t.Fatal(err)
		}
		if alive := stays.session(key(id)) != nil; alive != (info.State == "running") || !alive && info.State != "interrupted" {
			t.Errorf("session: %+v, alive %v", info, alive)
		}
	}
}

// TestStartOnceOfSeveral: the same start through two brokers at once makes one
// session.
// Proves I-B1 (several brokers).
func TestStartOnceOfSeveral(t *testing.T) {
	s := newSplit(t)
	b1, _ := s.broker(nil)
	b2, _ := s.broker(nil)
	w := s.worker("w1", "1", 64, nil)
	s.awaitWorkers(b1, 1)
	s.awaitWorkers(b2, 1)
	for i := range 10 {
		p := broker.StartParams{CommandID: strings.Repeat("c", i+1)}
		var wg sync.WaitGroup
		var mu sync.Mutex
		seen := make(map[string]bool)
		for _, b := range []*broker.Broker{b1, b2, b1, b2} {
			wg.Go(func() {
				info, err := b.Start(s.ctx, admin, p)
				if err != nil {
					t.Errorf("start %d: %v", i, err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				seen[info.ID] = true
			})
		}
		wg.Wait()
		if len(seen) != 1 || w.count(protocol.OpStart) != i+1 {
			t.Fatalf("start %d: sessions %v, %d starts", i, seen, w.count(protocol.OpStart))
		}
	}
	_, err := b2.Start(s.ctx, admin, broker.StartParams{CommandID: "c", Title: "other"})
	wantReason(t, err, protocol.ReasonConflict)
	// A failed start frees its command id, whichever broker hears it next.
	w.setRefuse(func(r protocol.WorkerRequest) *protocol.WorkerReply {
		if r.Op == protocol.OpStart {
			return &protocol.WorkerReply{Error: protocol.Errorf(protocol.ReasonInvalidParams, "failed to start prog: gone")}
		}
		return nil
	})
	_, err = b1.Start(s.ctx, admin, broker.StartParams{CommandID: "failed"})
	wantReason(t, err, protocol.ReasonInvalidParams)
	w.setRefuse(nil)
	if _, err := b2.Start(s.ctx, admin, broker.StartParams{CommandID: "failed", Title: "other"}); err != nil {
		t.Errorf("after a failed start: %v", err)
	}
}

// TestStopForAll: a stop that one broker is asked for calls off what another has
// planned; so does the number of restarts that were.
func TestStopForAll(t *testing.T) {
	s := newSplit(t)
	b1, _ := s.broker(nil)
	b2, _ := s.broker(nil)
	w := s.worker("w1", "1", 64, nil)
	s.awaitWorkers(b1, 1)
	s.awaitWorkers(b2, 1)
	fail := func(id string) {
		w.exit(s.ctx, key(id), protocol.SessionEnd{Type: protocol.TypeSessionEnd, Reason: protocol.EndExited, ExitCode: ptr(1)})
	}
	stopped, spent, runs := s.start(b1, broker.StartParams{Agent: "again"}).ID, s.start(b1, broker.StartParams{Agent: "again"}).ID,
		s.start(b1, broker.StartParams{Agent: "again"}).ID
	fail(stopped)
	if err := b2.Stop(s.ctx, admin, stopped, 0); err != nil {
		t.Fatal(err)
	}
	now := time.Now().UnixMilli()
	if err := w.reg.Update(s.ctx, key(spent), 1, func(r *protocol.SessionRecord) { r.Restarted = []int64{now, now, now} }); err != nil {
		t.Fatal(err)
	}
	fail(spent)
	fail(runs)
	harness.Eventually(t, "the third runs again", func() bool { return s.record(runs).Status == protocol.StatusIdle && s.record(runs).Run == 2 })
	harness.Eventually(t, "the second rests", func() bool { return s.record(spent).Rests == 1 })
	for _, id := range []string{stopped, spent} {
		if rec := s.record(id); rec.Run != 1 || rec.Rests != 1 {
			t.Errorf("a session that is to rest: %+v", rec)
		}
		if info, err := b1.Info(s.ctx, admin, id); err != nil || info.Restarting {
			t.Errorf("shown as: %+v, %v", info, err)
		}
	}
	if n := w.count(protocol.OpResume); n != 1 {
		t.Errorf("%d resumes", n)
	}
}

// TestDrainAndMove: a worker that drains takes nothing new; with move its sessions
// with policy resume go on elsewhere.
func TestDrainAndMove(t *testing.T) {
	s := newSplit(t)
	b, _ := s.broker(nil)
	w1 := s.worker("w1", "1", 64, map[string]string{"repo": "a"})
	s.awaitWorkers(b, 1)
	d := s.desk()
	plain, again := s.start(d, broker.StartParams{}).ID, s.start(d, broker.StartParams{Agent: "again"}).ID
	bound := s.start(d, broker.StartParams{Agent: "again", Labels: map[string]string{"repo": "a"}}).ID
	w2 := s.worker("w2", "1", 64, map[string]string{"repo": "b"})
	s.awaitWorkers(b, 2)
	s.awaitWorkers(d, 2)
	drains := func(on bool) func(r protocol.WorkerRequest) *protocol.WorkerReply {
		return func(r protocol.WorkerRequest) *protocol.WorkerReply {
			if r.Op != protocol.OpDrain && r.Op != protocol.OpUndrain {
				return nil
			}
			w1.write(func(e *protocol.WorkerEntry) { e.Draining, e.Moving = on, r.Move })
			return &protocol.WorkerReply{}
		}
	}
	w1.setRefuse(drains(true))
	_, err := d.DrainWorker(s.ctx, operator, "w1", protocol.DrainParams{})
	wantReason(t, err, protocol.ReasonForbidden)
	_, err = d.DrainWorker(s.ctx, stranger, "w1", protocol.DrainParams{})
	wantReason(t, err, protocol.ReasonForbidden)
	_, err = d.DrainWorker(s.ctx, admin, "w9", protocol.DrainParams{})
	wantReason(t, err, protocol.ReasonInvalidParams)
	info, err := d.DrainWorker(s.ctx, admin, "w1", protocol.DrainParams{Move: true})
	if err != nil || info.State != protocol.WorkerDraining || info.Sessions != 3 || info.Moving != 2 || info.Labels["repo"] != "a" {
		t.Fatalf("drain: %+v, %v", info, err)
	}
	harness.Eventually(t, "one is moved", func() bool { return s.record(again).Host == "w2" })
	if rec := s.record(again); rec.Run != 2 || rec.Status != protocol.StatusIdle || rec.Cwd != "/home/w2" { // nobody named a directory: each worker has its own
		t.Errorf("moved: %+v", rec)
	}
	if first, next := w1.session(key(bound)).rec.Argv, w2.session(key(again)).rec.ResumeArgv; first[1] != "/home/w1" || next[1] != "/home/w2" {
		t.Errorf("started as %q, resumed as %q", first, next)
	}
	for _, id := range []string{plain, bound} {
		if rec := s.record(id); rec.Run != 1 || rec.Owner != w1.id || rec.Cwd != "/home/w1" {
			t.Errorf("stays: %+v", rec)
		}
	}
	_, err = d.Start(s.ctx, admin, broker.StartParams{Agent: "at-a"})
	wantReason(t, err, protocol.ReasonSessionUnavailable)
	w1.setRefuse(drains(false))
	if info, err = d.DrainWorker(s.ctx, admin, "w1", protocol.DrainParams{Undo: true}); err != nil || info.State != protocol.WorkerLive {
		t.Fatalf("undo: %+v, %v", info, err)
	}
	if got := s.start(d, broker.StartParams{Agent: "at-a"}); s.record(got.ID).Owner != w1.id {
		t.Errorf("placed: %+v", s.record(got.ID))
	}
	list, err := d.Workers(s.ctx, admin)
	if err != nil || len(list) != 2 || list[0].ID != "w1" || list[0].Sessions != 3 || list[1].Sessions != 1 || list[1].Capacity != 64 {
		t.Errorf("workers: %+v, %v", list, err)
	}
	_, err = d.Workers(s.ctx, observer)
	wantReason(t, err, protocol.ReasonForbidden)
}

// TestMoveThatFails: the sessions of a drain go on elsewhere whatever becomes of the
// broker that was at it, those too that it had not begun with, or of the first try.
func TestMoveThatFails(t *testing.T) {
	s := newSplit(t)
	first, halt := s.broker(nil)
	w1 := s.worker("w1", "1", 64, nil)
	s.awaitWorkers(first, 1)
	var ids []string
	for range 6 { // more than move at a time
		ids = append(ids, s.start(first, broker.StartParams{Agent: "again"}).ID)
	}
	w2 := s.worker("w2", "1", 64, nil)
	s.awaitWorkers(first, 2)
	second, _ := s.broker(nil)
	s.awaitWorkers(second, 2)
	var refused atomic.Bool
	w2.setRefuse(func(r protocol.WorkerRequest) *protocol.WorkerReply {
		if r.Op == protocol.OpResume && refused.CompareAndSwap(false, true) {
			return &protocol.WorkerReply{Error: protocol.Errorf(protocol.ReasonOverloaded, "not now")}
		}
		return nil
	})
	w1.setRefuse(func(r protocol.WorkerRequest) *protocol.WorkerReply {
		if r.Op == protocol.OpDrain {
			w1.write(func(e *protocol.WorkerEntry) { e.Draining, e.Moving = true, r.Move })
			return &protocol.WorkerReply{}
		}
		if r.Op == protocol.OpStop {
			halt() // with the session's end in hand
		}
		return nil
	})
	if info, err := first.DrainWorker(s.ctx, admin, "w1", protocol.DrainParams{Move: true}); err != nil || info.Moving != len(ids) {
		t.Fatalf("drain: %+v, %v", info, err)
	}
	harness.Eventually(t, "all run elsewhere", func() bool {
		moved := 0
		for _, id := range ids {
			if rec := s.record(id); rec.Host == "w2" && rec.Status == protocol.StatusIdle {
				moved++
			}
		}
		return moved == len(ids) && refused.Load()
	})
}

// TestWorkerGoesWithACommand: a command in the hands of a worker that is called lost, or
// that another life follows, is answered then and not when the time for an answer is over.
func TestWorkerGoesWithACommand(t *testing.T) {
	for name, end := range map[string]func(*hand){
		"called lost":  func(h *hand) { h.write(func(e *protocol.WorkerEntry) { e.Lost = true }) },
		"another life": func(h *hand) { h.s.worker("w1", "2", 64, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSplit(t)
			b, _ := s.broker(nil)
			w1 := s.worker("w1", "1", 64, nil)
			s.awaitWorkers(b, 1)
			d := s.desk()
			s.awaitWorkers(d, 1)
			id := s.start(b, broker.StartParams{}).ID
			inHand, over := make(chan struct{}, 2), make(chan struct{})
			w1.setRefuse(func(r protocol.WorkerRequest) *protocol.WorkerReply {
				if r.Op == protocol.OpCommand {
					inHand <- struct{}{}
					<-over
					return &protocol.WorkerReply{NotOwner: true} // nobody hears it
				}
				return nil
			})
			defer close(over)
			late := time.NewTimer(protocol.DispatchTimeout)
			defer late.Stop()
			answers := make(chan error, 2)
			for _, at := range []*broker.Broker{b, d} {
				go func() {
					_, err := at.Command(s.ctx, admin, id, protocol.CommandInput{Command: protocol.RawJSON(`1`)})
					answers <- err
				}()
				<-inHand
			}
			w1.quiet()
			end(w1)
			for range 2 {
				select {
				case err := <-answers:
					if e := refusal(t, err, protocol.ReasonOutcomeUnknown); !e.Retryable {
						t.Errorf("not retryable: %+v", e)
					}
				case <-late.C:
					t.Fatal("the command waits for nobody")
				}
			}
		})
	}
}

// TestWorkerIsGoneBeforeACommand: who is known to be no more is not asked, so that a
// command is refused at once and clearly; one that is back is asked.
func TestWorkerIsGoneBeforeACommand(t *testing.T) {
	for name, change := range map[string]func(*protocol.WorkerEntry){
		"called lost":  func(e *protocol.WorkerEntry) { e.Lost, e.Version = true, "gone" },
		"another life": func(e *protocol.WorkerEntry) { e.Owner, e.Version = protocol.OwnerName("w1", "2"), "gone" },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSplit(t)
			b, halt := s.broker(nil)
			w1 := s.worker("w1", "1", 64, nil)
			s.awaitWorkers(b, 1)
			d := s.desk()
			s.awaitWorkers(d, 1)
			id := s.start(b, broker.StartParams{}).ID
			halt() // nobody settles the session
			var asked atomic.Int32
			over := make(chan struct{})
			defer close(over)
			w1.setRefuse(func(protocol.WorkerRequest) *protocol.WorkerReply {
				if asked.Add(1) == 1 {
					return nil
				}
				<-over // it serves, and does not answer
				return &protocol.WorkerReply{NotOwner: true}
			})
			send := func() error {
				_, err := d.Command(s.ctx, admin, id, protocol.CommandInput{Command: protocol.RawJSON(`1`)})
				return err
			}
			w1.quiet()
			was := w1.entry
			w1.write(change)
			w1.write(func(e *protocol.WorkerEntry) { *e = was }) // which the desk may have seen or not
			if err := send(); err != nil || asked.Load() != 1 {
				t.Fatalf("a command for one that is back: %v, asked %d times", err, asked.Load())
			}
			w1.write(change)
			harness.Eventually(t, "the desk knows", func() bool {
				all, err := d.Workers(s.ctx, admin)
				return err == nil && len(all) == 1 && all[0].Version == "gone"
			})
			late := time.NewTimer(protocol.DispatchTimeout)
			defer late.Stop()
			answer := make(chan error, 1)
			go func() { answer <- send() }()
			select {
			case err := <-answer:
				if e := refusal(t, err, protocol.ReasonSessionUnavailable); !e.Retryable {
					t.Errorf("not retryable: %+v", e)
				}
			case <-late.C:
				t.Fatal("the command waits for nobody")
			}
			if n := asked.Load(); n != 1 {
				t.Errorf("asked %d times", n)
			}
		})
	}
}

// TestNamesThatAreNone: what is no session id names no session, for every request, and
// is nobody's fault.
func TestNamesThatAreNone(t *testing.T) {
	s := newSplit(t)
	b, _ := s.broker(nil)
	d := s.desk()
	s.awaitServes(d)
	for _, id := range []string{"*", ">", " ", "..", "a.b", "é", "a\x00b"} {
		for _, at := range []*broker.Broker{b, d} {
			_, resumed := at.Resume(s.ctx, admin, id, "", nil)
			_, shown := at.Info(s.ctx, admin, id)
			for what, err := range map[string]error{
				"delete": at.Delete(s.ctx, admin, id), "stop": at.Stop(s.ctx, admin, id, 0), "title": at.SetTitle(s.ctx, admin, id, "t"),
				"resume": resumed, "get": shown,
			} {
				if e, ok := protocol.AsError(err); !ok || e.Reason != protocol.ReasonSessionNotFound {
					t.Errorf("%s %q: %v", what, id, err)
				}
			}
		}
	}
}

// TestStderrElsewhere: stderr is asked of the worker that ran the session last.
func TestStderrElsewhere(t *testing.T) {
	s := newSplit(t)
	b, _ := s.broker(nil)
	w := s.worker("w1", "1", 64, nil)
	s.awaitWorkers(b, 1)
	d := s.desk()
	s.awaitWorkers(d, 1)
	id := s.start(d, broker.StartParams{}).ID
	w.setRefuse(func(r protocol.WorkerRequest) *protocol.WorkerReply {
		if r.Op == protocol.OpStderr && r.Session == id && r.Run == 1 {
			return &protocol.WorkerReply{Text: "oops"}
		}
		return nil
	})
	if text, err := d.Stderr(s.ctx, admin, id, 1); err != nil || text != "oops" {
		t.Errorf("stderr: %q, %v", text, err)
	}
	w.kill()
	_, err := d.Stderr(s.ctx, admin, id, 1)
	wantReason(t, err, protocol.ReasonSessionUnavailable)
}

// TestBrokerRequestsMax: a broker works on so many requests of gateways, and refuses
// the next one.
func TestBrokerRequestsMax(t *testing.T) {
	s := newSplit(t)
	b, _ := s.broker(nil)
	w := s.worker("w1", "1", 64, nil)
	s.awaitWorkers(b, 1)
	d := s.desk()
	s.awaitServes(d)
	hold := make(chan struct{})
	w.setHold(hold)
	var wg sync.WaitGroup
	refused := make(chan struct{}, 2*protocol.BrokerRequestsMax) // room for every answer
	ids := make(chan string, 2*protocol.BrokerRequestsMax)
	for range protocol.BrokerRequestsMax + 50 {
		wg.Go(func() {
			info, err := d.Start(s.ctx, admin, broker.StartParams{CommandID: "c"}) // all but one wait for that one
			if e, ok := protocol.AsError(err); ok && e.Reason == protocol.ReasonOverloaded && e.Retryable {
				refused <- struct{}{}
				return
			}
			if err != nil {
				t.Errorf("start: %v", err)
			}
			ids <- info.ID
		})
	}
	for range 50 {
		<-refused
	}
	w.setHold(nil)
	close(hold)
	wg.Wait()
	if len(ids) != protocol.BrokerRequestsMax || len(refused) != 0 {
		t.Errorf("%d served, %d more refused", len(ids), len(refused))
	}
	first := <-ids
	for len(ids) > 0 {
		if id := <-ids; id != first {
			t.Fatalf("sessions %s and %s", first, id)
		}
	}
	wantReason(t, d.Stop(s.ctx, admin, "nobody", 0), protocol.ReasonSessionNotFound)
}

// TestBrokerFallsSilent: a gateway does not wait for a broker that was killed with
// its request in hand: the outcome is unknown, and the next request goes to another.
func TestBrokerFallsSilent(t *testing.T) {
	s := newSplit(t)
	if _, err := s.buck.Create(s.ctx, "canary.killed", []byte(`{"beat":1}`)); err != nil {
		t.Fatal(err)
	}
	got := make(chan struct{}, 1)
	stop, err := s.node.Bus().Serve(protocol.BrokerSubjectOf("killed"), func([]byte, func([]byte)) { got <- struct{}{} })
	if err != nil {
		t.Fatal(err)
	}
	d := s.desk()
	answer := make(chan error, 1)
	go func() {
		_, err := d.Start(s.ctx, admin, broker.StartParams{})
		answer <- err
	}()
	<-got
	stop()
	if e := refusal(t, <-answer, protocol.ReasonOutcomeUnknown); !e.Retryable {
		t.Errorf("not retryable: %+v", e)
	}
	b, _ := s.broker(nil)
	s.worker("w1", "1", 8, nil)
	s.awaitWorkers(b, 1)
	harness.Eventually(t, "the next broker answers", func() bool {
		_, err := d.Start(s.ctx, admin, broker.StartParams{})
		return err == nil
	})
}
