package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"rejoin/protocol"
)

func TestBackoff(t *testing.T) {
	o := Options{}.withDefaults()
	b := newBackoff(&o)
	for _, ms := range []int{100, 200, 400, 800, 1600, 3200, 6400, 12800, 15000, 15000, 15000} {
		want := time.Duration(ms) * time.Millisecond
		if got := b.bound(); got != want {
			t.Fatalf("bound after %d tries is %v, want %v", b.tries, got, want)
		}
		for range 100 {
			if d := fullJitter(want); d < 0 || d >= want {
				t.Fatalf("jitter of %v is %v", want, d)
			}
		}
		if d := b.next(); d < 0 || d >= want {
			t.Fatalf("wait is %v, want less than %v", d, want)
		}
	}
	b.reset()
	if got := b.bound(); got != o.BackoffBase {
		t.Errorf("bound after progress is %v", got)
	}
}

func TestBackoffNeverOverflows(t *testing.T) {
	b := backoff{base: time.Hour, max: 1<<63 - 1, jitter: fullJitter, tries: 1000}
	if d := b.next(); d < 0 {
		t.Errorf("wait is %v", d)
	}
}

func TestParseURL(t *testing.T) {
	for _, c := range []struct{ url, network, address, err string }{
		{"tcp://127.0.0.1:9800", "tcp", "127.0.0.1:9800", ""},
		{"tcp://[::1]:1", "tcp", "[::1]:1", ""},
		{"unix:///run/r.sock", "unix", "/run/r.sock", ""},
		{"tcp://host", "", "", "want tcp://host:port"},
		{"unix://run/r.sock", "", "", "want unix:///path"},
		{"tls://h:1", "tls", "h:1", ""},
		{"tls://h", "", "", "want tls://host:port"},
		{"wss://h:1", "", "", "does not speak wss yet"},
		{"ws://h:1", "", "", "does not speak ws yet"},
		{"http://h:1", "", "", "not a server URL"},
		{"host:1", "", "", "not a server URL"},
		{"tcp://h:x", "", "", "not a server URL"},
	} {
		network, address, err := ParseURL(c.url)
		if network != c.network || address != c.address || (err == nil) != (c.err == "") {
			t.Errorf("%s: %q %q %v", c.url, network, address, err)
		}
		if err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v, want %q", c.url, err, c.err)
		}
	}
}

func TestDialFails(t *testing.T) {
	refused := errors.New("connection refused")
	o := Options{URL: "tcp://nowhere:1", Dialer: func(context.Context, string, string) (net.Conn, error) { return nil, refused }}
	_, err := Dial(t.Context(), o)
	var de *DialError
	if !errors.As(err, &de) || !errors.Is(err, refused) {
		t.Errorf("Dial: %v, want a DialError", err)
	}
	_, err = Dial(t.Context(), Options{URL: "gopher://x"})
	if !errors.As(err, &de) {
		t.Errorf("Dial of an unknown scheme: %v, want a DialError", err)
	}
}

func TestDialWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		o := f.options()
		o.Wait = true
		var at []time.Duration
		begin := time.Now()
		tries := 0
		o.Dialer = func(ctx context.Context, n, a string) (net.Conn, error) {
			at = append(at, time.Since(begin))
			if tries++; tries < 11 {
				return nil, errors.New("down")
			}
			return f.dial(ctx, n, a)
		}
		go f.login()
		c := dialFake(t, o)
		for i, ms := range []int64{100, 200, 400, 800, 1600, 3200, 6400, 12800, 15000, 15000} {
			if got := (at[i+1] - at[i]).Milliseconds(); got != ms {
				t.Errorf("wait %d is %d ms, want %d", i, got, ms)
			}
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestDialWithoutAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		go func() { f.accept().request("authenticate") }()
		_, err := Dial(t.Context(), f.options())
		var de *DialError
		if !errors.As(err, &de) || !strings.Contains(err.Error(), "no answer within 10s") {
			t.Errorf("Dial: %v", err)
		}
	})
}

func TestTokenRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		refuse := func() {
			p := f.accept()
			p.refuse(p.request("authenticate"), protocol.CodeAuth, protocol.ReasonAuthFailed, false)
		}
		go refuse()
		_, err := Dial(t.Context(), f.options())
		var rpc *RPCError
		if !errors.As(err, &rpc) || !rpc.Unauthorised() || rpc.Reason() != protocol.ReasonAuthFailed {
			t.Errorf("Dial: %v, want auth_failed", err)
		}

		go func() {
			f.login().Close()
			refuse()
		}()
		c := dialFake(t, f.options())
		synctest.Wait()
		<-time.After(time.Second) // virtual: the second connection is refused by now
		if _, err := c.Call(t.Context(), "list_sessions", nil); !errors.As(err, &rpc) || !rpc.Unauthorised() {
			t.Errorf("Call after the token was refused: %v", err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if _, err := c.Call(t.Context(), "ping", nil); err == nil {
			t.Error("Call after Close succeeds")
		}
	})
}

func TestCallsOutOfOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		go func() {
			p := f.login()
			first := p.request("a")
			second := p.request("b")
			p.result(second, `"b"`)
			p.say(`{"jsonrpc":"2.0","method":"unknown","params":{}}`)
			p.result(first, `"a"`)
			p.refuse(p.request("c"), protocol.CodeConflict, protocol.ReasonConflict, false)
		}()
		c := dialFake(t, f.options())
		got := make(chan string)
		go func() {
			r, err := c.Call(t.Context(), "a", nil)
			if err != nil {
				t.Error(err)
			}
			got <- string(r)
		}()
		synctest.Wait()
		if r, err := c.Call(t.Context(), "b", nil); string(r) != `"b"` || err != nil {
			t.Errorf("b: %s %v", r, err)
		}
		if r := <-got; r != `"a"` {
			t.Errorf("a: %s", r)
		}
		var rpc *RPCError
		if _, err := c.Call(t.Context(), "c", nil); !errors.As(err, &rpc) || rpc.Code != protocol.CodeConflict || rpc.Retryable() {
			t.Errorf("c: %v", err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestCallEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		go func() {
			p := f.login()
			p.request("slow")
			p.result(p.request("quick"), `1`)
		}()
		c := dialFake(t, f.options())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Call(ctx, "slow", nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("slow: %v", err)
		}
		if _, err := c.Call(t.Context(), "quick", nil); err != nil {
			t.Errorf("quick: %v", err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestCallLostWithItsLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		go func() {
			p := f.login()
			p.request("start_session")
			p.Close()
			p = f.login()
			p.result(p.request("ping"), `{}`)
		}()
		c := dialFake(t, f.options())
		if _, err := c.Call(t.Context(), "start_session", nil); !errors.Is(err, ErrLost) {
			t.Errorf("Call: %v, want ErrLost", err)
		}
		if _, err := c.Call(t.Context(), "ping", nil); err != nil {
			t.Errorf("Call on the next link: %v", err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Proves I-B1 on the client's side: one id, however often the link breaks.
func TestSendKeepsItsCommandID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		ids := make(chan any, 4)
		go func() {
			p := f.login()
			r := p.request("send")
			ids <- r.Params["commandId"]
			p.Close() // the answer is lost

			p = f.login()
			r = p.request("send")
			ids <- r.Params["commandId"]
			p.refuse(r, protocol.CodeUnavailable, protocol.ReasonOutcomeUnknown, true)
			r = p.request("send")
			ids <- r.Params["commandId"]
			p.result(r, `{"sessionId":"s","status":"sent","commandId":"x","seq":9,"duplicate":true}`)
			r = p.request("send")
			ids <- r.Params["commandId"]
			p.refuse(r, protocol.CodeConflict, protocol.ReasonConflict, false)
		}()
		c := dialFake(t, f.options())
		r, err := c.Send(t.Context(), "s", json.RawMessage(`{"a":"<>"}`), SendOptions{})
		if err != nil || r.Seq != 9 || !r.Duplicate {
			t.Fatalf("Send: %+v %v", r, err)
		}
		first := <-ids
		if first == "" || first == nil || first != <-ids || first != <-ids {
			t.Error("the command id changed between attempts")
		}
		var rpc *RPCError
		if _, err = c.Send(t.Context(), "s", json.RawMessage(`1`), SendOptions{CommandID: "mine"}); !errors.As(err, &rpc) {
			t.Errorf("Send: %v, want the conflict", err)
		}
		if id := <-ids; id != "mine" {
			t.Errorf("command id is %v, want mine", id)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestSendKeepsBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		line := make(chan string, 1)
		go func() {
			p := f.login()
			b, err := p.r.ReadBytes('\n')
			if err != nil {
				t.Error(err)
			}
			line <- string(b)
			p.result(request{ID: json.RawMessage(`1`)}, `{"seq":1}`)
		}()
		c := dialFake(t, f.options())
		command := "{\"a\":\"<&>\u2028\",\"n\":1e400}"
		if _, err := c.Send(t.Context(), "s", json.RawMessage(command), SendOptions{}); err != nil {
			t.Error(err)
		}
		if got := <-line; !strings.Contains(got, `"command":`+command) {
			t.Errorf("sent %s", got)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestTooLargeGoesToTheLargest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		go func() {
			p := f.login()
			p.request("small")
			p.request("large")
			p.say(`{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"request exceeds size limit"}}`)
			p.Close()
			f.login()
		}()
		c := dialFake(t, f.options())
		small := make(chan error)
		go func() {
			_, err := c.Call(t.Context(), "small", nil)
			small <- err
		}()
		synctest.Wait()
		var rpc *RPCError
		if _, err := c.Retry(t.Context(), "large", map[string]string{"a": strings.Repeat("x", 1000)}); !errors.As(err, &rpc) {
			t.Errorf("large: %v, want the server's error", err)
		}
		if err := <-small; !errors.Is(err, ErrLost) {
			t.Errorf("small: %v, want ErrLost", err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		begin := time.Now()
		var pinged []time.Duration
		lost := make(chan Link, 1)
		go func() {
			p := f.login()
			for range 2 { // answered: the link lives
				r := p.request("ping")
				pinged = append(pinged, time.Since(begin))
				<-time.After(9 * time.Second)
				p.result(r, `{"type":"pong"}`)
			}
			late := p.request("ping")
			pinged = append(pinged, time.Since(begin))
			p.gone()
			q := f.login()
			p.result(late, `{"type":"pong"}`) // to a link that is gone
			r := q.request("ping")
			pinged = append(pinged, time.Since(begin))
			q.result(r, `{"type":"pong"}`)
		}()
		o := f.options()
		o.OnLink = func(l Link) {
			if l.State == LinkLost {
				lost <- l
			}
		}
		c := dialFake(t, o)
		l := <-lost
		if !errors.Is(l.Err, errSilent) || time.Since(begin) != 118*time.Second {
			t.Errorf("lost after %v: %v", time.Since(begin), l.Err)
		}
		<-time.After(60 * time.Second)
		synctest.Wait()
		for i, s := range []float64{30, 69, 108} {
			if pinged[i].Seconds() != s {
				t.Errorf("ping %d after %v, want %v s", i, pinged[i], s)
			}
		}
		if len(pinged) != 4 {
			t.Errorf("%d pings, want one on the second link", len(pinged))
		}
		select {
		case l := <-lost:
			t.Errorf("the second link was lost: %v", l.Err)
		default:
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestCloseEndsWaitingCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		go func() { f.login().request("a") }()
		c := dialFake(t, f.options())
		got := make(chan error)
		go func() {
			_, err := c.Retry(t.Context(), "a", nil)
			got <- err
		}()
		synctest.Wait()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if err := <-got; !errors.Is(err, ErrClosed) {
			t.Errorf("Retry: %v, want ErrClosed", err)
		}
	})
}

// deafConn is a connection whose server has closed its side for reading.
type deafConn struct{ net.Conn }

func (deafConn) Write([]byte) (int, error) { return 0, syscall.EPIPE }

// A server that has no room says so and closes: what it said counts, not that
// nothing can be written any more.
func TestRefusedBeforeItSpeaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, said := range []bool{true, false} {
			o := newFake(t).options()
			o.Dialer = func(context.Context, string, string) (net.Conn, error) {
				server, client := net.Pipe()
				go func() {
					if said {
						_, _ = io.WriteString(server, `{"jsonrpc":"2.0","id":null,"error":{"code":-32005,"message":"full","data":{"reason":"overloaded","retryable":true}}}`+"\n")
					}
					_ = server.Close()
				}()
				return deafConn{client}, nil
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := Dial(ctx, o)
			cancel()
			if got := strings.Contains(err.Error(), "full"); got != said || !said && !errors.Is(err, syscall.EPIPE) {
				t.Errorf("said %v: %v", said, err)
			}
		}
	})
}
