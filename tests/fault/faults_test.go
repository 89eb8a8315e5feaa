package fault_test

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"rejoin/protocol"
	"rejoin/tests/harness"
	"rejoin/tests/model"
)

// fault is one way to break a suite's system.
type fault = model.Fault[*suite]

var faults = []fault{
	{Name: "kill-nats", Strike: (*suite).killNATS, Keeps: true, Short: true},
	{Name: "stop-nats", Strike: (*suite).stopNATS, Keeps: true, Short: true},
	{Name: "drain-nats", Strike: (*suite).drainNATS, Keeps: true, Short: true},
	{Name: "freeze-nats", Strike: (*suite).freezeNATS, Keeps: true},
	{Name: "kill-two-nats", Strike: (*suite).killTwoNATS, Keeps: true, Short: true},
	{Name: "isolate-nats", Strike: (*suite).isolateNATS, Keeps: true, Needs: needsNetwork},
	{Name: "kill-gateway", Strike: (*suite).killGateway, Keeps: true, Short: true},
	{Name: "stop-gateway", Strike: (*suite).stopGateway, Keeps: true},
	{Name: "freeze-gateway", Strike: (*suite).freezeGateway, Keeps: true},
	{Name: "cut-gateway", Strike: (*suite).cutGateway, Keeps: true, Short: true},
	{Name: "kill-broker", Strike: (*suite).killBroker, Keeps: true, Short: true},
	{Name: "kill-brokers", Strike: (*suite).killBrokers, Keeps: true},
	{Name: "freeze-broker", Strike: (*suite).freezeBroker, Keeps: true},
	{Name: "cut-broker", Strike: (*suite).cutBroker, Keeps: true},
	{Name: "kill-worker", Strike: (*suite).killWorker, Short: true},
	{Name: "kill-worker-and-back", Strike: (*suite).killWorkerAndBack},
	{Name: "stop-worker", Strike: (*suite).stopWorker},
	{Name: "freeze-worker", Strike: (*suite).freezeWorker, Keeps: true},
	{Name: "freeze-worker-long", Strike: (*suite).freezeWorkerLong},
	{Name: "cut-worker", Strike: (*suite).cutWorker, Keeps: true, Short: true},
	{Name: "cut-worker-long", Strike: (*suite).cutWorkerLong},
	{Name: "wake-before-takeover", Strike: (*suite).wakeBefore, Keeps: true},
	{Name: "wake-after-takeover", Strike: (*suite).wakeAfter},
	{Name: "brokers-at-once", Strike: (*suite).brokersAtOnce, Short: true},
	{Name: "kill-broker-gateway", Strike: pair("broker", "gateway"), Keeps: true},
	{Name: "kill-broker-worker", Strike: pair("broker", "worker"), Short: true},
	{Name: "kill-broker-nats", Strike: pair("broker", "nats"), Keeps: true},
	{Name: "kill-gateways", Strike: pair("gateway", "gateway"), Keeps: true},
	{Name: "kill-gateway-worker", Strike: pair("gateway", "worker")},
	{Name: "kill-gateway-nats", Strike: pair("gateway", "nats"), Keeps: true, Short: true},
	{Name: "kill-workers", Strike: pair("worker", "worker")},
	{Name: "kill-worker-nats", Strike: pair("worker", "nats")},
	{Name: "roll", Strike: (*suite).roll, Short: true},
}

// needsNetwork: what is cut are links that only hosts of their own have.
func needsNetwork(s *suite) string { return s.system.why }

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
	some, skipped := model.Choose(t, s, faults, "FAULT_FAULTS", rounds == 0)
	s.report.skipped = skipped
	if rounds == 0 {
		rounds = len(some)
	}
	s.report.head()
	model.Rounds(s.rng, rounds, some, s.round)
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

// without ends one NATS server; everything goes on without it, and with it.
func (s *suite) without(end func(server int)) {
	s.t.Helper()
	i := s.leading()
	end(i)
	s.flowing("with two NATS servers of three")
	s.system.nats.Start(i)
	s.system.nats.AwaitReady()
}

// killNATS: SIGKILL of one NATS server.
func (s *suite) killNATS() {
	s.t.Helper()
	s.without(s.system.nats.Kill9)
}

// stopNATS: the planned restart of one.
func (s *suite) stopNATS() {
	s.t.Helper()
	s.without(s.system.nats.Stop)
}

// drainNATS: the planned restart of one as deploy/ has it: it hands its leaders over
// and tells its clients to go, before it ends.
func (s *suite) drainNATS() {
	s.t.Helper()
	s.without(s.system.nats.Drain)
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
// was, whoever is at the tail stays there and may come back to it, and all goes on
// when they are back.
func (s *suite) killTwoNATS() {
	s.t.Helper()
	views := s.views()
	left := s.node()
	var gone []int
	for i := range natsServers {
		if i != left {
			s.system.nats.Kill9(i)
			gone = append(gone, i)
		}
	}
	for _, u := range s.world {
		u.Mark()
	}
	for _, v := range views {
		v.stays(s)
	}
	for _, v := range views {
		v.resumes(s)
	}
	s.hold(3*time.Second, 6*time.Second)
	for _, u := range s.world {
		if n := u.Marked(); n > 0 {
			s.t.Fatalf("broke I-J2: %d commands of %s were acknowledged while one NATS server of three ran", n, u.Session)
		}
	}
	for _, i := range gone {
		s.system.nats.Start(i)
	}
	s.system.nats.AwaitReady()
	for _, v := range views {
		v.goesOn(s)
	}
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

// pair is SIGKILL of two at the same moment, and a new start of both. Two brokers and
// two NATS servers are faults of their own.
func pair(kinds ...string) func(*suite) {
	return func(s *suite) {
		s.t.Helper()
		s.killTogether(kinds)
	}
}

func (s *suite) killTogether(kinds []string) {
	s.t.Helper()
	node := -1
	var both []*member
	of := map[string]bool{}
	for _, kind := range kinds {
		switch kind {
		case "nats":
			node = s.node()
		case "broker":
			both = append(both, s.broker())
		case "worker":
			w, its := s.worker(both...)
			both = append(both, w)
			maps.Copy(of, its)
		case "gateway":
			both = append(both, s.system.busiest(both...))
		}
	}
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
