package gateway

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"rejoin/broker"
)

// revoke makes the token of every connection worthless.
func (w *fakeWorld) revoke() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.revoked = map[string]bool{"": true}
}

// A request that waits behind another one when the token is revoked is not
// performed; one that is in work ends as it ends; the subscription has its end, and
// no event after it. Proves I-A1.
func TestRevocation(t *testing.T) {
	w := newFakeWorld("s")
	w.logs["s"].append(2, 1)
	var mu sync.Mutex
	var entries []AuditEntry
	record := func(e AuditEntry) {
		mu.Lock()
		defer mu.Unlock()
		entries = append(entries, e)
	}
	inBubble(t, w, Config{Audit: record}, func(t *testing.T, s *Server) {
		gate := make(chan struct{}) // of the bubble
		w.before = func(call string) {
			if call == "s 1" {
				<-gate
			}
		}
		l := dial(t, s, true)
		defer l.close()
		l.result("subscribe", `{"sessionId":"s","after":0}`)
		l.wantEvents(1, 1, 2)
		l.want(`{"jsonrpc":"2.0","method":"synced","params":{"subscriptionId":1,"sessionId":"s","seq":2}}`)
		l.result("watch_sessions", `{}`)
		l.call("send", `{"sessionId":"s","command":1}`)
		l.call("send", `{"sessionId":"s","command":2}`)
		synctest.Wait()
		w.revoke()
		s.tokensChanged(broker.TokenChange{})
		w.logs["s"].append(5, 1)
		l.want(`{"jsonrpc":"2.0","method":"subscription_end","params":{"subscriptionId":1,"sessionId":"s","seq":2,"reason":"forbidden"}}`)
		close(gate)
		for { // the sends may still be answered; no event follows
			line, err := l.lines.ReadString('\n')
			if err != nil {
				break
			}
			if strings.Contains(line, `"method"`) || !strings.Contains(line, `"id":3,"result"`) && !strings.Contains(line, `"id":4,"error"`) {
				t.Errorf("after the end: %s", line)
			}
		}
		<-l.served
		if l.pipe.code != CloseUnauthorized {
			t.Errorf("closed with %d", l.pipe.code)
		}
		if got := w.done(); !slices.Equal(got, []string{"s 1"}) {
			t.Errorf("performed %q", got)
		}
	})
	var got []string
	for _, e := range entries {
		reason := "ok"
		if e.Err != nil {
			reason = string(e.Err.Reason)
		}
		got = append(got, e.Method+" "+reason)
	}
	if want := []string{"disconnect auth_failed", "send ok", "send auth_failed"}; !slices.Equal(got, want) {
		t.Errorf("audited %q, want %q", got, want)
	}
}

// A request that comes before the connection was told is refused, and is the end.
func TestRequestAfterRevocation(t *testing.T) {
	w := newFakeWorld("s")
	inBubble(t, w, Config{}, func(t *testing.T, s *Server) {
		l := dial(t, s, false)
		defer l.close()
		l.result("subscribe", `{"sessionId":"s"}`)
		l.want(`{"jsonrpc":"2.0","method":"synced","params":{"subscriptionId":1,"sessionId":"s","seq":0}}`)
		w.revoke()
		l.call("stop_session", `{"sessionId":"s"}`)
		l.want(`{"jsonrpc":"2.0","method":"subscription_end","params":{"subscriptionId":1,"sessionId":"s","seq":0,"reason":"forbidden"}}`,
			`{"jsonrpc":"2.0","id":2,"error":{"code":-32001,"message":"the token was revoked, was changed or has expired","data":{"reason":"auth_failed","retryable":false}}}`)
		l.ended(CloseUnauthorized)
		if got := w.done(); len(got) != 0 {
			t.Errorf("performed %q", got)
		}
	})
}

// A client that reads nothing is cut a moment after its token's end.
func TestRevocationOfAStalledReader(t *testing.T) {
	w := newFakeWorld("s")
	w.logs["s"].append(100, 1000)
	inBubble(t, w, Config{}, func(t *testing.T, s *Server) {
		l := dial(t, s, false)
		defer l.close()
		l.call("subscribe", `{"sessionId":"s","after":0}`)
		synctest.Wait() // net.Pipe takes nothing that nobody reads
		w.revoke()
		s.tokensChanged(broker.TokenChange{})
		<-l.served
	})
}
