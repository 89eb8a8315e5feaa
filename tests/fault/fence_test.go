package fault_test

import (
	"bytes"
	"fmt"
	"os"
	"slices"

	"rejoin/protocol"
	"rejoin/tests/harness"
	"rejoin/tests/model"
)

// linesInFlight is what the children of a worker that is cut off must print before
// it is sure that a record of each of their sessions is on its way.
const linesInFlight = 20

// cutInFlight cuts a worker off, so that a record of each of its sessions is in
// flight, and freezes it.
func (s *suite) cutInFlight(w *member, of map[string]bool) {
	s.t.Helper()
	s.system.cut(w)
	printed := map[string]int{}
	for _, u := range s.of(of) {
		printed[u.Session] = u.Printed()
	}
	harness.Eventually(s.t, "the children of a worker that is cut off print on", func() bool {
		s.site.Check()
		return !slices.ContainsFunc(s.of(of), func(u *model.Subject) bool {
			return u.Booked() && u.Printed() < printed[u.Session]+linesInFlight
		})
	})
	w.freeze()
}

// of are the world's sessions of these names.
func (s *suite) of(names map[string]bool) (some []*model.Subject) {
	for _, u := range s.world {
		if names[u.Session] {
			some = append(some, u)
		}
	}
	return some
}

// wakeBefore: a worker is frozen with records in flight and wakes before anybody
// has called it lost: it is their owner still, and everything goes on.
func (s *suite) wakeBefore() {
	s.t.Helper()
	w, of := s.worker()
	s.cutInFlight(w, of)
	s.hold(protocol.WorkerLostAfter/10, protocol.WorkerLostAfter/3)
	s.system.heal()
	w.wake()
}

// wakeAfter: it wakes when its sessions have other owners. What it had in flight
// arrives then, and is refused; its children end.
func (s *suite) wakeAfter() {
	s.t.Helper()
	w, of := s.worker()
	pids := harness.Marked(w.server.Dir)
	s.cutInFlight(w, of)
	s.taken(of)
	s.system.heal()
	w.wake()
	s.fenced(pids)
}

// cutWorkerLong: it sees no NATS server until it is lost and taken over. Before
// anybody may take its sessions over, it stops those that can go on elsewhere, and no
// others.
func (s *suite) cutWorkerLong() {
	s.t.Helper()
	w, of := s.worker()
	pids := harness.Marked(w.server.Dir)
	type child struct {
		pid   int
		moves bool
	}
	children := map[string]child{}
	for i, u := range s.world {
		if now := u.Info(s.ask); of[u.Session] && now.PID != nil {
			children[u.Session] = child{*now.PID, kindsOf[i].restart == "resume"}
		}
	}
	s.system.cut(w)
	stopped := map[string]bool{}
	harness.Within(2*protocol.WorkerLostAfter, func() bool {
		s.site.Check()
		for session, c := range children {
			told := s.pulse.told(session)
			stops := halted(c.pid)
			switch {
			case told && c.moves && !stopped[session]:
				s.t.Fatalf("broke I-B2: session %s was taken over while its child %d ran", session, c.pid)
			case stops && !c.moves:
				s.t.Fatalf("child %d of session %s, which nobody starts elsewhere, is stopped", c.pid, session)
			case stops:
				stopped[session] = true
			}
		}
		return s.allTold(of)
	})
	s.taken(of)
	s.system.heal()
	s.fenced(pids)
}

// allTold reports whether each session was seen interrupted.
func (s *suite) allTold(of map[string]bool) bool {
	for session := range of {
		if !s.pulse.told(session) {
			return false
		}
	}
	return true
}

// halted reports whether a process is stopped, by a signal or with its control
// group.
func halted(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	rest := stat[bytes.LastIndexByte(stat, ')')+1:]
	return bytes.HasPrefix(rest, []byte(" T")) || bytes.HasPrefix(rest, []byte(" D"))
}

// brokersAtOnce: two brokers find at the same moment that a worker was replaced.
// Each session gets one run of a broker, and, where its policy says so, one of a
// child.
func (s *suite) brokersAtOnce() {
	s.t.Helper()
	w, of := s.worker()
	others := s.others(of)
	was := map[string]model.SessionInfo{}
	for _, u := range s.of(of) {
		was[u.Session] = u.Info(s.ask)
	}
	for _, b := range s.system.brokers {
		b.freeze()
	}
	w.start(s.t, w.kill(s.t))
	for _, b := range s.system.brokers {
		b.wake()
	}
	s.taken(of)
	s.kept(others, "a restart of another worker")
	for i, u := range s.world {
		if !of[u.Session] {
			continue
		}
		from, moves := was[u.Session], kindsOf[i].restart == "resume"
		told, resumed := 0, 0
		s.byPolicy("session "+u.Session+" is settled", func() bool {
			s.site.Check()
			u.ReadLog(s.ask)
			told, resumed = recovered(u, from.Head)
			return resumed > 0 || !moves
		})
		run := u.Info(s.ask).Run
		if want := from.Run + 1; told != 1 || !moves && (run != want || resumed != 0) {
			s.t.Fatalf("broke I-B2: session %s of run %d was recovered to run %d, with %d interruptions and %d resumptions", u.Session, from.Run, run, told, resumed)
		}
		if want := from.Run + 2; moves && (run != want || resumed != 1) {
			s.t.Fatalf("broke I-B2: session %s of run %d went on in run %d, with %d resumptions", u.Session, from.Run, run, resumed)
		}
	}
}

// recovered counts the interruptions and the resumptions in a log after an event.
func recovered(u *model.Subject, after uint64) (told, resumed int) {
	for _, e := range u.Logs[len(u.Logs)-1].Events {
		if e.Source != "broker" || e.Seq <= after {
			continue
		}
		switch e.Type() {
		case "session_interrupted":
			told++
		case "session_resumed":
			resumed++
		}
	}
	return told, resumed
}
