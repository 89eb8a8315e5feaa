package pi_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	"rejoin/protocol"
	"rejoin/tests/harness"
)

// Two people watch, the second answers: pi goes on, all see who answered, and the
// first one's answer comes too late.
func TestAnsweredByTheSecondOfTwo(t *testing.T) {
	w := newWorld(t, options{extension: "ask.ts"})
	first := w.start()
	second := w.join(first.session, map[string]any{"from": "snapshot"})
	first.prompt("run echo yes >> ran")
	first.await("the question", is("extension_ui_request"))
	asked, _ := second.await("the question", is("extension_ui_request"))
	before := []string{`user done: "run echo yes >> ran"`, `assistant done: "I run it. "`, `tool streaming: bash {"command":"echo yes >> ran"} -> ""`}
	second.transcript(asked.Seq, append(before[:3:3], `asks: confirm "Run this command?" "echo yes >> ran"`, "waiting")...)
	late := w.join(first.session, map[string]any{"from": "snapshot"})
	snap, err := late.stream.Snapshot(harness.Context(t), 0)
	if err != nil {
		t.Fatal(err)
	}
	var s protocol.State
	decode(t, snap.State, &s)
	if len(s.Pending) != 1 || s.Status != protocol.StatusWaiting {
		t.Fatalf("who comes later sees %+v, %s", s.Pending, s.Status)
	}
	question := s.Pending[0].InteractionID
	var dialog struct{ ID string }
	decode(t, asked.Body, &dialog)
	if want := fmt.Sprintf("%d.%s", asked.Run, dialog.ID); question != want {
		t.Errorf("the question is called %s, want %s", question, want)
	}
	allow := map[string]any{"interactionId": question, "outcome": "allow", "commandId": "mine"}
	if _, err := second.try("respond", allow); err != nil {
		t.Fatalf("respond: %v", err)
	}
	if _, err := second.try("respond", allow); err != nil {
		t.Errorf("the same answer again: %v", err)
	}
	var by string
	for _, c := range []*client{first, second, late} {
		_, b := c.await("the resolution", is(protocol.TypeInteraction))
		if b.InteractionID != question || b.Outcome != "allow" || b.ResolvedBy == "" || by != "" && b.ResolvedBy != by {
			t.Errorf("resolved: %+v", b)
		}
		by = b.ResolvedBy
	}
	for name, try := range map[string]func() (string, error){
		"respond": func() (string, error) {
			return first.try("respond", map[string]any{"interactionId": question, "outcome": "deny"})
		},
		"send": func() (string, error) {
			return first.try("send", map[string]any{"command": json.RawMessage(`{"type":"extension_ui_response","id":"` + dialog.ID + `","confirmed":false}`)})
		},
	} {
		_, err := try()
		var rpc *harness.RPCError
		if !errors.As(err, &rpc) || rpc.Code != -32008 || rpc.Data.ResolvedBy != by || rpc.Data.Outcome != "allow" {
			t.Errorf("the first one's %s: %v", name, err)
		}
	}
	_, err = first.try("respond", map[string]any{"interactionId": "1.none", "outcome": "deny"})
	var rpc *harness.RPCError
	if !errors.As(err, &rpc) || rpc.Code != -32602 {
		t.Errorf("an answer to no question: %v", err)
	}
	end, _ := first.await("the end", settled)
	for _, c := range []*client{second, late} {
		c.await("the end", settled)
		c.transcript(end.Seq, `user done: "run echo yes >> ran"`, `assistant done: "I run it. "`,
			`tool done: bash {"command":"echo yes >> ran"} -> "(no output)"`, `assistant done: "It ran. "`, "idle")
	}
	if got := w.lines("ran"); len(got) != 1 || got[0] != "yes" {
		t.Errorf("the tool left %q", got)
	}
	for _, c := range []*client{first, second, late} {
		if n := c.count(is(protocol.TypeInteraction)); n != 1 {
			t.Errorf("a client saw %d resolutions", n)
		}
	}
}

