package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"rejoin/tests/harness"
)

// What is measured: enough that a clock tick of 10 ms of processor time is noise.
const (
	pacedSessions  = 80
	pacedEvents    = 150
	pacedPeriod    = 50 * time.Millisecond // 20 events a second: an agent that streams
	pacedObservers = 10
	burstEvents    = 200_000
	idleSessions   = 150
	idleClients    = 1000
	eventBytes     = 250
	measureRounds  = 3
)

func TestMain(m *testing.M) {
	harness.Main(m, harness.Children{"paced": pacedChild, "burst": burstChild})
}

// line is a child's line of a length, LF included, with words of random letters in
// it: what a model prints does not shrink much.
func line(r *rand.Rand, n, size int) []byte {
	b := fmt.Appendf(nil, `{"type":"text_delta","n":%8d,"text":"`, n)
	for len(b) < size-3 {
		if r.IntN(6) == 0 {
			b = append(b, ' ')
		} else {
			b = append(b, "etaoinshrdlucmfw"[r.IntN(16)])
		}
	}
	return append(b, '"', '}', '\n')
}

func source() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

// pacedChild prints N lines, a period apart, for each line that it gets.
func pacedChild(args []string) int {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return 2
	}
	in, r := bufio.NewReader(os.Stdin), source()
	for {
		if _, err := in.ReadString('\n'); err != nil {
			return 0
		}
		tick := time.NewTicker(pacedPeriod)
		for i := range n {
			<-tick.C
			if _, err := os.Stdout.Write(line(r, i, eventBytes)); err != nil {
				return 1
			}
		}
		tick.Stop()
	}
}

// burstChild prints N lines as fast as they are taken, for each line that it gets.
func burstChild(args []string) int {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return 2
	}
	in, r := bufio.NewReader(os.Stdin), source()
	out := bufio.NewWriterSize(os.Stdout, 64<<10)
	for {
		if _, err := in.ReadString('\n'); err != nil {
			return 0
		}
		for i := range n {
			if _, err := out.Write(line(r, i, eventBytes)); err != nil {
				return 1
			}
		}
		if out.Flush() != nil {
			return 1
		}
	}
}

// measuring skips what costs minutes and asserts nothing.
func measuring(t *testing.T) {
	t.Helper()
	if os.Getenv("SCALE_MEASURE") != "1" {
		t.Skip("measures for minutes; SCALE_MEASURE=1 does it, costs.json keeps the figures")
	}
	t.Logf("%s, %d processors", runtime.Version(), runtime.NumCPU())
}

// cpu is the processor time that a process has used, its own and the kernel's.
func cpu(t *testing.T, pids ...int) time.Duration {
	t.Helper()
	const tick = 10 * time.Millisecond // USER_HZ
	var sum time.Duration
	for _, pid := range pids {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			t.Fatal(err)
		}
		f := strings.Fields(string(b)[strings.LastIndexByte(string(b), ')')+1:])
		for _, field := range f[11:13] {
			n, err := strconv.Atoi(field)
			if err != nil {
				t.Fatal(err)
			}
			sum += time.Duration(n) * tick
		}
	}
	return sum
}

func perUnit(d time.Duration, per int) float64 {
	return float64(d.Microseconds()) / float64(per)
}

// stored is how many bytes the files below a directory take.
func stored(t *testing.T, dir string) (bytes int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".blk") {
			return nil //nolint:nilerr // a file that has gone meanwhile takes nothing
		}
		if info, err := d.Info(); err == nil {
			bytes += info.Size()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return bytes
}

// records is how many the server has stored so far.
func records(t *testing.T, s *harness.Server) int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(s.Dir, "server.json"))
	if err != nil {
		t.Fatal(err)
	}
	var ready struct {
		Admin string `json:"admin"`
	}
	if err := json.Unmarshal(b, &ready); err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(harness.Context(t), http.MethodGet, ready.Admin+"/metrics", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	for sc := bufio.NewScanner(resp.Body); sc.Scan(); {
		if v, ok := strings.CutPrefix(sc.Text(), "rejoin_journal_records_total "); ok {
			n, err := strconv.ParseFloat(v, 64)
			if err != nil {
				t.Fatal(err)
			}
			return int(n)
		}
	}
	t.Fatal("/metrics does not tell of records")
	return 0
}

// address is where a gateway is, and the token that it wants.
type address struct{ network, host, token string }

func addressOf(s *harness.Server) address {
	network, host := s.Addr()
	return address{network, host, s.Token()}
}

// crowd is sessions behind a gateway.
type crowd struct {
	t        *testing.T
	at       address
	c        *harness.Client
	sessions []string
	lines    *atomic.Int64 // that watchers heard; nil: nobody wants to know
}

func gather(t *testing.T, at address, n int, argv []string) *crowd {
	t.Helper()
	c, err := harness.Connect(harness.Context(t), at.network, at.host, at.token)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // it says nothing of interest
	k := &crowd{t: t, at: at, c: c}
	for range n {
		k.sessions = append(k.sessions, harness.Do[struct{ SessionID string }](t, k.c, "start_session", map[string]any{"argv": argv}).SessionID)
	}
	return k
}

// prompt has every session print, and waits until all have the events.
func (k *crowd) prompt(events int) {
	k.t.Helper()
	heads := map[string]uint64{}
	head := func(id string) uint64 {
		return harness.Do[struct{ Head uint64 }](k.t, k.c, "get_session", map[string]any{"sessionId": id}).Head
	}
	for _, id := range k.sessions {
		heads[id] = head(id)
		harness.Do[json.RawMessage](k.t, k.c, "send", map[string]any{"sessionId": id, "command": 0})
	}
	for _, id := range k.sessions {
		if !harness.Within(10*harness.Patience, func() bool { return head(id) >= heads[id]+uint64(events) }) {
			k.t.Fatalf("session %s does not print", id)
		}
	}
}

