package gateway

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"rejoin/journal"
	"rejoin/protocol"
)

func TestDecide(t *testing.T) {
	at := journal.Position{Epoch: "E", Floor: 5, Head: 9}
	for _, c := range []struct {
		name         string
		w            wish
		at           journal.Position
		mode, reason string
		after        protocol.Seq
	}{
		{"live", wish{}, at, modeLive, "", 9},
		{"after the head", wish{hasAfter: true, after: 9}, at, modeReplay, "", 9},
		{"after floor-1", wish{hasAfter: true, after: 4}, at, modeReplay, "", 4},
		{"trimmed", wish{hasAfter: true, after: 3}, at, modeSnapshot, reasonTrimmed, 9},
		{"future", wish{hasAfter: true, after: 10}, at, modeSnapshot, reasonFuture, 9},
		{"far future", wish{hasAfter: true, after: math.MaxUint64}, at, modeSnapshot, reasonFuture, 9},
		{"epoch comes first", wish{hasAfter: true, after: 10, epoch: "F"}, at, modeSnapshot, reasonEpoch, 9},
		{"epoch is right", wish{hasAfter: true, after: 7, epoch: "E"}, at, modeReplay, "", 7},
		{"start", wish{start: true}, journal.Position{Epoch: "E", Floor: 1, Head: 9}, modeReplay, "", 0},
		{"start of a trimmed log", wish{start: true}, at, modeSnapshot, reasonTrimmed, 9},
		{"snapshot", wish{snapshot: true}, at, modeSnapshot, reasonRequested, 9},
		{"empty log", wish{hasAfter: true}, journal.Position{Floor: 1}, modeReplay, "", 0},
	} {
		p := decide(c.w, c.at)
		if p.mode != c.mode || p.reason != c.reason || p.cursor.Seq != c.after {
			t.Errorf("%s: got %+v", c.name, p)
		}
	}
}

func TestReplayThenLive(t *testing.T) {
	w := newFakeWorld("s")
	w.logs["s"].append(5, 1)
	inBubble(t, w, Config{}, func(t *testing.T, s *Server) {
		l := dial(t, s, false)
		defer l.close()
		l.call("subscribe", `{"sessionId":"s","after":2,"epoch":"`+string(testEpoch)+`"}`)
		line := `{"jsonrpc":"2.0","method":"event","params":{"subscriptionId":1,"sessionId":"s","seq":%d,"ts":1,"run":1,"source":"child","event":{"n":%[1]d,"p":"p"}}}`
		l.want(`{"jsonrpc":"2.0","id":1,"result":{"subscriptionId":1,"sessionId":"s","status":"subscribed","mode":"replay","epoch":"`+string(testEpoch)+`","after":2,"head":5}}`,
			fmt.Sprintf(line, 3), fmt.Sprintf(line, 4), fmt.Sprintf(line, 5),
			`{"jsonrpc":"2.0","method":"synced","params":{"subscriptionId":1,"sessionId":"s","seq":5}}`)
		w.logs["s"].append(2, 1)
		l.want(fmt.Sprintf(line, 6), fmt.Sprintf(line, 7))
		if got := l.result("ping", `{}`); !strings.HasSuffix(got, `"heads":{"1":7}}`) {
			t.Errorf("ping: %s", got)
		}
		l.result("subscribe", `{"sessionId":"s","after":7}`)
		l.want(`{"jsonrpc":"2.0","method":"synced","params":{"subscriptionId":2,"sessionId":"s","seq":7}}`)
		w.logs["s"].append(1, 1)
		if a, b := l.next(), l.next(); a.Params.Seq != 8 || b.Params.Seq != 8 || a.Params.SubscriptionID+b.Params.SubscriptionID != 3 {
			t.Errorf("got %+v and %+v", a, b)
		}
		l.result("unsubscribe", `{"subscriptionId":1}`)
		l.result("unsubscribe", `{"subscriptionId":1}`)
		l.fails("resync", `{"subscriptionId":1}`, protocol.CodeInvalidParams)
		other := dial(t, s, false)
		other.fails("unsubscribe", `{"subscriptionId":2}`, protocol.CodeInvalidParams)
		other.close()
		w.logs["s"].append(1, 1)
		l.wantEvents(2, 9, 9)
		l.quiet()
	})
}

