package model

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"rejoin/tests/harness"
)

// Kinds of subjects: what their child does while a round goes on.
const (
	Flood  = "flood"  // prints lines in batches
	Chatty = "chatty" // prints a few all the time
	Echo   = "echo"   // prints one now and then, and answers
	Demo   = "demo"   // is the demo agent
)

// Subject is one session, its child and its clients. Its methods are for the
// test's goroutine.
type Subject struct {
	Kind    string
	Session string
	Logs    []Log           // that were read, epoch by epoch
	Losses  []Loss          // that the server told of
	Dead    map[uint64]bool // runs whose child did not end in order
	Orphans []int           // processes that lived when none may
	Rec     *Recorder

	s            *Site
	level        atomic.Int32
	acks         atomic.Int64
	mark, marked atomic.Int64 // see Mark
	readers      []*Reader
	writers      []*Writer
	cancel       context.CancelFunc
	running      sync.WaitGroup
}

// Start starts a session, with more params of start_session, and its clients.
func (s *Site) Start(c harness.Caller, kind string, more map[string]any) *Subject {
	s.T.Helper()
	params := map[string]any{"argv": harness.ChildArgv("model", s.Books, "nosync"), "adapter": "jsonl"}
	if kind == Demo {
		params["argv"], params["adapter"] = s.Demo, "demo"
	}
	name := s.Name()
	params["commandId"] = fmt.Sprintf("start-%d", name)
	for k, v := range more {
		params[k] = v
	}
	r := harness.Do[struct {
		SessionID string `json:"sessionId"`
	}](s.T, c, "start_session", params)
	u := &Subject{s: s, Kind: kind, Session: r.SessionID, Rec: NewRecorder(r.SessionID), Dead: map[uint64]bool{}}
	ctx, cancel := context.WithCancel(s.T.Context())
	u.cancel = cancel
	for i, how := range []string{follow, slow, flaky, fromSnapshot, untilHead} {
		rd := &Reader{u: u, how: how, Name: fmt.Sprintf("%s-%s", kind, how), Transport: s.Transports[(i+name)%len(s.Transports)]}
		rd.rng.seed(s.Seed, name, i)
		u.readers = append(u.readers, rd)
		u.running.Go(func() { rd.run(ctx) })
	}
	for i := range 2 {
		w := &Writer{u: u, name: fmt.Sprintf("w%d", i), transport: s.Transports[(i+1+name)%len(s.Transports)]}
		w.rng.seed(s.Seed, name, 100+i)
		u.writers = append(u.writers, w)
		u.running.Go(func() { w.run(ctx) })
	}
	return u
}

// Booked reports whether its child keeps books.
func (u *Subject) Booked() bool { return u.Kind != Demo }

// Acks is how many commands were acknowledged.
func (u *Subject) Acks() int64 { return u.acks.Load() }

// Mark begins a count of the acknowledged commands that are first sent from now on:
// one that was on its way may have been stored, and be answered at any time.
func (u *Subject) Mark() {
	u.mark.Add(1)
	u.marked.Store(0)
}

// Marked is that count.
func (u *Subject) Marked() int64 { return u.marked.Load() }

// Move lets the child print and the writers talk.
func (u *Subject) Move(c harness.Caller) {
	u.s.T.Helper()
	u.level.Store(Talking)
	o := Order{Type: "steady", N: 1 << 30}
	switch u.Kind {
	case Flood:
		o.B = 16
	case Chatty:
		o.B = 2
	case Echo:
		o.B = 1
	default:
		return
	}
	u.Give(c, o)
}

// Calm ends what the child prints of its own.
func (u *Subject) Calm(c harness.Caller) {
	u.s.T.Helper()
	if u.Booked() {
		u.Give(c, Order{Type: "calm"})
	}
}

// Burst lets the child print more than its pipe holds.
func (u *Subject) Burst(c harness.Caller) {
	u.s.T.Helper()
	if u.Booked() {
		u.Give(c, Order{Type: "burst", N: 2000})
	}
}

// Printed is how many lines its children have booked in all runs so far.
func (u *Subject) Printed() (lines int) {
	u.s.T.Helper()
	books, err := ReadBooks(u.s.Books, u.Session, runsMax, func(uint64) bool { return false })
	if err != nil {
		u.s.T.Fatal(err)
	}
	for _, b := range books {
		lines += len(b.Printed)
	}
	return lines
}

