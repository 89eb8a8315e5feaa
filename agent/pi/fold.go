package pi

import (
	"strings"

	"rejoin/agent"
	"rejoin/protocol"
)

// foldVersion changes whenever Fold or Settle make another state of the same
// events.
const foldVersion = 3

// FoldVersion returns the version of Fold.
func (Adapter) FoldVersion() int { return foldVersion }

// Fold folds one event of pi, or of rejoin about it.
func (Adapter) Fold(s *protocol.State, e *protocol.Event) { Fold(s, e) }

// Settle closes what a run of pi leaves open.
func (Adapter) Settle(s *protocol.State, e *protocol.Event) { agent.Settle(s, e) }

// A fold folds one event. What is open is named in the state:
//
//	u           the user's message
//	c0, c1, …   the contents of the assistant's message, by their index
//	t:ID        a tool call, by its id
//	b:ID, b#ID  a command that a client had the shell run, by command id or its own id
//	retry       the attempt that follows an error
//	compaction  the shortening of the session
type fold struct {
	agent.Transcript

	s *protocol.State
	e *protocol.Event
	p protocol.Params // of the event's body
}

// FoldVersion of adapters whose agents speak as pi does.
const FoldVersion = foldVersion

// Fold folds one event of an agent that speaks as pi does, in its compact manner
// (deltas only) or the older one (each update repeats the message so far).
//
// Deltas are what counts while a message grows, also where an update repeats the
// message: that copy may be ahead of the deltas, and who continues from this
// state adds the deltas that follow. Where a content or a message ends, pi
// repeats it as a whole, and that is what stays.
func Fold(s *protocol.State, e *protocol.Event) {
	f := fold{Transcript: agent.Edit(s, e), s: s, e: e}
	if e.Source == protocol.SourceChild && f.fastUpdate() {
		return
	}
	f.p = agent.Object(e.Body)
	kind := agent.String(f.p, "type")
	if e.Source == protocol.SourceBroker {
		f.broker(kind)
		return
	}
	switch kind {
	case "message_update":
		f.messageUpdate()
	case "message_start":
		f.messageStart()
	case "message_end":
		f.messageEnd()
	case "tool_execution_start", "tool_execution_update", "tool_execution_end":
		f.toolExecution(kind)
	case "bash_execution_update":
		f.shellOutput()
	case "agent_start", "turn_start":
		agent.BeginTurn(s, e)
	case "agent_end":
		f.agentEnd()
	case "agent_settled":
		agent.Settles(s)
		EndTurn(s, e)
	case "queue_update":
		agent.SetQueue(s, agent.Strings(f.p, "steering"), agent.Strings(f.p, "followUp"))
	case "response":
		f.response()
	case "extension_ui_request":
		f.request()
	case "extension_error":
		f.Notice(agent.String(f.p, "error"), protocol.ItemError)
	case "auto_retry_start":
		f.retry()
	case "auto_retry_end":
		f.Close("retry", ended(agent.True(f.p, "success")))
	case "compaction_start", "auto_compaction_start":
		f.compaction()
	case "compaction_end", "auto_compaction_end":
		f.compacted()
	case "session_info_changed":
		agent.SetNote(s, "name", agent.String(f.p, "name"))
	case "thinking_level_changed":
		agent.SetThinking(s, agent.String(f.p, "level"))
	}
}

// ended is the status of what ended well or not.
func ended(well bool) string {
	if well {
		return protocol.ItemDone
	}
	return protocol.ItemError
}

// agentEnd ends the turn of an agent that does not say when it has settled.
func (f fold) agentEnd() {
	if !agent.True(f.p, "willRetry") && (f.s.Extra == nil || !f.s.Extra.Settles) {
		EndTurn(f.s, f.e)
	}
}

// EndTurn ends the turn of an agent that speaks as pi does. What runs beside
// turns goes on; without agent_settled that is a retry, too.
func EndTurn(s *protocol.State, e *protocol.Event) {
	settles := s.Extra != nil && s.Extra.Settles
	agent.EndTurn(s, e, func(name string) bool {
		return strings.HasPrefix(name, "b") || name == "compaction" || name == "retry" && !settles
	})
}

// broker folds an event of rejoin's own.
func (f fold) broker(kind string) {
	switch kind {
	case protocol.TypeError:
		f.Fault(f.p)
	case protocol.TypeCommand:
		f.command()
	case protocol.TypeCommandOutcome:
		f.outcome()
	}
}
