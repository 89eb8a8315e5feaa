package fault_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"rejoin/protocol"
	"rejoin/tests/harness"
	"rejoin/tests/model"
)

// fault is one way to break something; strike returns when it is over, with a
// system that is whole.
type fault struct {
	name   string
	strike func(*suite)
	keeps  bool                // no owner is concerned: no run changes, no session is interrupted
	short  bool                // it is in the short form
	needs  func(*suite) string // why it cannot be brought about here; nil or empty: it can
}

var faults = []fault{
	{name: "kill-nats", strike: (*suite).killNATS, keeps: true, short: true},
	{name: "stop-nats", strike: (*suite).stopNATS, keeps: true, short: true},
	{name: "freeze-nats", strike: (*suite).freezeNATS, keeps: true},
	{name: "kill-two-nats", strike: (*suite).killTwoNATS, keeps: true, short: true},
	{name: "isolate-nats", strike: (*suite).isolateNATS, keeps: true, needs: needsNetwork},
	{name: "kill-gateway", strike: (*suite).killGateway, keeps: true, short: true},
	{name: "stop-gateway", strike: (*suite).stopGateway, keeps: true},
	{name: "freeze-gateway", strike: (*suite).freezeGateway, keeps: true},
	{name: "cut-gateway", strike: (*suite).cutGateway, keeps: true, short: true},
	{name: "kill-broker", strike: (*suite).killBroker, keeps: true, short: true},
	{name: "kill-brokers", strike: (*suite).killBrokers, keeps: true},
	{name: "freeze-broker", strike: (*suite).freezeBroker, keeps: true},
	{name: "cut-broker", strike: (*suite).cutBroker, keeps: true},
	{name: "kill-worker", strike: (*suite).killWorker, short: true},
	{name: "kill-worker-and-back", strike: (*suite).killWorkerAndBack},
	{name: "stop-worker", strike: (*suite).stopWorker},
	{name: "freeze-worker", strike: (*suite).freezeWorker, keeps: true},
	{name: "freeze-worker-long", strike: (*suite).freezeWorkerLong},
	{name: "cut-worker", strike: (*suite).cutWorker, keeps: true, short: true},
	{name: "cut-worker-long", strike: (*suite).cutWorkerLong},
	{name: "wake-before-takeover", strike: (*suite).wakeBefore, keeps: true},
	{name: "wake-after-takeover", strike: (*suite).wakeAfter},
	{name: "brokers-at-once", strike: (*suite).brokersAtOnce, short: true},
	{name: "kill-pair", strike: (*suite).killPair},
	{name: "roll", strike: (*suite).roll, short: true},
}

// needsNetwork: what is cut are links that only hosts of their own have.
func needsNetwork(s *suite) string { return s.system.why }

// chosen are the faults that are asked for and possible.
func (s *suite) chosen(short bool) (some []fault) {
	s.t.Helper()
	wanted := strings.Split(os.Getenv("FAULT_FAULTS"), ",")
	for _, f := range faults {
		switch {
		case wanted[0] != "" && !slices.Contains(wanted, f.name), wanted[0] == "" && short && !f.short:
			continue
		case f.needs != nil && f.needs(s) != "":
			s.report.skipped[f.name] = f.needs(s)
			continue
		}
		some = append(some, f)
	}
	if len(some) == 0 {
		s.t.Fatal("FAULT_FAULTS names none of the faults that are possible here")
	}
	return some
}

// TestFaults breaks the system round after round. Environment: FAULT_ROUNDS (each
// fault of the short form once, unless given; then of all), FAULT_SEED,
// FAULT_FAULTS (names with commas; all), FAULT_NETWORK=proxies (as without root),
// and REJOIN_BIN for another binary.
//
// Proves I-J1, I-J2, I-J3, I-J4, I-J6, I-S2, I-S3, I-B1, I-B2, I-B3, I-W1, I-W2, I-W3, I-P1, I-G1, I-G3, I-R2 and I-A1.
func TestFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("minutes")
	}
	s := newSuite(t)
	rounds := harness.Setting(t, "FAULT_ROUNDS", 0)
	some := s.chosen(rounds == 0)
	if rounds == 0 {
		rounds = len(some)
	}
	s.report.head()
	for n := range rounds {
		if n%len(some) == 0 {
			s.rng.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
		}
		s.round(n, some[n%len(some)])
	}
	s.renew()
	s.report.print()
}

// node draws a NATS server.
func (s *suite) node() int { return s.rng.IntN(natsServers) }

// shards of the journal, each a stream with a leader of its own.
const shards = 8

// leading is the NATS server that leads most shards: without it most sessions wait
// for an election.
func (s *suite) leading() (most int) {
	s.t.Helper()
	count := [natsServers]int{}
	for i := range shards {
		count[s.system.nats.AwaitLeader(fmt.Sprintf("J%d", i))]++
	}
	for i := range count {
		if count[i] > count[most] {
			most = i
		}
	}
	return most
}