func TestSnapshotMode(t *testing.T) {
	w := newFakeWorld("s")
	w.logs["s"].append(5, 1)
	inBubble(t, w, Config{}, func(t *testing.T, s *Server) {
		l := dial(t, s, false)
		defer l.close()
		for i, c := range []struct{ params, reason string }{
			{`"after":99`, "future"},
			{`"after":18446744073709551616`, "future"},
			{`"after":1,"epoch":"x"`, "epoch"},
			{`"from":"snapshot"`, "requested"},
		} {
			id := i + 1
			got := l.result("subscribe", `{"sessionId":"s",`+c.params+`}`)
			if !strings.HasSuffix(got, `"mode":"snapshot","epoch":"`+string(testEpoch)+`","after":5,"head":5,"reason":"`+c.reason+`"}`) {
				t.Errorf("%s: %s", c.params, got)
			}
			l.want(fmt.Sprintf(`{"jsonrpc":"2.0","method":"snapshot","params":{"subscriptionId":%d,"sessionId":"s","epoch":"%s","seq":5,"stateHash":"h","fold":{"adapter":"jsonl","version":1},"reason":"%s","state":{"items":[]}}}`, id, testEpoch, c.reason),
				fmt.Sprintf(`{"jsonrpc":"2.0","method":"synced","params":{"subscriptionId":%d,"sessionId":"s","seq":5}}`, id))
			l.result("unsubscribe", fmt.Sprintf(`{"subscriptionId":%d}`, id))
		}
		l.result("subscribe", `{"sessionId":"s"}`)
		l.next()
		l.result("resync", `{"subscriptionId":5,"force":true}`)
		if m := l.next(); m.Method != "snapshot" || m.Params.Reason != "requested" {
			t.Errorf("got %+v", m)
		}
		if m := l.next(); m.Method != "synced" {
			t.Errorf("got %+v", m)
		}
		l.result("resync", `{"subscriptionId":5,"after":3}`)
		l.wantEvents(5, 4, 5)
		if m := l.next(); m.Method != "synced" || m.Params.Seq != 5 {
			t.Errorf("got %+v", m)
		}
	})
}

// Later in a subscription a snapshot comes only for what can no longer be read,
// and the first event after it carries the epoch.
func TestLaterSnapshots(t *testing.T) {
	for _, c := range []struct {
		reason string
		lose   func(l *fakeLog)
	}{
		{reasonTrimmed, func(l *fakeLog) { l.floor = 7 }},
		{reasonDamaged, func(l *fakeLog) { l.status[6] = journal.PullDamaged }},
		{reasonEpoch, func(l *fakeLog) { l.epoch, l.floor = "01ARZ3NDEKTSV4RRFFQ69G5FAW", 8 }},
	} {
		t.Run(c.reason, func(t *testing.T) {
			w := newFakeWorld("s")
			log := w.logs["s"]
			log.append(5, 1)
			inBubble(t, w, Config{}, func(t *testing.T, s *Server) {
				failures := 3
				log.fold = func() error {
					if failures--; failures >= 0 {
						return journal.ErrUnavailable
					}
					return nil
				}
				l := dial(t, s, false)
				defer l.close()
				l.result("subscribe", `{"sessionId":"s"}`)
				l.next()
				log.mu.Lock()
				for range 3 {
					log.lines = append(log.lines, protocol.AppendEventLine(nil, &protocol.Event{Seq: protocol.Seq(len(log.lines) + 1), Body: []byte("1")}))
				}
				c.lose(log)
				log.mu.Unlock()
				log.set(func() {})
				if m := l.next(); m.Method != "snapshot" || m.Params.Reason != c.reason || m.Params.Seq != 8 {
					t.Fatalf("got %+v", m)
				}
				log.append(2, 1)
				if m := l.next(); m.Method != "event" || m.Params.Seq != 9 || m.Params.Epoch != string(log.epoch) {
					t.Errorf("got %+v", m)
				}
				if m := l.next(); m.Method != "event" || m.Params.Seq != 10 || m.Params.Epoch != "" {
					t.Errorf("got %+v", m)
				}
				l.quiet()
			})
		})
	}
}

