package journal

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// dirLock is the exclusive use of a data directory, held by an open file.
type dirLock struct{ f *os.File }

// lockDir takes DIR/lock, or fails at once with *LockedError. The kernel frees
// the lock when the process ends, however it ends.
func lockDir(dir string) (*dirLock, error) {
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