// killNATS: SIGKILL of one NATS server; everything goes on without it, and with it.
func (s *suite) killNATS() {
	s.t.Helper()
	i := s.leading()
	s.system.nats.Kill9(i)
	s.flowing("with two NATS servers of three")
	s.system.nats.Start(i)
	s.system.nats.AwaitReady()
}

// stopNATS: the planned restart of one.
func (s *suite) stopNATS() {
	s.t.Helper()
	i := s.leading()
	s.system.nats.Stop(i)
	s.flowing("with two NATS servers of three")
	s.system.nats.Start(i)
	s.system.nats.AwaitReady()
}

// freezeNATS: SIGSTOP of one for a while.
func (s *suite) freezeNATS() {
	s.t.Helper()
	i := s.leading()
	s.system.nats.Pause(i)
	s.flowing("with a NATS server that is frozen")
	s.system.nats.Continue(i)
}

// killTwoNATS: with two of three gone nothing can be stored: nobody is told that it
// was, and all goes on when they are back.
func (s *suite) killTwoNATS() {
	s.t.Helper()
	left := s.node()
	var gone []int
	for i := range natsServers {
		if i != left {
			s.system.nats.Kill9(i)
			gone = append(gone, i)
		}
	}
	harness.Pause(s.t.Context(), time.Second) // what is on its way arrives
	acks := make([]int64, len(s.world))
	for i, u := range s.world {
		acks[i] = u.Acks()
	}
	s.hold(3*time.Second, 6*time.Second)
	for i, u := range s.world {
		if n := u.Acks() - acks[i]; n > 0 {
			s.t.Fatalf("broke I-J2: %d commands of %s were acknowledged while one NATS server of three ran", n, u.Session)
		}
	}
	for _, i := range gone {
		s.system.nats.Start(i)
	}
	s.system.nats.AwaitReady()
}

// isolateNATS: one NATS server does not see the other two, but roles see all.
func (s *suite) isolateNATS() {
	s.t.Helper()
	s.system.isolate(s.node())
	s.flowing("with a NATS server on its own")
	s.hold(time.Second, 5*time.Second)
	s.system.heal()
	s.system.nats.AwaitReady()
}

func (s *suite) killGateway() {
	s.t.Helper()
	g := s.system.busiest()
	g.kill(s.t)
	s.flowing("without a gateway")
	g.start(s.t, nil)
}

// stopGateway: SIGTERM, under which a gateway tells its clients where else to go.
func (s *suite) stopGateway() {
	s.t.Helper()
	g := s.system.busiest()
	g.stop(s.t)
	s.flowing("without a gateway")
	g.start(s.t, nil)
}

func (s *suite) freezeGateway() {
	s.t.Helper()
	g := s.system.busiest()
	g.freeze()
	s.hold(time.Second, 8*time.Second)
	g.wake()
}

// cutGateway: one gateway sees no NATS server; its clients wait, and get what they
// missed.
func (s *suite) cutGateway() {
	s.t.Helper()
	s.system.cut(s.system.busiest())
	s.hold(2*time.Second, 8*time.Second)
	s.system.heal()
}

// killBroker: what runs goes on, and another broker does the rest.
func (s *suite) killBroker() {
	s.t.Helper()
	b := s.broker()
	b.kill(s.t)
	s.flowing("without a broker")
	b.start(s.t, nil)
}

// killBrokers: with none at all what runs goes on.
func (s *suite) killBrokers() {
	s.t.Helper()
	for _, b := range s.system.brokers {
		b.kill(s.t)
	}
	s.flowing("without any broker")
	for _, b := range s.system.brokers {
		b.start(s.t, nil)
	}
}

func (s *suite) freezeBroker() {
	s.t.Helper()
	b := s.broker()
	b.freeze()
	s.flowing("with a frozen broker")
	s.hold(time.Second, 5*time.Second)
	b.wake()
}

func (s *suite) cutBroker() {
	s.t.Helper()
	s.system.cut(s.broker())
	s.flowing("with a broker on its own")
	s.hold(time.Second, 10*time.Second)
	s.system.heal()
}

// killWorker: SIGKILL, and nobody starts it again until its sessions are called
// interrupted.
func (s *suite) killWorker() {
	s.t.Helper()
	w, of := s.worker()
	others := s.others(of)
	pids := w.kill(s.t)
	s.taken(of)
	s.kept(others, "the death of another worker")
	w.start(s.t, pids)
}

// taken waits until some sessions are called interrupted.
func (s *suite) taken(of map[string]bool) {
	s.t.Helper()
	for session := range of {
		if !harness.Within(2*protocol.WorkerLostAfter+harness.Patience, func() bool {
			s.site.Check()
			return s.pulse.told(session)
		}) {
			s.t.Fatalf("session %s of a worker that is lost is not interrupted; the system is %s", session, s.status())
		}
	}
}

