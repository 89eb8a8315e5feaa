package gateway_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"rejoin/gateway"
	gatewaytcp "rejoin/gateway-tcp"
	"rejoin/tests/harness"
)

func TestFramingTolerance(t *testing.T) {
	w := newWorld(t, gateway.Config{})
	c := dialURL(t, w.listen("tcp://127.0.0.1:0").URL())
	c.write("\xef\xbb\xbf" + `{"id":1,"method":"ping"}` + "\r\n\r\n \n\n")
	c.expect(`"id":1,"result"`)
	for _, part := range []string{`{"id":2,`, `"meth`, `od":"ping"}`, "\n" + `{"id":3,"method":"ping"}` + "\n" + `{"id":"4` + "\u2028" + `","method":"ping"}`} {
		c.write(part)
	}
	c.expect(`"id":2,"result"`)
	c.expect(`"id":3,"result"`)
	if err := c.Conn.(*net.TCPConn).CloseWrite(); err != nil { // the last line has no LF
		t.Fatal(err)
	}
	c.expect(`"id":"4` + "\u2028" + `","result"`)
	c.ended()
}

// The last answer arrives although the client has more to say.
func TestRefusalsReachTheClient(t *testing.T) {
	w := newWorld(t, gateway.Config{RequestBytesMax: 1000, AuthTimeout: 200 * time.Millisecond})
	url := w.listen("tcp://127.0.0.1:0").URL()
	rest := strings.Repeat(`{"id":1,"method":"ping"}`+"\n", 2000)

	c := dialURL(t, url)
	c.write(`{"id":1,"method":"authenticate","params":{"token":"wrong"}}` + "\n" + rest)
	c.expect(`"code":-32001,"message":"invalid token"`)
	c.ended()

	c = dialURL(t, url)
	c.write(strings.Repeat("x", 1<<20) + "\n" + rest)
	c.expect(`"id":null,"error":{"code":-32600,"message":"request exceeds size limit"`)
	c.ended()

	c = dialURL(t, url)
	c.ask(`{"type":"ping","timestamp":5}`, `{"type":"pong","timestamp":5}`)
	c.expect(`"code":-32001,"message":"not authenticated within 200ms"`)
	c.ended()
}

