package blackbox

import (
	"fmt"
	"testing"
	"time"

	"rejoin/tests/harness"
)

// stalled connects with a small receive buffer, subscribes and stops reading.
func stalled(t *testing.T, s *harness.Server, session string) (*harness.Client, *harness.Stream) {
	t.Helper()
	network, address := s.Addr()
	c, err := harness.ConnectBuffer(harness.Context(t), network, address, s.Token(), 4096)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("the stalled client: %v", err)
		}
	})
	st := subscribe(t, c, session, fromStart)
	c.Pause()
	return c, st
}

// TestStalledReader: it holds nobody up and gets everything once it reads again.
// Proves I-J4 and I-J5.
func TestStalledReader(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	cl := harness.Dial(t, s)
	session := start(t, cl, "read", "count", "1", "20000", "1000", "echo")
	slow, st := stalled(t, s, session)
	fast := subscribe(t, cl, session, fromStart)
	send(t, cl, session, "go", map[string]any{})
	numbered(t, fast, 1, 20000)
	if len := send(t, cl, session, "still", map[string]any{}); len.Duplicate {
		t.Fatal("a new command is no duplicate")
	}
	slow.Resume()
	numbered(t, st, 1, 20000)
}

// TestStalledReadersCostLittle: 40 MB of events and 20 clients that do not read.
// Proves I-J5 and I-G2.
func TestStalledReadersCostLittle(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	cl := harness.Dial(t, s)
	session := start(t, cl, "read", "count", "1", "2000", "20000", "echo")
	for range 20 {
		stalled(t, s, session)
	}
	fast := subscribe(t, cl, session, fromStart)
	before, err := harness.RSS(s.PID())
	if err != nil {
		t.Fatal(err)
	}
	send(t, cl, session, "go", map[string]any{})
	numbered(t, fast, 1, 2000)
	after, err := harness.RSS(s.PID())
	if err != nil {
		t.Fatal(err)
	}
	if grown := after - before; grown > 300<<20 {
		t.Fatalf("the server grew by %d MiB", grown>>20)
	}
}

// TestWriteTimeout: a connection that accepts no byte for --write-timeout is
// closed, resumes by its cursor without a hole, and a client that reads slowly is
// left alone. Proves I-G2.
func TestWriteTimeout(t *testing.T) {
	s := harness.Start(t, harness.Options{Args: []string{"--write-timeout", "1s"}})
	cl := harness.Dial(t, s)
	session := start(t, cl, "count", "1", "20000", "1000", "echo")
	numbered(t, subscribe(t, cl, session, fromStart), 1, 20000)
	dead, st := stalled(t, s, session)
	harness.Eventually(t, "the server lets go of the stalled connection", func() bool {
		r := harness.Do[struct{ Connections int }](t, cl, "server_status", nil)
		return r.Connections == 1
	})
	dead.Resume()
	<-dead.Done()
	epoch, seq := st.Cursor()
	if seq >= 20000 {
		t.Fatalf("the stalled client had everything (%d) before it was closed", seq)
	}
	again := subscribe(t, cl, session, map[string]any{"after": seq, "epoch": epoch})
	head := again.Attached().Head
	until(t, again, "the rest", func(e harness.Event) bool { return e.Seq == head })
	pong := harness.Do[struct {
		Type  string
		TS    int64
		Heads map[string]uint64
	}](t, cl, "ping", nil)
	if pong.Type != "pong" || pong.TS == 0 || pong.Heads[fmt.Sprint(again.ID())] != head {
		t.Fatalf("ping answered %+v, want head %d", pong, head)
	}
}

// TestFloodHarmsNobody: one session prints without end, another answers promptly.
// Proves I-W4.
func TestFloodHarmsNobody(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	cl := harness.Dial(t, s)
	flood := start(t, cl, "endless", "200")
	quiet := start(t, cl, "echo")
	st := subscribe(t, cl, quiet, fromStart)
	var worst time.Duration
	for i := range 50 {
		began := time.Now()
		send(t, cl, quiet, fmt.Sprintf("c%d", i), map[string]any{"i": i})
		ofType(t, st, "got")
		worst = max(worst, time.Since(began))
	}
	t.Logf("worst round trip beside a flood: %v", worst)
	must(t, cl, "stop_session", map[string]any{"sessionId": flood, "graceMs": 500})
}

// TestChildThatDoesNotRead: commands to it are bounded and hurt nobody; stop ends
// it. Proves I-W4.
func TestChildThatDoesNotRead(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	cl, other := harness.Dial(t, s), harness.Dial(t, s)
	deaf := start(t, cl, "linger")
	quiet := start(t, other, "echo")
	st := subscribe(t, other, quiet, fromStart)
	pad := make([]byte, 500_000)
	for i := range pad {
		pad[i] = 'x'
	}
	refused := false
	for i := 0; i < 100 && !refused; i++ {
		_, err := cl.Call(harness.Context(t), "send", map[string]any{"sessionId": deaf, "command": string(pad)})
		refused = err != nil
		if refused {
			t.Logf("command %d was refused: %v", i, err)
		}
	}
	if !refused {
		t.Fatal("50 MB were admitted for a child that does not read")
	}
	send(t, other, quiet, "c", map[string]any{})
	ofType(t, st, "got")
	must(t, other, "list_sessions", nil)
	must(t, other, "stop_session", map[string]any{"sessionId": deaf, "graceMs": 500})
}

// TestTermUnderBackpressure: SIGTERM ends everything within 10 s though a child
// prints without end and a client does not read. Proves I-W3.
func TestTermUnderBackpressure(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	cl := harness.Dial(t, s)
	path := t.TempDir() + "/pid"
	session := start(t, cl, "deaf", "pid", path, "endless", "4000")
	stalled(t, s, session)
	numbered(t, subscribe(t, cl, session, fromStart), 1, 500)
	pid := pidIn(t, path)
	began := time.Now()
	if code := s.Term(); code != 0 {
		t.Fatalf("exit status %d", code)
	}
	t.Logf("SIGTERM took %v", time.Since(began))
	if harness.Living(pid) {
		t.Fatalf("child %d outlived the server", pid)
	}
}
