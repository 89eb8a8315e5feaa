package worker

import (
	"bytes"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"rejoin/protocol"
	"rejoin/worker/internal/cgroup"
)

// reapEvery is the least time between two looks for dead orphans: a child that
// leaves thousands a second costs ten looks a second.
const reapEvery = 100 * time.Millisecond

// offspring is the children of this process: the leaders, which it forked, and,
// where it is a subreaper, whatever their descendants left behind. Leaders are
// reaped by their ladder alone; dead orphans by reap. Safe for concurrent use.
type offspring struct {
	self, group int
	instance    string

	mu      sync.Mutex // held while a leader is forked and while orphans are reaped: no leader is ever taken for one
	leaders map[int]leadership
}

// leadership of a process that was forked here and is not reaped yet.
type leadership struct {
	start    uint64 // clock ticks since boot
	resigned bool   // its run is at its end: a stray of its time is another's only if another run could have left it
}

func newOffspring(instance string) *offspring {
	return &offspring{instance: instance, self: os.Getpid(), group: unix.Getpgrp(), leaders: make(map[int]leadership)}
}

// fork has f make a leader.
func (o *offspring) fork(f func() (pid int, err error)) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	pid, err := f()
	if err != nil {
		return 0, err
	}
	l := leadership{}
	if st, ok := readStat(pid); ok {
		l.start = st.start
	}
	o.leaders[pid] = l
	return pid, nil
}

// resign says that the leader is dead or about to be killed.
func (o *offspring) resign(pid int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if l, ok := o.leaders[pid]; ok {
		l.resigned = true
		o.leaders[pid] = l
	}
}

// wait reaps a leader that has exited. Its pid is nobody's from then on, and so not
// a leader's.
func (o *offspring) wait(pid int) (ws unix.WaitStatus, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for {
		if _, err = unix.Wait4(pid, &ws, 0, nil); err != unix.EINTR {
			break
		}
	}
	if err == nil {
		delete(o.leaders, pid)
	}
	return ws, err
}

// forget takes a leader out that is given up.
func (o *offspring) forget(pid int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.leaders, pid)
}

// strays are the living children of this process that nobody forked here, which
// carry no mark and are in no leader's group, of processes or of control: they cleared their environment, took
// a session of their own and lost their parent. Which run left them cannot be
// told, so they are its of this leader, which has resigned, only when no other
// run is left that is as old as they are: the last one that can have left them
// ends them.
func (o *offspring) strays(r *roll, leaderStart uint64) []*process {
	o.mu.Lock()
	defer o.mu.Unlock()
	var found []*process
	for _, p := range r.children[o.self] {
		_, isLeader := o.leaders[p.pid]
		_, inGroup := o.leaders[p.pgrp]
		if !p.dead && !isLeader && !inGroup && !p.marked && p.pgrp != o.group && p.start >= leaderStart && !o.othersAt(p.start) && !cgroup.Holds(o.instance, p.pid) {
			found = append(found, p)
		}
	}
	return found
}

// othersAt reports whether a run that is not at its end was alive at that time. Mu is held.
func (o *offspring) othersAt(start uint64) bool {
	for _, l := range o.leaders {
		if !l.resigned && l.start <= start {
			return true
		}
	}
	return false
}

// reap takes the exit status of every dead orphan, so that none stays a zombie.
// It waits by pid, and for nothing that this process forked itself: leaders are
// known, and whatever else is started here is in our own group, where no
// descendant of a leader is.
func (o *offspring) reap() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !isAnyExited() {
		return 0
	}
	reaped := 0
	for _, pid := range childPIDs(o.self) {
		if _, isLeader := o.leaders[pid]; isLeader || !isExited(pid) {
			continue
		}
		if p, ok := readStat(pid); !ok || p.ppid != o.self || p.pgrp == o.group {
			continue
		}
		if _, err := unix.Wait4(pid, nil, unix.WNOHANG, nil); err == nil {
			reaped++
		}
	}
	return reaped
}

// childPIDs lists the children of a process, by the lists of its threads where the
// kernel keeps those, else by a walk through /proc.
func childPIDs(pid int) []int {
	tasks := "/proc/" + strconv.Itoa(pid) + "/task"
	threads, err := os.ReadDir(tasks)
	if err != nil {
		return nil // nothing to be known: /proc is not there
	}
	var out []int
	for _, t := range threads {
		b, err := os.ReadFile(tasks + "/" + t.Name() + "/children")
		if os.IsNotExist(err) && t.Name() == strconv.Itoa(pid) { // the first thread is there for as long as the process
			return childrenOf(pid)
		}
		for f := range bytes.FieldsSeq(b) {
			if child, err := strconv.Atoi(string(f)); err == nil {
				out = append(out, child)
			}
		}
	}
	return out
}

func childrenOf(parent int) []int {
	var out []int
	for _, pid := range pids() {
		if p, ok := readStat(pid); ok && p.ppid == parent {
			out = append(out, pid)
		}
	}
	return out
}

// adoptOrphans makes this process the parent of its descendants' orphans (the
// kernel's subreaper) and reaps the dead ones until quit is closed.
func (w *Worker) adoptOrphans(quit <-chan struct{}) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		w.log.Warn("orphans of children are left to the system", slog.Any(protocol.LogError, err))
		return
	}
	died := make(chan os.Signal, 1) // full: a look is due anyway
	signal.Notify(died, syscall.SIGCHLD)
	defer signal.Stop(died)
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-quit:
			w.offspring.reap()
			return
		case <-pause.C:
		}
		if n := w.offspring.reap(); n > 0 {
			w.log.Debug("reaped orphans", slog.Int("processes", n))
		}
		select {
		case <-quit:
			w.offspring.reap()
			return
		case <-died:
			pause.Reset(reapEvery)
		}
	}
}
