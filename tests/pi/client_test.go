package pi_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"rejoin/protocol"
	"rejoin/tests/harness"
)

// client is one client of one session. It belongs to one goroutine.
type client struct {
	t *testing.T
	*harness.Client
	stream  *harness.Stream
	session string
	seen    []harness.Event // what await has taken
}

// body is what tests look at of events, pi's and rejoin's.
type body struct {
	Type    string
	Delta   string
	Message struct{ Role string }
	Update  struct{ Type, Delta string } `json:"assistantMessageEvent"`
	// of responses
	Command string
	Success bool
	Error   string
	Data    json.RawMessage
	// of rejoin's
	CommandID     string
	Outcome       string
	InteractionID string
	ResolvedBy    string
	Reason        string
	Result        json.RawMessage
	// of tools
	PartialResult struct{ Content []struct{ Text string } }
}

func bodyOf(e harness.Event) body {
	var b body
	_ = json.Unmarshal(e.Body, &b) // of events of other shapes nothing is looked at
	return b
}

// A test of an event.
type test func(harness.Event, body) bool

func is(kind string) test { return func(_ harness.Event, b body) bool { return b.Type == kind } }

// settled is pi's last word on what it was asked.
var settled = is("agent_settled")

// stateTold is pi's answer to get_state, which rejoin asks at the start of a run
// and when something may have changed that pi does not tell.
func stateTold(_ harness.Event, b body) bool { return b.Type == "response" && b.Command == "get_state" }

func said(delta string) test {
	return func(_ harness.Event, b body) bool { return b.Update.Type == "text_delta" && b.Update.Delta == delta }
}

// printed is a tool's output so far.
func printed(text string) test {
	return func(_ harness.Event, b body) bool {
		return len(b.PartialResult.Content) > 0 && strings.Contains(b.PartialResult.Content[0].Text, text)
	}
}

func answers(commandID string) test {
	return func(e harness.Event, b body) bool { return b.Type == "response" && e.CommandID == commandID }
}

func outcome(commandID string) test {
	return func(_ harness.Event, b body) bool {
		return b.Type == protocol.TypeCommandOutcome && b.CommandID == commandID
	}
}

// await takes events up to the first that ok accepts.
func (c *client) await(what string, ok test) (harness.Event, body) {
	c.t.Helper()
	events, err := c.stream.Until(harness.Context(c.t), func(e harness.Event) bool { return ok(e, bodyOf(e)) })
	c.seen = append(c.seen, events...)
	if err != nil {
		var types []string
		for _, e := range events {
			types = append(types, fmt.Sprintf("%d %.160s", e.Seq, e.Body))
		}
		c.t.Fatalf("%s: %v; there came\n%s", what, err, strings.Join(types, "\n"))
	}
	e := events[len(events)-1]
	return e, bodyOf(e)
}

// until takes events until ok holds.
func (c *client) until(what string, ok func() bool) {
	c.t.Helper()
	for !ok() {
		c.await(what, func(harness.Event, body) bool { return true })
	}
}

// count is how many events the client has taken that ok accepts.
func (c *client) count(ok test) (n int) {
	for _, e := range c.seen {
		if ok(e, bodyOf(e)) {
			n++
		}
	}
	return n
}

// do sends a verb, or with "send" a command of pi's, and returns its command id.
func (c *client) do(method string, params map[string]any) string {
	c.t.Helper()
	id, err := c.try(method, params)
	if err != nil {
		c.t.Fatalf("%s: %v", method, err)
	}
	return id
}

func (c *client) try(method string, params map[string]any) (string, error) {
	c.t.Helper()
	all := map[string]any{"sessionId": c.session}
	for k, v := range params {
		all[k] = v
	}
	result, err := c.Call(harness.Context(c.t), method, all)
	if err != nil {
		return "", err
	}
	var r struct{ CommandID string }
	decode(c.t, result, &r)
	return r.CommandID, nil
}

func (c *client) prompt(text string) string {
	c.t.Helper()
	return c.do("prompt", map[string]any{"text": text})
}

// ask sends a command of pi's and returns what the answer holds.
func (c *client) ask(command map[string]any) json.RawMessage {
	c.t.Helper()
	id := c.do("send", map[string]any{"command": command})
	_, b := c.await(fmt.Sprint("the answer to ", command), answers(id))
	if !b.Success {
		c.t.Fatalf("%v: %s", command, b.Error)
	}
	return b.Data
}

// snapshot is an answer to get_snapshot.
type snapshot struct {
	Epoch     string
	Seq       uint64
	StateHash string
	State     json.RawMessage
}

func (c *client) snapshot(at uint64) snapshot {
	c.t.Helper()
	result, err := c.Call(harness.Context(c.t), "get_snapshot", map[string]any{"sessionId": c.session, "at": at})
	if err != nil {
		c.t.Fatalf("get_snapshot at %d: %v", at, err)
	}
	var s snapshot
	decode(c.t, result, &s)
	return s
}

func (c *client) state(at uint64) *protocol.State {
	c.t.Helper()
	var s protocol.State
	decode(c.t, c.snapshot(at).State, &s)
	return &s
}

// transcript compares the state after the event at with lines as people read it.
func (c *client) transcript(at uint64, want ...string) {
	c.t.Helper()
	if got := transcript(c.state(at)); !slices.Equal(got, want) {
		c.t.Errorf("after %d the transcript is\n  %s\nwant\n  %s", at, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// transcript writes a state as lines.
func transcript(s *protocol.State) []string {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	for _, it := range s.Items {
		if it.Tool != nil {
			add("tool %s: %s %s -> %s", it.Status, it.Tool.Name, it.Tool.Args, quote(it.Tool.Output))
			continue
		}
		add("%s %s: %s", it.Kind, it.Status, quote(it.Text))
	}
	for _, p := range s.Pending {
		add("asks: %s %s %s", p.Kind, quote(p.Title), quote(p.Message))
	}
	for _, q := range s.Queue.Steering {
		add("to steer: %s", quote(q))
	}
	for _, q := range s.Queue.FollowUp {
		add("to follow: %s", quote(q))
	}
	add("%s", s.Status)
	return out
}
