package pi_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"rejoin/tests/harness"
	"rejoin/tests/mockmodel"
)

func TestPrompt(t *testing.T) {
	w := newWorld(t, options{})
	c := w.start()
	id := c.prompt("hello\u2028 \"there\"")
	busy, _ := c.await("the first word", said("You "))
	c.transcript(busy.Seq, `user done: "hello\u2028 \"there\""`, `assistant streaming: "You "`, "busy")
	end, _ := c.await("the end", settled)
	c.transcript(end.Seq, `user done: "hello\u2028 \"there\""`, `assistant done: "You said: hello\u2028 \"there\""`, "idle")
	if n := c.count(outcome(id)); n != 1 {
		t.Errorf("the prompt has %d outcomes", n)
	}
	s := c.state(end.Seq)
	if s.Turn != nil || s.Agent.Model != "mock/mock-chat" || s.Usage == nil || s.Usage.InputTokens != 100 {
		t.Errorf("at the end the state is %+v, usage %+v", s, s.Usage)
	}
	c.prompt("think about it")
	end, _ = c.await("the end", settled)
	c.transcript(end.Seq,
		`user done: "hello\u2028 \"there\""`, `assistant done: "You said: hello\u2028 \"there\""`,
		`user done: "think about it"`, `thinking done: "about it"`, `assistant done: "I have thought. "`, "idle")
	if rs := w.model.Requests(); len(rs) != 2 {
		t.Errorf("the model was asked %d times", len(rs))
	}
}

func TestTools(t *testing.T) {
	w := newWorld(t, options{})
	c := w.start()
	c.prompt("run echo one")
	end, _ := c.await("the end", settled)
	one := []string{
		`user done: "run echo one"`, `assistant done: "I run it. "`, `tool done: bash {"command":"echo one"} -> "one\n"`,
		`assistant done: "It ran. "`,
	}
	c.transcript(end.Seq, append(one[:4:4], "idle")...)
	w.model.On("both", mockmodel.Steps(mockmodel.Bash("echo left"), mockmodel.Bash("exit 3")), mockmodel.Steps(mockmodel.Text("done")))
	c.prompt("both")
	end, _ = c.await("the end", settled)
	c.transcript(end.Seq, append(one[:4:4],
		`user done: "both"`, `tool done: bash {"command":"echo left"} -> "left\n"`,
		`tool error: bash {"command":"exit 3"} -> "(no output)\n\nCommand exited with code 3"`,
		`assistant done: "done"`, "idle")...)
	// A tool that goes on printing: its output so far is in the state.
	c.prompt("run echo now; read x < " + w.pipe("go"))
	now, _ := c.await("the tool's output", printed("now\n"))
	if got := transcript(c.state(now.Seq)); !strings.HasSuffix(got[len(got)-2], `-> "now\n"`) || !strings.HasPrefix(got[len(got)-2], "tool streaming") {
		t.Errorf("while the tool runs the transcript ends with %s", got[len(got)-2])
	}
	w.feed("go", "x\n")
	c.await("the end", settled)
}

func TestRetry(t *testing.T) {
	w := newWorld(t, options{})
	w.model.On("try", mockmodel.Steps(mockmodel.Fail(429)), mockmodel.Steps(mockmodel.Text("at "), mockmodel.Text("last")))
	c := w.start()
	id := c.prompt("try")
	c.await("the announcement", is("auto_retry_start"))
	end, _ := c.await("the end", settled)
	failed := `429: {\"type\":\"mock\",\"message\":\"the model fails with 429\"}"`
	c.transcript(end.Seq, `user done: "try"`, `notice error: "`+failed, `notice done: "retry 1 of 3 in 10 ms: `+failed, `assistant done: "at last"`, "idle")
	if n := c.count(outcome(id)); n != 1 {
		t.Errorf("the prompt has %d outcomes", n)
	}
}

func TestSteerAndFollowUp(t *testing.T) {
	for _, k := range []struct{ verb, queued string }{{"steer", "to steer"}, {"follow_up", "to follow"}} {
		t.Run(k.verb, func(t *testing.T) {
			w := newWorld(t, options{})
			g := mockmodel.NewGate()
			w.model.On("first", mockmodel.Steps(mockmodel.Text("one "), mockmodel.Hold(g), mockmodel.Text("two")))
			c := w.start()
			c.prompt("first")
			c.await("the first word", said("one "))
			id := c.do(k.verb, map[string]any{"text": "second"})
			queued, _ := c.await("the queue", is("queue_update"))
			c.transcript(queued.Seq, `user done: "first"`, `assistant streaming: "one "`, k.queued+`: "second"`, "busy")
			_, b := c.await("the outcome", outcome(id))
			if b.Outcome != "done" {
				t.Errorf("%s is %s", k.verb, b.Outcome)
			}
			g.Open()
			end, _ := c.await("the end", settled)
			c.transcript(end.Seq, `user done: "first"`, `assistant done: "one two"`, `user done: "second"`, `assistant done: "You said: second"`, "idle")
			last := w.model.Requests()[1]
			if want := []string{"user: first", "assistant: one two", "user: second"}; !slices.Equal(last.Dialog, want) {
				t.Errorf("the model was asked %q, want %q", last.Dialog, want)
			}
		})
	}
}

