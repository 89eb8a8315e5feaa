package gateway

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rejoin/broker"
	"rejoin/protocol"
)

func TestSingleRequests(t *testing.T) {
	w := newFakeWorld("s")
	w.logs["s"].append(2, 1)
	inBubble(t, w, Config{}, func(t *testing.T, s *Server) {
		l := dial(t, s, false)
		defer l.close()
		for _, c := range []struct{ name, send, want string }{
			{"heartbeat", `{"type":"ping","timestamp":12}`, `{"type":"pong","timestamp":12}`},
			{"ping", `{"id":"a b","method":"ping"}`, `{"jsonrpc":"2.0","id":"a b","result":{"type":"pong","ts":946684800000,"heads":{}}}`},
			{"authenticate without need", `{"id":1,"method":"authenticate","params":{"token":"x"}}`, `{"jsonrpc":"2.0","id":1,"result":{"authenticated":true}}`},
			{"unknown method", `{"id":1,"method":"watch_session"}`, `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"method not found","data":{"reason":"method_not_found","retryable":false}}}`},
			{"no session id", `{"id":1,"method":"send","params":{"command":1}}`, `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"sessionId is required","data":{"reason":"invalid_params","retryable":false}}}`},
			{"no command", `{"id":1,"method":"send","params":{"sessionId":"s"}}`, `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"command is required","data":{"reason":"invalid_params","retryable":false}}}`},
			{"no session", `{"id":1,"method":"send","params":{"sessionId":"x","command":1}}`, `{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"session x not found","data":{"reason":"session_not_found","retryable":false}}}`},
			{"send", `{"id":1,"method":"send","params":{"sessionId":"s","commandId":"c","command":{"a" : 1.0}}}`, `{"jsonrpc":"2.0","id":1,"result":{"sessionId":"s","status":"sent","commandId":"c","seq":1}}`},
			{"list", `{"id":1,"method":"list_sessions"}`, `{"jsonrpc":"2.0","id":1,"result":[]}`},
			{"stderr", `{"id":1,"method":"read_stderr","params":{"sessionId":"s","run":3}}`, `{"jsonrpc":"2.0","id":1,"result":{"text":"s run 3 <&>"}}`},
			{"stop", `{"id":1,"method":"stop_session","params":{"sessionId":"s","graceMs":7}}`, `{"jsonrpc":"2.0","id":1,"result":{"sessionId":"s","status":"stopped"}}`},
			{"status", `{"id":1,"method":"command_status","params":{"sessionId":"s","commandIds":["a"]}}`, `{"jsonrpc":"2.0","id":1,"result":{"results":[{"commandId":"a","outcome":"unknown","result":null}]}}`},
			{"snapshot", `{"id":1,"method":"get_snapshot","params":{"sessionId":"s"}}`, `{"jsonrpc":"2.0","id":1,"result":{"epoch":"` + string(testEpoch) + `","seq":2,"stateHash":"h","fold":{"adapter":"jsonl","version":1},"state":{"items":[]}}}`},
		} {
			l.write("%s", c.send)
			got := l.line()
			got = strings.Replace(got, `,"result":null}]`, `}]`, 1)
			if want := strings.Replace(c.want, `,"result":null}]`, `}]`, 1); got != want {
				t.Errorf("%s:\n got %s\nwant %s", c.name, got, want)
			}
		}
		if got, want := w.done(), []string{`s {"a":1.0}`, "stop s 7ms"}; !slices.Equal(got, want) {
			t.Errorf("effects %q, want %q", got, want)
		}
	})
}

