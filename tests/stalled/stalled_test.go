package stalled

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"rejoin/tests/harness"
)

const (
	liveReaders = 10
	rcvbuf      = 16 << 10
	behind      = 16 << 20 // that each stalled reader is proven to be
	growth      = 64 << 20 // that the server may grow by
)

// TestStalledReaders: a thousand readers stall while a session prints 64 MB; the
// server grows by less than 64 MiB, readers at the tail go on as before (printed,
// not asserted), and afterwards every stalled reader gets every byte.
//
// Proves I-J4, I-J5 and I-G2.
func TestStalledReaders(t *testing.T) {
	readers, lines := 40, 24<<20/lineBytes
	if os.Getenv("REJOIN_STALLED") == "full" {
		readers, lines = 1000, 64<<20/lineBytes+1
	}
	s := harness.Start(t, harness.Options{Bin: harness.PlainBinary(t), Args: []string{"--write-timeout", "1h"}})
	f := &field{t: t, s: s, c: harness.Dial(t, s)}
	f.session = f.start()
	alone := f.flood(nil, lines) // warms everything up, too
	idle := f.rss()
	stalled := f.stall(readers)
	connected := f.rss()
	beside := f.flood(stalled, lines)
	fmt.Printf("%d stalled readers, %d live ones, %d MB printed\n", readers, liveReaders, lines*lineBytes/1_000_000)
	fmt.Printf("                       alone   beside the stalled\n")
	fmt.Printf("latency p50  %15v %15v\n", alone.lag(50), beside.lag(50))
	fmt.Printf("latency p99  %15v %15v   %.2f times\n", alone.lag(99), beside.lag(99), float64(beside.lag(99))/float64(alone.lag(99)))
	fmt.Printf("server RSS: %d MiB idle, %d MiB with the readers connected, %d MiB at most while they stalled\n",
		idle>>20, connected>>20, beside.peak>>20)
	fmt.Printf("the stalled readers were at least %d MB behind\n", beside.behind/1_000_000)
	if beside.behind < behind {
		t.Errorf("a stalled reader was only %d bytes behind", beside.behind)
	}
	if grown := beside.peak - connected; grown >= growth {
		t.Errorf("the server grew by %d MiB", grown>>20)
	}
	began := time.Now()
	f.release(stalled, beside)
	fmt.Printf("all of them had every byte %v after they read again\n", time.Since(began).Round(time.Millisecond))
}

// field is a server with one session.
type field struct {
	t       *testing.T
	s       *harness.Server
	c       *harness.Client
	session string
	head    uint64 // the session's
}

// measured is what one flood showed.
type measured struct {
	lags   []time.Duration // sorted
	sum    string          // of every event
	to     uint64          // seq of the last one
	peak   int64           // RSS of the server
	behind int64           // of the stalled reader that was least behind
}

func (m *measured) lag(percent int) time.Duration {
	return m.lags[min(len(m.lags)-1, len(m.lags)*percent/100)].Round(10 * time.Microsecond)
}

func (f *field) call(method string, params, result any) {
	f.t.Helper()
	raw, err := f.c.Call(harness.Context(f.t), method, params)
	if err == nil {
		err = json.Unmarshal(raw, result)
	}
	if err != nil {
		f.t.Fatalf("%s: %v", method, err)
	}
}

func (f *field) start() string {
	f.t.Helper()
	var r struct {
		SessionID string `json:"sessionId"`
		Session   struct{ Head uint64 }
	}
	f.call("start_session", map[string]any{"argv": harness.ChildArgv("pour"), "adapter": "jsonl"}, &r)
	f.head = 1 // session_start
	return r.SessionID
}

func (f *field) rss() int64 {
	f.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", f.s.PID()))
	if err != nil {
		f.t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		var kib int64
		if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &kib); err == nil {
			return kib << 10
		}
	}
	f.t.Fatalf("no VmRSS in %s", b)
	return 0
}

