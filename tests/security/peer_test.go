package security_test

import (
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"rejoin/tests/harness"
)

// strangerUID is a user that is neither this one nor root.
const strangerUID = 65534

// dialAs connects to a socket as another user: credentials belong to a thread,
// and the kernel notes those of the thread that connects.
func dialAs(t *testing.T, uid int, path string) net.Conn {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0)); errno != 0 {
		t.Fatal(errno)
	}
	err = unix.Connect(fd, &unix.SockaddrUnix{Name: path})
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), 0, ^uintptr(0)); errno != 0 {
		t.Fatal(errno)
	}
	if err != nil {
		t.Fatalf("connect as user %d: %v", uid, err)
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	conn, err := net.FileConn(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // the server may have closed it
	return conn
}

// answer sends one request without a token and returns the first line that comes.
func answer(t *testing.T, conn net.Conn) string {
	t.Helper()
	if _, err := conn.Write([]byte(`{"jsonrpc":"2.0","id":1,"method":"list_sessions"}` + "\n")); err != nil {
		t.Logf("write: %v", err) // it may be refused already
	}
	b := make([]byte, 4096)
	n, err := conn.Read(b)
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	return string(b[:n])
}

// On a socket with auth=peer the kernel says who comes: the server's user needs no
// token, another one is refused although the socket is open to him. Without it
// everybody needs a token.
func TestPeers(t *testing.T) {
	dir, err := os.MkdirTemp("", "rejoin-peer-") //nolint:usetesting // others can look into it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // a temporary directory that stays harms nothing
	peers, tokens := filepath.Join(dir, "peers"), filepath.Join(dir, "tokens")
	s := harness.Start(t, harness.Options{Listen: []string{"unix://" + peers + "?auth=peer", "unix://" + tokens}})
	for path, want := range map[string]string{peers: `"result":[`, tokens: `"reason":"auth_required"`} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", path, info, err)
		}
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if got := answer(t, conn); !strings.Contains(got, want) {
			t.Errorf("%s answers its own user %s, want %s", path, got, want)
		}
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can connect as another user")
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{peers: `"reason":"forbidden"`, tokens: `"reason":"auth_required"`} {
		if err := os.Chmod(path, 0o666); err != nil {
			t.Fatal(err)
		}
		if got := answer(t, dialAs(t, strangerUID, path)); !strings.Contains(got, want) {
			t.Errorf("%s answers a stranger %s, want %s", path, got, want)
		}
	}
	s.Says("user 65534 is neither the server's nor root")
}