func TestInvalidParams(t *testing.T) {
	w := newFakeWorld("s")
	inBubble(t, w, Config{}, func(t *testing.T, s *Server) {
		l := dial(t, s, false)
		defer l.close()
		for _, c := range []struct{ method, params string }{
			{"subscribe", `{"sessionId":7}`},
			{"subscribe", `[1]`},
			{"subscribe", `{"sessionId":"s","after":"1"}`},
			{"subscribe", `{"sessionId":"s","after":-1}`},
			{"subscribe", `{"sessionId":"s","after":1.5}`},
			{"subscribe", `{"sessionId":"s","after":0,"epoch":5}`},
			{"subscribe", `{"sessionId":"s","epoch":"x"}`},
			{"subscribe", `{"sessionId":"s","after":0,"from":"now"}`},
			{"subscribe", `{"sessionId":"s","from":"middle"}`},
			{"subscribe", `{"sessionId":"s","until":-3}`},
			{"resync", `{}`},
			{"resync", `{"subscriptionId":99}`},
			{"unsubscribe", `{"subscriptionId":99}`},
			{"read_events", `{"sessionId":"s"}`},
			{"read_events", `{"sessionId":"s","after":0,"before":3}`},
			{"read_events", `{"sessionId":"s","after":0,"limit":0}`},
			{"read_events", `{"sessionId":"s","after":0,"limit":1001}`},
			{"read_events", `{"sessionId":"s","after":0,"maxBytes":"x"}`},
			{"send", `{"sessionId":"s","command":1,"commandId":""}`},
			{"send", `{"sessionId":"s","command":1,"commandId":"rj:0"}`},
			{"send", `{"sessionId":"s","command":1,"expect":3}`},
			{"send", `{"sessionId":"s","command":1,"expect":{"head":"3"}}`},
			{"send", `{"sessionId":"s","command":1,"expect":{"haed":3}}`},
			{"send", `{"sessionId":"s","command":1,"expect":{"status":"sleepy"}}`},
			{"prompt", `{"sessionId":"s"}`},
			{"prompt", `{"sessionId":"s","text":1}`},
			{"prompt", `{"sessionId":"s","text":"a","images":"b"}`},
			{"respond", `{"sessionId":"s","interactionId":"i","outcome":"perhaps"}`},
			{"start_session", `{"sessionId":"a.b"}`},
			{"start_session", `{"argv":"ls"}`},
			{"start_session", `{"argv":[1]}`},
			{"start_session", `{"env":{"A":1}}`},
			{"start_session", `{"restart":"always"}`},
			{"start_session", `{"labels":["repo"]}`},
			{"start_session", `{"labels":{"repo":1}}`},
			{"drain_worker", `{}`},
			{"drain_worker", `{"worker":7}`},
			{"drain_worker", `{"worker":"w","undo":"yes"}`},
			{"drain_worker", `{"worker":"w","move":1}`},
			{"stop_session", `{"sessionId":"s","graceMs":300001}`},
			{"list_sessions", `{"state":"asleep"}`},
			{"set_title", `{"sessionId":"s"}`},
			{"command_status", `{"sessionId":"s"}`},
			{"command_status", `{"sessionId":"s","commandIds":[1]}`},
		} {
			l.fails(c.method, c.params, protocol.CodeInvalidParams)
		}
		l.fails("get_snapshot", `{"sessionId":"s","at":-3}`, protocol.CodeInvalidParams)
		l.fails("verify_session", `{}`, protocol.CodeInvalidParams)
		l.result("ping", `{}`)
		if got := w.done(); len(got) != 0 {
			t.Errorf("effects %q", got)
		}
	})
}

func TestVerbsCarryTheirOwnMembers(t *testing.T) {
	w := newFakeWorld("s")
	inBubble(t, w, Config{}, func(t *testing.T, s *Server) {
		l := dial(t, s, false)
		defer l.close()
		l.result("prompt", `{"images":[ 1 ],"text":"a\u0062","sessionId":"s","expect":{"run":1},"x":0}`)
		l.result("interrupt", `{"sessionId":"s"}`)
		l.result("respond", `{"sessionId":"s","interactionId":"1.a","outcome":"answer","value":{"b": 1}}`)
		want := []string{`s prompt{"text":"a\u0062","images":[1]}`, `s interrupt{}`, `s respond{"interactionId":"1.a","outcome":"answer","value":{"b":1}}`}
		if got := w.done(); !slices.Equal(got, want) {
			t.Errorf("\n got %q\nwant %q", got, want)
		}
	})
}

