package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"rejoin/journal"
	"rejoin/protocol"
	"rejoin/tests/harness"
)

const (
	natsLogs    = 64
	natsRecords = 150 // of each log
)

// TestMeasureNATS: what records cost three servers and the processes on both sides
// of them, at a pace and as fast as they go.
func TestMeasureNATS(t *testing.T) {
	measuring(t)
	for _, servers := range []int{1, 3} {
		t.Run(fmt.Sprintf("R%d", servers), func(t *testing.T) {
			s := harness.NATS(t, servers)
			n := connect(t, s)
			var writers []*journal.Writer
			for i := range natsLogs {
				writers = append(writers, begin(t, n, i))
			}
			var pids []int
			for i := range servers {
				pids = append(pids, s.PID(i))
			}
			run := func(period time.Duration) (servers, self time.Duration, in, out int) {
				c0, m0, in0, out0 := cpu(t, pids...), cpu(t, os.Getpid()), 0, 0
				for i := range pids {
					a, b := traffic(t, s.Monitor(i))
					in0, out0 = in0+a, out0+b
				}
				writeAll(t, writers, period)
				for i := range pids {
					a, b := traffic(t, s.Monitor(i))
					in, out = in+a, out+b
				}
				return cpu(t, pids...) - c0, cpu(t, os.Getpid()) - m0, in - in0, out - out0
			}
			const all = natsLogs * natsRecords
			say := func(what string, servers, self time.Duration, in, out int) {
				t.Logf("%s: servers %.0f µs, client %.0f µs per record; %.2f messages in and %.2f out of servers per record",
					what, perUnit(servers, all), perUnit(self, all), float64(in)/all, float64(out)/all)
			}
			run(0) // warm
			disk := stored(t, s.Dir())
			c, m, in, out := run(pacedPeriod)
			say("paced", c, m, in, out)
			t.Logf("%.0f bytes on disk per record of %d bytes, on all servers together", float64(stored(t, s.Dir())-disk)/all, eventBytes)
			began := time.Now()
			c, m, in, out = run(0)
			say("flat out", c, m, in, out)
			t.Logf("flat out: %.0f records/s with %d writers", all/time.Since(began).Seconds(), natsLogs)
			reader := connect(t, s)
			for i := range natsLogs {
				w, err := reader.Hub().Watch(deadline(t), logOf(reader, i))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(w.Release)
			}
			c, m, in, out = run(pacedPeriod)
			say("paced, each log watched by one hub in the client", c, m, in, out)
			for _, w := range writers {
				if err := w.Close(deadline(t)); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*harness.Patience)
	t.Cleanup(cancel)
	return ctx
}

func connect(t *testing.T, s *harness.NATSServers) *journal.Node {
	t.Helper()
	n, err := journal.Connect(deadline(t), journal.RemoteConfig{URLs: s.URLs(), Create: true, MaxBytes: 4 << 30, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), harness.Patience)
		defer cancel()
		if err := n.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return n
}

func logOf(n *journal.Node, i int) journal.Log {
	k := protocol.Key{Workspace: protocol.DefaultWorkspace, Session: fmt.Sprintf("s%d", i)}
	return journal.Log{Key: k, Shard: n.ShardOf(k)}
}

func begin(t *testing.T, n *journal.Node, i int) *journal.Writer {
	t.Helper()
	w, err := n.OpenWriter(deadline(t), journal.WriterConfig{
		Log: logOf(n, i), Run: 1, Epoch: protocol.NewEpoch(time.Unix(1764500000, 0)),
		First: func(context.Context, journal.Tail, protocol.Seq) ([]*protocol.Event, error) {
			return []*protocol.Event{{Source: protocol.SourceBroker, Body: []byte(`{}`)}}, nil
		},
		Deleted: func(context.Context) (bool, error) { return false, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// writeAll stores records of one event in every log, each log one after the other.
func writeAll(t *testing.T, writers []*journal.Writer, period time.Duration) {
	t.Helper()
	var running sync.WaitGroup
	for _, w := range writers {
		running.Go(func() {
			r := source()
			tick := time.NewTicker(max(period, time.Microsecond))
			defer tick.Stop()
			for i := range natsRecords {
				<-tick.C
				_, err := w.Append(&protocol.Event{TS: 1764500000000, Source: protocol.SourceChild, Body: line(r, i, eventBytes+1)[:eventBytes]}, nil)
				if err == nil {
					err = w.Flush(t.Context())
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	running.Wait()
}

// traffic is how many messages a server has taken and given, those of its peers
// included.
func traffic(t *testing.T, monitor string) (in, out int) {
	t.Helper()
	req, err := http.NewRequestWithContext(harness.Context(t), http.MethodGet, monitor+"/varz", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var told struct {
		In  int `json:"in_msgs"`
		Out int `json:"out_msgs"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&told); err != nil {
		t.Fatal(err)
	}
	return told.In, told.Out
}
