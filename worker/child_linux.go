package worker

import (
	"errors"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// child is a spawned process: the leader of its group. It is reaped only at the
// end of its ladder: until then neither its pid nor its group can be another's.
type child struct {
	pid   int
	start uint64 // clock ticks since boot, /proc/PID/stat field 22

	stdin, stdout, stderr *os.File // our ends; they do not block

	pidfd  *os.File      // nil where the kernel has none
	exited chan struct{} // closed by watch
	exitAt atomic.Pointer[time.Time]
	reaped bool // of the supervisor

	offspring *offspring
	group     group // nil: it has none
}

func newChild(pid, pidfd int, p *pipes, o *offspring) *child {
	c := &child{offspring: o, pid: pid, stdin: p.ours[0], stdout: p.ours[1], stderr: p.ours[2], exited: make(chan struct{})}
	if st, ok := readStat(pid); ok {
		c.start = st.start
	}
	if pidfd >= 0 {
		if err := unix.SetNonblock(pidfd, true); err != nil {
			_ = unix.Close(pidfd) // it only saves a thread
		} else {
			c.pidfd = os.NewFile(uintptr(pidfd), "pidfd")
		}
	}
	return c
}

// watch waits for the leader's exit, without a thread where the kernel can tell
// by a descriptor. It returns early when release gave the child up.
func (c *child) watch() {
	if c.pidfd != nil {
		switch err := c.pollPidfd(); {
		case err == nil:
			c.markExited()
			return
		case errors.Is(err, os.ErrClosed):
			return
		}
	}
	if blockUntilExited(c.pid) == nil {
		c.markExited()
	}
}

// pollPidfd waits until the leader is a zombie.
func (c *child) pollPidfd() error {
	conn, err := c.pidfd.SyscallConn()
	if err != nil {
		return err
	}
	return conn.Read(func(uintptr) bool { return isExited(c.pid) })
}

func (c *child) markExited() {
	now := time.Now()
	c.exitAt.Store(&now)
	close(c.exited)
}

func (c *child) hasExited() bool {
	select {
	case <-c.exited:
		return true
	default:
		return false
	}
}

// exitTime is when the leader was seen dead, or now.
func (c *child) exitTime() time.Time {
	if at := c.exitAt.Load(); at != nil {
		return *at
	}
	return time.Now()
}

// reap takes the exit status. A leader that cannot be killed has none; it is
// left to the system.
func (c *child) reap() (code *int, signal *string) {
	if c.reaped || !isExited(c.pid) {
		return nil, nil
	}
	ws, err := c.offspring.wait(c.pid)
	if err != nil {
		return nil, nil
	}
	c.reaped = true
	if ws.Signaled() {
		name := unix.SignalName(ws.Signal())
		return nil, &name
	}
	status := ws.ExitStatus()
	return &status, nil
}

// release closes what is ours and reaps the child if it is dead; else it is an
// orphan like others from here on. The error is that of its control group, which
// the next start removes.
func (c *child) release() error {
	if c.reap(); !c.reaped { // a pid that was reaped may be another's already
		c.offspring.forget(c.pid)
	}
	for _, f := range []*os.File{c.stdin, c.stdout, c.stderr, c.pidfd} {
		if f != nil {
			_ = f.Close() // closed before, or a pipe: nothing is lost
		}
	}
	if c.group != nil {
		return c.group.Remove()
	}
	return nil
}