func TestNotificationsAreSilent(t *testing.T) {
	w := newFakeWorld("s")
	inBubble(t, w, Config{}, func(t *testing.T, s *Server) {
		l := dial(t, s, false)
		defer l.close()
		for _, n := range []string{
			`{"method":"nope"}`, `{"method":"ping"}`, `{"method":"subscribe","params":{"sessionId":"s"}}`,
			`{"method":"send","params":{"sessionId":"s","command":1}}`, `[{"method":"ping"},{"method":"nope"}]`,
		} {
			l.write("%s", n)
		}
		l.quiet()
		l.write(`{"id":null,"method":"ping"}`)
		if m := l.next(); string(m.ID) != "null" || m.Result == nil {
			t.Errorf("answered %+v", m)
		}
		if got, want := w.done(), []string{"s 1"}; !slices.Equal(got, want) {
			t.Errorf("effects %q, want %q", got, want)
		}
	})
}

func TestBatch(t *testing.T) {
	w := newFakeWorld("a", "b")
	inBubble(t, w, Config{}, func(t *testing.T, s *Server) {
		l := dial(t, s, false)
		defer l.close()
		l.write(`[{"id":1,"method":"send","params":{"sessionId":"a","command":1,"commandId":"x"}},7,{"method":"send","params":{"sessionId":"b","command":2}},` +
			`{"id":2,"method":"nope"},{"id":3,"method":"subscribe","params":{"sessionId":"a","after":0}},{"id":4,"method":"unsubscribe","params":{"subscriptionId":1}}]`)
		l.want(`[{"jsonrpc":"2.0","id":1,"result":{"sessionId":"a","status":"sent","commandId":"x","seq":1}},` +
			`{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"invalid request: not an object","data":{"reason":"invalid_request","retryable":false}}},` +
			`{"jsonrpc":"2.0","id":2,"error":{"code":-32601,"message":"method not found","data":{"reason":"method_not_found","retryable":false}}},` +
			`{"jsonrpc":"2.0","id":3,"result":{"subscriptionId":1,"sessionId":"a","status":"subscribed","mode":"replay","epoch":"` + string(testEpoch) + `","after":0,"head":0}},` +
			`{"jsonrpc":"2.0","id":4,"result":{"subscriptionId":1,"status":"unsubscribed"}}]`)
		l.quiet()
		if got, want := w.done(), []string{"a 1", "b 2"}; !slices.Equal(got, want) {
			t.Errorf("effects %q, want %q", got, want)
		}
		l.write(`[{"id":5,"method":"subscribe","params":{"sessionId":"a","after":0}},{"id":6,"method":"ping"}]`)
		if got := l.line(); !strings.HasPrefix(got, `[{"jsonrpc":"2.0","id":5`) || !strings.Contains(got, `"id":6`) {
			t.Errorf("got %s", got)
		}
		if m := l.next(); m.Method != "synced" {
			t.Errorf("got %+v", m)
		}
	})
}

