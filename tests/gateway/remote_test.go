package gateway_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"rejoin/agent"
	"rejoin/agent/jsonl"
	"rejoin/broker"
	rejoin "rejoin/client"
	"rejoin/gateway"
	gatewaytcp "rejoin/gateway-tcp"
	"rejoin/journal"
	"rejoin/protocol"
	"rejoin/snapshot"
	"rejoin/tests/harness"
)

// site is a gateway without a broker, over servers elsewhere.
type site struct {
	t        *testing.T
	url      string
	presence *gateway.Presence
	leave    func() // as a stop does: its entry, then its connections
}

// connect opens the journal of a NATS server as one more process would.
func connect(t *testing.T, s *harness.NATSServers, create bool) *journal.Node {
	t.Helper()
	n, err := journal.Connect(harness.Context(t), journal.RemoteConfig{
		URLs: s.URLs(), Create: create, MaxBytes: 1 << 30, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
		defer cancel()
		if err := n.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return n
}

func openSite(t *testing.T, servers *harness.NATSServers, id string, cfg gateway.Config) *site {
	t.Helper()
	ctx := harness.Context(t)
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	node := connect(t, servers, false)
	folds := snapshot.NewReader(node, map[string]agent.Adapter{"jsonl": jsonl.Adapter{}}, 0)
	desk, err := broker.New(broker.Config{Desk: true, Token: testToken, Logger: log}, node, folds)
	if err == nil {
		err = desk.Recover(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	bucket, err := node.Bucket(ctx, protocol.BucketGateways)
	if err != nil {
		t.Fatal(err)
	}
	l, err := gatewaytcp.Listen("tcp://127.0.0.1:0", gatewaytcp.Limits{Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, url: l.URL()}
	if s.presence, err = gateway.NewPresence(gateway.PresenceConfig{ID: id, URLs: []string{s.url}, Logger: log}, bucket); err != nil {
		t.Fatal(err)
	}
	cfg.Elsewhere, cfg.Logger = s.presence.Elsewhere, log
	core, err := gateway.New(cfg, desk, node.Hub(), node, folds)
	if err != nil {
		t.Fatal(err)
	}
	present, absent := context.WithCancel(context.WithoutCancel(ctx))
	serving, cut := context.WithCancel(context.WithoutCancel(ctx))
	var presence, listener, parts sync.WaitGroup
	run := func(wg *sync.WaitGroup, ctx context.Context, f func(context.Context) error) {
		wg.Go(func() {
			if err := f(ctx); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		})
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	run(&parts, life, desk.Run)
	run(&presence, present, s.presence.Run)
	run(&listener, serving, func(ctx context.Context) error { return l.Serve(ctx, core) })
	s.leave = sync.OnceFunc(func() {
		absent()
		presence.Wait()
		cut()
		listener.Wait()
		core.Close()
		end()
		parts.Wait()
	})
	t.Cleanup(s.leave)
	return s
}

// Proves I-R2: a client that knows one gateway goes on at another one when the first
// stops, with the same epoch and seq; and a cursor that the journal does not reach yet
// waits for it.
func TestTwoGateways(t *testing.T) {
	harness.Covers(t, "I-R2")
	servers := harness.NATS(t, 1)
	node := connect(t, servers, true)
	logs := make([]journal.Log, 1)
	ctx := harness.Context(t)
	if err := watchedLogs(ctx, node, logs); err != nil {
		t.Fatal(err)
	}
	grow := func(run protocol.Run) {
		t.Helper()
		if err := appendRun(ctx, node, logs[0], run, 3); err != nil {
			t.Fatal(err)
		}
	}
	a, b := openSite(t, servers, "a", gateway.Config{}), openSite(t, servers, "b", gateway.Config{})
	harness.Eventually(t, "they know of each other", func() bool {
		return slices.Equal(a.presence.Elsewhere(0), []string{b.url}) && slices.Equal(b.presence.Elsewhere(0), []string{a.url})
	})
	var mu sync.Mutex
	var at []string
	c, err := rejoin.Dial(ctx, rejoin.Options{URL: a.url, Token: testToken})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	sub, err := c.Subscribe(ctx, logs[0].Key.Session, rejoin.SubscribeOptions{From: "start", OnLink: func(l rejoin.Link) {
		mu.Lock()
		defer mu.Unlock()
		if l.State == rejoin.LinkConnected {
			at = append(at, l.URL)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	var epoch protocol.Epoch
	wants := func(from, to protocol.Seq) {
		t.Helper()
		for seq := from; seq <= to; {
			m, err := sub.Next(ctx)
			if err != nil || m.Kind == rejoin.KindSnapshot {
				t.Fatalf("waiting for event %d: %+v, %v", seq, m, err)
			}
			if m.Kind != rejoin.KindEvent {
				continue
			}
			if epoch == "" {
				epoch = m.Event.Epoch
			}
			if m.Seq != seq || m.Event.Epoch != epoch {
				t.Fatalf("got event %d of %s, want %d of %s", m.Seq, m.Event.Epoch, seq, epoch)
			}
			seq++
		}
	}
	wants(1, 1)
	grow(2)
	wants(2, 5)
	a.leave()
	grow(3)
	wants(6, 9)
	if _, err := c.Retry(ctx, "get_session", map[string]any{"sessionId": logs[0].Key.Session}); err != nil {
		t.Errorf("a request after the move: %v", err)
	}
	mu.Lock()
	if !slices.Equal(at, []string{a.url, b.url}) {
		t.Errorf("the subscription was at %v", at)
	}
	mu.Unlock()
	if got := b.presence.Elsewhere(0); len(got) != 0 {
		t.Errorf("the gateway that stopped is still named: %v", got)
	}

	// A cursor beyond what the leader knows is no future yet.
	ahead := dialURL(t, b.url).authenticate()
	ahead.write(fmt.Sprintf(`{"id":1,"method":"subscribe","params":{"sessionId":%q,"after":12,"epoch":%q}}`+"\n", logs[0].Key.Session, epoch))
	later := time.AfterFunc(time.Second, func() {
		if err := appendRun(ctx, node, logs[0], 4, 3); err != nil {
			t.Error(err)
		}
	})
	defer later.Stop()
	if got := ahead.expect(`"id":1`); !strings.Contains(got, `"mode":"replay"`) {
		t.Errorf("subscribed ahead of the log: %s", got)
	}
	ahead.expect(`"seq":13`)
}
