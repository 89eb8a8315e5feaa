package split_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"rejoin/tests/harness"
)

// A step is one request, and what must have come before the next one: so many
// notifications that the expression matches.
type step struct {
	method string
	params map[string]any
	await  string
	times  int // zero: once, if there is an await
}

// transcript is what one server did with the same steps: answers in the order of the
// requests, and of each subscription what came, by the order of subscribing.
type transcript struct {
	answers []any
	streams map[string][]any
}

// varying are members that no two runs have in common.
var varying = []string{
	"ts", "pid", "epoch", "createdAt", "updatedAt", "connection", "timestamp", "stateHash", "deadline", "subscriptionId",
	"firstSeq", "lastSeq", // see ordered
}

// steps is a session's whole life, with refusals of all kinds, and a dialog.
func steps(id, demo, cwd string) []step {
	echo := harness.ChildArgv("echo")
	s := func(more map[string]any) map[string]any {
		all := map[string]any{"sessionId": id}
		maps.Copy(all, more)
		return all
	}
	d := func(more map[string]any) map[string]any {
		all := s(more)
		all["sessionId"] = demo
		return all
	}
	type m = map[string]any
	begin := m{"argv": echo, "cwd": cwd, "title": "first", "commandId": id + "-start"}
	return []step{
		{method: "start_session", params: s(begin)},
		{method: "start_session", params: s(begin)},
		{method: "start_session", params: s(m{"argv": echo, "cwd": cwd, "commandId": id + "-start"})},
		{method: "start_session", params: s(m{"argv": echo, "cwd": cwd})},
		{method: "start_session", params: m{"argv": []string{"/nonexistent/program"}, "cwd": cwd}},
		{method: "start_session", params: m{"agent": "nobody"}},
		{method: "start_session", params: m{"argv": "echo"}},
		{method: "start_session", params: m{"labels": m{"repo": "a"}}},
		{method: "subscribe", params: s(m{"from": "start"}), await: `"synced"`},
		{method: "read_events", params: s(m{"after": 0})},
		{method: "send", params: s(m{"commandId": "c1", "command": m{"hello": 1}}), await: `"event":{"hello":1}|"c1","outcome"`, times: 2},
		{method: "send", params: s(m{"commandId": "c1", "command": m{"hello": 1}})},
		{method: "send", params: s(m{"commandId": "c1", "command": m{"hello": 2}})},
		{method: "send", params: s(m{"command": m{}, "expect": m{"head": 1}})},
		{method: "prompt", params: s(m{"text": "hello"})},
		{method: "set_title", params: s(m{"title": "second"}), await: `"session_title"`},
		{method: "get_session", params: s(nil)},
		{method: "command_status", params: s(m{"commandIds": []string{"c1", "never"}})},
		{method: "read_events", params: s(m{"after": 999})},
		{method: "get_snapshot", params: s(nil)},
		{method: "get_snapshot", params: s(m{"at": 2})},
		{method: "get_snapshot", params: s(m{"at": 999})},
		{method: "subscribe", params: s(m{"from": "snapshot"}), await: `"synced"`},
		{method: "subscribe", params: s(m{"after": 1, "until": 2}), await: `"subscription_end"`},
		{method: "subscribe", params: s(m{"after": 1, "from": "start"})},
		{method: "send", params: s(m{"commandId": "c2", "command": m{"n": 2}}), await: `"event":{"n":2}|"c2","outcome"`, times: 4},
		{method: "stop_session", params: s(m{"graceMs": 2000}), await: `"session_end"`, times: 2},
		{method: "stop_session", params: s(nil)},
		{method: "send", params: s(m{"command": m{}})},
		{method: "send", params: s(m{"commandId": "c1", "command": m{"hello": 1}})},
		{method: "resume_session", params: s(nil), await: `"session_resumed"`, times: 2},
		{method: "resume_session", params: s(nil)},
		{method: "send", params: s(m{"commandId": "c3", "command": m{"n": 3}}), await: `"event":{"n":3}|"c3","outcome"`, times: 4},
		{method: "read_stderr", params: s(nil)},
		{method: "respond", params: s(m{"interactionId": "1.x", "outcome": "allow"})},
		{method: "nonsense", params: m{}},
		{method: "get_session", params: m{"sessionId": "nobody"}},

		{method: "start_session", params: d(m{"agent": "demo", "cwd": cwd})},
		{method: "subscribe", params: d(m{"from": "start"}), await: `"synced"`},
		{method: "send", params: d(m{"commandId": "d1", "command": m{"type": "prompt", "message": "tool"}}), await: `"extension_ui_request"`},
		{method: "get_snapshot", params: d(nil)},
		{method: "interrupt", params: d(m{"commandId": "d2"}), await: `"agent_end"`},
		{method: "prompt", params: d(m{"commandId": "d3", "text": "count 3"}), await: `"agent_end"`},
		{method: "command_status", params: d(m{"commandIds": []string{"d1", "d2", "d3"}})},
		{method: "prompt", params: d(m{"commandId": "d4", "text": "exit"}), await: `"session_end"`},
		{method: "get_session", params: d(nil)},

		{method: "delete_session", params: s(nil), await: `"subscription_end"`, times: 2},
		{method: "delete_session", params: s(nil)},
		{method: "get_session", params: s(nil)},
		{method: "start_session", params: s(m{"argv": echo, "cwd": cwd})},
	}
}

