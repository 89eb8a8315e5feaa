package client

import (
	"errors"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"rejoin/protocol"
)

// consumer is who reads a subscription in a test.
type consumer struct {
	t *testing.T
	s *Subscription
}

// subscribeFake runs script as the server of a subscription and body as its
// consumer. The client's own connection idles.
func subscribeFake(t *testing.T, o SubscribeOptions, script func(f *fake), body func(x consumer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		done := make(chan struct{})
		go func() {
			defer close(done)
			idle := f.login()
			go func() { // pings of the idle connection are answered
				for {
					r, err := idle.next()
					if err != nil {
						return
					}
					if r.Method == "ping" {
						idle.result(r, `{}`)
					}
				}
			}()
			script(f)
		}()
		c := dialFake(t, f.options())
		s, err := c.Subscribe(t.Context(), "s", o)
		if err != nil {
			t.Errorf("Subscribe: %v", err)
		} else {
			body(consumer{t, s})
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		<-done
	})
}

func wantAfter(t *testing.T, r request, after int) {
	t.Helper()
	if r.Params["after"] != float64(after) || r.Params["epoch"] != epoch || r.Params["from"] != nil {
		t.Errorf("subscribe %v, want after %d in the epoch", r.Params, after)
	}
}

// Proves I-J4 on the client's side.
func TestSubscriptionResumes(t *testing.T) {
	var links []LinkState
	o := SubscribeOptions{OnLink: func(l Link) { links = append(links, l.State) }}
	subscribeFake(t, o, func(f *fake) {
		p := f.login()
		if r := p.subscribed("live", 5, 5); r.Params["after"] != nil || r.Params["epoch"] != nil {
			f.t.Errorf("first subscribe %v", r.Params)
		}
		p.say(`{"jsonrpc":"2.0","method":"synced","params":{"subscriptionId":7,"sessionId":"s","seq":5}}`)
		p.event(6)
		p.event(7)
		p.Close()
		p = f.login()
		wantAfter(f.t, p.subscribed("replay", 7, 9), 7)
		p.event(8)
		p.event(9)
		p.say(`{"jsonrpc":"2.0","method":"synced","params":{"subscriptionId":7,"sessionId":"s","seq":9}}`)
		p.event(10)
		p.gone()
	}, func(x consumer) {
		t, s := x.t, x.s
		wantSeqs(t, s, 6, 7, 8, 9, 10)
		if c := s.Cursor(); c != (protocol.Cursor{Epoch: epoch, Seq: 10}) {
			t.Errorf("cursor is %v", c)
		}
	})
	want := []LinkState{LinkConnecting, LinkConnected, LinkLost, LinkConnecting, LinkConnected}
	if !slices.Equal(links, want) {
		t.Errorf("links %v, want %v", links, want)
	}
}

// Proves I-J4 on the client's side: a hole or a repetition is never delivered.
func TestSubscriptionChecksDensity(t *testing.T) {
	for _, c := range []struct {
		name string
		send func(p *peer)
	}{
		{"gap", func(p *peer) { p.event(8) }},
		{"duplicate", func(p *peer) { p.event(6) }},
		{"other epoch", func(p *peer) {
			line := protocol.AppendEventPrefix(nil, 7, "s", "01JAAAAAAAAAAAAAAAAAAAAAAA")
			p.say("%s", protocol.AppendEventLine(line, &protocol.Event{Seq: 7, Body: []byte("1")}))
		}},
		{"synced elsewhere", func(p *peer) {
			p.say(`{"jsonrpc":"2.0","method":"synced","params":{"subscriptionId":7,"sessionId":"s","seq":9}}`)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			subscribeFake(t, SubscribeOptions{After: new(protocol.Seq(5))}, func(f *fake) {
				p := f.login()
				p.subscribed("replay", 5, 6)
				p.event(6)
				c.send(p)
				p.gone()
				p = f.login()
				wantAfter(f.t, p.subscribed("replay", 6, 8), 6)
				p.event(7)
				p.event(8)
				p.event(8) // elsewhere: once more is forgiven
				p.gone()
				p = f.login()
				wantAfter(f.t, p.subscribed("replay", 8, 8), 8)
				p.event(10)
				p.gone()
			}, func(x consumer) {
				t, s := x.t, x.s
				wantSeqs(t, s, 6, 7, 8)
				if m, err := s.Next(t.Context()); !errors.Is(err, ErrGap) {
					t.Errorf("after the second violation at event 8: %+v %v", m, err)
				}
			})
		})
	}
}

