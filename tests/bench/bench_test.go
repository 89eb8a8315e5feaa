package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	"rejoin/tests/harness"
)

// scaled is the full figure with BENCH=1, else the one for a look.
func scaled(look, full int) int {
	if os.Getenv("BENCH") == "1" {
		return full
	}
	return look
}

func call[T any](b *testing.B, c *harness.Client, method string, params any) T {
	b.Helper()
	var r T
	raw, err := c.Call(b.Context(), method, params)
	if err == nil {
		err = json.Unmarshal(raw, &r)
	}
	if err != nil {
		b.Fatalf("%s: %v", method, err)
	}
	return r
}

func start(b *testing.B, c *harness.Client, argv []string) string {
	b.Helper()
	return call[struct{ SessionID string }](b, c, "start_session", map[string]any{"argv": argv}).SessionID
}

func send(b *testing.B, c *harness.Client, session string) {
	b.Helper()
	call[json.RawMessage](b, c, "send", map[string]any{"sessionId": session, "command": 0})
}

// raw is a subscription that only counts lines, so that the client costs little.
type raw struct {
	conn net.Conn
	buf  []byte
}

func subscribe(b *testing.B, s *harness.Server, session, how string) *raw {
	b.Helper()
	w := harness.DialWire(b, s)
	w.Authenticate(s.Token())
	w.Send(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"subscribe","params":{"sessionId":%q,%s}}`+"\n", session, how))
	return &raw{conn: w.Conn, buf: make([]byte, 256<<10)}
}

// lines reads until so many lines have come.
func (r *raw) lines(n int) error {
	if err := r.conn.SetReadDeadline(time.Now().Add(10 * time.Minute)); err != nil {
		return err
	}
	for n > 0 {
		k, err := r.conn.Read(r.buf)
		n -= bytes.Count(r.buf[:k], []byte("\n"))
		if err != nil && (!errors.Is(err, io.EOF) || n > 0) {
			return err
		}
	}
	return nil
}

// BenchmarkLatency: from just before a child writes a line to when a client has
// it, at both kinds of durability.
func BenchmarkLatency(b *testing.B) {
	for _, durability := range []string{"always", "20ms"} {
		b.Run(durability, func(b *testing.B) {
			s := harness.Start(b, harness.Options{Args: []string{"--durability", durability}})
			c := harness.Dial(b, s)
			n := scaled(300, 5000)
			var took []time.Duration
			for b.Loop() {
				session := start(b, c, harness.ChildArgv("stamps", fmt.Sprint(n)))
				st, err := c.Subscribe(b.Context(), session, map[string]any{"after": 0})
				if err != nil {
					b.Fatal(err)
				}
				send(b, c, session)
				for k := 0; k < n; {
					e, err := st.Next(b.Context())
					if err != nil {
						b.Fatal(err)
					}
					if e.Source != "child" {
						continue
					}
					var line struct{ T int64 }
					if err := json.Unmarshal(e.Body, &line); err != nil {
						b.Fatal(err)
					}
					took = append(took, time.Duration(time.Now().UnixNano()-line.T))
					k++
				}
				call[json.RawMessage](b, c, "stop_session", map[string]any{"sessionId": session})
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
		})
	}
}

// BenchmarkOneClient: events of 250 bytes of one session to one client, as fast as
// they come.
func BenchmarkOneClient(b *testing.B) {
	for _, durability := range []string{"always", "20ms"} {
		b.Run(durability, func(b *testing.B) { fanOut(b, durability, 1, scaled(50_000, 1_000_000)) })
	}
}

// BenchmarkHundredObservers: the same to a hundred clients.
func BenchmarkHundredObservers(b *testing.B) {
	fanOut(b, "20ms", 100, scaled(5_000, 50_000))
}

func fanOut(b *testing.B, durability string, observers, n int) {
	b.Helper()
	s := harness.Start(b, harness.Options{Args: []string{"--durability", durability}})
	c := harness.Dial(b, s)
	session := start(b, c, harness.ChildArgv("lines", fmt.Sprint(n), "250"))
	var all []*raw
	for range observers {
		r := subscribe(b, s, session, `"from":"now"`)
		if err := r.lines(2); err != nil { // response and synced
			b.Fatal(err)
		}
		all = append(all, r)
	}
	var took time.Duration
	rounds := 0
	for b.Loop() {
		began := time.Now()
		send(b, c, session)
		errs := make(chan error, observers)
		for _, r := range all {
			go func() { errs <- r.lines(n + 2) }() // command and its outcome
		}
		for range all {
			if err := <-errs; err != nil {
				b.Fatal(err)
			}
		}
		took += time.Since(began)
		rounds++
	}
	b.ReportMetric(float64(rounds*n)/took.Seconds(), "events/s")
	b.ReportMetric(float64(rounds*n*observers)/took.Seconds(), "deliveries/s")
}

// BenchmarkReplay: a client comes and reads 100,000 events from the start.
func BenchmarkReplay(b *testing.B) {
	s := harness.Start(b, harness.Options{Args: []string{"--durability", "20ms"}})
	c := harness.Dial(b, s)
	n := scaled(20_000, 100_000)
	session := start(b, c, harness.ChildArgv("lines", fmt.Sprint(n), "250"))
	first := subscribe(b, s, session, `"after":0`)
	send(b, c, session)
	const around = 5 // response, session_start, synced, command, outcome
	if err := first.lines(n + around); err != nil {
		b.Fatal(err)
	}
	var took time.Duration
	rounds := 0
	for b.Loop() {
		began := time.Now()
		r := subscribe(b, s, session, `"after":0`)
		if err := r.lines(n + around); err != nil {
			b.Fatal(err)
		}
		took += time.Since(began)
		rounds++
	}
	b.ReportMetric(float64(rounds*n)/took.Seconds(), "events/s")
	b.ReportMetric(float64(took.Milliseconds())/float64(rounds), "ms/replay")
}

// BenchmarkLastHundredCold: a restarted server is asked for the last 100 events of
// a long session, written one by one among a thousand others.
func BenchmarkLastHundredCold(b *testing.B) {
	s := harness.Start(b, harness.Options{Listen: []string{harness.FixedPort(b)}, Args: []string{"--durability", "20ms"}})
	c := harness.Dial(b, s)
	n := scaled(20_000, 1_000_000)
	session := start(b, c, harness.ChildArgv("single", fmt.Sprint(n)))
	others := scaled(20, 1000)
	for range others {
		start(b, c, []string{"/bin/echo", `{"n":1}`})
	}
	type info struct{ Head uint64 }
	head := func(c *harness.Client) uint64 {
		return call[info](b, c, "get_session", map[string]any{"sessionId": session}).Head
	}
	if !harness.Within(time.Hour, func() bool { return head(c) > uint64(n) }) {
		b.Fatal("the session does not get long")
	}
	var took []time.Duration
	for b.Loop() {
		b.StopTimer()
		s.Restart("--durability", "20ms")
		c = harness.Dial(b, s)
		last := head(c)
		b.StartTimer()
		began := time.Now()
		page := call[struct{ Events []json.RawMessage }](b, c, "read_events", map[string]any{"sessionId": session, "before": last + 1, "limit": 100})
		took = append(took, time.Since(began))
		if len(page.Events) != 100 {
			b.Fatalf("%d events", len(page.Events))
		}
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms/page")
	b.ReportMetric(float64(n), "events")
}

// BenchmarkIdleConnections: memory of the server per connection that subscribes
// and then only waits.
func BenchmarkIdleConnections(b *testing.B) {
	s := harness.Start(b, harness.Options{})
	c := harness.Dial(b, s)
	session := start(b, c, harness.ChildArgv("lines", "1", "250"))
	n := scaled(300, 4000)
	rss := func() int64 {
		v, err := harness.RSS(s.PID())
		if err != nil {
			b.Fatal(err)
		}
		return v
	}
	subscribe(b, s, session, `"from":"now"`)
	for b.Loop() {
		before := rss()
		for range n {
			r := subscribe(b, s, session, `"from":"now"`)
			if err := r.lines(2); err != nil {
				b.Fatal(err)
			}
			r.buf = nil
		}
		b.ReportMetric(float64(rss()-before)/float64(n)/1024, "KiB/connection")
	}
}
