package fault_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"rejoin/tests/harness"
	"rejoin/tests/model"
)

const (
	roundsPerWorld = 3
	flowEvents     = 40 // per session before a fault, and after it
	flowAcks       = 3  // likewise, of all writers of a session
)

// kindsOf are the sessions of a world, with their policies: what may go on on
// another worker does, the others wait for somebody to resume them. Workers get them in
// turns: each has one of either policy.
var kindsOf = []struct{ kind, restart string }{
	{model.Chatty, "resume"}, {model.Echo, "never"}, {model.Demo, "never"}, {model.Echo, "resume"},
}

// suite is the state over all rounds.
type suite struct {
	t      *testing.T
	rng    *rand.Rand
	system *system
	site   *model.Site
	pulse  *pulse
	ask    *steadfast
	world  []*model.Subject
	lived  int // rounds of world
	report *report
}

func newSuite(t *testing.T) *suite {
	t.Helper()
	seed := harness.Setting(t, "FAULT_SEED", int(time.Now().UnixNano()&0xffffff))
	fmt.Printf("FAULT_SEED=%d\n", seed)
	t.Logf("FAULT_SEED=%d", seed)
	dir := t.TempDir()
	s := &suite{t: t, rng: rand.New(rand.NewPCG(uint64(seed), 2)), pulse: &pulse{}, report: newReport(t)}
	s.pulse.reset()
	s.system = newSystem(t)
	s.ask = s.system.caller()
	s.site = &model.Site{
		T: t, Seed: seed, Again: fmt.Sprintf("FAULT_SEED=%d", seed), Books: filepath.Join(dir, "books"),
		Demo: []string{harness.Binary(t), "demo-agent", "--pace", "0"}, EventLimit: eventLimit, Secrets: []string{token},
		Rest: 2 * time.Second, Connect: s.system.connect, Seen: s.pulse.seen, Judged: s.report.tally.Judged,
	}
	for _, g := range s.system.gateways {
		s.site.Transports = append(s.site.Transports, g.name)
	}
	if err := os.Mkdir(s.site.Books, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { model.EndAll(t, s.world) }) // also when a round fails
	return s
}

// begin starts the sessions of a world, if there is none.
func (s *suite) begin() {
	s.t.Helper()
	for _, k := range kindsOf[len(s.world):] {
		s.world = append(s.world, s.site.Start(s.ask, k.kind, map[string]any{"restart": k.restart}))
	}
}

// renew ends the sessions of this world in order, and judges them once more.
func (s *suite) renew() {
	s.t.Helper()
	for _, u := range s.world {
		u.Stop(s.ask)
	}
	s.world, s.lived = nil, 0
	s.pulse.reset()
}

// move lets every child print and every writer talk.
func (s *suite) move() {
	s.t.Helper()
	for _, u := range s.world {
		u.Move(s.ask)
	}
}

// flowing waits until every session has stored and acknowledged enough from now on.
func (s *suite) flowing(when string) (events uint64, acks int64) {
	s.t.Helper()
	return s.site.Flowing(s.ask, s.world, model.Flows(s.ask, s.world), flowEvents, flowAcks, when)
}

// hold keeps a fault up for a while.
func (s *suite) hold(least, most time.Duration) {
	model.Hold(s.t, s.rng, least, most)
}

// round brings everything into motion, strikes, sees it move again, and judges.
func (s *suite) round(n int, f fault) {
	s.t.Helper()
	if s.lived == roundsPerWorld {
		s.renew()
	}
	s.begin()
	began := time.Now()
	s.move()
	r := row{round: n + 1, fault: f.Name}
	r.eventsBefore, r.acksBefore = s.flowing("before the fault")
	was := s.infos()
	s.pulse.mark()
	f.Strike(s)
	if f.Keeps {
		s.unharmed(was, f.Name)
	}
	s.resume()
	s.move() // a child of a new run was not told to print
	r.eventsAfter, r.acksAfter = s.flowing("after " + f.Name)
	r.pause = s.pulse.longest(nil)
	r.interrupted = s.pulse.firstAndLast()
	for _, u := range s.world {
		u.Calm(s.ask)
	}
	for _, u := range s.world {
		u.Settle(s.ask)
		u.Validate(s.ask, true, u.Info(s.ask).Run, false)
	}
	s.lived++
	r.took = time.Since(began)
	s.report.add(r)
}