// play runs the steps over one connection.
func play(t *testing.T, address, token string, all []step) transcript {
	t.Helper()
	conn, err := net.DialTimeout("tcp", address, harness.Patience)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }() // every answer has come
	p := player{t: t, conn: conn, r: bufio.NewReader(conn), order: map[float64]string{}, got: transcript{streams: map[string][]any{}}}
	p.ask(step{method: "authenticate", params: map[string]any{"token": token}})
	for _, s := range all {
		p.ask(s)
	}
	return p.got
}

type player struct {
	t     *testing.T
	conn  net.Conn
	r     *bufio.Reader
	id    int
	order map[float64]string // names of subscriptions
	got   transcript
}

// ask sends a request and reads until its answer, and what is awaited besides, has come.
func (p *player) ask(s step) {
	p.t.Helper()
	p.id++
	line, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": p.id, "method": s.method, "params": s.params})
	if err != nil {
		p.t.Fatal(err)
	}
	if err := p.conn.SetDeadline(time.Now().Add(harness.Patience)); err != nil {
		p.t.Fatal(err)
	}
	if _, err := p.conn.Write(append(line, '\n')); err != nil {
		p.t.Fatal(err)
	}
	open := 1
	await := regexp.MustCompile(s.await)
	if s.await != "" {
		open += max(s.times, 1)
	}
	for open > 0 {
		text, err := p.r.ReadString('\n')
		if err != nil {
			p.t.Fatalf("%s %v: %v", s.method, s.params, err)
		}
		var m struct {
			ID     any            `json:"id"`
			Method string         `json:"method"`
			Result any            `json:"result"`
			Error  any            `json:"error"`
			Params map[string]any `json:"params"`
		}
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			p.t.Fatalf("%v: %s", err, text)
		}
		if m.Method == "" {
			p.answer(m.Result, m.Error)
			open--
			continue
		}
		name := p.name(m.Params["subscriptionId"])
		p.got.streams[name] = append(p.got.streams[name], map[string]any{"method": m.Method, "params": same(m.Params)})
		if s.await != "" && await.MatchString(text) {
			open--
		}
	}
}

func (p *player) answer(result, failure any) {
	if r, ok := result.(map[string]any); ok {
		p.name(r["subscriptionId"])
	}
	p.got.answers = append(p.got.answers, map[string]any{"result": same(result), "error": same(failure)})
}