// A snapshot that leads nowhere is not sent again and again.
func TestSnapshotThatLeadsNowhere(t *testing.T) {
	w := newFakeWorld("s")
	log := w.logs["s"]
	log.append(5, 1)
	inBubble(t, w, Config{}, func(t *testing.T, s *Server) {
		l := dial(t, s, false)
		defer l.close()
		l.result("subscribe", `{"sessionId":"s"}`)
		l.next()
		log.set(func() { log.status[6] = journal.PullDamaged })
		wait(t, time.Minute)
		log.mu.Lock()
		if log.folds > 40 {
			t.Errorf("%d snapshots in a minute", log.folds)
		}
		log.mu.Unlock()
		log.set(func() { delete(log.status, 6) })
		log.append(3, 1)
		if m := l.next(); m.Method != "snapshot" || m.Params.Seq != 8 {
			t.Errorf("got %+v", m)
		}
	})
}

func TestUntil(t *testing.T) {
	w := newFakeWorld("s")
	w.logs["s"].append(5, 1)
	inBubble(t, w, Config{}, func(t *testing.T, s *Server) {
		l := dial(t, s, false)
		defer l.close()
		l.result("subscribe", `{"sessionId":"s","after":0,"until":3}`)
		l.wantEvents(1, 1, 3)
		l.want(`{"jsonrpc":"2.0","method":"subscription_end","params":{"subscriptionId":1,"sessionId":"s","seq":3,"reason":"until"}}`)
		l.result("subscribe", `{"sessionId":"s","after":4,"until":5}`)
		l.wantEvents(2, 5, 5)
		l.want(`{"jsonrpc":"2.0","method":"synced","params":{"subscriptionId":2,"sessionId":"s","seq":5}}`,
			`{"jsonrpc":"2.0","method":"subscription_end","params":{"subscriptionId":2,"sessionId":"s","seq":5,"reason":"until"}}`)
		l.result("subscribe", `{"sessionId":"s","after":4,"until":0}`)
		l.want(`{"jsonrpc":"2.0","method":"subscription_end","params":{"subscriptionId":3,"sessionId":"s","seq":4,"reason":"until"}}`)
		l.result("unsubscribe", `{"subscriptionId":3}`)
		l.quiet()
	})
}

// A session that is deleted while a resync is under way ends that subscription,
// whatever the resync comes to.
func TestResyncAgainstTheDelete(t *testing.T) {
	for _, fail := range []error{nil, journal.ErrUnavailable} {
		t.Run(fmt.Sprint(fail), func(t *testing.T) {
			w := newFakeWorld("s")
			log := w.logs["s"]
			log.append(5, 1)
			inBubble(t, w, Config{}, func(t *testing.T, s *Server) {
				l := dial(t, s, false)
				defer l.close()
				l.result("subscribe", `{"sessionId":"s"}`)
				l.next() // synced
				asked, done := make(chan struct{}), make(chan struct{})
				var once sync.Once
				log.syncing = func(context.Context) error {
					first := false
					once.Do(func() { first = true })
					if !first {
						return nil // the delete's
					}
					close(asked)
					<-done
					return fail
				}
				l.call("resync", `{"subscriptionId":1,"after":5}`)
				<-asked
				s.sessionDeleted(log.key)
				synctest.Wait()
				close(done)
				for {
					m := l.next()
					if m.Method != "subscription_end" {
						continue
					}
					if m.Params.Reason != endDeleted {
						t.Fatalf("ended: %+v", m)
					}
					break
				}
			})
		})
	}
}