// Requests of one session run one after another in arrival order; a slow one
// delays neither ping nor another session.
func TestLanes(t *testing.T) {
	w := newFakeWorld("a", "b")
	hold := make(chan struct{})
	inBubble(t, w, Config{}, func(t *testing.T, s *Server) {
		hold = make(chan struct{})
		w.before = func(call string) {
			if call == "a 1" {
				<-hold
			}
		}
		l := dial(t, s, false)
		defer l.close()
		first := l.call("send", `{"sessionId":"a","command":1}`)
		for i := range 5 {
			l.call("send", fmt.Sprintf(`{"sessionId":"a","command":%d}`, i+2))
		}
		l.write(`[{"id":100,"method":"send","params":{"sessionId":"b","command":8}},{"id":101,"method":"send","params":{"sessionId":"a","command":9}}]`)
		l.call("send", `{"sessionId":"b","command":10}`)
		if got := l.result("ping", `{}`); !strings.Contains(got, "pong") {
			t.Errorf("ping: %s", got)
		}
		l.result("get_session", `{"sessionId":"a"}`)
		l.result("start_session", `{"sessionId":"c"}`)
		close(hold)
		for i := range 6 {
			if m := l.next(); string(m.ID) != fmt.Sprint(first+i) {
				t.Fatalf("answer %s, want %d", m.ID, first+i)
			}
		}
		l.line() // the batch
		l.line()
		want := []string{"start c", "a 1", "a 2", "a 3", "a 4", "a 5", "a 6", "b 8", "a 9", "b 10"}
		if got := w.done(); !slices.Equal(got, want) {
			t.Errorf("\n got %q\nwant %q", got, want)
		}
	})
}

func TestOverload(t *testing.T) {
	const sessions = protocol.RequestsInWorkMax + 4
	var names []string
	for i := range sessions {
		names = append(names, fmt.Sprint("s", i))
	}
	w := newFakeWorld(names...)
	inBubble(t, w, Config{}, func(t *testing.T, s *Server) {
		hold := make(chan struct{})
		inWork := make(chan struct{}, 1000)
		w.before = func(string) { inWork <- struct{}{}; <-hold }
		l := dial(t, s, false)
		defer l.close()
		total := protocol.RequestsInWorkMax + protocol.RequestsQueuedMax
		for i := range total {
			l.call("send", fmt.Sprintf(`{"sessionId":"s%d","command":%d}`, i%sessions, i))
		}
		synctest.Wait()
		if n := len(inWork); n != protocol.RequestsInWorkMax {
			t.Errorf("%d in work", n)
		}
		wantMet(t, s, "RequestsQueuedMax", 0)
		m := l.fails("send", `{"sessionId":"s0","command":0}`, protocol.CodeOverloaded)
		wantMet(t, s, "RequestsQueuedMax", 1)
		if !strings.Contains(m.Error.Message, "more than 64 requests") {
			t.Errorf("message %q", m.Error.Message)
		}
		if m.Error.Data["retryable"] != true {
			t.Errorf("data %v", m.Error.Data)
		}
		l.result("ping", `{}`)
		close(hold)
		last := make(map[int]int)
		for range total {
			l.line()
		}
		for _, c := range w.done() {
			var session, n int
			if _, err := fmt.Sscanf(c, "s%d %d", &session, &n); err != nil {
				t.Fatal(err)
			}
			if n < last[session] {
				t.Errorf("session %d: %d after %d", session, n, last[session])
			}
			last[session] = n
		}
	})
}

// Proves I-A1.
func TestAuthentication(t *testing.T) {
	w := newFakeWorld("s")
	w.token = "secret"
	inBubble(t, w, Config{AuthTimeout: 5 * time.Second}, func(t *testing.T, s *Server) {
		l := dial(t, s, false)
		for _, m := range []string{"send", "nope", "server_status", "list_sessions", "subscribe"} {
			if got := l.fails(m, `{"sessionId":"s","command":1}`, protocol.CodeAuth); got.Error.Message != "authentication required" {
				t.Errorf("%s: %s", m, got.Error.Message)
			}
		}
		l.result("ping", `{}`)
		l.write(`[{"id":1,"method":"send","params":{"sessionId":"s","command":1}},{"id":2,"method":"authenticate","params":{"token":"secret"}},{"id":3,"method":"send","params":{"sessionId":"s","command":2}}]`)
		if got := l.line(); !strings.Contains(got, `"id":1,"error":{"code":-32001`) || !strings.Contains(got, `"id":3,"result"`) {
			t.Errorf("got %s", got)
		}
		if got, want := w.done(), []string{"s 2"}; !slices.Equal(got, want) {
			t.Errorf("effects %q, want %q", got, want)
		}
		l.result("authenticate", `{"token":"secret"}`)
		wait(t, time.Minute) // far beyond the timeout
		l.result("ping", `{}`)
		l.close()

		l = dial(t, s, false)
		if got := l.fails("authenticate", `{"token":"wrong"}`, protocol.CodeAuth); got.Error.Message != "invalid token" {
			t.Errorf("got %s", got.Error.Message)
		}
		l.ended(CloseUnauthorized)

		l = dial(t, s, false)
		begin := time.Now()
		if m := l.next(); m.Error == nil || m.Error.Code != protocol.CodeAuth || m.Error.Message != "not authenticated within 5s" {
			t.Errorf("got %+v", m.Error)
		}
		l.ended(CloseUnauthorized)
		if st := s.Stats(); st.AuthTimeouts != 1 || st.Refused["AuthTimeoutDefault"] != 1 {
			t.Errorf("%d timeouts, %v", st.AuthTimeouts, st.Refused)
		}
		if d := time.Since(begin); d != 5*time.Second {
			t.Errorf("closed after %s", d)
		}
	})
}

