package split_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"rejoin/tests/harness"
)

// differs are the members that may differ between two systems that are told the
// same: names of sessions, subscriptions and epochs, times, processes, and what is
// the hash of those.
var differs = regexp.MustCompile(`"(sessionId|id|subscriptionId|connection|epoch|previousEpoch|ts|pid|createdAt|updatedAt|timestamp|stateHash|chain)":("[^"]*"|[0-9]+)`)

func (d *dialog) alike(line string) string {
	if d.session != "" {
		line = strings.ReplaceAll(line, d.session, "SESSION")
	}
	line = strings.ReplaceAll(line, d.start, "START")
	return differs.ReplaceAllString(line, `"$1":…`)
}

// dialog plays a client and keeps what comes: the answer to each request, and the
// params of each subscription's events and snapshots.
type dialog struct {
	t       *testing.T
	wire    *harness.Wire
	session string
	start   string // command id of start_session
	asked   int
	answers []string
	subs    []string            // subscription ids as they came, "" before the first
	streams map[string][]string // by subscription id
}

// line takes one line; id is that of a response.
func (d *dialog) line() (id int) {
	d.t.Helper()
	text := d.wire.Line()
	var m struct {
		ID     *int            `json:"id"`
		Method string          `json:"method"`
		Params json.RawMessage `json:"params"`
		Result struct {
			SubscriptionID json.RawMessage `json:"subscriptionId"`
			SessionID      string          `json:"sessionId"`
		} `json:"result"`
	}
	if err := json.Unmarshal([]byte(text), &m); err != nil { // an array as result is no answer to this
		var plain struct {
			ID *int `json:"id"`
		}
		if json.Unmarshal([]byte(text), &plain) != nil || plain.ID == nil {
			d.t.Fatalf("%.300s: %v", text, err)
		}
		m.ID = plain.ID
	}
	if m.Method == "event" || m.Method == "snapshot" {
		var p struct {
			SubscriptionID json.RawMessage `json:"subscriptionId"`
		}
		if err := json.Unmarshal(m.Params, &p); err != nil {
			d.t.Fatal(err)
		}
		sub := string(p.SubscriptionID)
		d.streams[sub] = append(d.streams[sub], m.Method+" "+d.alike(string(m.Params)))
		return 0
	}
	if m.ID == nil {
		return 0
	}
	if sub := string(m.Result.SubscriptionID); sub != "" && !slices.Contains(d.subs, sub) {
		d.subs = append(d.subs, sub)
	}
	if d.session == "" {
		d.session = m.Result.SessionID
	}
	d.answers = append(d.answers, d.alike(text))
	return *m.ID
}

// ask makes a request and waits for its answer. $S is the session, $1 the first
// subscription.
func (d *dialog) ask(method, params string) {
	d.t.Helper()
	d.asked++
	params = strings.ReplaceAll(params, "$S", d.session)
	for i, sub := range d.subs {
		params = strings.ReplaceAll(params, fmt.Sprintf("$%d", i+1), sub)
	}
	d.wire.Send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", d.asked, method, params))
	for d.line() != d.asked {
	}
}

// until waits for an event in the n-th subscription whose params contain a text, as
// often as it has come in all.
func (d *dialog) until(n, times int, text string) {
	d.t.Helper()
	if len(d.subs) < n {
		d.t.Fatalf("subscription %d is none: %s", n, d.answers[len(d.answers)-1])
	}
	for {
		seen := 0
		for _, p := range d.streams[d.subs[n-1]] {
			seen += strings.Count(p, text)
		}
		if seen >= times {
			return
		}
		d.line()
	}
}