// A resync and what ends the subscription meanwhile: the answer comes first and
// the end follows it, whatever the journal takes for its part.
func TestResyncAgainstTheEnd(t *testing.T) {
	for _, c := range []struct {
		name string
		fail error
	}{{"answered", nil}, {"refused", journal.ErrUnavailable}} {
		t.Run(c.name, func(t *testing.T) {
			w := newFakeWorld("s")
			log := w.logs["s"]
			log.append(5, 1)
			inBubble(t, w, Config{}, func(t *testing.T, s *Server) {
				l := dial(t, s, false)
				defer l.close()
				l.result("subscribe", `{"sessionId":"s","after":4,"until":6}`)
				l.wantEvents(1, 5, 5)
				l.want(`{"jsonrpc":"2.0","method":"synced","params":{"subscriptionId":1,"sessionId":"s","seq":5}}`)
				asked, done := make(chan struct{}), make(chan struct{})
				log.syncing = func(context.Context) error {
					close(asked)
					<-done
					return c.fail
				}
				id := l.call("resync", `{"subscriptionId":1,"after":3}`)
				<-asked
				log.append(1, 1)
				synctest.Wait()
				close(done)
				m := l.next()
				if c.fail != nil && m.Method == "event" { // refused: the subscription goes on as it was, whenever that is answered
					if m.Params.Seq != 6 {
						t.Fatalf("after the refusal: %+v", m)
					}
					m = l.next()
					if m.Method == "subscription_end" {
						m = l.next()
					}
					if string(m.ID) != fmt.Sprint(id) {
						t.Fatalf("want the refusal, got %+v", m)
					}
					return
				}
				if string(m.ID) != fmt.Sprint(id) {
					t.Fatalf("before the answer of resync: %+v", m)
				}
				if c.fail == nil {
					l.wantEvents(1, 4, 6)
					l.want(`{"jsonrpc":"2.0","method":"synced","params":{"subscriptionId":1,"sessionId":"s","seq":6}}`)
				} else {
					l.wantEvents(1, 6, 6)
				}
				l.want(`{"jsonrpc":"2.0","method":"subscription_end","params":{"subscriptionId":1,"sessionId":"s","seq":6,"reason":"until"}}`)
				l.quiet()
			})
		})
	}
}

func TestDeletedSessionEndsSubscriptions(t *testing.T) {
	w := newFakeWorld("s", "other")
	w.logs["s"].append(2, 1)
	inBubble(t, w, Config{}, func(t *testing.T, s *Server) {
		l := dial(t, s, false)
		defer l.close()
		l.result("subscribe", `{"sessionId":"s"}`)
		l.next()
		l.result("subscribe", `{"sessionId":"other"}`)
		l.next()
		w.logs["s"].append(1, 1)
		s.sessionDeleted(w.logs["s"].key)
		l.wantEvents(1, 3, 3)
		l.want(`{"jsonrpc":"2.0","method":"subscription_end","params":{"subscriptionId":1,"sessionId":"s","seq":3,"reason":"deleted"}}`)
		w.logs["other"].append(1, 1)
		l.wantEvents(2, 1, 1)
	})
}

func TestSubscriptionsMax(t *testing.T) {
	w := newFakeWorld("s")
	inBubble(t, w, Config{}, func(t *testing.T, s *Server) {
		l := dial(t, s, false)
		defer l.close()
		for range protocol.SubscriptionsMax {
			l.result("subscribe", `{"sessionId":"s"}`)
			l.next()
		}
		wantMet(t, s, "SubscriptionsMax", 0)
		l.fails("subscribe", `{"sessionId":"s"}`, protocol.CodeOverloaded)
		wantMet(t, s, "SubscriptionsMax", 1)
	})
}