// watcher subscribes to a session over a connection of its own and, if it is to
// tell how many lines it heard, reads until the connection ends.
func (k *crowd) watcher(id string, heard chan<- int) net.Conn {
	k.t.Helper()
	conn, err := net.Dial(k.at.network, k.at.host)
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() { _ = conn.Close() }) // the test may have closed it
	fmt.Fprintf(conn, `{"jsonrpc":"2.0","id":0,"method":"authenticate","params":{"token":%q}}`+"\n", k.at.token)
	fmt.Fprintf(conn, `{"jsonrpc":"2.0","id":1,"method":"subscribe","params":{"sessionId":%q,"from":"now"}}`+"\n", id)
	r := bufio.NewReaderSize(conn, 512)
	for range 3 { // two responses and synced
		if _, err := r.ReadString('\n'); err != nil {
			k.t.Fatal(err)
		}
	}
	if heard != nil {
		go func() {
			lines, buf := 0, make([]byte, 64<<10)
			for {
				n, err := conn.Read(buf)
				some := bytes.Count(buf[:n], []byte("\n"))
				lines += some
				if k.lines != nil {
					k.lines.Add(int64(some))
				}
				if err != nil {
					break
				}
			}
			heard <- lines
		}()
	}
	return conn
}

// least is the smallest of several measurements: what else the machine does only
// adds to the processor time of a unit of work.
func least(rounds int, measure func() float64) float64 {
	best := measure()
	for range rounds - 1 {
		best = min(best, measure())
	}
	return best
}

// TestMeasureOneProcess: a server with everything in it.
func TestMeasureOneProcess(t *testing.T) {
	measuring(t)
	for _, durability := range []string{"always", "1s"} {
		t.Run(durability, func(t *testing.T) { measureOne(t, durability) })
	}
}

func measureOne(t *testing.T, durability string) {
	s := harness.Start(t, harness.Options{Bin: harness.PlainBinary(t), Args: []string{"--admin", "127.0.0.1:0", "--durability", durability}})
	paced := gather(t, addressOf(s), pacedSessions, harness.ChildArgv("paced", strconv.Itoa(pacedEvents)))
	const events = pacedSessions * pacedEvents
	run := func() float64 {
		before := cpu(t, s.PID())
		paced.prompt(pacedEvents)
		return perUnit(cpu(t, s.PID())-before, events)
	}
	was, disk := records(t, s), stored(t, s.Dir)
	alone := least(measureRounds, run)
	t.Logf("paced: %.1f µs per event, %.2f events per record, %.0f bytes on disk per event of %d bytes", alone,
		measureRounds*events/float64(records(t, s)-was), float64(stored(t, s.Dir)-disk)/measureRounds/events, eventBytes)

	heard := make(chan int, pacedSessions*pacedObservers)
	var all []net.Conn
	for _, id := range paced.sessions {
		for range pacedObservers {
			all = append(all, paced.watcher(id, heard))
		}
	}
	watched := least(measureRounds, run)
	deliveries := 0
	for _, w := range all {
		_ = w.Close() // the goroutine behind it counts what it got
	}
	for range all {
		deliveries += <-heard
	}
	t.Logf("delivery: %.2f µs, %d of %d", (watched-alone)/pacedObservers, deliveries, measureRounds*events*pacedObservers)

	burst := gather(t, addressOf(s), 1, harness.ChildArgv("burst", strconv.Itoa(burstEvents)))
	was, disk = records(t, s), stored(t, s.Dir)
	flat := least(measureRounds, func() float64 {
		before := cpu(t, s.PID())
		burst.prompt(burstEvents)
		return perUnit(cpu(t, s.PID())-before, burstEvents)
	})
	t.Logf("burst: %.2f µs per event, %.0f events per record, %.0f bytes on disk per event", flat,
		measureRounds*burstEvents/float64(records(t, s)-was), float64(stored(t, s.Dir)-disk)/measureRounds/burstEvents)
}

func rss(t *testing.T, s *harness.Server) int64 {
	t.Helper()
	v, err := harness.RSS(s.PID())
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestMeasureMemory: what sessions and connections that do nothing take.
func TestMeasureMemory(t *testing.T) {
	measuring(t)
	s := harness.Start(t, harness.Options{Bin: harness.PlainBinary(t)})
	gather(t, addressOf(s), 10, []string{"cat"})
	before := rss(t, s)
	k := gather(t, addressOf(s), idleSessions, []string{"cat"})
	t.Logf("live session: %.1f KiB", float64(rss(t, s)-before)/idleSessions/1024)
	before, used := rss(t, s), cpu(t, s.PID())
	for i := range idleClients {
		k.watcher(k.sessions[i%10], nil)
	}
	t.Logf("idle connection with a subscription: %.1f KiB, %.0f µs to make it", float64(rss(t, s)-before)/idleClients/1024, perUnit(cpu(t, s.PID())-used, idleClients))
	before = rss(t, s)
	for _, id := range k.sessions[10:] {
		if _, err := k.c.Subscribe(harness.Context(t), id, map[string]any{"from": "now"}); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("watched session: %.1f KiB", float64(rss(t, s)-before)/(idleSessions-10)/1024)
}
