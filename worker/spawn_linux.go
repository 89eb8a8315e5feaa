package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"rejoin/protocol"
)

// forker spawns every child from one OS thread. PDEATHSIG fires when the thread
// that spawned dies, so that thread must live as long as the worker: I-W3. Its
// goroutine is locked to it and never unlocked.
type forker struct {
	offspring *offspring
	log       *slog.Logger
	jobs      chan forkJob // unbuffered: spawns take turns
	quit      chan struct{}
	done      chan struct{}
}

type forkJob struct {
	path   string
	argv   []string
	attr   *syscall.ProcAttr
	group  group             // nil: none
	answer chan<- forkAnswer // capacity one
}

type forkAnswer struct {
	pid int
	err error
}

func newForker(o *offspring, log *slog.Logger) *forker {
	return &forker{offspring: o, log: log, jobs: make(chan forkJob), quit: make(chan struct{}), done: make(chan struct{})}
}

func (f *forker) start() { go f.run() }

// stop ends the thread; no child of it may be alive that is not to die.
func (f *forker) stop() {
	close(f.quit)
	<-f.done
}

func (f *forker) run() {
	defer close(f.done)
	runtime.LockOSThread()
	for {
		select {
		case <-f.quit:
			return
		case j := <-f.jobs:
			pid, err := f.fork(&j)
			j.answer <- forkAnswer{pid, err}
		}
	}
}

// fork starts a child in its control group, from this very thread.
func (f *forker) fork(j *forkJob) (int, error) {
	if j.group != nil {
		if err := j.group.Enter(); err != nil {
			return 0, errors.Join(fmt.Errorf("enter the control group: %w", err), j.group.Leave())
		}
		defer func() {
			if err := j.group.Leave(); err != nil { // the next child's group takes the thread out
				f.log.Error("the spawning thread stays in a control group", slog.Any(protocol.LogError, err))
			}
		}()
	}
	return f.offspring.fork(func() (int, error) {
		pid, _, err := syscall.StartProcess(j.path, j.argv, j.attr)
		return pid, err
	})
}

// spawn starts a program without a shell, in a process group of its own and, unless
// it is nil, a control group, with pipes of ours. Errors are syscall.Errno (wrapped) when the system refused.
func (f *forker) spawn(ctx context.Context, path string, argv, env []string, dir string, group group) (*child, error) {
	p, err := newPipes()
	if err != nil {
		return nil, fmt.Errorf("make pipes: %w", err)
	}
	pidfd := -1
	attr := &syscall.ProcAttr{
		Dir: dir, Env: env, Files: []uintptr{uintptr(p.theirs[0]), uintptr(p.theirs[1]), uintptr(p.theirs[2])},
		Sys: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, PidFD: &pidfd},
	}
	if group != nil && group.CloneFD() >= 0 {
		attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, group.CloneFD()
	}
	answer := make(chan forkAnswer, 1)
	select {
	case f.jobs <- forkJob{path: path, argv: argv, attr: attr, group: group, answer: answer}:
	case <-f.done:
		p.close()
		return nil, errStopping()
	case <-ctx.Done():
		p.close()
		return nil, ctx.Err()
	}
	a := <-answer
	if a.err != nil {
		p.close()
		return nil, fmt.Errorf("start process: %w", a.err)
	}
	p.closeTheirs()
	c := newChild(a.pid, pidfd, p, f.offspring)
	c.group = group
	return c, nil
}

// pipes are the three of a child: ours do not block, theirs do.
type pipes struct {
	ours   [3]*os.File
	theirs [3]int
}

func newPipes() (*pipes, error) {
	p := &pipes{theirs: [3]int{-1, -1, -1}}
	for i, name := range [...]string{"stdin", "stdout", "stderr"} {
		var fds [2]int
		if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
			p.close()
			return nil, err
		}
		mine, theirs := fds[0], fds[1]
		if i == 0 {
			mine, theirs = fds[1], fds[0]
		}
		p.theirs[i] = theirs
		if err := unix.SetNonblock(mine, true); err != nil {
			_ = unix.Close(mine)
			p.close()
			return nil, err
		}
		p.ours[i] = os.NewFile(uintptr(mine), name)
	}
	return p, nil
}

func (p *pipes) closeTheirs() {
	for i, fd := range p.theirs {
		if fd >= 0 {
			_ = unix.Close(fd)
			p.theirs[i] = -1
		}
	}
}

func (p *pipes) close() {
	p.closeTheirs()
	for _, f := range p.ours {
		if f != nil {
			_ = f.Close()
		}
	}
}

// isExited reports whether a child of ours has exited; it stays a zombie, so its
// pid, which is its group's id too, cannot be given to another process.
func isExited(pid int) bool {
	var info unix.Siginfo
	err := waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT)
	return err == nil && info.Signo == int32(unix.SIGCHLD)
}

// isAnyExited reports whether some child is a zombie. It costs one system call.
func isAnyExited() bool {
	var info unix.Siginfo
	err := waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT)
	return err == nil && info.Signo == int32(unix.SIGCHLD)
}

// blockUntilExited is the way of kernels without pidfd: it costs a thread.
func blockUntilExited(pid int) error {
	return waitid(unix.P_PID, pid, &unix.Siginfo{}, unix.WEXITED|unix.WNOWAIT)
}

func waitid(kind, pid int, info *unix.Siginfo, options int) error {
	for {
		err := unix.Waitid(kind, pid, info, options, nil)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