// One snapshot at a time per connection, and each subscription gets its own.
func TestManySnapshots(t *testing.T) {
	w := newFakeWorld("s")
	w.logs["s"].append(5, 1)
	inBubble(t, w, Config{}, func(t *testing.T, s *Server) {
		var mu sync.Mutex
		folding, most := 0, 0
		w.logs["s"].fold = func() error {
			mu.Lock()
			folding++
			most = max(most, folding)
			mu.Unlock()
			<-time.After(time.Second)
			mu.Lock()
			folding--
			mu.Unlock()
			return nil
		}
		l := dial(t, s, false)
		defer l.close()
		for range 20 {
			l.result("subscribe", `{"sessionId":"s","from":"snapshot"}`) // all before the first snapshot, which takes a second
		}
		l.call("unsubscribe", `{"subscriptionId":3}`)
		seen := make(map[uint64]int)
		for len(seen) < 19 {
			if m := l.next(); m.Method == "snapshot" {
				seen[m.Params.SubscriptionID]++
			}
		}
		if m := l.next(); m.Method != "synced" {
			t.Errorf("got %+v", m)
		}
		if most != 1 {
			t.Errorf("%d folds at a time", most)
		}
		l.quiet()
	})
}

// Proves I-J5: twenty quiet subscriptions beside one that floods wait for at
// most a round, and the flood goes on.
func TestFairness(t *testing.T) {
	names := []string{"flood"}
	for i := range 20 {
		names = append(names, fmt.Sprint("q", i))
	}
	w := newFakeWorld(names...)
	w.logs["flood"].append(20000, 1000)
	inBubble(t, w, Config{}, func(t *testing.T, s *Server) {
		l := dial(t, s, false)
		defer l.close()
		for _, n := range names[1:] {
			l.result("subscribe", `{"sessionId":"`+n+`"}`)
			l.next()
		}
		l.result("subscribe", `{"sessionId":"flood","after":0}`)
		l.wantEvents(21, 1, 1000)
		for _, n := range names[1:] {
			w.logs[n].append(3, 100)
		}
		l.call("ping", `{}`)
		flood, quiet, pong := 0, 0, false
		for quiet < 60 || !pong {
			switch m := l.next(); {
			case m.Result != nil:
				pong = true
			case m.Params.SessionID == "flood":
				flood++
			default:
				quiet++
			}
		}
		// What was gathered, and one quantum per round at most.
		if flood > 4*quantum/1000 {
			t.Errorf("%d events of the flood came first", flood)
		}
	})
}

// Proves I-G1: no event of an old position follows the response of resync or
// unsubscribe, and a subscription's events follow its response.
func TestRepositioningNeverLeaksOldEvents(t *testing.T) {
	w := newFakeWorld("s")
	log := w.logs["s"]
	log.append(3000, 10)
	s := newServer(Config{}, w.backends())
	l := dial(t, s, false)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				log.append(1, 10)
			}
		}
	}()
	for range 100 {
		l.call("subscribe", `{"sessionId":"s","after":0}`)
		sub := subscribed(t, l)
		if m := l.next(); m.Params.Seq != 1 {
			t.Fatalf("got %+v", m)
		}
		id := l.call("resync", fmt.Sprintf(`{"subscriptionId":%d,"after":1000}`, sub))
		last := uint64(1)
		for m := l.next(); string(m.ID) != fmt.Sprint(id); m = l.next() {
			if m.Method == "event" {
				if last++; m.Params.Seq != last {
					t.Fatalf("want %d, got %+v", last, m)
				}
			}
		}
		if m := l.next(); m.Params.Seq != 1001 {
			t.Fatalf("after resync: %+v", m)
		}
		id = l.call("unsubscribe", fmt.Sprintf(`{"subscriptionId":%d}`, sub))
		for m := l.next(); string(m.ID) != fmt.Sprint(id); m = l.next() {
		}
		ping := l.call("ping", `{}`)
		if m := l.next(); string(m.ID) != fmt.Sprint(ping) {
			t.Fatalf("after unsubscribe: %+v", m)
		}
	}
	close(stop)
	<-stopped
	l.close()
	s.Close()
	if log.refs != 0 {
		t.Errorf("%d watches left", log.refs)
	}
}

