package soak_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"rejoin/tests/harness"
	"rejoin/tests/model"
)

// What writers may send.
const (
	silent   int32 = iota // nothing
	retrying              // commands whose fate is not known
	talking               // new ones too
)

// subject is one session, its child and its clients.
type subject struct {
	s       *soak
	kind    string // flood, chatty, echo, demo
	session string
	rec     *model.Recorder
	logs    []model.Log
	losses  []model.Loss    // that the server told of
	dead    map[uint64]bool // runs whose child did not end in order
	orphans []int

	level   atomic.Int32
	acks    atomic.Int64
	readers []*reader
	writers []*writer
	cancel  context.CancelFunc
	running sync.WaitGroup
}

const eventLimit = 1 << 20 // --max-event-bytes of the server

// newSubject starts a session with its clients.
func (s *soak) newSubject(c *harness.Client, kind string) *subject {
	s.t.Helper()
	argv, adapter := harness.ChildArgv("model", s.books, "nosync"), "jsonl"
	if kind == "demo" {
		argv, adapter = []string{s.bin, "demo-agent", "--pace", "0"}, "demo"
	}
	var r struct {
		SessionID string `json:"sessionId"`
	}
	s.names++
	s.call(c, "start_session", map[string]any{"argv": argv, "adapter": adapter, "commandId": fmt.Sprintf("start-%d", s.names)}, &r)
	u := &subject{s: s, kind: kind, session: r.SessionID, rec: model.NewRecorder(r.SessionID), dead: map[uint64]bool{}}
	ctx, cancel := context.WithCancel(s.t.Context())
	u.cancel = cancel
	for i, how := range []string{follow, slow, flaky, fromSnapshot, untilHead} {
		rd := &reader{u: u, how: how, name: fmt.Sprintf("%s-%s", kind, how), transport: transports[(i+s.names)%len(transports)]}
		rd.rng.seed(s.seed, s.names, i)
		u.readers = append(u.readers, rd)
		u.running.Go(func() { rd.run(ctx) })
	}
	for i := range 2 {
		w := &writer{u: u, name: fmt.Sprintf("w%d", i), transport: transports[(i+1+s.names)%len(transports)]}
		w.rng.seed(s.seed, s.names, 100+i)
		u.writers = append(u.writers, w)
		u.running.Go(func() { w.run(ctx) })
	}
	return u
}

// booked: its child keeps books.
func (u *subject) booked() bool { return u.kind != "demo" }

// steady is what the child is told to print while a round goes on.
func (u *subject) steady(c *harness.Client) {
	u.s.t.Helper()
	o := model.Order{Type: "steady", N: 1 << 30}
	switch u.kind {
	case "flood":
		o.B = 16
	case "chatty":
		o.B = 2
	case "echo":
		o.B = 1
	default:
		return
	}
	u.give(c, o)
}

// calm ends that.
func (u *subject) calm(c *harness.Client) {
	u.s.t.Helper()
	if u.booked() {
		u.give(c, model.Order{Type: "calm"})
	}
}

// give sends one order until it is acknowledged.
func (u *subject) give(c *harness.Client, o model.Order) {
	u.s.t.Helper()
	w := u.writers[0]
	w.mu.Lock()
	x := w.order(o)
	w.mu.Unlock()
	harness.Eventually(u.s.t, fmt.Sprintf("order %s of %s is acknowledged", o.Type, u.session), func() bool {
		u.s.check()
		err := w.send(harness.Context(u.s.t), c, x)
		if err != nil {
			u.s.t.Fatalf("order %s: %v", o.Type, err)
		}
		return x.settled.Load()
	})
}

// info of the session.
func (u *subject) info(c *harness.Client) model.SessionInfo {
	u.s.t.Helper()
	i, err := model.Info(harness.Context(u.s.t), c, u.session)
	if err != nil {
		u.s.t.Fatal(err)
	}
	return i
}

// resume gives the session its next run if it has none.
func (u *subject) resume(c *harness.Client) {
	u.s.t.Helper()
	was := u.info(c)
	if was.State == "running" {
		return
	}
	u.s.names++
	u.s.call(c, "resume_session", map[string]any{"sessionId": u.session, "commandId": fmt.Sprintf("resume-%d", u.s.names)}, nil)
	if now := u.info(c); now.State != "running" || now.Run <= was.Run {
		u.s.t.Fatalf("broke I-J3: resumed from %+v to %+v", was, now)
	}
}

