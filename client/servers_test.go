package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rejoin/protocol"
)

func TestServersInTurn(t *testing.T) {
	s, err := newServers(&Options{URL: "tcp://a:1", URLs: []string{"tcp://b:1", "tcp://a:1", "tls://c:1"}})
	if err != nil {
		t.Fatal(err)
	}
	wants := func(what string, want ...string) {
		t.Helper()
		if !slices.Equal(s.order, want) || s.next() != want[0] || s.count() != len(want) {
			t.Errorf("%s: %v, want %v", what, s.order, want)
		}
	}
	wants("as given", "tcp://a:1", "tcp://b:1", "tls://c:1")
	s.failed("tcp://a:1")
	wants("the first failed", "tcp://b:1", "tls://c:1", "tcp://a:1")
	s.failed("tcp://a:1")
	s.failed("tcp://nobody:1")
	wants("what is behind, or not known, failed", "tcp://b:1", "tls://c:1", "tcp://a:1")
	s.draining("tcp://b:1", []string{"tcp://d:1", "tcp://b:1", "tcp://a:1", "tcp://d:1"})
	wants("a hint", "tcp://a:1", "tcp://d:1", "tls://c:1", "tcp://b:1")
	s.draining("tcp://d:1", []string{"tcp://e:1"})
	wants("another hint", "tcp://e:1", "tcp://a:1", "tcp://b:1", "tls://c:1")
	s.draining("tcp://a:1", nil)
	wants("no hint", "tcp://b:1", "tls://c:1", "tcp://a:1")
	s.drained("tcp://b:1", json.RawMessage(`{"reconnect":7}`))
	wants("a hint of another shape", "tcp://a:1", "tls://c:1", "tcp://b:1")

	var de *DialError
	if _, err := newServers(&Options{URLs: []string{"tcp://a:1", "gopher://x"}}); !errors.As(err, &de) || de.URL != "gopher://x" {
		t.Errorf("an unknown scheme: %v", err)
	}
	if _, err := newServers(&Options{}); !errors.As(err, &de) {
		t.Errorf("no URL: %v", err)
	}
}

// A hint never leads out of TLS, nor to a file of another machine, and is bounded.
func TestHintsThatAreNotTaken(t *testing.T) {
	named := []string{"tcp://a:1", "tls://b:1", "unix:///tmp/s", "ftp://c", "", "tls://d"}
	if got := acceptable("tls://z:1", named); !slices.Equal(got, []string{"tls://b:1"}) {
		t.Errorf("from TLS: %v", got)
	}
	if got := acceptable("tcp://z:1", named); !slices.Equal(got, []string{"tcp://a:1", "tls://b:1"}) {
		t.Errorf("from TCP: %v", got)
	}
	if got := acceptable("unix:///z", named); !slices.Equal(got, []string{"tcp://a:1", "tls://b:1"}) {
		t.Errorf("from a socket file: %v", got)
	}
	var many []string
	for i := range 10 * protocol.ReconnectURLsMax {
		many = append(many, fmt.Sprintf("tcp://a:%d", i+1))
	}
	if got := acceptable("tcp://z:1", many); len(got) != protocol.ReconnectURLsMax {
		t.Errorf("%d of %d taken, want %d", len(got), len(many), protocol.ReconnectURLsMax)
	}
}

// Among several servers the wait grows once per round.
func TestBackoffAmongServers(t *testing.T) {
	o := Options{URLs: []string{"tcp://a:1", "tcp://b:1", "tcp://c:1"}}.withDefaults()
	s, err := newServers(&o)
	if err != nil {
		t.Fatal(err)
	}
	b := newBackoff(&o).among(s)
	for i, ms := range []int{100, 100, 100, 200, 200, 200, 400} {
		if got := b.bound(); got != time.Duration(ms)*time.Millisecond {
			t.Errorf("bound of wait %d is %v, want %d ms", i, got, ms)
		}
		b.next()
	}
}

// world is several fakes, by host.
type world map[string]*fake

func newWorld(t *testing.T, hosts ...string) world {
	w := world{}
	for _, h := range hosts {
		w[h] = newFake(t)
	}
	return w
}

// options dial the servers of the world; one that is not there refuses.
func (w world) options(t *testing.T, urls ...string) Options {
	o := newFake(t).options()
	o.URL, o.URLs = "", urls
	o.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
		host, _, _ := strings.Cut(address, ":")
		if f := w[host]; f != nil {
			return f.dial(ctx, network, address)
		}
		return nil, errors.New(address + " refuses")
	}
	return o
}

func TestDialTriesEachServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "c")
		_, err := Dial(t.Context(), w.options(t, "tcp://a:1", "tcp://b:1"))
		var de *DialError
		if !errors.As(err, &de) || !strings.Contains(err.Error(), "a:1 refuses") || !strings.Contains(err.Error(), "b:1 refuses") {
			t.Errorf("Dial: %v, want what each server did", err)
		}
		begin := time.Now()
		go w["c"].login()
		c := dialFake(t, w.options(t, "tcp://a:1", "tcp://b:1", "tcp://c:1"))
		if d := time.Since(begin); d != 0 {
			t.Errorf("the third server was reached after %v", d)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A server that lets nobody in ends the search; one that is full does not.
func TestDialRefusedByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		go func() {
			p := w["a"].accept()
			p.refuse(p.request("authenticate"), protocol.CodeOverloaded, protocol.ReasonOverloaded, true)
			p = w["b"].accept()
			p.refuse(p.request("authenticate"), protocol.CodeAuth, protocol.ReasonAuthFailed, false)
		}()
		_, err := Dial(t.Context(), w.options(t, "tcp://a:1", "tcp://b:1", "tcp://c:1"))
		var rpc *RPCError
		if !errors.As(err, &rpc) || rpc.Reason() != protocol.ReasonAuthFailed {
			t.Errorf("Dial: %v, want auth_failed", err)
		}
	})
}

// The link of one server is lost: the next one is asked, and nobody else's link
// is touched.
func TestLostLinkGoesToTheNextServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		var urls []string
		o := w.options(t, "tcp://a:1", "tcp://b:1")
		o.OnLink = func(l Link) {
			if l.State == LinkConnected {
				urls = append(urls, l.URL)
			}
		}
		go func() {
			calls, sub := w["a"].login(), w["a"].login()
			sub.subscribed("live", 5, 5)
			sub.event(6)
			sub.Close()
			sub = w["b"].login()
			wantAfter(t, sub.subscribed("replay", 6, 7), 6)
			sub.event(7)
			calls.result(calls.request("list_sessions"), `"a"`)
			calls.Close()
			calls = w["b"].login()
			calls.result(calls.request("list_sessions"), `"b"`)
			calls.Close()
			calls = w["a"].login()
			calls.result(calls.request("list_sessions"), `"a again"`)
		}()
		begin := time.Now()
		c := dialFake(t, o)
		s, err := c.Subscribe(t.Context(), "s", SubscribeOptions{})
		if err != nil {
			t.Fatal(err)
		}
		wantSeqs(t, s, 6, 7)
		for _, want := range []string{`"a"`, `"b"`, `"a again"`} {
			r, err := c.Call(t.Context(), "list_sessions", nil)
			if d := time.Since(begin); err != nil || string(r) != want || d > time.Second {
				t.Errorf("answer %s %v after %v, want %s", r, err, d, want)
			}
			synctest.Wait()
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if want := []string{"tcp://a:1", "tcp://b:1", "tcp://a:1"}; !slices.Equal(urls, want) {
			t.Errorf("connected to %v, want %v", urls, want)
		}
	})
}

// A draining server still answers what it was asked; what comes later is asked
// of the one it names, and a subscription goes on there from its cursor.
func TestDrainingServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		draining := `{"jsonrpc":"2.0","method":"draining","params":{"reconnect":["tcp://b:1"]}}`
		asked := make(chan struct{})
		go func() {
			calls, sub := w["a"].login(), w["a"].login()
			sub.subscribed("live", 5, 5)
			sub.event(6)
			sub.say("%s", draining)
			sub.gone()
			late := calls.request("slow")
			calls.say("%s", draining)
			synctest.Wait()
			close(asked)
			next := w["b"].login() // the subscription's
			wantAfter(t, next.subscribed("replay", 6, 7), 6)
			next.event(7)
			calls.result(late, `"late"`)
			calls.gone() // nothing else was asked here
			calls = w["b"].login()
			calls.result(calls.request("quick"), `"quick"`)
		}()
		c := dialFake(t, w.options(t, "tcp://a:1"))
		s, err := c.Subscribe(t.Context(), "s", SubscribeOptions{})
		if err != nil {
			t.Fatal(err)
		}
		slow := make(chan string)
		go func() {
			r, err := c.Call(t.Context(), "slow", nil)
			slow <- fmt.Sprint(string(r), err)
		}()
		<-asked
		quick := make(chan string)
		go func() {
			r, err := c.Call(t.Context(), "quick", nil)
			quick <- fmt.Sprint(string(r), err)
		}()
		if got := <-slow; got != `"late"<nil>` {
			t.Errorf("the request before the drain: %s", got)
		}
		if got := <-quick; got != `"quick"<nil>` {
			t.Errorf("the request after the drain: %s", got)
		}
		wantSeqs(t, s, 6, 7)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A server that says that it drains and then hangs holds nobody for ever.
func TestDrainingServerThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		go func() {
			p := w["a"].login()
			p.request("slow")
			p.say(`{"jsonrpc":"2.0","method":"draining","params":{"reconnect":["tcp://b:1"]}}`)
			p.gone()
			w["b"].login()
		}()
		c := dialFake(t, w.options(t, "tcp://a:1"))
		if _, err := c.Call(t.Context(), "slow", nil); !errors.Is(err, ErrLost) {
			t.Errorf("Call: %v, want ErrLost", err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}