func subscribed(t *testing.T, l *link) int {
	t.Helper()
	m := l.next()
	var id int
	if _, err := fmt.Sscanf(string(m.Result), `{"subscriptionId":%d,`, &id); err != nil {
		t.Fatalf("%v: %+v", err, m)
	}
	return id
}

// Proves I-G2 where a connection is idle: it holds no buffer.
func TestIdleConnectionHoldsNoBuffer(t *testing.T) {
	w := newFakeWorld("s")
	inBubble(t, w, Config{}, func(t *testing.T, s *Server) {
		l := dial(t, s, false)
		defer l.close()
		l.result("subscribe", `{"sessionId":"s"}`)
		l.next()
		w.logs["s"].append(1, 1<<20)
		l.wantEvents(1, 1, 1)
		synctest.Wait()
		for _, c := range s.open() {
			c.mu.Lock()
			if c.writing || s.buffers.out.Load() != 0 {
				t.Errorf("a writer runs: %v; %d buffers are out", c.writing, s.buffers.out.Load())
			}
			if c.out != nil || c.unsent != 0 || c.reserved != 0 {
				t.Errorf("%d bytes of responses, %d unsent, %d reserved", cap(c.out), c.unsent, c.reserved)
			}
			c.mu.Unlock()
		}
	})
}

func TestReadEvents(t *testing.T) {
	w := newFakeWorld("s", "empty")
	log := w.logs["s"]
	log.append(20, 1)
	inBubble(t, w, Config{}, func(t *testing.T, s *Server) {
		l := dial(t, s, false)
		defer l.close()
		for _, c := range []struct {
			params      string
			first, last int
			next        int
		}{
			{`"after":0`, 1, 20, 20},
			{`"after":4,"limit":7`, 5, 11, 11},
			{`"after":4,"maxBytes":1`, 5, 5, 5},
			{`"after":20`, 0, 0, 20},
			{`"before":21`, 1, 20, 1},
			{`"before":9999`, 1, 20, 1},
			{`"before":9,"limit":3`, 6, 8, 6},
			{`"before":9,"maxBytes":0`, 8, 8, 8},
			{`"before":1`, 0, 0, 1},
		} {
			got := l.result("read_events", `{"sessionId":"s",`+c.params+`}`)
			var want strings.Builder
			want.WriteString(`{"events":[`)
			for seq := c.first; seq <= c.last && seq > 0; seq++ {
				if seq > c.first {
					want.WriteByte(',')
				}
				fmt.Fprintf(&want, `{"sessionId":"s","seq":%d,"ts":1,"run":1,"source":"child","event":{"n":%[1]d,"p":"p"}}`, seq)
			}
			fmt.Fprintf(&want, `],"head":20,"floor":1,"epoch":"%s","next":%d}`, testEpoch, c.next)
			if got != want.String() {
				t.Errorf("%s:\n got %s\nwant %s", c.params, got, want.String())
			}
		}
		l.result("read_events", `{"sessionId":"empty","after":0}`)
		log.set(func() { log.floor = 7 })
		for _, c := range []struct{ params, reason string }{
			{`"after":5`, "trimmed"},
			{`"after":21`, "trimmed"},
			{`"before":7`, "trimmed"},
			{`"after":9,"epoch":"x"`, "epoch"},
		} {
			m := l.fails("read_events", `{"sessionId":"s",`+c.params+`}`, protocol.CodeOutsideLog)
			if d := m.Error.Data; d["reason"] != c.reason || d["floor"] != 7.0 || d["head"] != 20.0 || d["epoch"] != string(testEpoch) {
				t.Errorf("%s: %v", c.params, d)
			}
		}
		l.result("read_events", `{"sessionId":"s","after":6}`)
		l.fails("get_snapshot", `{"sessionId":"s","epoch":"x"}`, protocol.CodeOutsideLog)
		log.fold = func() error { return errors.Join(errors.New("x"), journal.ErrUnavailable) }
		if m := l.fails("get_snapshot", `{"sessionId":"s"}`, protocol.CodeUnavailable); m.Error.Data["retryable"] != true {
			t.Errorf("got %+v", m.Error)
		}
	})
}