// Of two prompts that reach pi in one burst it loses one, and in the middle of a
// turn it refuses a prompt. Here both are answered, whoever comes second.
func TestTwoPromptsAtOnce(t *testing.T) {
	w := newWorld(t, options{})
	c := w.start()
	d := w.join(c.session, map[string]any{"after": 0})
	said := func(_ harness.Event, b body) bool { return b.Type == "message_end" && b.Message.Role == "assistant" }
	const rounds = 8
	for round := range rounds {
		type sent struct {
			id  string
			err error
		}
		other := make(chan sent, 1)
		go func() {
			id, err := d.try("prompt", map[string]any{"text": "second"})
			other <- sent{id, err}
		}()
		mine, theirs := c.prompt("first"), <-other
		if theirs.err != nil {
			t.Fatal(theirs.err)
		}
		c.until("both are answered", func() bool {
			return c.count(outcome(mine))+c.count(outcome(theirs.id)) == 2 && c.count(said) == 2*(round+1)
		})
		for _, id := range []string{mine, theirs.id} {
			for _, e := range c.seen {
				if b := bodyOf(e); outcome(id)(e, b) && b.Outcome != "done" {
					t.Errorf("a prompt is %s: %s", b.Outcome, b.Result)
				}
			}
		}
	}
	end := c.seen[len(c.seen)-1].Seq
	asked := map[string]int{}
	items := c.state(end).Items
	for i, it := range items {
		switch {
		case it.Kind == "user":
			asked[it.Text]++
		case i == 0 || it.Text != "You said: "+items[i-1].Text:
			t.Errorf("item %d is %q", i, it.Text)
		}
	}
	if len(items) != 4*rounds || asked["first"] != rounds || asked["second"] != rounds {
		t.Errorf("of %d prompts each the transcript has %v", rounds, asked)
	}
	if released := c.count(is("command_released")); released == 0 {
		t.Error("no prompt was ever held back")
	}
}

func TestModelAndSession(t *testing.T) {
	w := newWorld(t, options{})
	c := w.start()
	c.prompt("hello")
	end, _ := c.await("the end", settled)
	before := c.state(end.Seq)
	if before.Extra == nil || before.Extra.AgentSession == "" {
		t.Fatalf("pi's session is unknown: %+v", before.Extra)
	}
	// pi says nothing when its model changes; rejoin asks.
	id := c.do("set_model", map[string]any{"model": "mock/mock-other"})
	if _, b := c.await("the outcome", outcome(id)); b.Outcome != "done" {
		t.Errorf("set_model is %s", b.Outcome)
	}
	e, b := c.await("the state read back", stateTold)
	if s := c.state(e.Seq); s.Agent.Model != "mock/mock-other" || !strings.Contains(string(b.Data), `"id":"mock-other"`) {
		t.Errorf("the model is %s, pi says %s", s.Agent.Model, b.Data)
	}
	c.prompt("again")
	c.await("the end", settled)
	if rs := w.model.Requests(); rs[len(rs)-1].Model != "mock-other" {
		t.Errorf("the request was for %s", rs[len(rs)-1].Model)
	}
	if _, b := c.await("the outcome", outcome(c.do("set_model", map[string]any{"model": "mock/none"}))); b.Outcome != "failed" {
		t.Errorf("an unknown model: %s %s", b.Outcome, b.Result)
	}
	c.ask(map[string]any{"type": "new_session"})
	e, _ = c.await("the state read back", stateTold)
	s := c.state(e.Seq)
	if s.Extra == nil || s.Extra.AgentSession == "" || s.Extra.AgentSession == before.Extra.AgentSession {
		t.Errorf("after new_session pi's session is %+v, was %+v", s.Extra, before.Extra)
	}
	var told struct{ SessionFile string }
	decode(t, c.ask(map[string]any{"type": "get_state"}), &told)
	if s.Extra != nil && told.SessionFile != s.Extra.AgentSession {
		t.Errorf("pi is in %s, the state says %s", told.SessionFile, s.Extra.AgentSession)
	}
	c.prompt("fresh")
	end, _ = c.await("the end", settled)
	rs := w.model.Requests()
	if d := rs[len(rs)-1].Dialog; !slices.Equal(d, []string{"user: fresh"}) {
		t.Errorf("the new session began with %q", d)
	}
	c.transcript(end.Seq, `user done: "hello"`, `assistant done: "You said: hello"`, `user done: "again"`, `assistant done: "You said: again"`,
		`notice done: "new session"`, `user done: "fresh"`, `assistant done: "You said: fresh"`, "idle")
}

// Two clients use the same id of their own; each command's answer has its own.
func TestIDsOfClients(t *testing.T) {
	w := newWorld(t, options{})
	c := w.start()
	first := c.do("send", map[string]any{"command": json.RawMessage(`{"id": 7, "type": "get_session_stats"}`)})
	second := c.do("send", map[string]any{"command": json.RawMessage(`{"type": "get_last_assistant_text", "id": 7}`)})
	third := c.do("send", map[string]any{"command": json.RawMessage(`{"type":"foo","id":"x"}`)})
	want := map[string]string{first: `7`, second: `7`, third: `"x"`}
	for range want {
		e, b := c.await("an answer", func(e harness.Event, b body) bool { return b.Type == "response" && want[e.CommandID] != "" })
		var r struct{ ID json.RawMessage }
		decode(t, e.Body, &r)
		// pi answers a command that it does not know without its id.
		if id := want[e.CommandID]; string(r.ID) != id && e.CommandID != third {
			t.Errorf("the answer to %s has id %s, want %s", b.Command, r.ID, id)
		}
		if strings.Contains(string(e.Body), `"rj:`) {
			t.Errorf("an answer has an id of rejoin's: %s", e.Body)
		}
		delete(want, e.CommandID)
	}
	if _, b := c.await("its outcome", outcome(third)); b.Outcome != "failed" {
		t.Errorf("an unknown command is %s", b.Outcome)
	}
}