// stall connects readers that read nothing more.
func (f *field) stall(n int) []*reader {
	f.t.Helper()
	all := make([]*reader, n)
	errs := make([]error, n)
	ctx := harness.Context(f.t)
	var opening sync.WaitGroup
	slots := make(chan struct{}, 32)
	for i := range all {
		opening.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			all[i], errs[i] = open(ctx, f.s, f.session, rcvbuf)
		})
	}
	opening.Wait()
	for i, r := range all {
		if errs[i] != nil {
			f.t.Fatalf("a reader: %v", errs[i])
		}
		f.t.Cleanup(func() { _ = r.conn.Close() }) // its test is over
	}
	return all
}

// flood lets the child print, with live readers at the tail.
func (f *field) flood(stalled []*reader, lines int) *measured {
	f.t.Helper()
	live := make([]*reader, liveReaders)
	for i := range live {
		r, err := open(harness.Context(f.t), f.s, f.session, 0)
		if err != nil {
			f.t.Fatalf("a live reader: %v", err)
		}
		r.lag = []time.Duration{}
		live[i] = r
	}
	var ack struct{ Seq uint64 }
	f.call("send", map[string]any{"sessionId": f.session, "command": order{Lines: lines}}, &ack)
	m := &measured{to: f.head + 2 + uint64(lines)} // the command, its outcome, the lines
	f.head = m.to
	ctx, cancel := context.WithCancel(f.t.Context())
	var watching, reading sync.WaitGroup
	watching.Go(func() { m.peak = f.watch(ctx) })
	errs := make([]error, len(live))
	for i, r := range live {
		reading.Go(func() { errs[i] = r.drain(m.to) })
	}
	reading.Wait()
	cancel()
	watching.Wait()
	for i, r := range live {
		if err := r.conn.Close(); err != nil || errs[i] != nil {
			f.t.Fatalf("a live reader: %v, %v", errs[i], err)
		}
		if sum := fmt.Sprintf("%x", r.sum.Sum(nil)); m.sum != "" && sum != m.sum {
			f.t.Fatal("broke I-J4: two live readers got different bytes")
		} else {
			m.sum = sum
		}
		m.lags = append(m.lags, r.lag...)
	}
	slices.Sort(m.lags)
	m.behind = f.behind(stalled, live[0].read)
	return m
}

// behind returns how far the most advanced of the stalled readers is from the end
// of so many bytes, if it read all that waits for it in the kernel.
func (f *field) behind(stalled []*reader, total int64) int64 {
	f.t.Helper()
	_, address := f.s.Addr()
	wait, err := queued(address)
	if err != nil {
		f.t.Fatal(err)
	}
	least := total
	for _, r := range stalled {
		least = min(least, total-wait[r.conn.LocalAddr().(*net.TCPAddr).Port])
	}
	return least
}

// watch returns the most that the server had until ctx ends.
func (f *field) watch(ctx context.Context) (peak int64) {
	every := time.NewTicker(50 * time.Millisecond)
	defer every.Stop()
	for {
		rss, err := harness.RSS(f.s.PID())
		if err == nil {
			peak = max(peak, rss)
		}
		select {
		case <-ctx.Done():
			return peak
		case <-every.C:
		}
	}
}

// release lets the stalled readers read, all at once, to the end.
func (f *field) release(stalled []*reader, m *measured) {
	f.t.Helper()
	errs := make([]error, len(stalled))
	var reading sync.WaitGroup
	for i, r := range stalled {
		reading.Go(func() { errs[i] = r.drain(m.to) })
	}
	reading.Wait()
	for i, r := range stalled {
		if errs[i] != nil {
			f.t.Fatalf("broke I-J4: a stalled reader: %v", errs[i])
		}
		if sum := fmt.Sprintf("%x", r.sum.Sum(nil)); sum != m.sum {
			f.t.Fatalf("broke I-J4: a stalled reader got other bytes than a live one")
		}
	}
}
