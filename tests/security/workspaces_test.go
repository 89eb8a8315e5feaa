package security

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rejoin/tests/harness"
)

// pair is two workspaces of one server, each with a session of the same id.
type pair struct {
	s    *harness.Server
	toks [2]string
	c    [2]*harness.Client
}

const sameID = "same"

func newPair(t *testing.T) *pair {
	t.Helper()
	p := &pair{s: harness.Start(t, withEcho(t, ""))}
	for i, ws := range []string{"a", "b"} {
		p.toks[i] = addToken(t, p.s.Dir, "in-"+ws, "operator", ws)
		p.c[i] = as(t, p.s, p.toks[i])
		// The same id and the same command id, for different things.
		got := start(t, p.c[i], "sessionId", sameID, "title", "of "+ws, "commandId", "start-1")
		if got.ID != sameID || got.Title != "of "+ws {
			t.Fatalf("started %+v", got)
		}
	}
	return p
}

// say sends a line that only this workspace may see, and waits for its echo.
func (p *pair) say(t *testing.T, i int, text, commandID string) {
	t.Helper()
	harness.Do[json.RawMessage](t, p.c[i], "send", map[string]any{"sessionId": sameID, "command": text, "commandId": commandID})
}

func (p *pair) events(t *testing.T, i int) string {
	t.Helper()
	return string(harness.Do[json.RawMessage](t, p.c[i], "read_events", map[string]any{"sessionId": sameID, "after": 0}))
}

// Two workspaces with the same session id and the same command ids are two of
// everything, live, after a kill, and after one of them is deleted. Proves I-A1.
func TestTheSameIDInTwoWorkspaces(t *testing.T) {
	p := newPair(t)
	for i, ws := range []string{"a", "b"} {
		p.say(t, i, "secret of "+ws, "cmd-1")
	}
	check := func(when string) {
		t.Helper()
		for i, own := range []string{"secret of a", "secret of b"} {
			foreign := []string{"secret of b", "secret of a"}[i]
			events := p.events(t, i)
			if strings.Count(events, own) != 2 || strings.Contains(events, foreign) {
				t.Errorf("%s: the events of workspace %d: %s", when, i, events)
			}
			stderr := harness.Do[struct{ Text string }](t, p.c[i], "read_stderr", map[string]any{"sessionId": sameID}).Text
			if !strings.Contains(stderr, own) || strings.Contains(stderr, foreign) {
				t.Errorf("%s: the stderr of workspace %d: %q", when, i, stderr)
			}
			list := harness.Do[[]session](t, p.c[i], "list_sessions", nil)
			if len(list) != 1 || list[0].Title != "of "+[]string{"a", "b"}[i] {
				t.Errorf("%s: workspace %d lists %+v", when, i, list)
			}
			snap := string(harness.Do[json.RawMessage](t, p.c[i], "get_snapshot", map[string]any{"sessionId": sameID}))
			if strings.Contains(snap, "of "+[]string{"b", "a"}[i]) {
				t.Errorf("%s: the state of workspace %d: %s", when, i, snap)
			}
		}
	}
	harness.Eventually(t, "both have echoed", func() bool {
		ok := true
		for i := range p.c {
			ok = ok && strings.Count(p.events(t, i), "secret of") == 2 &&
				harness.Do[struct{ Text string }](t, p.c[i], "read_stderr", map[string]any{"sessionId": sameID}).Text != ""
		}
		return ok
	})
	check("live")
	for i, ws := range []string{"a", "b"} {
		if env := p.events(t, i); !strings.Contains(env, `"REJOIN_SESSION=`+ws+`/`+sameID+`"`) {
			t.Errorf("the child of %s has another mark: %s", ws, env)
		}
		again := harness.Do[struct{ Duplicate bool }](t, p.c[i], "send", map[string]any{"sessionId": sameID, "command": "secret of " + ws, "commandId": "cmd-1"})
		if !again.Duplicate {
			t.Error("a repetition is new")
		}
		if got := start(t, p.c[i], "sessionId", sameID, "title", "of "+ws, "commandId", "start-1"); got.Title != "of "+ws {
			t.Errorf("the start again is %+v", got)
		}
	}
	var dirs [2][]string // stderr, HOME and TMPDIR
	for i, ws := range []string{"a", "b"} {
		for _, kind := range []string{"stderr", "sessions"} {
			dir := filepath.Join(p.s.Dir, kind, ws, sameID)
			if _, err := os.Stat(dir); err != nil {
				t.Error(err)
			}
			dirs[i] = append(dirs[i], dir)
		}
		if !strings.Contains(p.events(t, i), `"HOME=`+dirs[i][1]) || !strings.Contains(p.events(t, i), `"TMPDIR=`+dirs[i][1]) {
			t.Errorf("the child of %s has another home than %s", ws, dirs[i][1])
		}
	}

	p.s.Kill9()
	p.s.Run()
	for i := range p.c {
		p.c[i] = as(t, p.s, p.toks[i])
	}
	check("after a kill")
	for i := range p.c {
		harness.Do[json.RawMessage](t, p.c[i], "resume_session", map[string]any{"sessionId": sameID})
	}

	// What is done to one is not done to the other.
	ctx := harness.Context(t)
	sub, err := p.c[1].Subscribe(ctx, sameID, nil)
	if err != nil {
		t.Fatal(err)
	}
	harness.Do[json.RawMessage](t, p.c[0], "stop_session", map[string]any{"sessionId": sameID})
	harness.Do[json.RawMessage](t, p.c[0], "delete_session", map[string]any{"sessionId": sameID})
	refused(t, p.c[0], -32000, "get_session", map[string]any{"sessionId": sameID})
	for n, dir := range dirs[0] {
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s of the deleted one: %v", dir, err)
		}
		if _, err := os.Stat(dirs[1][n]); err != nil {
			t.Errorf("of the other one: %v", err)
		}
	}
	if got := harness.Do[session](t, p.c[1], "get_session", map[string]any{"sessionId": sameID}); got.State != "running" || got.Title != "of b" {
		t.Errorf("the other one is %+v", got)
	}
	p.say(t, 1, "still there", "cmd-2")
	if _, err := sub.Until(ctx, func(e harness.Event) bool { return string(e.Body) == `"still there"` }); err != nil {
		t.Error(err)
	}
	if events := p.events(t, 1); !strings.Contains(events, "secret of b") {
		t.Error("its history is gone")
	}
	refused(t, p.c[0], -32006, "start_session", map[string]any{"sessionId": sameID}) // used before, here
}