// readLog reads what the log has since it was read last; a new epoch begins a new
// log.
func (u *subject) readLog(c *harness.Client) {
	u.s.t.Helper()
	ctx := u.s.t.Context()
	i := u.info(c)
	if len(u.logs) == 0 || u.logs[len(u.logs)-1].Epoch != i.Epoch {
		u.logs = append(u.logs, model.Log{Epoch: i.Epoch, Floor: i.Floor})
	}
	if _, err := model.ReadMore(ctx, c, u.session, &u.logs[len(u.logs)-1]); err != nil {
		u.s.t.Fatal(err)
	}
}

// head is how far the log was read.
func (u *subject) head() (epoch string, seq uint64) {
	l := &u.logs[len(u.logs)-1]
	return l.Epoch, l.Head()
}

// settle waits until no writer waits for an answer and every reader that follows
// has the log to its end; then the log is read.
func (u *subject) settle(c *harness.Client) {
	u.s.t.Helper()
	u.level.Store(retrying)
	u.s.until("every command of "+u.session+" is answered", func() (done bool, sum uint64) {
		done = true
		for _, w := range u.writers {
			done = w.settledAll() && done
		}
		return done, uint64(u.acks.Load())
	})
	u.level.Store(silent)
	for {
		u.readLog(c)
		epoch, head := u.head()
		grew := false
		u.s.until(fmt.Sprintf("every reader of %s has (%s, %d) (I-J4)", u.session, epoch, head), func() (done bool, sum uint64) {
			done = true
			for _, r := range u.readers {
				at := r.cursor()
				grew = grew || at.epoch == epoch && at.seq > head
				if r.follows() {
					sum += at.seq
					done = done && at.epoch == epoch && at.seq >= head
				}
			}
			return done, sum
		})
		if !grew {
			return
		}
	}
}

// history is what was seen, judged by Validate. The log is read to its end after
// what clients saw is taken, so that it has all of that even if the child prints on.
func (u *subject) history(c *harness.Client, alive bool, last uint64, ended bool) *model.History {
	u.s.t.Helper()
	h := u.rec.History()
	u.readLog(c)
	h.Logs, h.Alive, h.Limit, h.Orphans = u.logs, alive, eventLimit, u.orphans
	h.Secrets, h.Losses = []string{u.s.token}, u.losses
	if !u.booked() {
		return h
	}
	h.Booked = true
	books, err := model.ReadBooks(u.s.books, u.session, last, func(run uint64) bool { return ended && run == last && !u.dead[run] })
	if err != nil {
		u.s.t.Fatal(err)
	}
	h.Books = books
	return h
}

// validate fails the test when a promise is broken, and keeps the count.
func (u *subject) validate(c *harness.Client, alive bool, last uint64, ended bool) {
	u.s.t.Helper()
	h := u.history(c, alive, last, ended)
	if err := h.Validate(); err != nil {
		u.s.t.Fatalf("%s (%s): %v", u.kind, u.session, err)
	}
	u.s.report.judged(u.session, h)
}

// end stops the clients.
func (u *subject) end() {
	u.cancel()
	u.running.Wait()
}

// burst lets the child print more than its pipe holds.
func (u *subject) burst(c *harness.Client) {
	u.s.t.Helper()
	if u.booked() {
		u.give(c, model.Order{Type: "burst", N: 2000})
	}
}

// stop ends the session in order, judges it, and deletes it.
func (u *subject) stop(c *harness.Client) {
	u.s.t.Helper()
	run := u.info(c).Run
	u.burst(c)
	u.s.call(c, "stop_session", map[string]any{"sessionId": u.session, "graceMs": 60_000}, nil)
	u.settle(c)
	u.end()
	u.recheck(c)
	u.validate(c, false, run, true)
	u.s.call(c, "delete_session", map[string]any{"sessionId": u.session}, nil)
	if _, err := c.Call(harness.Context(u.s.t), "get_session", map[string]any{"sessionId": u.session}); err == nil {
		u.s.t.Fatalf("deleted session %s is known", u.session)
	}
}

// recheck reads the newest epoch again from its floor: what was read once has not
// changed.
func (u *subject) recheck(c *harness.Client) {
	u.s.t.Helper()
	was := &u.logs[len(u.logs)-1]
	again := model.Log{Epoch: was.Epoch, Floor: was.Floor}
	if err := u.readAcross(c, &again, was); err != nil {
		u.s.t.Fatal(err)
	}
	if again.Head() < was.Head() {
		u.s.t.Fatalf("broke I-J2: the log of %s ended with %d, now with %d", u.session, was.Head(), again.Head())
	}
	for i := range was.Events {
		if was.Events[i].Hash() != again.Events[i].Hash() {
			u.s.t.Fatalf("broke I-J2: event %d of %s changed", was.Events[i].Seq, u.session)
		}
	}
}
