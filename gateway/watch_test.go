package gateway

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"rejoin/broker"
	"rejoin/protocol"
)

func changeOf(id string, head protocol.Seq) broker.Change {
	return broker.Change{ID: id, Info: protocol.SessionInfo{ID: id, Head: head}}
}

func TestWatchSessions(t *testing.T) {
	w := newFakeWorld("s")
	inBubble(t, w, Config{}, func(t *testing.T, s *Server) {
		l := dial(t, s, false)
		defer l.close()
		l.write(`{"method":"watch_sessions"}`) // ignored
		l.write(`{"id":1,"method":"watch_sessions"}`)
		if got, want := l.line(), `{"jsonrpc":"2.0","id":1,"result":{"subscriptionId":1,"sessions":[]}}`; got != want {
			t.Fatalf("got %s", got)
		}
		l.quiet()
		w.feed.set([]broker.Change{changeOf("a<b", 3), {ID: "b", Removed: true}}, []broker.Change{changeOf("c", 4)})
		for _, want := range []string{
			`{"jsonrpc":"2.0","method":"session_changed","params":{"subscriptionId":1,"session":{"id":"a<b","state":"","status":"","pid":null,"event_count":0,"agent":"","adapter":"","cwd":"","title":"","createdAt":0,"updatedAt":0,"epoch":"","run":0,"head":3,"floor":0}}}`,
			`{"jsonrpc":"2.0","method":"session_removed","params":{"subscriptionId":1,"sessionId":"b"}}`,
		} {
			if got := l.line(); got != want {
				t.Errorf("\n got %s\nwant %s", got, want)
			}
		}

		l.quiet()
		l.fails("resync", `{"subscriptionId":1}`, protocol.CodeInvalidParams)
		l.result("unsubscribe", `{"subscriptionId":1}`)
		l.result("unsubscribe", `{"subscriptionId":1}`)
		if n := w.feed.len(); n != 0 {
			t.Errorf("%d watchers are left", n)
		}
		w.feed.set([]broker.Change{changeOf("a", 5)}, nil)
		l.quiet()
	})
}

// Heads come at most once in headsEvery, and only the newest.
func TestWatchHeads(t *testing.T) {
	w := newFakeWorld("s")
	inBubble(t, w, Config{}, func(t *testing.T, s *Server) {
		l := dial(t, s, false)
		defer l.close()
		l.result("watch_sessions", `{"heads":true}`)
		synctest.Wait() // the first look
		began := time.Now()
		for head := protocol.Seq(1); head <= 5; head++ {
			w.feed.set(nil, []broker.Change{changeOf("a", head)})
		}
		if m := l.next(); m.Method != "session_changed" || time.Since(began) != headsEvery {
			t.Errorf("%+v after %v", m, time.Since(began))
		}
		l.quiet()
		l.fails("watch_sessions", `{"heads":1}`, protocol.CodeInvalidParams)
	})
}

// Proves I-G2: a connection may watch so often, a change costs a watch nothing,
// and its end ends them.
func TestWatchBounds(t *testing.T) {
	w := newFakeWorld("s")
	inBubble(t, w, Config{}, func(t *testing.T, s *Server) {
		l := dial(t, s, false)
		for range protocol.WatchesMax {
			l.result("watch_sessions", `{}`)
		}
		wantMet(t, s, "WatchesMax", 0)
		l.fails("watch_sessions", `{}`, protocol.CodeOverloaded)
		wantMet(t, s, "WatchesMax", 1)
		l.close()
		if n := w.feed.len(); n != 0 {
			t.Errorf("%d watchers are left", n)
		}
		l = dial(t, s, false)
		defer l.close()
		l.result("watch_sessions", `{}`)
		var many []broker.Change
		for i := range 10 * newsBatch {
			many = append(many, changeOf(fmt.Sprint(i), 1))
		}
		w.feed.set(many, nil)
		for range many {
			if m := l.next(); m.Method != "session_changed" {
				t.Fatalf("%+v", m)
			}
		}
		l.quiet()
	})
}