// play is the transcript: what clients do all day, and what they should not do. It
// leaves nothing behind.
func play(t *testing.T, address, token, demo string) *dialog {
	t.Helper()
	d := &dialog{t: t, wire: harness.DialWireTo(t, "tcp", address), start: "start-" + address, streams: map[string][]string{}}
	d.ask("list_sessions", `{}`)
	d.ask("authenticate", fmt.Sprintf(`{"token":%q}`, token))
	d.ask("list_sessions", `{}`)
	start := fmt.Sprintf(`{"argv":[%q,"demo-agent","--pace","0"],"adapter":"demo","title":"t","commandId":%q`, demo, d.start)
	d.ask("start_session", start+`}`)
	d.ask("start_session", start+`}`)
	d.ask("start_session", start+`,"sessionId":"other"}`)
	d.ask("start_session", `{"argv":["/nowhere/at/all"]}`)
	d.ask("start_session", `{"argv":"echo"}`)
	d.ask("start_session", `{"agent":"nobody"}`)
	d.ask("start_session", `{"labels":{"place":"nowhere"},"argv":["/bin/true"]}`)
	d.ask("subscribe", `{"sessionId":"$S","after":0}`)
	d.until(1, 1, `"type":"session_start"`)
	for i, words := range []string{"say hello", "rubbish", "think", "count 5"} {
		d.ask("send", fmt.Sprintf(`{"sessionId":"$S","commandId":"c%d","command":{"type":"prompt","message":%q}}`, i, words))
		d.until(1, i+1, `"type":"agent_settled"`)
		d.until(1, 1, fmt.Sprintf(`"commandId":"c%d","outcome":`, i))
	}
	d.ask("send", `{"sessionId":"$S","commandId":"c0","command":{"type":"prompt","message":"say hello"}}`)
	d.ask("send", `{"sessionId":"$S","commandId":"c0","command":{"type":"prompt","message":"say something else"}}`)
	d.ask("send", `{"sessionId":"$S","commandId":"c9","expect":{"status":"running"},"command":{"type":"prompt","message":"x"}}`)
	d.ask("send", `{"sessionId":"$S","commandId":"c9","expect":{"head":1},"command":{"type":"prompt","message":"x"}}`)
	d.ask("send", `{"sessionId":"nobody","commandId":"c9","command":{"type":"prompt","message":"x"}}`)
	d.ask("respond", `{"sessionId":"$S","interactionId":"1.x","outcome":"allow"}`)
	d.ask("command_status", `{"sessionId":"$S","commandIds":["c0","c1","c9"]}`)
	d.ask("get_session", `{"sessionId":"$S"}`)
	d.ask("get_session", `{"sessionId":"nobody"}`)
	d.ask("set_title", `{"sessionId":"$S","title":"another"}`)
	d.until(1, 1, `"type":"session_title"`)
	d.ask("read_events", `{"sessionId":"$S","after":0,"limit":10}`)
	d.ask("read_events", `{"sessionId":"$S","after":3,"limit":1000}`)
	d.ask("read_events", `{"sessionId":"$S","after":-1}`)
	d.ask("get_snapshot", `{"sessionId":"$S"}`)
	d.ask("get_snapshot", `{"sessionId":"$S","at":7}`)
	d.ask("get_snapshot", `{"sessionId":"$S","at":70000}`)
	d.ask("subscribe", `{"sessionId":"$S","from":"snapshot"}`)
	d.until(2, 1, `snapshot `)
	d.ask("subscribe", `{"sessionId":"$S","after":2,"until":9}`)
	d.until(3, 1, `"seq":9,`)
	d.ask("subscribe", `{"sessionId":"$S","after":70000}`)
	d.until(4, 1, `snapshot `)
	d.ask("subscribe", `{"sessionId":"$S","after":2,"epoch":"01AAAAAAAAAAAAAAAAAAAAAAAA"}`)
	d.until(5, 1, `snapshot `)
	d.ask("subscribe", `{"sessionId":"nobody"}`)
	d.ask("subscribe", `{"sessionId":"$S","after":1,"from":"start"}`)
	d.ask("resync", `{"subscriptionId":$2,"after":5}`)
	d.until(2, 1, `"type":"session_title"`)
	d.ask("unsubscribe", `{"subscriptionId":$2}`)
	d.ask("unsubscribe", `{"subscriptionId":$2}`)
	d.ask("no_such_method", `{}`)
	d.ask("send", `{"sessionId":7}`)
	d.ask("read_stderr", `{"sessionId":"$S"}`)
	d.ask("verify_session", `{"sessionId":"$S"}`)
	d.ask("stop_session", `{"sessionId":"$S"}`)
	d.until(1, 1, `"type":"session_end"`)
	d.ask("stop_session", `{"sessionId":"$S"}`)
	d.ask("send", `{"sessionId":"$S","commandId":"late","command":{"type":"prompt","message":"x"}}`)
	d.ask("resume_session", `{"sessionId":"$S","commandId":"again"}`)
	d.until(1, 1, `"type":"session_resumed"`)
	d.ask("resume_session", `{"sessionId":"$S","commandId":"again"}`)
	d.ask("send", `{"sessionId":"$S","commandId":"c10","command":{"type":"prompt","message":"say hello"}}`)
	d.until(1, 5, `"type":"agent_settled"`)
	d.until(1, 1, `"commandId":"c10","outcome":`)
	d.ask("send", `{"sessionId":"$S","commandId":"c1","command":{"type":"prompt","message":"rubbish"}}`)
	d.ask("list_sessions", `{}`)
	d.ask("delete_session", `{"sessionId":"$S"}`)
	d.ask("delete_session", `{"sessionId":"$S"}`)
	d.ask("get_session", `{"sessionId":"$S"}`)
	d.question(demo)
	return d
}

