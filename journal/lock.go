package journal

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// dirLock is the exclusive use of a data directory, held by an open file.
type dirLock struct{ f *os.File }

const (
	lockPatience = 3 * time.Second // a killed process with much memory takes its time
	lockPoll     = 20 * time.Millisecond
)

// lockDir takes DIR/lock, or fails with *LockedError: at once, unless the process
// that holds it is ending, which is waited for. The kernel frees the lock when the
// process ends, however it ends.
func lockDir(dir string) (*dirLock, error) {
	end := time.Now().Add(lockPatience)
	tick := time.NewTicker(lockPoll)
	defer tick.Stop()
	for {
		l, err := tryLock(dir)
		var locked *LockedError
		if !errors.As(err, &locked) || locked.PID == 0 || !processEnds(locked.PID) || time.Now().After(end) {
			return l, err
		}
		<-tick.C
	}
}

// processEnds reports whether a process has gone, or is about to: a zombie, or one with
// a SIGKILL to take (proc(5), State and ShdPnd).
func processEnds(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH)
	}
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		value = strings.TrimSpace(value)
		switch name {
		case "State":
			if strings.HasPrefix(value, "Z") || strings.HasPrefix(value, "X") {
				return true
			}
		case "SigPnd", "ShdPnd":
			if set, err := strconv.ParseUint(value, 16, 64); err == nil && set&(1<<(unix.SIGKILL-1)) != 0 {
				return true
			}
		}
	}
	return false
}

func tryLock(dir string) (*dirLock, error) {
	f, err := os.OpenFile(dir+"/lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock data directory: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		held := errors.Is(err, unix.EWOULDBLOCK)
		pid := lockPID(f)
		if cerr := f.Close(); cerr != nil {
			err = errors.Join(err, cerr)
		}
		if held {
			return nil, &LockedError{Dir: dir, PID: pid}
		}
		return nil, fmt.Errorf("lock data directory: %w", err)
	}
	l := &dirLock{f: f}
	if err := l.sign(); err != nil {
		return nil, errors.Join(fmt.Errorf("lock data directory: %w", err), l.release())
	}
	return l, nil
}

// sign writes the pid for whoever finds the directory locked.
func (l *dirLock) sign() error {
	if err := l.f.Truncate(0); err != nil {
		return err
	}
	_, err := l.f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

func (l *dirLock) release() error { return l.f.Close() }

// lockPID reads who signed the lock; 0 when unreadable.
func lockPID(f *os.File) int {
	var b [32]byte
	n, _ := f.ReadAt(b[:], 0)
	pid, err := strconv.Atoi(string(bytes.TrimSpace(b[:n])))
	if err != nil {
		return 0
	}
	return pid
}
