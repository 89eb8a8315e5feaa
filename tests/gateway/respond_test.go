package gateway_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"rejoin/gateway"
	"rejoin/protocol"
	"rejoin/tests/harness"
)

// askingChild asks two questions in pi's words and reads on.
const askingChild = `printf '%s\n' '{"type":"extension_ui_request","id":"q1","method":"confirm","title":"one?"}' '{"type":"extension_ui_request","id":"q2","method":"select","title":"two?","options":["a","b"]}'; exec cat >/dev/null`

// pending waits until a session's state has n open questions and returns it.
func (c *client) pending(session string, n int) protocol.State {
	c.t.Helper()
	var got struct {
		Result struct{ State protocol.State }
	}
	if !harness.Within(testTimeout, func() bool {
		if err := json.Unmarshal([]byte(c.ask(`{"id":1,"method":"get_snapshot","params":{"sessionId":"`+session+`"}}`, `"state"`)), &got); err != nil {
			c.t.Fatal(err)
		}
		return len(got.Result.State.Pending) == n
	}) {
		c.t.Fatalf("want %d questions, there are %+v", n, got.Result.State.Pending)
	}
	return got.Result.State
}

func (c *client) respond(params, want string) {
	c.t.Helper()
	c.ask(`{"id":1,"method":"respond","params":{"sessionId":"s",`+params+`}}`, want)
}

// Proves I-B1 for answers: the first one counts, its repetition is a duplicate,
// and every later one is told who was first.
func TestRespond(t *testing.T) {
	w := newWorld(t, gateway.Config{})
	url := w.listen("tcp://127.0.0.1:0").URL()
	one, two := dialURL(t, url).authenticate(), dialURL(t, url).authenticate()
	argv, err := json.Marshal([]string{"sh", "-c", askingChild})
	if err != nil {
		t.Fatal(err)
	}
	one.ask(`{"id":1,"method":"start_session","params":{"sessionId":"s","adapter":"pi","argv":`+string(argv)+`}}`, `"sessionId":"s"`)
	if s := one.pending("s", 2); s.Status != protocol.StatusWaiting || s.Pending[0].InteractionID != "1.q1" || s.Pending[1].Kind != "select" {
		t.Errorf("%+v", s)
	}
	for _, c := range []struct{ params, want string }{
		{`"outcome":"allow"`, `"message":"interactionId is required"`},
		{`"interactionId":"1.q1"`, `"message":"outcome is required"`},
		{`"interactionId":7,"outcome":"allow"`, `"code":-32602`},
		{`"interactionId":"1.q1","outcome":"perhaps"`, `"code":-32602`},
		{`"interactionId":"1.q1","outcome":null`, `"code":-32602`},
		{`"interactionId":"1.never","outcome":"allow"`, `"code":-32602`},
		{`"interactionId":"9.q1","outcome":"allow"`, `"code":-32602`},
		{`"interactionId":"1.q1","outcome":"answer","value":"x"`, `"code":-32602`},
		{`"interactionId":"1.q2","outcome":"allow"`, `"code":-32602`},
		{`"interactionId":"1.q2","outcome":"answer","value":"c"`, `"code":-32602`},
		{`"interactionId":"1.q2","outcome":"answer"`, `"code":-32602`},
		{`"interactionId":"1.q1","outcome":"allow","expect":{"run":9}`, `"code":-32006`},
	} {
		one.respond(c.params, c.want)
	}
	one.pending("s", 2)
	one.respond(`"interactionId":"1.q1","outcome":"allow","commandId":"c1"`, `"status":"sent","commandId":"c1"`)
	one.respond(`"interactionId":"1.q1","outcome":"allow","commandId":"c1"`, `"duplicate":true`)
	two.respond(`"interactionId":"1.q1","outcome":"allow","commandId":"c1"`, `"duplicate":true`)
	two.respond(`"interactionId":"1.q1","outcome":"deny","commandId":"c1"`, `"code":-32006`)
	resolved := func(by, outcome string) string {
		return fmt.Sprintf(`"data":{"reason":"already_resolved","retryable":false,"resolvedBy":%q,"outcome":%q}`, by, outcome)
	}
	two.respond(`"interactionId":"1.q1","outcome":"deny"`, `"code":-32008`)
	two.respond(`"interactionId":"1.q1","outcome":"deny","commandId":"c2"`, `"outcome":"allow"`)
	if s := two.pending("s", 1); s.Pending[0].InteractionID != "1.q2" {
		t.Errorf("%+v", s.Pending)
	}
	// A raw send that answers goes through the same gate.
	two.ask(`{"id":1,"method":"send","params":{"sessionId":"s","command":{"type":"extension_ui_response","id":"q1","confirmed":false}}}`, `"code":-32008`)

	// What ends with its child is answered to no more.
	one.ask(`{"id":1,"method":"stop_session","params":{"sessionId":"s"}}`, `"stopped"`)
	one.respond(`"interactionId":"1.q2","outcome":"cancel"`, `"reason":"session_unavailable"`)
	one.respond(`"interactionId":"1.q1","outcome":"allow","commandId":"c1"`, `"duplicate":true`)
	one.ask(`{"id":1,"method":"resume_session","params":{"sessionId":"s"}}`, `"run":2`)
	one.pending("s", 2)
	one.respond(`"interactionId":"1.q2","outcome":"answer","value":"a"`, resolved(protocol.ClientRejoin, protocol.InteractionCancelled))
	two.respond(`"interactionId":"2.q2","outcome":"answer","value":"b"`, `"status":"sent"`)
	got := one.ask(`{"id":1,"method":"read_events","params":{"sessionId":"s","after":0}}`, `"events"`)
	if n := strings.Count(got, `"type":"interaction_resolved"`); n != 3 {
		t.Errorf("%d interactions are resolved in %s", n, got)
	}
}