// question has an agent ask something. What its child prints after the answer and
// that the answer was written come in either order, in one process too: its
// subscription, the sixth, is not compared, and the answers are.
func (d *dialog) question(demo string) {
	d.t.Helper()
	d.session = ""
	d.ask("start_session", fmt.Sprintf(`{"argv":[%q,"demo-agent","--pace","0"],"adapter":"demo"}`, demo))
	d.ask("subscribe", `{"sessionId":"$S","after":0}`)
	d.ask("send", `{"sessionId":"$S","commandId":"c","command":{"type":"prompt","message":"tool"}}`)
	d.until(6, 1, `"type":"extension_ui_request"`)
	for range 2 { // the second one is the first again
		d.ask("respond", `{"sessionId":"$S","commandId":"r","interactionId":"1.ask-1","outcome":"allow"}`)
	}
	d.ask("respond", `{"sessionId":"$S","interactionId":"1.ask-1","outcome":"deny"}`)
	d.until(6, 1, `"type":"agent_settled"`)
	d.ask("send", `{"sessionId":"$S","commandId":"d","command":{"type":"prompt","message":"tool"}}`)
	d.until(6, 2, `"type":"extension_ui_request"`)
	d.ask("interrupt", `{"sessionId":"$S","commandId":"i"}`)
	d.until(6, 2, `"type":"agent_settled"`)
	d.ask("prompt", `{"sessionId":"$S","commandId":"e","text":"exit"}`)
	d.until(6, 1, `"type":"session_end"`)
	d.ask("command_status", `{"sessionId":"$S","commandIds":["c","r","d","i","e"]}`)
	d.ask("delete_session", `{"sessionId":"$S"}`)
}

const compared = 5 // subscriptions of a dialog, from the first on

// testSameTranscript: what one process answers and tells, roles of several
// processes answer and tell, whichever gateway is asked (I-R1, I-R2).
func testSameTranscript(t *testing.T, c *cluster) {
	bin := harness.Binary(t)
	server := harness.Start(t, harness.Options{Args: []string{"--env-allow", "GORACE"}, Env: exitsAtOnce})
	_, address := server.Addr()
	one := play(t, address, server.Token(), bin)
	for _, url := range []string{c.a, c.b} {
		split := play(t, strings.TrimPrefix(url, "tcp://"), c.token, bin)
		if len(one.answers) != len(split.answers) {
			t.Fatalf("one process gave %d answers, %s %d", len(one.answers), url, len(split.answers))
		}
		for i := range one.answers {
			if one.answers[i] != split.answers[i] {
				t.Errorf("one process answered\n  %.1500s\n%s\n  %.1500s", one.answers[i], url, split.answers[i])
			}
		}
		for i, sub := range one.subs[:compared] {
			a, b := one.streams[sub], split.streams[split.subs[i]]
			for j := range min(len(a), len(b)) {
				if a[j] != b[j] {
					t.Fatalf("subscription %d, frame %d: one process told\n  %.1500s\n%s\n  %.1500s", i+1, j+1, a[j], url, b[j])
				}
			}
			if i == 0 && len(a) != len(b) { // the others may have been told less of what came later
				t.Errorf("subscription %d: one process told %d frames, %s %d", i+1, len(a), url, len(b))
			}
		}
	}
}