// Another workspace's session is answered like one that never was, by every
// method, to the byte.
func TestForeignSessionsDoNotExist(t *testing.T) {
	p := newPair(t)
	const theirs = "only-in-b"
	start(t, p.c[1], "sessionId", theirs)
	for name := range least {
		if name == "start_session" || name == "start_session with argv" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			answer := func(id string) string {
				method, params := request(name, id)
				if _, ok := params["sessionId"]; !ok {
					return ""
				}
				params["sessionId"] = id
				e := ask(t, p.s, p.toks[0], method, params)
				if e == nil {
					return "done"
				}
				return strings.ReplaceAll(fmt.Sprintf("%d %s %+v", e.Code, e.Message, e.Data), id, "ID")
			}
			foreign, unknown := answer(theirs), answer("unheard-of")
			if foreign != unknown {
				t.Errorf("foreign: %s\nunknown: %s", foreign, unknown)
			}
			if name == "get_session" && foreign != "-32000 session ID not found {Reason:session_not_found Retryable:false Head:<nil> Floor:<nil> Epoch: ResolvedBy: Outcome:}" {
				t.Errorf("answered %s", foreign)
			}
		})
	}
	refused(t, p.c[0], -32000, "list_sessions", map[string]any{"before": theirs})
	if got := harness.Do[session](t, p.c[1], "get_session", map[string]any{"sessionId": theirs}); got.State != "running" || got.Title != "" {
		t.Errorf("somebody got at it: %+v", got)
	}
	start(t, p.c[0], "sessionId", theirs) // the id is free here
}

