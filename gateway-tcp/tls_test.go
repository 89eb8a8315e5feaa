package gatewaytcp

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// drip takes a few bytes and then waits for its deadline, as a slow reader's
// socket does; after some rounds it takes no more.
type drip struct {
	net.Conn
	rounds    int
	took      int
	deadlines []time.Time
}

func (d *drip) SetWriteDeadline(t time.Time) error {
	d.deadlines = append(d.deadlines, t)
	return nil
}

func (d *drip) Write(p []byte) (int, error) {
	if d.rounds == 0 {
		return 0, os.ErrDeadlineExceeded
	}
	d.rounds--
	n := min(len(p), 3)
	d.took += n
	if n < len(p) {
		return n, os.ErrDeadlineExceeded
	}
	return n, nil
}

// A reader that takes some bytes within each write timeout keeps its connection
// under TLS too; one that takes none does not.
func TestSlowReadersUnderTLS(t *testing.T) { synctest.Test(t, testSlowReadersUnderTLS) }

func testSlowReadersUnderTLS(t *testing.T) {
	d := &drip{rounds: 4}
	s := &sealedConn{Conn: d}
	s.patience.Store(int64(time.Minute))
	if n, err := s.Write([]byte("ten bytes!")); n != 10 || err != nil {
		t.Fatalf("slow: %d, %v", n, err)
	}
	if len(d.deadlines) != 4 {
		t.Errorf("%d deadlines for 4 writes", len(d.deadlines))
	}
	for _, at := range d.deadlines {
		if left := time.Until(at); left != time.Minute {
			t.Errorf("a deadline in %v", left)
		}
	}
	d.rounds = 2
	if n, err := s.Write([]byte("ten bytes!")); n != 6 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("stalled: %d, %v", n, err)
	}

	d.rounds = 2
	if err := s.SetWriteDeadline(time.Now().Add(time.Hour)); err != nil { // the last alert
		t.Fatal(err)
	}
	if left := time.Until(d.deadlines[len(d.deadlines)-1]); left > lingerMax {
		t.Errorf("the end may take %v", left)
	}
	if n, err := s.Write([]byte("ten bytes!")); n != 3 || err == nil {
		t.Errorf("at the end: %d, %v", n, err)
	}
}

func TestHandshakesAfterTheEnd(t *testing.T) {
	var h handshakes
	h.close()
	ours, theirs := net.Pipe()
	leave := h.enter(ours)
	if _, err := theirs.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("a connection that comes when the listener ends: %v", err)
	}
	leave()
	if h.order.Len() != 0 {
		t.Error("it kept its place")
	}
}