// name gives each subscription a name by its order.
func (p *player) name(id any) string {
	n, ok := id.(float64)
	if !ok {
		return ""
	}
	if p.order[n] == "" {
		p.order[n] = fmt.Sprintf("subscription %d", len(p.order)+1)
	}
	return p.order[n]
}

// same is a value without what no two runs have in common.
func same(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, e := range v {
			if slices.Contains(varying, k) {
				e = "*"
			}
			out[k] = same(e)
		}
		return out
	case []any:
		out := make([]any, 0, len(v))
		for _, e := range v {
			out = append(out, same(e))
		}
		return out
	}
	return v
}

// testSameTranscript: over either gateway of the split system, requests have the same
// answers and subscriptions the same notifications as with one process that does all
// (I-R1, I-R2).
func testSameTranscript(t *testing.T, c *cluster) {
	if harness.RaceDetector {
		t.Skip("a child with the race detector takes a second to exit, as long as until it is told by TERM")
	}
	one := harness.Start(t, harness.Options{})
	_, address := one.Addr()
	cwd := t.TempDir()
	want := play(t, address, one.Token(), steps("same-0", "demo-0", cwd))
	for i, url := range []string{c.a, c.b} {
		id, demo := fmt.Sprintf("same-%d", i+1), fmt.Sprintf("demo-%d", i+1)
		got := play(t, strings.TrimPrefix(url, "tcp://"), c.token, steps(id, demo, cwd))
		got = renamed(t, got, id, "same-0", demo, "demo-0")
		compare(t, url, want, got)
	}
}

// renamed puts other session ids into a transcript.
func renamed(t *testing.T, tr transcript, names ...string) transcript {
	t.Helper()
	again := func(v, to any) {
		b, err := json.Marshal(v)
		if err == nil {
			err = json.Unmarshal([]byte(strings.NewReplacer(names...).Replace(string(b))), to)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var out transcript
	again(tr.answers, &out.answers)
	again(tr.streams, &out.streams)
	return out
}

// ordered puts the outcome of each command behind the command: what the child prints
// meanwhile may come before the outcome or after it, in one process too. The numbers
// of the events stay where they were.
func ordered(stream []any) []any {
	type event = map[string]any
	params := func(v any) event { return v.(event)["params"].(event) } // as ask has made it
	var out, outcomes []any
	for _, v := range stream {
		if body, ok := params(v)["event"].(event); ok && body["type"] == "command_outcome" {
			outcomes = append(outcomes, v)
			continue
		}
		out = append(out, v)
	}
	for _, o := range outcomes {
		at := slices.IndexFunc(out, func(v any) bool {
			body, ok := params(v)["event"].(event)
			return ok && body["type"] == "command" && body["commandId"] == params(o)["commandId"]
		})
		out = slices.Insert(out, at+1, o)
	}
	for i, v := range stream {
		params(out[i])["number"] = params(v)["seq"]
	}
	for _, v := range out {
		delete(params(v), "seq")
	}
	return out
}

// compare reports the first difference of the answers and of each subscription.
func compare(t *testing.T, where string, want, got transcript) {
	t.Helper()
	want = renamed(t, want)
	diff := func(what string, want, got []any) {
		for i := range max(len(want), len(got)) {
			var w, g any
			if i < len(want) {
				w = want[i]
			}
			if i < len(got) {
				g = got[i]
			}
			if !reflect.DeepEqual(w, g) {
				wb, _ := json.Marshal(w) // both were JSON
				gb, _ := json.Marshal(g)
				t.Errorf("%s, %s, %d:\n one process %s\n split       %s", where, what, i, wb, gb)
				return
			}
		}
	}
	diff("answers", want.answers, got.answers)
	for name := range want.streams {
		diff(name, ordered(want.streams[name]), ordered(got.streams[name]))
	}
	if len(want.streams) != len(got.streams) || len(want.streams) < 4 || len(want.answers) < 40 {
		t.Errorf("%s: %d subscriptions and %d answers, one process %d and %d", where, len(got.streams), len(got.answers), len(want.streams), len(want.answers))
	}
}
