package stalled

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"rejoin/tests/harness"
)

const (
	liveReaders = 10
	rcvbuf      = 16 << 10
	behind      = 16 << 20            // that each stalled reader is proven to be
	growth      = 64 << 20            // that the server may grow by
	fillLines   = 8 << 20 / lineBytes // printed first, more than the sockets of a stalled reader hold
)

// TestStalledReaders: a thousand readers stall while a session prints 64 MB; the
// server grows by less than 64 MiB, readers at the tail go on as before (printed,
// not asserted), and afterwards every stalled reader gets every byte. Until their
// sockets are full the thousand are readers like any other, and get what the
// machine can give to a thousand: those first megabytes are a line of their own.
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
	alone := f.flood(f.live(), lines) // warms everything up, too
	idle := f.rss()
	stalled := f.stall(readers)
	connected := f.rss()
	live := f.live()
	filling := f.flood(live, fillLines)
	full := f.behind(stalled, live[0].read)
	beside := f.flood(live, lines)
	last := f.behind(stalled, live[0].read)
	fmt.Printf("%d stalled readers, %d live ones, %d MB printed\n", readers, liveReaders, lines*lineBytes/1_000_000)
	fmt.Printf("                       alone   until sockets are full   beside the stalled\n")
	for _, percent := range []int{50, 99} {
		fmt.Printf("latency p%d  %15v %24v %20v   %.2f times\n", percent, alone.lag(percent), filling.lag(percent), beside.lag(percent),
			float64(beside.lag(percent))/float64(alone.lag(percent)))
	}
	fmt.Printf("server RSS: %d MiB idle, %d MiB with the readers connected, at most %d MiB until their sockets were full and %d MiB beside them\n",
		idle>>20, connected>>20, filling.peak>>20, beside.peak>>20)
	fmt.Printf("the stalled readers were at least %d MB behind before the flood, %d MB after it\n", full/1_000_000, last/1_000_000)
	if full <= 0 || last < behind {
		t.Errorf("a stalled reader was only %d and %d bytes behind", full, last)
	}
	if grown := max(filling.peak, beside.peak) - connected; grown >= growth {
		t.Errorf("the server grew by %d MiB", grown>>20)
	}
	began := time.Now()
	f.release(stalled, live[0])
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
	lags []time.Duration // sorted
	peak int64           // RSS of the server
}

func (m *measured) lag(percent int) time.Duration {
	return m.lags[min(len(m.lags)-1, len(m.lags)*percent/100)].Round(10 * time.Microsecond)
}

// rss is the server's.
func (f *field) rss() int64 {
	f.t.Helper()
	rss, err := harness.RSS(f.s.PID())
	if err != nil {
		f.t.Fatal(err)
	}
	return rss
}

func (f *field) start() string {
	f.t.Helper()
	r := harness.Do[struct {
		SessionID string `json:"sessionId"`
	}](f.t, f.c, "start_session", map[string]any{"argv": harness.ChildArgv("pour"), "adapter": "jsonl"})
	f.head = 1 // session_start
	return r.SessionID
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

// live connects readers that read at the tail.
func (f *field) live() []*reader {
	f.t.Helper()
	all := make([]*reader, liveReaders)
	for i := range all {
		r, err := open(harness.Context(f.t), f.s, f.session, 0)
		if err != nil {
			f.t.Fatalf("a live reader: %v", err)
		}
		f.t.Cleanup(func() { _ = r.conn.Close() }) // its test is over
		all[i] = r
	}
	return all
}

// flood lets the child print, until the live readers have it all.
func (f *field) flood(live []*reader, lines int) *measured {
	f.t.Helper()
	harness.Do[struct{ Seq uint64 }](f.t, f.c, "send", map[string]any{"sessionId": f.session, "command": order{Lines: lines}})
	f.head += 2 + uint64(lines) // the command, its outcome, the lines
	m := &measured{}
	ctx, cancel := context.WithCancel(f.t.Context())
	var watching, reading sync.WaitGroup
	watching.Go(func() { m.peak = f.watch(ctx) })
	errs := make([]error, len(live))
	for i, r := range live {
		r.lag = make([]time.Duration, 0, lines)
		reading.Go(func() { errs[i] = r.drain(f.head) })
	}
	reading.Wait()
	cancel()
	watching.Wait()
	for i, r := range live {
		if errs[i] != nil {
			f.t.Fatalf("a live reader: %v", errs[i])
		}
		if r.digest() != live[0].digest() {
			f.t.Fatal("broke I-J4: two live readers got different bytes")
		}
		m.lags = append(m.lags, r.lag...)
	}
	slices.Sort(m.lags)
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

// release lets the stalled readers read, all at once, up to what a live one has.
func (f *field) release(stalled []*reader, live *reader) {
	f.t.Helper()
	errs := make([]error, len(stalled))
	var reading sync.WaitGroup
	for i, r := range stalled {
		reading.Go(func() { errs[i] = r.drain(live.last) })
	}
	reading.Wait()
	for i, r := range stalled {
		if errs[i] != nil {
			f.t.Fatalf("broke I-J4: a stalled reader: %v", errs[i])
		}
		if r.digest() != live.digest() {
			f.t.Fatalf("broke I-J4: a stalled reader got other bytes than a live one")
		}
	}
}
