package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"rejoin/client"
	"rejoin/protocol"
	"rejoin/tests/harness"
)

func TestMain(m *testing.M) {
	harness.Main(m, harness.Children{"ticker": ticker})
}

// ticker prints numbered lines without a pause worth mentioning and answers each
// line of its stdin with one that quotes it.
func ticker([]string) int {
	lines := make(chan string)
	go func() {
		defer close(lines)
		r := protocol.NewLineReader(os.Stdin, 1<<20, 0)
		for {
			line, err := r.ReadLine()
			if err != nil {
				return
			}
			lines <- string(line)
		}
	}()
	tick := time.NewTicker(500 * time.Microsecond)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case line, ok := <-lines:
			if !ok {
				return 0
			}
			fmt.Printf(`{"got":%s}`+"\n", line)
		case <-tick.C:
		}
		fmt.Printf(`{"n":%d}`+"\n", n)
	}
}

func dial(t *testing.T, s *harness.Server) *client.Client {
	t.Helper()
	c, err := client.Dial(harness.Context(t), client.Options{URL: s.URL(), Token: s.Token(), BackoffMax: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func startTicker(t *testing.T, c *client.Client, id string) {
	t.Helper()
	p := map[string]any{"sessionId": id, "argv": harness.ChildArgv("ticker")}
	if _, err := c.Call(harness.Context(t), "start_session", p); err != nil {
		t.Fatal(err)
	}
}

// Proves I-J4 and I-B1 through the client: while the server is killed and started
// again, readers see every event once and in order, and each command is in the
// log once.
func TestServerKilledUnderClients(t *testing.T) {
	harness.Covers(t, "I-J4", "I-B1")
	const readers, rounds, sends = 3, 3, 12
	s := harness.New(t, harness.Options{Listen: []string{harness.FixedPort(t)}})
	s.Run()
	c := dial(t, s)
	startTicker(t, c, "s")
	ctx, cancel := context.WithCancel(harness.Context(t))
	var wg sync.WaitGroup
	logs := make([][]client.Event, readers)
	progress := make(chan protocol.Seq, 1) // of the first reader; the newest
	for i := range readers {
		sub, err := dial(t, s).Subscribe(ctx, "s", client.SubscribeOptions{From: "start"})
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() { logs[i] = read(ctx, t, sub, i == 0, progress) })
	}
	acked := make([]protocol.SendResult, 0, rounds*sends)
	for round := range rounds {
		at := <-progress
		done := make(chan struct{})
		go func() {
			defer close(done)
			for n := range sends {
				r, err := c.Send(ctx, "s", fmt.Appendf(nil, `{"round":%d,"send":%d}`, round, n), client.SendOptions{})
				var rpc *client.RPCError
				if errors.As(err, &rpc) && rpc.Code == protocol.CodeUnavailable {
					return // the session was interrupted before this one
				}
				if err != nil {
					t.Errorf("send: %v", err)
					return
				}
				acked = append(acked, r)
			}
		}()
		for <-progress < at+50 {
		}
		s.Kill9()
		s.Run()
		<-done
		if _, err := c.Retry(ctx, "resume_session", map[string]any{"sessionId": "s"}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Call(ctx, "stop_session", map[string]any{"sessionId": "s"}); err != nil {
		t.Fatal(err)
	}
	raw, err := c.Call(ctx, "get_session", map[string]any{"sessionId": "s"})
	var info protocol.SessionInfo
	if err = errors.Join(err, json.Unmarshal(raw, &info)); err != nil {
		t.Fatal(err)
	}
	for <-progress < info.Head {
	}
	wg.Wait()
	cancel()
	check(t, logs, acked, info)
}

// read collects events until the session was stopped.
func read(ctx context.Context, t *testing.T, sub *client.Subscription, tell bool, progress chan protocol.Seq) []client.Event {
	t.Helper()
	var log []client.Event
	for {
		m, err := sub.Next(ctx)
		if err != nil {
			t.Errorf("reader: %v", err)
			return log
		}
		if m.Kind == client.KindSnapshot {
			t.Errorf("reader got a snapshot (%s)", m.Snapshot.Reason)
			return log
		}
		if m.Kind != client.KindEvent {
			continue
		}
		log = append(log, m.Event)
		if tell {
			select {
			case <-progress:
			default:
			}
			progress <- m.Seq
		}
		var end protocol.SessionEnd
		if m.Event.Source == protocol.SourceBroker && json.Unmarshal(m.Event.Body, &end) == nil &&
			end.Type == protocol.TypeSessionEnd && end.Reason == protocol.EndStopped {
			return log
		}
	}
}

func check(t *testing.T, logs [][]client.Event, acked []protocol.SendResult, info protocol.SessionInfo) {
	t.Helper()
	for i, log := range logs {
		if len(log) != int(info.Head) {
			t.Fatalf("reader %d saw %d events, the head is %d", i, len(log), info.Head)
		}
		for n, e := range log {
			if e.Seq != protocol.Seq(n+1) || e.Epoch != info.Epoch || string(e.Body) != string(logs[0][n].Body) {
				t.Fatalf("reader %d, event %d: %+v", i, n+1, e)
			}
		}
	}
	seen := map[string]protocol.Seq{}
	for _, e := range logs[0] {
		var c protocol.CommandEvent
		if e.Source != protocol.SourceBroker || json.Unmarshal(e.Body, &c) != nil || c.Type != protocol.TypeCommand {
			continue
		}
		if at, twice := seen[c.CommandID]; twice {
			t.Errorf("command %s is in the log at %d and %d", c.CommandID, at, e.Seq)
		}
		seen[c.CommandID] = e.Seq
	}
	for _, r := range acked {
		if seen[r.CommandID] != r.Seq {
			t.Errorf("command %s was acknowledged at %d and is at %d", r.CommandID, r.Seq, seen[r.CommandID])
		}
	}
	t.Logf("%d events, %d commands acknowledged, %d in the log", info.Head, len(acked), len(seen))
}

// A slow consumer of one session does not delay the answers of its client.
func TestSlowConsumerDelaysNobody(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	c := dial(t, s)
	startTicker(t, c, "s")
	ctx := harness.Context(t)
	sub, err := c.Subscribe(ctx, "s", client.SubscribeOptions{From: "start"})
	if err != nil {
		t.Fatal(err)
	}
	head := func() protocol.Seq {
		raw, err := c.Call(ctx, "get_session", map[string]any{"sessionId": "s"})
		var info protocol.SessionInfo
		if err = errors.Join(err, json.Unmarshal(raw, &info)); err != nil {
			t.Fatal(err)
		}
		return info.Head
	}
	harness.Eventually(t, "the session runs ahead", func() bool { return head() > 3000 })
	for want := protocol.Seq(1); want <= 3000; {
		m, err := sub.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if m.Kind == client.KindEvent {
			if m.Seq != want {
				t.Fatalf("event %d, want %d", m.Seq, want)
			}
			want++
		}
	}
}

func TestSubscribeToNothing(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	var rpc *client.RPCError
	if _, err := dial(t, s).Subscribe(harness.Context(t), "nothing", client.SubscribeOptions{}); !errors.As(err, &rpc) || rpc.Code != protocol.CodeSessionNotFound {
		t.Errorf("Subscribe: %v", err)
	}
	o := client.Options{URL: s.URL(), Token: "wrong"}
	if _, err := client.Dial(harness.Context(t), o); !errors.As(err, &rpc) || !rpc.Unauthorised() {
		t.Errorf("Dial: %v", err)
	}
}

// A subscription may end at an event, begin with a snapshot, and outlive a cursor
// that nobody has reached.
func TestWaysToSubscribe(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	c := dial(t, s)
	startTicker(t, c, "s")
	ctx := harness.Context(t)
	first := func(o client.SubscribeOptions) client.Message {
		t.Helper()
		sub, err := c.Subscribe(ctx, "s", o)
		if err != nil {
			t.Fatal(err)
		}
		m, err := sub.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		next, err := sub.Next(ctx)
		for err == nil && next.Kind != client.KindEvent && next.Kind != client.KindEnd {
			next, err = sub.Next(ctx)
		}
		if err != nil || (m.Kind != client.KindSynced && next.Seq != m.Seq+1 && next.Kind != client.KindEnd) {
			t.Errorf("%+v: after %+v: %+v, %v", o, m, next, err)
		}
		if err := sub.Close(); err != nil {
			t.Error(err)
		}
		return m
	}
	if m := first(client.SubscribeOptions{From: "start", Until: 1}); m.Kind != client.KindEvent || m.Seq != 1 {
		t.Errorf("from the start: %+v", m)
	}
	if m := first(client.SubscribeOptions{From: "snapshot"}); m.Kind != client.KindSnapshot || m.Snapshot.Reason != "requested" {
		t.Errorf("from a snapshot: %+v", m)
	}
	if m := first(client.SubscribeOptions{After: new(protocol.Seq(1 << 40))}); m.Kind != client.KindSnapshot || m.Snapshot.Reason != "future" {
		t.Errorf("from the future: %+v", m)
	}
	if m := first(client.SubscribeOptions{}); m.Kind != client.KindSynced {
		t.Errorf("live: %+v", m)
	}
}