// wait lets the time of a bubble pass.
func wait(t *testing.T, d time.Duration) {
	t.Helper()
	<-time.After(d)
}

func TestRoles(t *testing.T) {
	w := newFakeWorld("s")
	w.role = broker.RoleObserver
	inBubble(t, w, Config{}, func(t *testing.T, s *Server) {
		l := dial(t, s, false)
		defer l.close()
		for _, m := range []string{"send", "prompt", "start_session", "stop_session", "resume_session", "delete_session", "set_title", "read_stderr", "list_workers", "drain_worker"} {
			l.fails(m, `{"sessionId":"s","command":1}`, protocol.CodeForbidden)
		}
		l.result("list_sessions", `{}`)
		l.result("get_session", `{"sessionId":"s"}`)
		l.result("subscribe", `{"sessionId":"s"}`)
	})
}

func TestOverlongRequest(t *testing.T) {
	inBubble(t, newFakeWorld(), Config{}, func(t *testing.T, s *Server) {
		l := dial(t, s, false)
		go func() { _, _ = l.in.Write([]byte(strings.Repeat("x", 2<<20))) }()
		l.want(`{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"request exceeds size limit","data":{"reason":"invalid_request","retryable":false}}}`)
		l.ended(CloseTooBig)
	})
}

func TestInternalErrorsHideTheirCause(t *testing.T) {
	w := newFakeWorld("s")
	inBubble(t, w, Config{}, func(t *testing.T, s *Server) {
		l := dial(t, s, false)
		defer l.close()
		w.before = func(string) { panic("a secret") }
		m := l.fails("send", `{"sessionId":"s","command":1}`, protocol.CodeInternal)
		if strings.Contains(m.Error.Message, "secret") || m.Error.Data["id"] == nil {
			t.Errorf("got %+v", m.Error)
		}
		w.logs["s"].fold = func() error { return errors.New("a secret") }
		l.fails("get_snapshot", `{"sessionId":"s"}`, protocol.CodeInternal)
		l.result("ping", `{}`)
	})
}

func TestHalfClosedClientGetsItsAnswers(t *testing.T) {
	w := newFakeWorld("s")
	inBubble(t, w, Config{}, func(t *testing.T, s *Server) {
		hold := make(chan struct{})
		w.before = func(string) { <-hold }
		l := dial(t, s, true)
		l.call("send", `{"sessionId":"s","command":1}`)
		_ = l.in.Close()
		synctest.Wait()
		close(hold)
		if m := l.next(); m.Result == nil {
			t.Errorf("got %+v", m)
		}
		l.ended(CloseNormal)

		l = dial(t, s, true)
		l.result("subscribe", `{"sessionId":"s","until":2}`)
		_ = l.in.Close()
		l.next() // synced
		wait(t, time.Hour)
		w.logs["s"].append(2, 1)
		l.wantEvents(1, 1, 2)
		if m := l.next(); m.Method != "subscription_end" || m.Params.Reason != "until" || m.Params.Seq != 2 {
			t.Errorf("got %+v", m)
		}
		l.ended(CloseNormal)
	})
}

