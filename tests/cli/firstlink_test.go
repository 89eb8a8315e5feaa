package cli_test

import (
	"bufio"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"rejoin/tests/harness"
)

// attach comes back from a link that breaks before it has begun: while it is
// authenticated, and before it knows its session.
func TestAttachOverABrokenFirstLink(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	sid := start(t, s.Dir)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	var links sync.Map
	t.Cleanup(func() {
		_ = l.Close()
		links.Range(func(c, _ any) bool { return c.(net.Conn).Close() == nil || true })
		running.Wait()
	})
	running.Go(func() {
		for n := 0; ; n++ {
			near, err := l.Accept()
			if err != nil {
				return
			}
			if n == 0 {
				_ = near.(*net.TCPConn).SetLinger(0) // a reset
				_ = near.Close()
				continue
			}
			far, err := net.Dial("tcp", strings.TrimPrefix(s.URL(), "tcp://"))
			if err != nil {
				t.Error(err)
				return
			}
			links.Store(near, true)
			links.Store(far, true)
			running.Go(func() { _, _ = io.Copy(far, near); _ = far.Close() })
			running.Go(func() {
				defer near.Close()
				r := bufio.NewReader(far)
				if n == 1 { // the answer of authenticate and no more
					if line, err := r.ReadBytes('\n'); err == nil {
						_, _ = near.Write(line)
					}
					return
				}
				_, _ = io.Copy(near, r)
			})
		}
	})
	attached := runOn(t, s.Dir, "attach", sid, "--server", "tcp://"+l.Addr().String(), "--token", s.Token())
	attached.out.shows(t, "-- demo started")
	attached.err.shows(t, "link lost: ")
	if code := attached.interrupt(t); code != 0 {
		t.Errorf("exit code %d\n%s", code, attached.err.String())
	}
}
