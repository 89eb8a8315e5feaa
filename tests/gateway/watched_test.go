package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"rejoin/gateway"
	"rejoin/journal"
	"rejoin/protocol"
	"rejoin/tests/harness"
)

const (
	watchedSessions = 10_000
	watchedEach     = 1_000      // per connection
	watchedBytes    = 64_000_000 // heap and stacks
	watchedEvents   = 6          // records each: more than a ring of so many sessions holds
)

// watchedLogs makes sessions that have ended, of one event each.
func watchedLogs(ctx context.Context, n *journal.Node, logs []journal.Log) error {
	registry, err := n.Bucket(ctx, "sessions")
	if err != nil {
		return err
	}
	return inParallel(len(logs), func(i int) error {
		k := protocol.Key{Workspace: protocol.DefaultWorkspace, Session: fmt.Sprintf("s%05d", i)}
		logs[i] = journal.Log{Key: k, Shard: n.ShardOf(k)}
		rec := protocol.SessionRecord{
			Workspace: k.Workspace, ID: k.Session, Shard: logs[i].Shard, Run: 1, Settled: true,
			Status: protocol.StatusEnded, Agent: "argv", Adapter: "jsonl", Argv: []string{"true"}, Cwd: "/", Floor: 1, Head: 1,
		}
		value, err := json.Marshal(rec)
		if err == nil {
			_, err = registry.Create(ctx, k.Workspace+"."+k.Session, value)
		}
		return errors.Join(err, appendRun(ctx, n, logs[i], 1, 0))
	})
}

// appendRun adds a run of one event and records of one event each.
func appendRun(ctx context.Context, n *journal.Node, l journal.Log, run protocol.Run, events int) error {
	w, err := n.OpenWriter(ctx, journal.WriterConfig{
		Log: l, Run: run, Epoch: "01ARZ3NDEKTSV4RRFFQ69G5FAV",
		First: func(context.Context, journal.Tail, protocol.Seq) ([]*protocol.Event, error) {
			return []*protocol.Event{{Source: protocol.SourceBroker, Body: []byte(`{"type":"session_start"}`)}}, nil
		},
		Deleted: func(context.Context) (bool, error) { return false, nil },
	})
	if err != nil {
		return err
	}
	for i := range events {
		e := &protocol.Event{Source: protocol.SourceChild, Body: fmt.Appendf(nil, `{"n":%d,"text":"%0150d"}`, i, i)}
		if _, err := w.Append(e, nil); err != nil {
			return errors.Join(err, w.Close(ctx))
		}
		if err := w.Flush(ctx); err != nil {
			return errors.Join(err, w.Close(ctx))
		}
	}
	return w.Close(ctx)
}

// inParallel calls f for 0…n-1, a few at a time.
func inParallel(n int, f func(i int) error) error {
	var next atomic.Int64
	errs := make([]error, 16)
	var wg sync.WaitGroup
	for k := range errs {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(n) && errs[k] == nil; i = next.Add(1) {
				errs[k] = f(int(i - 1))
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// settled is what heap and stacks hold once nothing is let go any more.
func settled() int64 {
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	var least int64
	for quiet := 0; quiet < 6; quiet++ {
		m := memory()
		if now := int64(m.HeapAlloc + m.StackInuse); least == 0 || now < least-least/200 {
			least, quiet = now, 0
		}
		<-tick.C
	}
	return least
}

// Proves I-J5 and I-G2 in breadth: ten thousand watched sessions cost a gateway among
// several less than 64 MB and no goroutine each, with rings as full as they get. The
// servers of the journal are other processes: what they cache is not the gateway's.
func TestTenThousandWatchedSessions(t *testing.T) {
	harness.Covers(t, "I-J5", "I-G2")
	if harness.RaceDetector || testing.Short() {
		t.Skip("it measures memory, of 80,000 records")
	}
	logs := make([]journal.Log, watchedSessions)
	servers := harness.NATS(t, 1)
	node := connect(t, servers, true) // of whoever writes
	if err := watchedLogs(t.Context(), node, logs); err != nil {
		t.Fatal(err)
	}
	site := openSite(t, servers, "a", gateway.Config{RequestsPerSecond: watchedSessions})
	conns := make([]*client, 0, watchedSessions/watchedEach)
	for range watchedSessions / watchedEach {
		c := dialURL(t, site.url).authenticate()
		if err := c.SetDeadline(time.Time{}); err != nil { // the test's own is enough
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	before, goroutines := settled(), runtime.NumGoroutine()
	for i, c := range conns {
		for _, l := range logs[i*watchedEach : (i+1)*watchedEach] {
			c.ask(fmt.Sprintf(`{"id":1,"method":"subscribe","params":{"sessionId":%q,"after":1}}`, l.Key.Session), `"mode":"replay"`)
			c.expect(`"method":"synced"`)
		}
	}
	opened, more := settled(), runtime.NumGoroutine()-goroutines
	if more > 10 {
		t.Errorf("%d goroutines for %d sessions", more, watchedSessions)
	}
	var reading sync.WaitGroup
	for _, c := range conns {
		reading.Go(func() {
			for range watchedEach * (watchedEvents + 1) {
				line, err := c.r.ReadSlice('\n')
				if err != nil || !strings.Contains(string(line), `"method":"event"`) {
					t.Errorf("got %.200s, %v", line, err)
					return
				}
			}
		})
	}
	err := inParallel(len(logs), func(i int) error {
		return appendRun(t.Context(), node, logs[i], 2, watchedEvents)
	})
	reading.Wait()
	if err != nil {
		t.Fatal(err)
	}
	full, busy := settled(), runtime.NumGoroutine()-goroutines
	for _, c := range conns {
		_ = c.Close() // its server sees the end
	}
	site.leave()
	open, used := opened-before, full-settled()
	t.Logf("%d watched sessions on %d connections: %d goroutines more when opened, %d later; %.1f MB (%d B each) when opened, %.1f MB (%d B each) with full rings",
		len(logs), len(conns), more, busy, float64(open)/1e6, open/watchedSessions, float64(used)/1e6, used/watchedSessions)
	if used > watchedBytes || open > watchedBytes {
		t.Errorf("more than %d bytes", watchedBytes)
	}
}
