package demoagent

import (
	"fmt"
)

const (
	toolName    = "bash"
	toolCommand = "make coffee"
)

// tool pretends to run a command, if the user lets it. It ends the turn, as
// agents do after a tool, and says how it went in a new one.
func (r *reply) tool() {
	r.speak("I would like to run a tool. ")
	if r.stopped() {
		return
	}
	r.calls++
	id := callID(r.calls)
	args := &arguments{Command: toolCommand}
	call := content{Type: "toolCall", ID: id, Name: toolName, Arguments: args}
	index := len(r.content)
	for _, u := range []update{
		{Type: "toolcall_start", ContentIndex: index, ID: id, ToolName: toolName},
		{Type: "toolcall_delta", ContentIndex: index, Delta: `{"command":"` + toolCommand + `"}`},
		{Type: "toolcall_end", ContentIndex: index, ToolCall: &call},
	} {
		r.emit(messageUpdate{"message_update", u})
	}
	r.content = append(r.content, call)
	m := r.close("toolUse")
	output, failed := r.execute(id, args)
	result := message{
		Role: "toolResult", ToolCallID: id, ToolName: toolName, Content: []content{text(output)}, IsError: &failed,
		Timestamp: now(),
	}
	r.say(result)
	r.emit(turnEnd{"turn_end", m, []message{result}})
	r.emit(plain{"turn_start"})
	r.open()
	if failed {
		r.speak("The tool did not run. ")
		return
	}
	r.speak("The tool is done. ")
}

// execute runs the pretend tool behind a question.
func (r *reply) execute(id string, args *arguments) (output string, failed bool) {
	r.emit(toolEvent{Type: "tool_execution_start", ToolCallID: id, ToolName: toolName, Args: args})
	if r.confirm("Run this command?", args.Command) {
		for percent := 0; percent <= 100 && !r.stopped(); percent += 25 {
			output += fmt.Sprintf("coffee: %d %%\n", percent)
			r.emit(toolEvent{
				Type: "tool_execution_update", ToolCallID: id, ToolName: toolName, Args: args,
				PartialResult: &toolResult{Content: []content{text(output)}},
			})
			r.pause()
		}
		if failed = r.stopped(); failed {
			output += "Command aborted\n"
		}
	} else {
		output, failed = "The user did not allow it.\n", true
	}
	r.emit(toolEvent{
		Type: "tool_execution_end", ToolCallID: id, ToolName: toolName,
		Result: &toolResult{Content: []content{text(output)}}, IsError: &failed,
	})
	return output, failed
}