func TestSnapshotReplaces(t *testing.T) {
	const snapshot = `{"jsonrpc":"2.0","method":"snapshot","params":{"subscriptionId":7,"sessionId":"s","epoch":"` + epoch +
		`","seq":%d,"stateHash":"h","fold":{"adapter":"demo","version":1},"reason":"trimmed","state":{"a": 1}}}`
	subscribeFake(t, SubscribeOptions{After: new(protocol.Seq(5)), Epoch: "01JAAAAAAAAAAAAAAAAAAAAAAA"}, func(f *fake) {
		p := f.login()
		p.subscribed("snapshot", 5, 40)
		p.Close() // before the snapshot: asked for again as the first time
		p = f.login()
		if r := p.subscribed("snapshot", 5, 40); r.Params["epoch"] != "01JAAAAAAAAAAAAAAAAAAAAAAA" {
			f.t.Errorf("subscribe %v", r.Params)
		}
		p.say(snapshot, 40)
		p.event(41)
		p.say(snapshot, 90)
		p.event(91)
		p.Close()
		p = f.login()
		wantAfter(f.t, p.subscribed("snapshot", 91, 120), 91)
		p.event(92) // before the snapshot
		p.gone()
		p = f.login()
		wantAfter(f.t, p.subscribed("snapshot", 91, 120), 91)
		p.say(snapshot, 120)
		p.event(121)
		p.gone()
	}, func(x consumer) {
		t, s := x.t, x.s
		for _, seq := range []protocol.Seq{40, 90, 120} {
			m, err := s.Next(t.Context())
			if err != nil || m.Kind != KindSnapshot || m.Seq != seq || string(m.Snapshot.State) != `{"a": 1}` || m.Snapshot.Reason != "trimmed" {
				t.Fatalf("got %+v %v, want snapshot %d", m, err, seq)
			}
			wantSeqs(t, s, seq+1)
		}
	})
}

func TestSubscriptionEnds(t *testing.T) {
	subscribeFake(t, SubscribeOptions{From: "start", Until: 1}, func(f *fake) {
		p := f.login()
		if r := p.subscribed("replay", 0, 9); r.Params["from"] != "start" || r.Params["until"] != 1.0 {
			f.t.Errorf("subscribe %v", r.Params)
		}
		p.event(1)
		p.say(`{"jsonrpc":"2.0","method":"subscription_end","params":{"subscriptionId":7,"sessionId":"s","seq":1,"reason":"until"}}`)
		p.gone()
	}, func(x consumer) {
		t, s := x.t, x.s
		wantSeqs(t, s, 1)
		if m, err := s.Next(t.Context()); err != nil || m.Kind != KindEnd || m.End.Reason != "until" {
			t.Errorf("got %+v %v, want the end", m, err)
		}
		for range 2 {
			if _, err := s.Next(t.Context()); !errors.Is(err, io.EOF) {
				t.Errorf("after the end: %v", err)
			}
		}
	})
}

func TestSubscribeRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		go func() {
			f.login()
			p := f.login()
			p.refuse(p.request("subscribe"), protocol.CodeOverloaded, protocol.ReasonOverloaded, true)
			p = f.login()
			p.refuse(p.request("subscribe"), protocol.CodeSessionNotFound, protocol.ReasonSessionNotFound, false)
		}()
		c := dialFake(t, f.options())
		var rpc *RPCError
		if _, err := c.Subscribe(t.Context(), "s", SubscribeOptions{}); !errors.As(err, &rpc) || rpc.Code != protocol.CodeSessionNotFound {
			t.Errorf("Subscribe: %v", err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if _, err := c.Subscribe(t.Context(), "s", SubscribeOptions{}); !errors.Is(err, ErrClosed) {
			t.Errorf("Subscribe after Close: %v", err)
		}
	})
}

