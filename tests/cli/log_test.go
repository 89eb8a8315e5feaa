package cli_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rejoin/tests/harness"
)

// unreadLog is the log of a server, a pipe whose reader stops and goes on.
type unreadLog struct {
	t     *testing.T
	r     *os.File
	shown screen
	ended chan error // of what reads at the moment
}

func newUnreadLog(t *testing.T, r *os.File) *unreadLog {
	t.Helper()
	l := &unreadLog{t: t, r: r}
	l.read()
	return l
}

func (l *unreadLog) read() {
	l.t.Helper()
	if err := l.r.SetReadDeadline(time.Time{}); err != nil {
		l.t.Fatal(err)
	}
	l.ended = make(chan error)
	go func() {
		_, err := io.Copy(&l.shown, l.r)
		l.ended <- err
	}()
}

// stop returns when nobody reads; the pipe takes 4 KiB from then on.
func (l *unreadLog) stop() {
	l.t.Helper()
	if err := l.r.SetReadDeadline(time.Unix(1, 0)); err != nil {
		l.t.Fatal(err)
	}
	if err := <-l.ended; err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		l.t.Fatal(err)
	}
	if _, err := unix.FcntlInt(l.r.Fd(), unix.F_SETPIPE_SZ, 4096); err != nil {
		l.t.Fatal(err)
	}
	if err := unix.SetNonblock(int(l.r.Fd()), true); err != nil { // Fd has ended that
		l.t.Fatal(err)
	}
}

var (
	adminURL = regexp.MustCompile(`"admin": *"([^"]+)"`)
	lostRow  = regexp.MustCompile(`(?m)^rejoin_log_lost_total (\S+)$`)
	lostLine = regexp.MustCompile(`level=ERROR msg="the log is not complete" lost=(\d+)`)
)

// lostLines is the metric of an admin endpoint.
func lostLines(t *testing.T, admin string) string {
	t.Helper()
	resp, err := http.Get(admin + "/metrics") //nolint:noctx // on loopback, and the test has its own end
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	m := lostRow.FindSubmatch(b)
	if err != nil || m == nil {
		t.Fatalf("no such row: %v", err)
	}
	return string(m[1])
}

// A log that nobody reads holds nobody up: sessions start, commands are answered,
// and the server stops in order. What did not fit is counted, and told to whoever
// reads again.
func TestLogThatNobodyReads(t *testing.T) {
	dir := t.TempDir()
	data, ready := filepath.Join(dir, "data"), filepath.Join(dir, "ready.json")
	cmd := command(harness.Context(t), t, data, "serve", "--listen", "tcp://127.0.0.1:0", "--admin", "127.0.0.1:0", "--ready-file", ready, "--log-level", "debug")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd.Stderr = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	log := newUnreadLog(t, r)
	log.shown.shows(t, "to begin")
	b, err := os.ReadFile(ready)
	admin := adminURL.FindSubmatch(b)
	if err != nil || admin == nil {
		t.Fatalf("%s: %v", b, err)
	}
	address := regexp.MustCompile(`tcp://([0-9.:]+)`).FindStringSubmatch(log.shown.String())[1]
	log.stop()
	harness.Eventually(t, "lines are left out", func() bool {
		for range 500 { // each is logged twice
			c, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
		}
		return lostLines(t, string(admin[1])) != "0"
	})
	sid := start(t, data)
	want(t, data, "send", sid, "count 3")
	want(t, data, "ls")

	log.read()
	harness.Eventually(t, "the log says what it lacks", func() bool { return lostLine.MatchString(log.shown.String()) })
	log.stop()
	start(t, data) // is logged
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the server ended with %v", err)
	}
	if strings.Contains(log.shown.String(), "panic") {
		t.Error(log.shown.String())
	}
}