// Order notes a command of the first writer before it is sent.
func (u *Subject) Order(o Order) *Sent {
	w := u.writers[0]
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.order(o)
}

// Send sends a command once and notes the answer.
func (u *Subject) Send(ctx context.Context, c harness.Caller, x *Sent) error {
	return u.writers[0].send(ctx, c, x)
}

// Give sends one order until it is acknowledged.
func (u *Subject) Give(c harness.Caller, o Order) {
	u.s.T.Helper()
	x := u.Order(o)
	harness.Eventually(u.s.T, fmt.Sprintf("order %s of %s is acknowledged", o.Type, u.Session), func() bool {
		u.s.Check()
		if err := u.Send(harness.Context(u.s.T), c, x); err != nil {
			u.s.T.Fatalf("order %s: %v", o.Type, err)
		}
		return x.Settled.Load()
	})
}

// Info of the session.
func (u *Subject) Info(c harness.Caller) SessionInfo {
	u.s.T.Helper()
	i, err := Info(harness.Context(u.s.T), c, u.Session)
	if err != nil {
		u.s.T.Fatal(err)
	}
	return i
}

// Resume gives the session its next run if it has none.
func (u *Subject) Resume(c harness.Caller) {
	u.s.T.Helper()
	was := u.Info(c)
	if was.State == "running" {
		return
	}
	harness.Do[json.RawMessage](u.s.T, c, "resume_session", map[string]any{"sessionId": u.Session, "commandId": fmt.Sprintf("resume-%d", u.s.Name())})
	if now := u.Info(c); now.State != "running" || now.Run <= was.Run {
		u.s.T.Fatalf("broke I-J3: resumed from %+v to %+v", was, now)
	}
}

// ReadLog reads what the log has since it was read last; a new epoch begins a new
// log.
func (u *Subject) ReadLog(c harness.Caller) {
	u.s.T.Helper()
	i := u.Info(c)
	if len(u.Logs) == 0 || u.Logs[len(u.Logs)-1].Epoch != i.Epoch {
		u.Logs = append(u.Logs, Log{Epoch: i.Epoch, Floor: i.Floor})
	}
	if _, err := ReadMore(u.s.T.Context(), c, u.Session, &u.Logs[len(u.Logs)-1]); err != nil {
		u.s.T.Fatal(err)
	}
}

// head is how far the log was read.
func (u *Subject) head() (epoch string, seq uint64) {
	l := &u.Logs[len(u.Logs)-1]
	return l.Epoch, l.Head()
}

