package worker

import (
	"log/slog"
	"maps"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"rejoin/protocol"
)

// tree is the processes of one run: the leader, its group, its descendants,
// whoever carries the run's mark, and whoever was one of these at an earlier
// look. Agents put their tools into sessions and groups of their own, and tools
// outlive their parents; each of the four finds some that the others miss.
// It is the supervisor's alone.
type tree struct {
	leader   *child
	mark     mark
	census   *census
	log      *slog.Logger
	known    map[int]*process // living members of the last look, without the leader
	lastKill time.Time
	resigned bool // strays count
}

// resign says that the run is at its end: from now on looks find strays too.
func (t *tree) resign() {
	t.leader.offspring.resign(t.leader.pid)
	t.resigned = true
}

func (s *session) newTree() *tree {
	return &tree{
		leader: s.child, mark: mark{session: s.key.String(), run: s.rec.Run}, census: s.w.census, log: s.log,
		known: make(map[int]*process),
	}
}

// look counts the living members besides the leader.
func (t *tree) look() int {
	r := t.census.take()
	known := t.known
	if t.resigned {
		known = maps.Clone(known)
		for _, p := range t.leader.offspring.strays(r, t.leader.start) {
			known[p.pid] = p
		}
	}
	t.known = members(r, t.leader.pid, t.leader.start, t.mark, known)
	t.addGroup()
	return len(t.known)
}

// addGroup adds whoever is in the run's control group, born a moment ago too.
func (t *tree) addGroup() {
	if t.leader.group == nil {
		return
	}
	pids, err := t.leader.group.PIDs()
	if err != nil {
		t.log.Debug("list the control group", slog.Any(protocol.LogError, err))
	}
	for _, pid := range pids {
		if pid == t.leader.pid || t.known[pid] != nil {
			continue
		}
		if p, ok := readStat(pid); ok && !p.dead {
			t.known[pid] = p
		}
	}
}

// members are the living processes that belong to a run, without its leader.
func members(r *roll, leader int, leaderStart uint64, m mark, known map[int]*process) map[int]*process {
	found := make(map[int]*process)
	var add func(list []*process)
	add = func(list []*process) {
		for _, p := range list {
			if p.pid == leader || found[p.pid] != nil {
				continue
			}
			if !p.dead {
				found[p.pid] = p
			}
			add(r.children[p.pid])
		}
	}
	// The leader is not reaped: its pid and its group cannot be another's.
	if p := r.byPID[leader]; p != nil && p.start == leaderStart {
		add(r.children[leader])
		add(r.groups[leader])
	}
	add(r.marked[m])
	for pid, old := range known {
		if p := r.byPID[pid]; p != nil && p.start == old.start {
			add([]*process{p})
		}
	}
	return found
}

// signal sends sig to the group and to every known member outside it.
func (t *tree) signal(sig syscall.Signal) {
	if sig == syscall.SIGKILL {
		t.lastKill = time.Now()
		t.killGroup()
	}
	if err := unix.Kill(-t.leader.pid, sig); err != nil && err != unix.ESRCH {
		t.log.Debug("signal the group", slog.Int(protocol.LogPID, t.leader.pid), slog.Any(protocol.LogError, err))
	}
	for _, p := range t.known {
		if p.pgrp == t.leader.pid {
			continue
		}
		if err := signalProcess(p, sig); err != nil {
			t.log.Debug("signal a descendant", slog.Int(protocol.LogPID, p.pid), slog.Any(protocol.LogError, err))
		}
	}
}

// killGroup has the kernel end the run's control group. What it does not do is
// done by signals.
func (t *tree) killGroup() {
	if t.leader.group == nil {
		return
	}
	if err := t.leader.group.Kill(); err != nil {
		t.log.Debug("end the control group", slog.Any(protocol.LogError, err))
	}
}

// kill sends KILL until every member is dead, and reports whether that came
// before the deadline. A first look finds descendants before their parent dies.
func (t *tree) kill(deadline time.Time) bool {
	t.look()
	for {
		t.signal(syscall.SIGKILL)
		if t.look() == 0 && isExited(t.leader.pid) {
			return true
		}
		wait := min(sweepEvery, time.Until(deadline))
		if wait <= 0 {
			return false
		}
		again := time.NewTimer(wait)
		exited := t.leader.exited
		if t.leader.hasExited() {
			exited = nil
		}
		select {
		case <-again.C:
		case <-exited:
		}
		again.Stop()
	}
}
