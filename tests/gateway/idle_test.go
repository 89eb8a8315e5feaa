package gateway_test

import (
	"bytes"
	"net"
	"runtime"
	"testing"

	"rejoin/gateway"
	"rejoin/tests/harness"
)

// A subscribed connection that waits is one goroutine, its reader: also after an
// event, and it gets the next one. What it asks is answered meanwhile.
func TestIdleConnectionIsOneGoroutine(t *testing.T) {
	const clients = 100
	w := newWorld(t, gateway.Config{})
	url := w.listen("tcp://127.0.0.1:0").URL()
	owner := dialURL(t, url).authenticate()
	owner.start("s")
	var all []*client
	for range clients {
		c := dialURL(t, url).authenticate()
		c.ask(`{"id":1,"method":"subscribe","params":{"sessionId":"s"}}`, `"mode":"live"`)
		c.expect(`"method":"synced"`)
		all = append(all, c)
	}
	for n := range 3 {
		harness.Eventually(t, "only the readers are left", func() bool { return goroutinesIn("gateway.(*conn).write(") == 0 })
		if readers := goroutinesIn("gateway.(*conn).read("); readers < clients {
			t.Fatalf("round %d: %d readers: the count is wrong", n, readers)
		}
		owner.ask(`{"id":1,"method":"send","params":{"sessionId":"s","command":1}}`, `"status":"sent"`)
		for _, c := range all {
			for range 3 { // command, the child's line, command_outcome
				c.expect(`"method":"event"`)
			}
			c.ask(`{"id":2,"method":"ping"}`, `"id":2,"result"`)
		}
	}
}

// goroutinesIn counts the goroutines that are in a function.
func goroutinesIn(function string) int {
	buf := make([]byte, 4<<20)
	return bytes.Count(buf[:runtime.Stack(buf, true)], []byte(function))
}

// BenchmarkIdleConnection reports what a subscribed connection that has seen an
// event costs while nothing happens: live heap and stacks, without the client's
// side of it (about as many bytes as a net.Conn).
func BenchmarkIdleConnection(b *testing.B) {
	w := newWorld(b, gateway.Config{})
	url := w.listen("tcp://127.0.0.1:0").URL()
	owner := dialURL(b, url).authenticate()
	owner.start("s")
	before := memory()
	conns := make([]net.Conn, 0, 1<<20)
	for b.Loop() {
		c := dialURL(b, url).authenticate()
		c.ask(`{"id":1,"method":"subscribe","params":{"sessionId":"s"}}`, `"mode":"live"`)
		c.expect(`"method":"synced"`)
		conns = append(conns, c.Conn)
	}
	n := float64(len(conns))
	owner.ask(`{"id":1,"method":"send","params":{"sessionId":"s","command":1}}`, `"status":"sent"`)
	var buf [1024]byte
	for _, c := range conns {
		for events := 0; events < 3; { // command, the child's line, command_outcome
			n, err := c.Read(buf[:])
			if err != nil {
				b.Fatal(err)
			}
			events += bytes.Count(buf[:n], []byte{'\n'})
		}
	}
	after := memory()
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/n, "heap-B/conn")
	b.ReportMetric(float64(after.StackInuse-before.StackInuse)/n, "stack-B/conn")
}

func memory() runtime.MemStats {
	var m runtime.MemStats
	for range 3 { // stacks shrink and pools empty in the second one
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return m
}
