package worker

import (
	"bytes"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"rejoin/protocol"
)

// environBytesMax is how much of a process's environment is searched for marks.
const environBytesMax = 4 << 20

// process is one row of /proc.
type process struct {
	pid, ppid, pgrp int
	start           uint64 // clock ticks since boot: with pid it names a process for good
	dead            bool   // a zombie
	stopped         bool   // by a signal
	waits           bool   // in the kernel or for its tracer: it acts on no signal but KILL until then
	marked          bool   // carries REJOIN_INSTANCE of the census
	mark            mark
}

// roll is the processes of one moment. It is shared: read only.
type roll struct {
	byPID    map[int]*process
	children map[int][]*process
	groups   map[int][]*process
	marked   map[mark][]*process
}

// census counts processes. Ladders that end at the same time share a count: a
// thousand sessions cost no thousand walks through /proc. Safe for concurrent use.
type census struct {
	instance string
	begun    atomic.Uint64 // counts begun so far

	mu   sync.Mutex // held while counting
	last *roll      // of count number begun
}

func newCensus(instance string) *census { return &census{instance: instance} }

// take returns a roll whose counting began after the call.
func (c *census) take() *roll {
	before := c.begun.Load()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.begun.Load() > before && c.last != nil {
		return c.last
	}
	c.begun.Add(1)
	c.last = count(c.instance)
	return c.last
}

func count(instance string) *roll {
	r := &roll{
		byPID: make(map[int]*process), children: make(map[int][]*process),
		groups: make(map[int][]*process), marked: make(map[mark][]*process),
	}
	uid := os.Geteuid()
	var env bytes.Buffer
	for _, pid := range pids() {
		p, ok := readStat(pid)
		if !ok {
			continue // gone meanwhile
		}
		if !p.dead && ownedBy(pid, uid) {
			p.mark, p.marked = readMark(pid, instance, &env)
		}
		r.byPID[pid] = p
		r.children[p.ppid] = append(r.children[p.ppid], p)
		r.groups[p.pgrp] = append(r.groups[p.pgrp], p)
		if p.marked {
			r.marked[p.mark] = append(r.marked[p.mark], p)
		}
	}
	return r
}

// pids lists /proc; where that cannot be read it lists nothing.
func pids() []int {
	d, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer func() { _ = d.Close() }() // opened for reading
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil
	}
	out := make([]int, 0, len(names))
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			out = append(out, pid)
		}
	}
	return out
}

// readStat reads /proc/PID/stat (proc(5)); the name in parentheses may hold anything.
func readStat(pid int) (*process, bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return nil, false
	}
	return parseStat(pid, b)
}

func parseStat(pid int, b []byte) (*process, bool) {
	end := bytes.LastIndexByte(b, ')')
	if end < 0 {
		return nil, false
	}
	f := strings.Fields(string(b[end+1:])) // from field 3, the state
	if len(f) < 20 {
		return nil, false
	}
	ppid, err1 := strconv.Atoi(f[1])
	pgrp, err2 := strconv.Atoi(f[2])
	start, err3 := strconv.ParseUint(f[19], 10, 64)
	if err1 != nil || err2 != nil || err3 != nil {
		return nil, false
	}
	return &process{
		pid: pid, ppid: ppid, pgrp: pgrp, start: start, dead: f[0] == "Z" || f[0] == "X" || f[0] == "x",
		stopped: f[0] == "T", waits: f[0] == "D" || f[0] == "t",
	}, true
}

func ownedBy(pid, uid int) bool {
	st, err := os.Stat("/proc/" + strconv.Itoa(pid))
	if err != nil {
		return false
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	return ok && int(sys.Uid) == uid
}

// readMark reads which run of this instance started a process.
func readMark(pid int, instance string, buf *bytes.Buffer) (mark, bool) {
	f, err := os.Open("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return mark{}, false
	}
	defer func() { _ = f.Close() }() // opened for reading
	buf.Reset()
	if _, err := buf.ReadFrom(io.LimitReader(f, environBytesMax)); err != nil {
		return mark{}, false
	}
	return parseMark(buf.Bytes(), instance)
}

func parseMark(environ []byte, instance string) (m mark, ours bool) {
	if !bytes.Contains(environ, []byte(envInstance)) {
		return mark{}, false
	}
	for kv := range bytes.SplitSeq(environ, []byte{0}) {
		name, value, _ := bytes.Cut(kv, []byte{'='})
		switch string(name) {
		case envInstance:
			ours = string(value) == instance
		case envSession:
			m.session = string(value)
		case envRun:
			if n, err := strconv.ParseUint(string(value), 10, 64); err == nil {
				m.run = protocol.Run(n)
			}
		}
	}
	return m, ours
}

// signalProcess sends a signal to exactly that process, never to one that got
// its pid later. A process that is gone is no error.
func signalProcess(p *process, sig syscall.Signal) error {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err == nil {
		defer func() { _ = unix.Close(fd) }() // a descriptor without data
	}
	now, ok := readStat(p.pid) // fd, if we have it, names the same process from here on
	if !ok || now.start != p.start || now.dead {
		return nil
	}
	switch {
	case err == nil:
		err = unix.PidfdSendSignal(fd, sig, nil, 0)
	case err != unix.ESRCH: // no pidfd: the start time was right a moment ago
		err = unix.Kill(p.pid, sig)
	}
	if err == unix.ESRCH {
		return nil
	}
	return err
}
