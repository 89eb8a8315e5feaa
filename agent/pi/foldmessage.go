package pi

import (
	"strconv"
	"strings"

	"rejoin/agent"
	"rejoin/protocol"
)

// messageStart opens a message.
func (f fold) messageStart() {
	m := agent.Member(f.p, "message")
	switch agent.String(m, "role") {
	case "user":
		f.Replace(f.Open("u", protocol.ItemUser), agent.Text, contentText(m))
	case "assistant":
		f.closeContents(protocol.ItemInterrupted)
		agent.BeginTurn(f.s, f.e) // pi 1.6 may report another prompt settled after this one's agent_start
		agent.SetModel(f.s, modelName(agent.String(m, "provider"), agent.String(m, "model")))
	case "system":
		agent.Settles(f.s) // such messages are younger than agent_settled
	}
}

// messageEnd takes a whole message in place of what was streamed of it.
func (f fold) messageEnd() {
	m := agent.Member(f.p, "message")
	switch agent.String(m, "role") {
	case "user":
		it := f.Item("u")
		if it == nil {
			it = f.Open("u", protocol.ItemUser)
		}
		f.Replace(it, agent.Text, contentText(m))
		f.Close("u", protocol.ItemDone)
	case "assistant":
		f.assistantEnd(m)
	case "toolResult":
		f.toolResult(m)
	case "system":
	default:
		if text := contentText(m) + agent.String(m, "summary"); text != "" {
			f.Notice(text, protocol.ItemDone)
		}
	}
}

// assistantEnd takes the contents of a whole assistant message.
func (f fold) assistantEnd(m protocol.Params) {
	status, stop := protocol.ItemDone, agent.String(m, "stopReason")
	switch stop {
	case "aborted":
		status = protocol.ItemInterrupted
	case "error":
		status = protocol.ItemError
	}
	raw, _ := m.Raw("content")
	if text, ok := protocol.DecodeString(raw); ok {
		f.whole(0, protocol.ItemAssistant, text, status)
	}
	i := 0
	for c := range protocol.Elements(raw) {
		f.content(i, agent.Object(c), status)
		i++
	}
	f.closeContents(status)
	if status != protocol.ItemDone {
		text := agent.String(m, "errorMessage")
		if text == "" {
			text = stop
		}
		f.Notice(text, status)
	}
	u := agent.Member(m, "usage")
	agent.AddUsage(f.s, usage(u, agent.Float(agent.Member(u, "cost"), "total")))
	if f.s.Extra == nil || f.s.Extra.Thinking == "" {
		agent.SetThinking(f.s, agent.String(m, "thinkingLevel"))
	}
}

// content takes one whole content of a message.
func (f fold) content(i int, c protocol.Params, status string) {
	switch agent.String(c, "type") {
	case "text":
		f.whole(i, protocol.ItemAssistant, agent.String(c, "text"), status)
	case "thinking":
		f.whole(i, protocol.ItemThinking, agent.String(c, "thinking"), status)
	case "toolCall":
		id := agent.String(c, "id")
		f.toolCall(i, id, agent.String(c, "name"), c)
		if id == "" || status != protocol.ItemDone { // it will not be run
			f.Close(contentName(i), status)
			f.Close("t:"+id, status)
		}
		f.Release(contentName(i))
	}
}

// whole takes the text of a content that ended with its message.
func (f fold) whole(i int, kind protocol.ItemKind, text, status string) {
	name := contentName(i)
	it := f.Item(name)
	if it == nil || it.Kind != kind {
		if text == "" {
			return
		}
		it = f.Open(name, kind)
	}
	f.Replace(it, agent.Text, text)
	f.SetStatus(it, status)
	f.Release(name)
}

// closeContents closes the contents that are still open.
func (f fold) closeContents(status string) {
	for _, name := range f.Names() {
		if strings.HasPrefix(name, "c") && name != "compaction" {
			f.Close(name, status)
		}
	}
}

// The members that most events are made of.
var (
	eventMembers  = []string{"type", "assistantMessageEvent"}
	updateMembers = []string{"type", "contentIndex", "delta"}
)

// fastUpdate folds a piece of text whose item is open, as most events are, and
// reports whether the event was one. It does what messageUpdate would.
func (f fold) fastUpdate() bool {
	var event [2]protocol.RawJSON
	agent.Pick(f.e.Body, eventMembers, event[:])
	if string(event[0]) != `"message_update"` {
		return false
	}
	var update [3]protocol.RawJSON
	agent.Pick(event[1], updateMembers, update[:])
	kind := protocol.ItemAssistant
	if string(update[0]) == `"thinking_delta"` {
		kind = protocol.ItemThinking
	} else if string(update[0]) != `"text_delta"` {
		return false
	}
	if len(update[1]) != 1 || update[1][0] < '0' || int(update[1][0]-'0') >= len(contentNames) {
		return false
	}
	it := f.Item(contentNames[update[1][0]-'0'])
	more, ok := protocol.DecodeString(update[2])
	if it == nil || it.Kind != kind || !ok {
		return false
	}
	f.Append(it, agent.Text, more)
	return true
}

