package security

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"rejoin/tests/harness"
)

// A token of the token file has so many connections and live sessions, and takes
// nothing from the others.
func TestLimitsPerToken(t *testing.T) {
	s := harness.Start(t, withEcho(t, "limits: {connectionsPerToken: 3, sessionsPerToken: 2}"))
	ann, bob := addToken(t, s.Dir, "ann", "operator", "default"), addToken(t, s.Dir, "bob", "operator", "default")
	var cs []*harness.Client
	for range 3 {
		cs = append(cs, as(t, s, ann))
	}
	full := harness.DialWire(t, s)
	full.Send(`{"id":1,"method":"authenticate","params":{"token":"` + ann + `"}}` + "\n")
	if lines := full.Closed(); len(lines) != 1 || !strings.Contains(lines[0], `"code":-32005,"message":"more than 3 connections of this token"`) || !strings.Contains(lines[0], `"retryable":true`) {
		t.Errorf("the fourth connection was told %q", lines)
	}
	others := as(t, s, bob)
	admin := harness.Dial(t, s)
	if err := cs[2].Close(); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the place is free again", func() bool {
		c, err := tryAs(t, s, ann)
		return err == nil && c.Close() == nil
	})

	// Starts at the same time cannot pass the limit together.
	var mu sync.Mutex
	var won []string
	lost := 0
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			raw, err := cs[0].Call(harness.Context(t), "start_session", nil)
			mu.Lock()
			defer mu.Unlock()
			var e *harness.RPCError
			var r struct{ SessionID string }
			switch {
			case errors.As(err, &e) && e.Code == -32005 && e.Data.Retryable && e.Message == "more than 2 live sessions of this token":
				lost++
			case err != nil || json.Unmarshal(raw, &r) != nil:
				t.Errorf("%s %v", raw, err)
			default:
				won = append(won, r.SessionID)
			}
		})
	}
	wg.Wait()
	if len(won) != 2 || lost != 4 {
		t.Fatalf("%d started and %d were refused", len(won), lost)
	}
	start(t, others)
	start(t, admin)
	// One that has ended makes room; to resume it takes room.
	harness.Do[json.RawMessage](t, cs[0], "stop_session", map[string]any{"sessionId": won[0]})
	third := start(t, cs[0]).ID
	refused(t, cs[0], -32005, "resume_session", map[string]any{"sessionId": won[0]})
	harness.Do[json.RawMessage](t, others, "resume_session", map[string]any{"sessionId": won[0]}) // it is another's then
	refused(t, cs[0], -32005, "start_session", nil)
	harness.Do[json.RawMessage](t, cs[0], "delete_session", map[string]any{"sessionId": third})
	start(t, cs[0])
}

// An address with many wrong tokens is not heard for a while; one line has one
// attempt; the token that was right all along is refused meanwhile, and what is
// connected goes on.
func TestWrongTokens(t *testing.T) {
	o := withEcho(t, "limits: {authFailures: 5}")
	o.Listen = []string{"tcp://127.0.0.1:0", "unix://" + t.TempDir() + "/s"}
	s := harness.Start(t, o)
	token := addToken(t, s.Dir, "ann", "observer", "default")
	before := as(t, s, token)

	// A batch of guesses is one guess, and the right one in it is not heard.
	guess := func(tokens ...string) []string {
		t.Helper()
		var calls []string
		for _, token := range tokens {
			calls = append(calls, `{"jsonrpc":"2.0","id":1,"method":"authenticate","params":{"token":"`+token+`"}}`)
		}
		w := harness.DialWire(t, s)
		w.Send("[" + strings.Join(calls, ",") + "]\n")
		return w.Closed()
	}
	lines := guess("wrong", token, s.Token(), "wrong")
	if len(lines) != 1 || strings.Contains(lines[0], "authenticated") || strings.Count(lines[0], "invalid token") != 4 {
		t.Errorf("a batch of guesses: %q", lines)
	}
	for range 4 {
		if lines := guess("wrong"); len(lines) != 1 || !strings.Contains(lines[0], "-32001") {
			t.Errorf("a wrong token: %q", lines)
		}
	}
	for _, text := range []string{"wrong", token, s.Token()} {
		lines := guess(text)
		if len(lines) != 1 || !strings.Contains(lines[0], `"code":-32005,"message":"too many wrong tokens from this address`) || !strings.Contains(lines[0], `"reason":"overloaded"`) {
			t.Errorf("after too many: %q", lines)
		}
	}
	harness.Do[json.RawMessage](t, before, "list_sessions", nil)
	// Not where the kernel says who it is.
	path := strings.TrimPrefix(s.Ready.Listeners[1].URL, "unix://")
	for range 8 {
		if c, err := harness.Connect(harness.Context(t), "unix", path, "wrong"); err == nil {
			t.Error(errors.Join(errors.New("a wrong token is good"), c.Close()))
		}
	}
	c, err := harness.Connect(harness.Context(t), "unix", path, token)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// metricsOf is what the admin endpoint of a server tells.
func metricsOf(t *testing.T, s *harness.Server) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(s.Dir, "server.json"))
	if err != nil {
		t.Fatal(err)
	}
	var ready struct{ Admin string }
	if err := json.Unmarshal(b, &ready); err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(harness.Context(t), http.MethodGet, ready.Admin+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, err = io.ReadAll(resp.Body); err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// A workspace has so many sessions, live and ended; a deleted one makes room, and
// another workspace has its own. Who sends faster than the rate waits and loses nothing.
// Both are counted.
func TestSessionsKept(t *testing.T) {
	o := withEcho(t, "limits: {sessionsKept: 2, requestsPerSecond: 100}")
	o.Args = append(o.Args, "--admin", "127.0.0.1:0")
	s := harness.Start(t, o)
	c := as(t, s, addToken(t, s.Dir, "ann", "operator", "w"))
	first := start(t, c).ID
	start(t, c)
	harness.Do[json.RawMessage](t, c, "stop_session", map[string]any{"sessionId": first})
	refused(t, c, -32005, "start_session", nil) // an ended one counts
	harness.Do[json.RawMessage](t, c, "resume_session", map[string]any{"sessionId": first})
	start(t, as(t, s, addToken(t, s.Dir, "bob", "operator", "other")))
	harness.Do[json.RawMessage](t, c, "delete_session", map[string]any{"sessionId": first})
	start(t, c)
	refused(t, c, -32005, "start_session", nil)

	w := harness.DialWire(t, s)
	w.Authenticate(s.Token())
	const n = 250 // 200 at once, the rest at 100 a second
	var all strings.Builder
	for i := range n {
		fmt.Fprintf(&all, `{"jsonrpc":"2.0","id":%d,"method":"ping"}`+"\n", i)
	}
	w.Send(all.String())
	for i := range n {
		if line := w.Line(); !strings.Contains(line, fmt.Sprintf(`"id":%d,"result"`, i)) {
			t.Fatalf("answer %d: %s", i, line)
		}
	}
	text := metricsOf(t, s)
	for limit, least := range map[string]float64{"SessionsKeptDefault": 2, "RequestsPerSecondDefault": 1} {
		_, rest, found := strings.Cut(text, `rejoin_refused_total{limit="`+limit+`"} `)
		line, _, _ := strings.Cut(rest, "\n")
		if got, err := strconv.ParseFloat(line, 64); !found || err != nil || got < least {
			t.Errorf("%s is counted %q times, want at least %v", limit, line, least)
		}
	}
}