// A connection that its client resets is given up, though it is quiet; one whose
// client has only ended its side goes on receiving.
func TestHalfClosedAndReset(t *testing.T) {
	w := newWorld(t, gateway.Config{})
	for _, url := range []string{w.listen("tcp://127.0.0.1:0").URL(), w.listen(socketURL(t)).URL()} {
		owner := dialURL(t, url).authenticate()
		session := "s" + fmt.Sprint(len(url))
		owner.start(session)

		half := dialURL(t, url).authenticate()
		half.ask(`{"id":1,"method":"subscribe","params":{"sessionId":"`+session+`"}}`, `"mode":"live"`)
		half.expect(`"method":"synced"`)
		if err := half.Conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		reset := dialURL(t, url).authenticate()
		reset.ask(`{"id":1,"method":"subscribe","params":{"sessionId":"`+session+`"}}`, `"mode":"live"`)
		reset.expect(`"method":"synced"`)
		if err := reset.Conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if tcp, ok := reset.Conn.(*net.TCPConn); ok {
			if err := tcp.SetLinger(0); err != nil {
				t.Fatal(err)
			}
		}
		if err := reset.Close(); err != nil {
			t.Fatal(err)
		}
		owner.awaitStatus(`"connections":2,"subscriptions":1,`)
		owner.write(`{"method":"send","params":{"sessionId":"` + session + `","command":1}}` + "\n")
		half.expect(`"type":"command"`)
		if err := errors.Join(half.Close(), owner.Close()); err != nil {
			t.Fatal(err)
		}
		last := dialURL(t, url).authenticate()
		last.awaitStatus(`"subscriptions":0,`)
		if err := last.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// awaitStatus asks for server_status until its answer has want.
func (c *client) awaitStatus(want string) {
	c.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(testTimeout)
	for {
		got := c.ask(`{"id":1,"method":"server_status"}`, `"result"`)
		if strings.Contains(got, want) {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			c.t.Fatalf("want %s, got %s", want, got)
		}
	}
}

// The end of a listener waits neither for a pending accept nor for a client that
// does not read.
func TestStopDoesNotWaitForClients(t *testing.T) {
	w := newWorld(t, gateway.Config{WriteTimeout: time.Hour}) // for which a stop would wait, if it waited
	idle := w.listen(socketURL(t))
	url := w.listen("tcp://127.0.0.1:0").URL()
	owner := dialURL(t, url).authenticate()
	owner.start("s")
	stalled := dialURL(t, url).authenticate()
	if err := stalled.Conn.(*net.TCPConn).SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	stalled.ask(`{"id":1,"method":"subscribe","params":{"sessionId":"s"}}`, `"mode":"live"`)
	line := `{"id":2,"method":"send","params":{"sessionId":"s","command":"` + strings.Repeat("x", 500<<10) + `"}}`
	for range 20 {
		owner.ask(line, `"status":"sent"`)
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		w.stop()
	}()
	select {
	case <-stopped:
	case <-harness.Context(t).Done():
		t.Fatal("it waits for a client")
	}
	if _, err := net.Dial("unix", strings.TrimPrefix(idle.URL(), "unix://")); err == nil {
		t.Error("still listening")
	}
}

func TestSurplusConnection(t *testing.T) {
	w := newWorld(t, gateway.Config{ConnectionsMax: 1})
	url := w.listen("tcp://127.0.0.1:0").URL()
	c := dialURL(t, url)
	c.ask(`{"id":1,"method":"ping"}`, `pong`)
	surplus := dialURL(t, url)
	surplus.expect(`"id":null,"error":{"code":-32005`)
	surplus.ended()
	// Whatever a surplus client sends before it reads does not take the answer away.
	busy := dialURL(t, url)
	busy.write(strings.Repeat(`{"id":1,"method":"ping"}`+"\n", 5000))
	busy.expect(`"id":null,"error":{"code":-32005,"message":"more than 1 connections"`)
	busy.ended()
	c.ask(`{"id":1,"method":"ping"}`, `pong`)
}

func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	url := "unix://" + path
	l, err := gatewaytcp.Listen(url, gatewaytcp.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	if _, err := gatewaytcp.Listen(url, gatewaytcp.Limits{}); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a socket in use: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}

	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	if err := stale.Close(); err != nil {
		t.Fatal(err)
	}
	if l, err = gatewaytcp.Listen(url, gatewaytcp.Limits{}); err != nil {
		t.Fatalf("a stale socket: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := gatewaytcp.Listen(url, gatewaytcp.Limits{}); err == nil {
		t.Error("a file was replaced")
	}
}

// Every observer sees the same events in the same order, also one that reads late.
func TestManyObservers(t *testing.T) {
	w := newWorld(t, gateway.Config{})
	url := w.listen("tcp://127.0.0.1:0").URL()
	owner := dialURL(t, url).authenticate()
	owner.start("s")
	const observers, commands = 20, 100
	var all []*client
	for range observers {
		c := dialURL(t, url).authenticate()
		c.ask(`{"id":1,"method":"subscribe","params":{"sessionId":"s","after":0}}`, `"mode":"replay"`)
		all = append(all, c)
	}
	for i := range commands {
		owner.ask(fmt.Sprintf(`{"id":2,"method":"send","params":{"sessionId":"s","command":{"n":%d,"p":"%s"}}}`, i, strings.Repeat("x", 10000)), `"status":"sent"`)
	}
	var first []string
	for i, c := range all {
		var lines []string
		for seq := 1; len(lines) < 3*commands+1; {
			line := c.line()
			if !strings.Contains(line, `"method":"event"`) {
				continue
			}
			_, rest, _ := strings.Cut(line, `"sessionId":"s","seq":`)
			if !strings.HasPrefix(rest, fmt.Sprint(seq, ",")) {
				t.Fatalf("observer %d: want %d, got %.100s", i, seq, line)
			}
			seq++
			lines = append(lines, rest)
		}
		if i == 0 {
			first = lines
		}
		for n := range lines {
			if lines[n] != first[n] {
				t.Fatalf("observer %d differs at %d", i, n)
			}
		}
	}
}