// others are the sessions of the world that are none of these, and what they are.
func (s *suite) others(of map[string]bool) map[*model.Subject]model.SessionInfo {
	s.t.Helper()
	all := map[*model.Subject]model.SessionInfo{}
	for _, u := range s.world {
		if !of[u.Session] {
			all[u] = u.Info(s.ask)
		}
	}
	return all
}

// kept: what happens elsewhere concerns a session not at all.
func (s *suite) kept(others map[*model.Subject]model.SessionInfo, what string) {
	s.t.Helper()
	for u, was := range others {
		if now := u.Info(s.ask); now.State != "running" || now.Run != was.Run {
			s.t.Fatalf("broke the failure table: after %s session %s is %+v, before it was %+v", what, u.Session, now, was)
		}
	}
}

// killWorkerAndBack: SIGKILL and a new start at once: its sessions are interrupted
// without a wait.
func (s *suite) killWorkerAndBack() {
	s.t.Helper()
	w, of := s.worker()
	others := s.others(of)
	w.start(s.t, w.kill(s.t))
	s.taken(of)
	s.kept(others, "a restart of another worker")
}

// stopWorker: SIGTERM ends its sessions in order.
func (s *suite) stopWorker() {
	s.t.Helper()
	w, of := s.worker()
	others := s.others(of)
	s.stopOwner(w, of)
	s.kept(others, "the end of another worker")
	w.start(s.t, nil)
}

// stopOwner stops a worker in order, and waits until gateways know that its sessions
// have ended.
func (s *suite) stopOwner(w *member, of map[string]bool) {
	s.t.Helper()
	was := map[string]uint64{}
	for _, u := range s.of(of) {
		was[u.Session] = u.Info(s.ask).Run
	}
	w.stop(s.t)
	for _, u := range s.of(of) {
		harness.Eventually(s.t, "session "+u.Session+" of a worker that was stopped has ended", func() bool {
			s.site.Check()
			now := u.Info(s.ask)
			return now.State != "running" || now.Run > was[u.Session]
		})
	}
}

// freezeWorker: SIGSTOP for less than it takes to be lost.
func (s *suite) freezeWorker() {
	s.t.Helper()
	w, _ := s.worker()
	w.freeze()
	s.hold(time.Second, 10*time.Second)
	w.wake()
}

// freezeWorkerLong: SIGSTOP until it is lost and taken over, then it wakes with
// whatever it had in its hands.
func (s *suite) freezeWorkerLong() {
	s.t.Helper()
	w, of := s.worker()
	pids := harness.Marked(w.server.Dir)
	w.freeze()
	s.taken(of)
	w.wake()
	s.fenced(pids)
}

// fenced waits until nothing of what a worker ran before it was lost lives.
func (s *suite) fenced(pids []int) {
	s.t.Helper()
	harness.Eventually(s.t, "what a worker ran before it was lost is gone", func() bool {
		s.site.Check()
		return !slices.ContainsFunc(pids, harness.Living)
	})
}

// cutWorker: it sees no NATS server for less than it takes to be lost: its sessions
// wait and go on.
func (s *suite) cutWorker() {
	s.t.Helper()
	w, _ := s.worker()
	s.system.cut(w)
	s.hold(2*time.Second, 10*time.Second)
	s.system.heal()
}

// killPair: SIGKILL of two of different kinds at the same moment, and a new start
// of both.
func (s *suite) killPair() {
	s.t.Helper()
	kinds := []string{"nats", "broker", "worker", "gateway"}
	s.rng.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	node := -1
	var both []*member
	var of map[string]bool
	for _, kind := range kinds[:2] {
		switch kind {
		case "nats":
			node = s.node()
		case "broker":
			both = append(both, s.broker())
		case "worker":
			var w *member
			w, of = s.worker()
			both = append(both, w)
		case "gateway":
			both = append(both, s.system.busiest())
		}
	}
	s.t.Logf("kill-pair: %v", kinds[:2])
	left := make([][]int, len(both))
	var dying sync.WaitGroup
	for i, m := range both {
		dying.Go(func() { left[i] = m.kill(s.t) })
	}
	if node >= 0 {
		s.system.nats.Kill9(node)
	}
	dying.Wait()
	s.hold(0, 5*time.Second)
	for i, m := range both {
		m.start(s.t, left[i])
	}
	if node >= 0 {
		s.system.nats.Start(node)
		s.system.nats.AwaitReady()
	}
	s.taken(of)
}

// roll: the planned restart of everything, one after the other.
func (s *suite) roll() {
	s.t.Helper()
	for i := range natsServers {
		s.system.nats.Stop(i)
		s.system.nats.Start(i)
		s.system.nats.AwaitReady()
	}
	for _, m := range s.system.all() {
		if m.role == "worker" {
			s.stopOwner(m, s.ownedBy(m))
			m.start(s.t, nil)
			s.resume()
		} else {
			m.stop(s.t)
			m.start(s.t, nil)
		}
		s.flowing(fmt.Sprintf("after the restart of %s", m.name))
	}
}
