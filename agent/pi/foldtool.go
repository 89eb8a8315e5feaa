package pi

import (
	"rejoin/agent"
	"rejoin/protocol"
)

// toolCall opens a tool call that the assistant's message contains, or adds what
// is known of it. c is the call as a whole, or empty.
func (f fold) toolCall(i int, id, name string, c protocol.Params) {
	it := f.Item(contentName(i))
	if it == nil || it.Kind != protocol.ItemToolCall {
		if it = f.tool(id); it == nil {
			it = f.Open(contentName(i), protocol.ItemToolCall)
		}
	}
	f.SetTool(it, name, id)
	if id != "" {
		f.Alias("t:"+id, it)
	}
	if c.Has("arguments") {
		f.Replace(it, agent.Args, arguments(c, "arguments"))
	}
}

// tool returns the open call of that id, or nil.
func (f fold) tool(id string) *protocol.Item {
	if id == "" {
		return nil
	}
	return f.Item("t:" + id)
}

// called returns the call that an event is about, opened if need be.
func (f fold) called(id, name string) *protocol.Item {
	it := f.tool(id)
	if it == nil {
		it = f.Open("t:"+id, protocol.ItemToolCall)
		f.SetTool(it, name, id)
	}
	return it
}

// arguments is the JSON text of a call's arguments.
func arguments(p protocol.Params, name string) string {
	raw, _ := p.Raw(name)
	if text, ok := protocol.DecodeString(raw); ok {
		return text // incomplete arguments come as the text so far
	}
	return string(protocol.Compact(make([]byte, 0, len(raw)), raw))
}

// toolExecution follows a call while it is run. Its result so far comes anew
// with each update.
func (f fold) toolExecution(kind string) {
	it := f.called(agent.String(f.p, "toolCallId"), agent.String(f.p, "toolName"))
	switch kind {
	case "tool_execution_start":
		f.Replace(it, agent.Args, arguments(f.p, "args"))
	case "tool_execution_update":
		f.Replace(it, agent.Output, resultText(f.p, "partialResult"))
	case "tool_execution_end":
		f.Replace(it, agent.Output, resultText(f.p, "result"))
		f.toolDone(it, agent.True(f.p, "isError"))
	}
}

// toolResult takes a call's result as the model is told it.
func (f fold) toolResult(m protocol.Params) {
	id := agent.String(m, "toolCallId")
	it := f.called(id, agent.String(m, "toolName"))
	f.Replace(it, agent.Output, contentText(m))
	f.toolDone(it, agent.True(m, "isError"))
	f.Release("t:" + id)
}

func (f fold) toolDone(it *protocol.Item, isError bool) {
	it.Tool.IsError = isError
	f.SetStatus(it, ended(!isError))
}

// resultText is the text of a tool's result.
func resultText(p protocol.Params, name string) string {
	raw, _ := p.Raw(name)
	if text, ok := protocol.DecodeString(raw); ok {
		return text
	}
	return contentText(agent.Object(raw))
}

// command opens what a client has the shell run.
func (f fold) command() {
	c := agent.Member(f.p, "command")
	if agent.String(c, "type") != "bash" {
		return
	}
	command := agent.String(f.p, "commandId")
	it := f.Open("b:"+command, protocol.ItemToolCall)
	f.SetTool(it, "bash", command)
	args := protocol.AppendString([]byte(`{"command":`), agent.String(c, "command"))
	f.Replace(it, agent.Args, string(append(args, '}')))
	if id, ok := c.Raw("id"); ok {
		f.Alias("b#"+agent.Clip(string(id), 256), it)
	}
}

// outcome closes what a client had the shell run and pi says nothing more of: it
// was not given to pi, or pi's answer is lost.
func (f fold) outcome() {
	status := protocol.ItemInterrupted
	if agent.String(f.p, "outcome") == string(protocol.OutcomeFailed) {
		status = protocol.ItemError
	}
	f.End("b:"+agent.String(f.p, "commandId"), status)
}

// shell returns the item of what a client has the shell run, opened if need be.
func (f fold) shell() *protocol.Item {
	names := f.shellNames()
	for _, name := range names {
		if it := f.Item(name); it != nil {
			return it
		}
	}
	it := f.Open(names[0], protocol.ItemToolCall)
	f.SetTool(it, "bash", f.e.CommandID)
	return it
}

// shellNames are the names under which it may be open.
func (f fold) shellNames() []string {
	var names []string
	if f.e.CommandID != "" {
		names = append(names, "b:"+f.e.CommandID)
	}
	id, _ := f.p.Raw("id")
	return append(names, "b#"+agent.Clip(string(id), 256))
}

// shellOutput adds a piece of the shell's output.
func (f fold) shellOutput() { f.Append(f.shell(), agent.Output, agent.String(f.p, "delta")) }

// shellDone takes the shell's result.
func (f fold) shellDone(data protocol.Params) {
	it := f.shell()
	if data.Has("output") {
		f.Replace(it, agent.Output, agent.String(data, "output"))
	}
	code, _ := data.Raw("exitCode")
	f.toolDone(it, string(code) != "0")
	if agent.True(data, "cancelled") {
		f.SetStatus(it, protocol.ItemInterrupted)
	}
	for _, name := range f.shellNames() {
		f.Release(name)
	}
}
