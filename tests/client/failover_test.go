package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"

	"rejoin/client"
	"rejoin/protocol"
	"rejoin/tests/harness"
)

// doors is a server that clients reach in two ways, each of which can break by
// itself: what two gateways are to them.
type doors struct {
	*harness.Server
	links [2]*harness.Proxy
}

func openDoors(t *testing.T) *doors {
	t.Helper()
	s := harness.Start(t, harness.Options{Listen: []string{"tcp://127.0.0.1:0", "tcp://127.0.0.1:0"}})
	d := &doors{Server: s}
	for i := range d.links {
		d.links[i] = harness.NewProxy(t, strings.TrimPrefix(s.Ready.Listeners[i].URL, "tcp://"))
	}
	return d
}

func (d *doors) urls() []string {
	return []string{"tcp://" + d.links[0].Addr(), "tcp://" + d.links[1].Addr()}
}

// Proves I-J4 and I-B1 through a client that knows several ways: whenever one
// breaks it goes on by the next, loses no event and sends no command twice.
func TestSeveralServers(t *testing.T) {
	harness.Covers(t, "I-J4", "I-B1")
	const rounds = 6
	d := openDoors(t)
	urls := append([]string{harness.FixedPort(t)}, d.urls()...) // nobody is at the first
	c, err := client.Dial(harness.Context(t), client.Options{URLs: urls, Token: d.Token()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	startTicker(t, c, "s")
	ctx, cancel := context.WithCancel(harness.Context(t))
	defer cancel()
	var mu sync.Mutex
	used := map[string]int{}
	sub, err := c.Subscribe(ctx, "s", client.SubscribeOptions{From: "start", OnLink: func(l client.Link) {
		mu.Lock()
		defer mu.Unlock()
		if l.State == client.LinkConnected {
			used[l.URL]++
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	progress := make(chan protocol.Seq, 1)
	var wg sync.WaitGroup
	var log []client.Event
	wg.Go(func() { log = read(ctx, t, sub, true, progress) })
	acked := make([]protocol.SendResult, 0, rounds)
	for range rounds {
		at := <-progress
		for _, p := range d.links {
			p.Cut()
		}
		r, err := c.Send(ctx, "s", []byte(`{"after":"a cut"}`), client.SendOptions{})
		if err != nil {
			t.Fatal(err)
		}
		acked = append(acked, r)
		for <-progress < max(at+20, r.Seq) {
		}
	}
	if _, err := c.Retry(ctx, "stop_session", map[string]any{"sessionId": "s"}); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	raw, err := c.Retry(ctx, "get_session", map[string]any{"sessionId": "s"})
	var info protocol.SessionInfo
	if err = errors.Join(err, json.Unmarshal(raw, &info)); err != nil {
		t.Fatal(err)
	}
	check(t, [][]client.Event{log}, acked, info)
	mu.Lock()
	defer mu.Unlock()
	for _, url := range d.urls() {
		if used[url] == 0 {
			t.Errorf("%s was never used: %v", url, used)
		}
	}
	t.Logf("connections of the reader: %v", used)
}