// Only what answers the question reaches pi, by verb or by raw send; what is refused
// leaves it open.
func TestOnlyAnAnswerPasses(t *testing.T) {
	w := newWorld(t, options{extension: "ask.ts"})
	c := w.start()
	refused := func(method string, params map[string]any) {
		t.Helper()
		_, err := c.try(method, params)
		var rpc *harness.RPCError
		if !errors.As(err, &rpc) || rpc.Code != -32602 {
			t.Errorf("%s %v: %v", method, params, err)
		}
	}
	ask := func(prompt string) (dialog string, i protocol.Interaction) {
		t.Helper()
		c.prompt(prompt)
		asked, _ := c.await("the question", is("extension_ui_request"))
		var e struct{ ID string }
		decode(t, asked.Body, &e)
		return e.ID, c.state(asked.Seq).Pending[0]
	}
	raw := func(id, members string) map[string]any {
		return map[string]any{"command": json.RawMessage(`{"type":"extension_ui_response","id":"` + id + `",` + members + `}`)}
	}
	dialog, i := ask("run echo choose >> ran")
	for _, members := range []string{`"value":"maybe"`, `"confirmed":true`, `"value":0`, `"cancelled":"no"`} {
		refused("send", raw(dialog, members))
	}
	refused("respond", map[string]any{"interactionId": i.InteractionID, "outcome": "answer", "value": "maybe"})
	refused("respond", map[string]any{"interactionId": i.InteractionID, "outcome": "allow"})
	c.do("send", raw(dialog, `"value":"yes"`))
	c.await("the end", settled)
	dialog, i = ask("run echo edit >> ran")
	if i.Kind != "editor" || i.Message != "echo edit >> ran" || i.Truncated != 0 {
		t.Errorf("asked: %+v", i)
	}
	refused("send", raw(dialog, `"confirmed":true`))
	c.do("respond", map[string]any{"interactionId": i.InteractionID, "outcome": "answer", "value": i.Message})
	c.await("the end", settled)
	if got := w.lines("ran"); !slices.Equal(got, []string{"choose", "edit"}) {
		t.Errorf("the tools left %q", got)
	}
}

func TestDenied(t *testing.T) {
	w := newWorld(t, options{extension: "ask.ts"})
	c := w.start()
	c.prompt("run echo no >> ran")
	asked, _ := c.await("the question", is("extension_ui_request"))
	question := c.state(asked.Seq).Pending[0].InteractionID
	c.do("respond", map[string]any{"interactionId": question, "outcome": "deny"})
	end, _ := c.await("the end", settled)
	c.transcript(end.Seq, `user done: "run echo no >> ran"`, `assistant done: "I run it. "`,
		`tool error: bash {"command":"echo no >> ran"} -> "denied by user"`, `assistant done: "It ran. "`, "idle")
	if got := w.lines("ran"); got[0] != "" {
		t.Errorf("the tool left %q", got)
	}
}

// pi stops waiting by itself and says nothing: rejoin knows when.
func TestExpired(t *testing.T) {
	w := newWorld(t, options{extension: "ask.ts"})
	c := w.start()
	c.prompt("run echo soon >> ran")
	asked, _ := c.await("the question", is("extension_ui_request"))
	question := c.state(asked.Seq).Pending[0]
	if question.Deadline <= question.TS {
		t.Errorf("the question has the deadline %d, asked at %d", question.Deadline, question.TS)
	}
	resolved := is(protocol.TypeInteraction)
	c.until("both ends", func() bool { return c.count(settled) > 0 && c.count(resolved) > 0 })
	for _, e := range c.seen {
		if b := bodyOf(e); resolved(e, b) && (b.Outcome != "expired" || b.ResolvedBy != "rejoin" || b.InteractionID != question.InteractionID) {
			t.Errorf("the question ends as %s", e.Body)
		}
	}
	c.transcript(c.seen[len(c.seen)-1].Seq, `user done: "run echo soon >> ran"`, `assistant done: "I run it. "`,
		`tool error: bash {"command":"echo soon >> ran"} -> "denied by user"`, `assistant done: "It ran. "`, "idle")
	_, err := c.try("respond", map[string]any{"interactionId": question.InteractionID, "outcome": "allow"})
	var rpc *harness.RPCError
	if !errors.As(err, &rpc) || rpc.Code != -32008 || rpc.Data.Outcome != "expired" {
		t.Errorf("an answer after the deadline: %v", err)
	}
	if got := w.lines("ran"); got[0] != "" {
		t.Errorf("the tool left %q", got)
	}
}