// A consumer that is slow stalls the socket and is not taken for a dead peer.
func TestSlowConsumerIsNotLost(t *testing.T) {
	const events = 20 * batchMessages
	subscribeFake(t, SubscribeOptions{From: "start"}, func(f *fake) {
		p := f.login()
		p.subscribed("replay", 0, events)
		for i := range events {
			p.event(i + 1)
		}
		p.gone()
	}, func(x consumer) {
		t, s := x.t, x.s
		<-time.After(time.Hour) // virtual
		synctest.Wait()
		if got := s.Cursor().Seq; got > (batchesWaiting+1)*batchMessages {
			t.Errorf("%d events are held for a consumer that takes none", got)
		}
		for i := range events {
			wantSeqs(t, s, protocol.Seq(i+1))
		}
	})
}

func TestSilentGap(t *testing.T) {
	subscribeFake(t, SubscribeOptions{After: new(protocol.Seq(5))}, func(f *fake) {
		p := f.login()
		p.subscribed("replay", 5, 5)
		r := p.request("ping")
		p.result(r, `{"type":"pong","heads":{"7":6}}`) // overtook the event
		p.event(6)
		r = p.request("ping")
		p.result(r, `{"type":"pong","heads":{"7":8}}`)
		begin := time.Now()
		p.gone()
		if d := time.Since(begin); d != 10*time.Second {
			f.t.Errorf("gave up after %v", d)
		}
		p = f.login()
		wantAfter(f.t, p.subscribed("replay", 6, 8), 6)
		p.event(7)
		p.event(8)
		p.gone()
	}, func(x consumer) { wantSeqs(x.t, x.s, 6, 7, 8) })
}

func TestSendExpectsTheEpochOfItsSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		go func() {
			calls := f.login()
			f.login().subscribed("live", 5, 5)
			r := calls.request("prompt")
			if e, _ := r.Params["expect"].(map[string]any); len(e) != 1 || e["epoch"] != epoch {
				t.Errorf("expect is %v", r.Params["expect"])
			}
			calls.result(r, `{"seq":6}`)
			r = calls.request("prompt")
			if r.Params["expect"] != nil {
				t.Errorf("expect without a subscription is %v", r.Params["expect"])
			}
			calls.result(r, `{"seq":7}`)
		}()
		c := dialFake(t, f.options())
		s, err := c.Subscribe(t.Context(), "s", SubscribeOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Prompt(t.Context(), "s", "hi", SendOptions{}); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if _, err := c.Prompt(t.Context(), "s", "hi", SendOptions{}); err != nil {
			t.Error(err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestEventSpellings(t *testing.T) {
	subscribeFake(t, SubscribeOptions{From: "start"}, func(f *fake) {
		p := f.login()
		p.subscribed("replay", 0, 3)
		p.say(`{"method":"event","params":{"event":{"n":1},"seq":1,"source":"child","run":1,"ts":5},"jsonrpc":"2.0"}`)
		line := protocol.AppendEventPrefix(nil, 7, "s", epoch)
		p.say("%s", protocol.AppendEventLine(line, &protocol.Event{Seq: 2, Source: protocol.SourceBroker, CommandID: "c\"1", Body: []byte(`{"n":2}`)}))
		p.event(3)
		p.gone()
	}, func(x consumer) {
		t, s := x.t, x.s
		wantSeqs(t, s, 1)
		m, err := s.Next(t.Context())
		if err != nil || m.Event.CommandID != `c"1` || m.Event.Source != protocol.SourceBroker || m.Event.Epoch != epoch {
			t.Errorf("got %+v %v", m, err)
		}
		wantSeqs(t, s, 3)
	})
}

func TestCloseWithUndeliveredMessages(t *testing.T) {
	subscribeFake(t, SubscribeOptions{From: "start"}, func(f *fake) {
		p := f.login()
		p.subscribed("replay", 0, 1)
		p.event(1)
		p.gone()
	}, func(x consumer) {
		t, s := x.t, x.s
		synctest.Wait()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		wantSeqs(t, s, 1)
		if _, err := s.Next(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}