// A client that does not read its responses is not read from; neither is memory
// spent on it.
func TestUnreadResponsesStopTheReader(t *testing.T) {
	w := newFakeWorld("s")
	w.logs["s"].append(100, 10000)
	inBubble(t, w, Config{WriteTimeout: time.Hour}, func(t *testing.T, s *Server) {
		l := dial(t, s, false)
		sent := make(chan int, 1)
		go func() {
			for i := range 1000 {
				request := fmt.Sprintf(`{"id":"%d %s","method":"ping"}`, i, strings.Repeat("x", 10000))
				if i < 50 {
					request = fmt.Sprintf(`{"id":%d,"method":"read_events","params":{"sessionId":"s","after":0}}`, i)
				}
				if _, err := l.in.Write([]byte(request + "\n")); err != nil {
					sent <- i
					return
				}
			}
			sent <- 1000
		}()
		wait(t, time.Minute)
		c := s.open()[0]
		c.mu.Lock()
		held := c.unsent + c.reserved
		c.mu.Unlock()
		if limit := protocol.ResponseBytesQueued + 2<<20; held > limit {
			t.Errorf("%d bytes of responses, want at most %d", held, limit)
		}
		wantMet(t, s, "ResponseBytesQueued", 1)
		l.line()
		l.close()
		if n := <-sent; n == 1000 {
			t.Error("every request was read")
		}
	})
}

func TestStalledClientIsClosedAndProgressRenews(t *testing.T) {
	w := newFakeWorld("s")
	inBubble(t, w, Config{WriteTimeout: 10 * time.Second}, func(t *testing.T, s *Server) {
		l := dial(t, s, false)
		l.result("subscribe", `{"sessionId":"s"}`)
		l.next() // synced
		w.logs["s"].append(1, 1<<20)
		buf := make([]byte, 1000)
		for range 20 { // a trickle
			wait(t, 9*time.Second)
			if _, err := l.out.Read(buf); err != nil {
				t.Fatal(err)
			}
		}
		begin := time.Now()
		<-l.pipe.closed
		if d := time.Since(begin); d > 20*time.Second || d < 10*time.Second {
			t.Errorf("closed after %s", d)
		}
		l.close()
	})
}

// A stalled client never delays the end of the server.
func TestDrain(t *testing.T) {
	w := newFakeWorld("s")
	inBubble(t, w, Config{}, func(t *testing.T, s *Server) {
		stalled := dial(t, s, true)
		stalled.result("subscribe", `{"sessionId":"s"}`)
		stalled.next()
		quiet := dial(t, s, false)
		quiet.result("subscribe", `{"sessionId":"s"}`)
		quiet.next()
		w.logs["s"].append(1, 1<<20)
		synctest.Wait()
		begin := time.Now()
		quiet.stop()
		quiet.wantEvents(2, 1, 1)
		quiet.ended(CloseDraining)
		if d := time.Since(begin); d != 0 {
			t.Errorf("the client that reads was held for %s", d)
		}
		stalled.stop()
		<-stalled.served
		if d := time.Since(begin); d > drainTimeout {
			t.Errorf("the stalled client was held for %s", d)
		}
	})
}

func TestConnectionsMax(t *testing.T) {
	inBubble(t, newFakeWorld(), Config{ConnectionsMax: 1}, func(t *testing.T, s *Server) {
		l := dial(t, s, false)
		l.result("ping", `{}`)
		surplus := dial(t, s, false)
		if m := surplus.next(); m.Error == nil || m.Error.Code != protocol.CodeOverloaded || string(m.ID) != "null" {
			t.Errorf("got %+v", m)
		}
		surplus.ended(CloseOverloaded)
		l.close()
		l = dial(t, s, false)
		l.result("ping", `{}`)
		l.close()
	})
}
