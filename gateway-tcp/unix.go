package gatewaytcp

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

const socketMode = 0o600

// listenUnix listens on a socket that only its owner may use, from its first
// moment on: the mode is set before the socket has a name (unix(7) on Linux),
// and once more after, for systems that ignore that.
func listenUnix(path string) (net.Listener, error) {
	if err := removeStale(path); err != nil {
		return nil, err
	}
	lc := net.ListenConfig{Control: func(_, _ string, rc syscall.RawConn) error {
		var ferr error
		err := rc.Control(func(fd uintptr) { ferr = unix.Fchmod(int(fd), socketMode) })
		if errors.Is(ferr, unix.EINVAL) {
			ferr = nil
		}
		return errors.Join(err, ferr)
	}}
	ln, err := lc.Listen(context.Background(), "unix", path) //nolint:contextcheck // nothing to resolve, nothing to cancel
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, socketMode); err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	return ln, nil
}

// removeStale removes a socket that nobody listens on; anything else at path is
// an error.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode()&fs.ModeSocket == 0:
		return fmt.Errorf("listen on %s: it is there and no socket", path)
	}
	var d net.Dialer
	c, err := d.DialContext(context.Background(), "unix", path) //nolint:contextcheck // local, at once
	if err == nil {
		return errors.Join(fmt.Errorf("listen on %s: %w", path, syscall.EADDRINUSE), c.Close())
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("listen on %s: somebody may be listening: %w", path, err)
	}
	return os.Remove(path)
}