// Settle waits until no writer waits for an answer and every reader that follows
// has the log to its end; then the log is read.
func (u *Subject) Settle(c harness.Caller) {
	u.s.T.Helper()
	u.level.Store(Retrying)
	u.s.Until("every command of "+u.Session+" is answered", func() (done bool, sum uint64) {
		done = true
		for _, w := range u.writers {
			done = w.settledAll() && done
		}
		return done, uint64(u.acks.Load())
	})
	u.level.Store(Silent)
	for {
		u.ReadLog(c)
		epoch, head := u.head()
		grew := false
		u.s.Until(fmt.Sprintf("every reader of %s has (%s, %d) (I-J4)", u.Session, epoch, head), func() (done bool, sum uint64) {
			done = true
			for _, r := range u.readers {
				at := r.cursor()
				grew = grew || at.epoch == epoch && at.seq > head
				if r.Follows() {
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

// History is what was seen, judged by Validate. The log is read to its end after
// what clients saw is taken, so that it has all of that even if the child prints on.
func (u *Subject) history(c harness.Caller, alive bool, last uint64, ended bool) *History {
	u.s.T.Helper()
	h := u.Rec.History()
	u.ReadLog(c)
	h.Logs, h.Alive, h.Limit, h.Orphans = u.Logs, alive, u.s.EventLimit, u.Orphans
	h.Secrets, h.Losses = u.s.Secrets, u.Losses
	if !u.Booked() {
		return h
	}
	h.Booked = true
	books, err := ReadBooks(u.s.Books, u.Session, last, func(run uint64) bool { return ended && run == last && !u.Dead[run] })
	if err != nil {
		u.s.T.Fatal(err)
	}
	h.Books = books
	return h
}

// Validate fails the test when a promise is broken. alive: a run may be going on;
// ended: the last run has ended in order.
func (u *Subject) Validate(c harness.Caller, alive bool, last uint64, ended bool) {
	u.s.T.Helper()
	h := u.history(c, alive, last, ended)
	if err := h.Validate(); err != nil {
		u.s.T.Fatalf("%s (%s): %v", u.Kind, u.Session, err)
	}
	if u.s.Judged != nil {
		u.s.Judged(u, h)
	}
}

// runsMax bounds the runs of a session: its starts, recoveries and resumes are
// fewer.
const runsMax = 200

// Explain judges what can be judged of a test that has failed.
func (u *Subject) Explain() {
	u.s.T.Helper()
	h := u.Rec.History()
	h.Logs, h.Losses = u.Logs, u.Losses
	if u.Booked() {
		books, err := ReadBooks(u.s.Books, u.Session, runsMax, func(uint64) bool { return false })
		if err != nil {
			u.s.T.Error(err)
		}
		h.Books, h.Booked = books, true
	}
	if err := h.ValidatePart(); err != nil {
		u.s.T.Error(err)
	}
}

// EndAll stops the clients of every session, and explains a test that has failed.
func EndAll(tb testing.TB, all []*Subject) {
	tb.Helper()
	for _, u := range all {
		u.End()
	}
	for _, u := range all {
		if tb.Failed() {
			u.Explain()
		}
	}
}

// End stops the clients.
func (u *Subject) End() {
	u.cancel()
	u.running.Wait()
}

// Stop ends the session in order, judges it, and deletes it.
func (u *Subject) Stop(c harness.Caller) {
	u.s.T.Helper()
	run := u.Info(c).Run
	u.Burst(c)
	harness.Do[json.RawMessage](u.s.T, c, "stop_session", map[string]any{"sessionId": u.Session, "graceMs": 60_000})
	u.Settle(c)
	u.End()
	u.Recheck(c)
	u.Validate(c, false, run, true)
	harness.Do[json.RawMessage](u.s.T, c, "delete_session", map[string]any{"sessionId": u.Session})
	_, err := c.Call(harness.Context(u.s.T), "get_session", map[string]any{"sessionId": u.Session})
	var refused *harness.RPCError
	if !errors.As(err, &refused) || refused.Data.Reason != "session_not_found" {
		u.s.T.Fatalf("deleted session %s: %v", u.Session, err)
	}
}

// Recheck reads the newest epoch again from its floor: what was read once has not
// changed.
func (u *Subject) Recheck(c harness.Caller) {
	u.s.T.Helper()
	was := &u.Logs[len(u.Logs)-1]
	again := Log{Epoch: was.Epoch, Floor: was.Floor}
	if err := u.readAcross(c, &again, was); err != nil {
		u.s.T.Fatal(err)
	}
	if again.Head() < was.Head() {
		u.s.T.Fatalf("broke I-J2: the log of %s ended with %d, now with %d", u.Session, was.Head(), again.Head())
	}
	for i := range was.Events {
		if was.Events[i].Hash() != again.Events[i].Hash() {
			u.s.T.Fatalf("broke I-J2: event %d of %s changed", was.Events[i].Seq, u.Session)
		}
	}
}

// readAcross reads a log to its end. What known has of a loss is put in its
// place; every loss must be met, and nothing else.
func (u *Subject) readAcross(c harness.Caller, l, known *Log) error {
	for {
		_, err := ReadMore(u.s.T.Context(), c, u.Session, l)
		if err == nil {
			break
		}
		var refused *harness.RPCError
		if !errors.As(err, &refused) || refused.Code != -32010 {
			return err
		}
		i := slices.IndexFunc(u.Losses, func(x Loss) bool { return x.Epoch == l.Epoch && x.From == l.Head()+1 })
		if i < 0 {
			return fmt.Errorf("broke I-J2: event %d of %s is not lost, and cannot be read (lost are %v): %w", l.Head()+1, u.Session, u.Losses, err)
		}
		for seq := u.Losses[i].From; seq <= u.Losses[i].To; seq++ {
			l.Events = append(l.Events, *known.At(seq))
		}
	}
	return nil
}