// messageUpdate folds a piece of the assistant's message.
func (f fold) messageUpdate() {
	u := agent.Member(f.p, "assistantMessageEvent")
	kind := agent.String(u, "type")
	if kind == "" { // the event's own members tell
		u = f.p
		kind = agent.String(u, "eventType")
	}
	i := int(min(agent.Uint(u, "contentIndex"), contentsMax))
	switch kind {
	case "text_delta":
		f.delta(i, protocol.ItemAssistant, agent.Text, u)
	case "thinking_delta":
		f.delta(i, protocol.ItemThinking, agent.Text, u)
	case "toolcall_delta":
		f.delta(i, protocol.ItemToolCall, agent.Args, u)
	case "text_start":
		f.Open(contentName(i), protocol.ItemAssistant)
	case "thinking_start":
		f.Open(contentName(i), protocol.ItemThinking)
	case "toolcall_start":
		f.toolCall(i, agent.String(u, "id"), agent.String(u, "toolName"), protocol.Params{})
	case "text_end":
		f.contentEnd(i, protocol.ItemAssistant, u)
	case "thinking_end":
		f.contentEnd(i, protocol.ItemThinking, u)
	case "toolcall_end":
		c := agent.Member(u, "toolCall")
		f.toolCall(i, agent.String(c, "id"), agent.String(c, "name"), c)
	}
}

// contentsMax bounds the index of a content.
const contentsMax = 1 << 20

// delta adds a piece to a content. An update without a delta is taken from the
// copy of the message that it carries.
func (f fold) delta(i int, kind protocol.ItemKind, field agent.Field, u protocol.Params) {
	name := contentName(i)
	it := f.Item(name)
	if it == nil || it.Kind != kind {
		it = f.Open(name, kind)
	}
	raw, _ := u.Raw("delta")
	if more, ok := protocol.DecodeString(raw); ok {
		f.Append(it, field, more)
		return
	}
	raw, _ = agent.Member(f.p, "message").Raw("content")
	n := 0
	for c := range protocol.Elements(raw) {
		if n == i {
			f.Replace(it, field, soFar(agent.Object(c)))
		}
		n++
	}
}

// soFar is the text of a content that may not be whole.
func soFar(c protocol.Params) string {
	switch agent.String(c, "type") {
	case "thinking":
		return agent.String(c, "thinking")
	case "toolCall":
		return arguments(c, "arguments")
	}
	return agent.String(c, "text")
}

// contentEnd takes the whole text of a content. It stays open: what becomes of
// it is said when the message ends.
func (f fold) contentEnd(i int, kind protocol.ItemKind, u protocol.Params) {
	name := contentName(i)
	it := f.Item(name)
	if it == nil || it.Kind != kind {
		it = f.Open(name, kind)
	}
	raw, _ := u.Raw("content")
	if text, ok := protocol.DecodeString(raw); ok {
		f.Replace(it, agent.Text, text)
	}
	f.SetStatus(it, protocol.ItemDone)
}

// contentName names the content of that index.
func contentName(i int) string {
	if i < len(contentNames) {
		return contentNames[i]
	}
	return "c" + strconv.Itoa(i)
}

var contentNames = [...]string{"c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7"}

// contentText is the text of a message: a string, or texts and what stands for
// images, one per line.
func contentText(m protocol.Params) string {
	raw, _ := m.Raw("content")
	if text, ok := protocol.DecodeString(raw); ok {
		return text
	}
	var parts []string
	for c := range protocol.Elements(raw) {
		p := agent.Object(c)
		switch agent.String(p, "type") {
		case "text":
			parts = append(parts, agent.String(p, "text"))
		case "image":
			parts = append(parts, "[image "+agent.Clip(agent.String(p, "mimeType"), 64)+"]")
		}
	}
	return strings.Join(parts, "\n")
}

// textLines is a text that comes as an array of its lines.
func textLines(p protocol.Params, name string) string {
	return strings.Join(agent.Strings(p, name), "\n")
}

// usage reads the tokens of a message or a session.
func usage(u protocol.Params, cost float64) protocol.Usage {
	return protocol.Usage{
		InputTokens:  agent.Sum(agent.Uint(u, "input"), agent.Sum(agent.Uint(u, "cacheRead"), agent.Uint(u, "cacheWrite"))),
		OutputTokens: agent.Uint(u, "output"),
		CostUSD:      cost,
	}
}