// Lists, watches, counts and numbers tell nothing of another workspace.
func TestCountsTellNothing(t *testing.T) {
	p := newPair(t)
	ctx := harness.Context(t)
	w := harness.DialWire(t, p.s)
	w.Authenticate(p.toks[0])
	w.Send(`{"jsonrpc":"2.0","id":1,"method":"watch_sessions","params":{"heads":true}}` + "\n")
	first := w.Line()
	if !strings.Contains(first, `"subscriptionId":1,`) || strings.Contains(first, "of b") {
		t.Errorf("the watch begins with %s", first)
	}
	other := harness.DialWire(t, p.s)
	other.Authenticate(p.toks[1])
	other.Send(`{"jsonrpc":"2.0","id":1,"method":"watch_sessions","params":{"heads":true}}` + "\n")
	// A workspace full of life.
	for i := range 5 {
		c := as(t, p.s, p.toks[1])
		start(t, c, "sessionId", fmt.Sprint("busy-", i))
		for range 3 {
			if _, err := c.Subscribe(ctx, sameID, nil); err != nil {
				t.Fatal(err)
			}
		}
		p.say(t, 1, fmt.Sprint("line ", i), fmt.Sprint("line-", i))
	}
	harness.Do[json.RawMessage](t, p.c[1], "delete_session", map[string]any{"sessionId": "busy-0"})
	for line := ""; !strings.Contains(line, `"head":17,`); { // of the session that was told five lines
		line = other.Line()
	}
	w.Send(`{"jsonrpc":"2.0","id":2,"method":"server_status"}` + "\n")
	answer := func() string { // changes of the own session may come before
		line := w.Line()
		for strings.Contains(line, "session_changed") && strings.Contains(line, `"title":"of a"`) {
			line = w.Line()
		}
		return line
	}
	status := answer() // whatever the watch had of others would have come before
	if !strings.Contains(status, `"id":2,`) || !strings.Contains(status, `"connections":2,"subscriptions":1,"journal":{"state":"ok"},`) {
		t.Errorf("server_status says %s", status)
	}
	for _, text := range []string{"busy-", "of b", p.toks[1]} {
		if strings.Contains(status, text) {
			t.Errorf("server_status tells %q: %s", text, status)
		}
	}
	w.Send(`{"jsonrpc":"2.0","id":3,"method":"subscribe","params":{"sessionId":"same"}}` + "\n")
	if got := answer(); !strings.Contains(got, `"subscriptionId":2,`) {
		t.Errorf("the next subscription: %s", got)
	}
	theirs := harness.Do[struct{ Connections, Subscriptions int }](t, p.c[1], "server_status", nil)
	if theirs.Connections != 7 || theirs.Subscriptions != 16 {
		t.Errorf("the other workspace counts %+v", theirs)
	}
	if out := cli(t, p.s.Dir, "ls", "--json"); strings.TrimSpace(out) != "[]" {
		t.Errorf("the local admin sees %s", out)
	}
}

// Who did something is the token's name: in command events and where an answer
// says whose answer counted.
func TestNamesAreTheTokens(t *testing.T) {
	s := harness.Start(t, harness.Options{}) // the demo agent asks questions
	ann, bob := as(t, s, addToken(t, s.Dir, "ann", "operator", "default")), as(t, s, addToken(t, s.Dir, "bob", "operator", "default"))
	ctx := harness.Context(t)
	id := start(t, ann).ID
	sub, err := ann.Subscribe(ctx, id, map[string]any{"after": 0})
	if err != nil {
		t.Fatal(err)
	}
	harness.Do[json.RawMessage](t, ann, "prompt", map[string]any{"sessionId": id, "text": "tool"})
	type state struct {
		State struct {
			Pending []struct {
				InteractionID string `json:"interactionId"`
			} `json:"pending"`
		} `json:"state"`
	}
	var asks state
	harness.Eventually(t, "the agent asks", func() bool {
		asks = harness.Do[state](t, ann, "get_snapshot", map[string]any{"sessionId": id})
		return len(asks.State.Pending) == 1
	})
	answer := map[string]any{"sessionId": id, "interactionId": asks.State.Pending[0].InteractionID, "outcome": "allow"}
	harness.Do[json.RawMessage](t, bob, "respond", answer)
	if e := refused(t, ann, -32008, "respond", answer); e.Data.ResolvedBy != "bob" {
		t.Errorf("resolved by %q", e.Data.ResolvedBy)
	}
	events, err := sub.Until(ctx, func(e harness.Event) bool { return e.Type() == "interaction_resolved" })
	if err != nil {
		t.Fatal(err)
	}
	var by []string
	for _, e := range events {
		var b struct {
			Client struct {
				Name       string
				Connection uint64
			}
			ResolvedBy string
		}
		if err := json.Unmarshal(e.Body, &b); err != nil {
			t.Fatal(err)
		}
		if e.Type() == "command" || e.Type() == "interaction_resolved" {
			by = append(by, b.Client.Name+b.ResolvedBy)
		}
	}
	if len(by) < 2 || by[0] != "ann" || by[len(by)-1] != "bob" {
		t.Errorf("the events name %v", by)
	}
}