// infos are what the sessions are at the moment.
func (s *suite) infos() []model.SessionInfo {
	s.t.Helper()
	all := make([]model.SessionInfo, len(s.world))
	for i, u := range s.world {
		all[i] = u.Info(s.ask)
	}
	return all
}

// unharmed: a fault that concerns no owner changes no run and interrupts no
// session.
func (s *suite) unharmed(was []model.SessionInfo, fault string) {
	s.t.Helper()
	for i, u := range s.world {
		if now := u.Info(s.ask); now.State != "running" || now.Run != was[i].Run || now.Epoch != was[i].Epoch {
			s.t.Fatalf("broke the failure table: after %s session %s is %+v, before it was %+v", fault, u.Session, now, was[i])
		}
	}
}

// resume waits until every session has a child that runs, and gives it one where
// its policy does not.
func (s *suite) resume() {
	s.t.Helper()
	for i, u := range s.world {
		name := fmt.Sprintf("again-%d", s.site.Name())
		s.byPolicy("session "+u.Session+" runs again", func() bool {
			s.site.Check()
			now := u.Info(s.ask)
			if now.State == "running" && now.Status != "starting" && now.PID != nil && harness.Living(*now.PID) {
				return true // a gateway may not know yet that the owner of a dead child was replaced
			}
			if kindsOf[i].restart == "never" {
				s.revive(u, name)
			}
			return false
		})
	}
}

// restartPauseMax is the longest that the policy resume waits before a restart: it
// is the third one's within ten minutes.
const restartPauseMax = 30 * time.Second

// byPolicy waits for what happens after a restart at the latest.
func (s *suite) byPolicy(what string, cond func() bool) {
	s.t.Helper()
	if !harness.Within(restartPauseMax+harness.Patience, cond) {
		s.t.Fatalf("not within the longest pause of a restart, and %v: %s", harness.Patience, what)
	}
}

// revive resumes a session that has ended, unless somebody else is about to.
func (s *suite) revive(u *model.Subject, name string) {
	ctx, cancel := context.WithTimeout(s.t.Context(), answerPatience)
	defer cancel()
	_, err := s.ask.Call(ctx, "resume_session", map[string]any{"sessionId": u.Session, "commandId": name})
	if model.Tolerate(err) != nil {
		s.t.Logf("resume_session of %s: %v", u.Session, err)
	}
}

// ownedBy are the sessions whose child a worker runs.
func (s *suite) ownedBy(m *member) map[string]bool {
	s.t.Helper()
	pids, of := harness.Marked(m.server.Dir), map[string]bool{}
	for _, u := range s.world {
		if i := u.Info(s.ask); i.PID != nil && slices.Contains(pids, *i.PID) {
			of[u.Session] = true
		}
	}
	return of
}

// worker draws one that has sessions, which the second result names, or another one
// than some.
func (s *suite) worker(but ...*member) (*member, map[string]bool) {
	s.t.Helper()
	for _, i := range s.rng.Perm(len(s.system.workers)) {
		m := s.system.workers[i]
		if slices.Contains(but, m) {
			continue
		}
		if of := s.ownedBy(m); len(of) > 0 || len(but) > 0 {
			return m, of
		}
	}
	s.t.Fatal("no worker has a session")
	return nil, nil
}

// broker draws one.
func (s *suite) broker() *member { return s.system.brokers[s.rng.IntN(len(s.system.brokers))] }

// status is what server_status says, for messages.
func (s *suite) status() string {
	ctx, cancel := context.WithTimeout(s.t.Context(), answerPatience)
	defer cancel()
	raw, err := s.ask.Call(ctx, "server_status", nil)
	if err != nil {
		return err.Error()
	}
	return string(raw)
}
