package pi

import (
	"strconv"

	"rejoin/agent"
	"rejoin/protocol"
)

// response takes from an answer what pi tells in no event.
func (f fold) response() {
	command, data := agent.String(f.p, "command"), agent.Member(f.p, "data")
	if data.Has("disposition") {
		agent.Settles(f.s) // such answers are younger than agent_settled
	}
	if command == "bash" {
		f.shellDone(data)
		return
	}
	if !agent.True(f.p, "success") {
		return
	}
	switch command {
	case "get_state":
		f.state(data)
	case "set_model":
		f.model(data)
	case "cycle_model":
		f.model(agent.Member(data, "model"))
		f.thinking(data, "thinkingLevel")
	case "cycle_thinking_level":
		f.thinking(data, "level")
	case "get_session_stats":
		agent.RaiseUsage(f.s, usage(agent.Member(data, "tokens"), agent.Float(data, "cost")))
	case "new_session":
		f.otherSession(data, "new session")
	case "switch_session":
		f.otherSession(data, "another session")
	case "fork", "clone":
		f.otherSession(data, "a copy of the session")
	}
}

// state takes what get_state tells. It knows nothing of dialogs, and isStreaming
// is already old when it is read: turns come from events only.
func (f fold) state(data protocol.Params) {
	f.model(agent.Member(data, "model"))
	f.thinking(data, "thinkingLevel")
	session := agent.String(data, "sessionFile")
	if session == "" {
		session = agent.String(data, "sessionId")
	}
	agent.SetAgentSession(f.s, session)
	agent.SetNote(f.s, "name", agent.String(data, "sessionName"))
}

func (f fold) model(m protocol.Params) {
	agent.SetModel(f.s, modelName(agent.String(m, "provider"), agent.String(m, "id")))
}

// modelName is what set_model calls a model.
func modelName(provider, id string) string {
	if provider == "" || id == "" {
		return id
	}
	return provider + "/" + id
}

func (f fold) thinking(data protocol.Params, name string) {
	if level := agent.String(data, name); level != "" {
		agent.SetThinking(f.s, level)
	}
}

// otherSession says that pi left its session. Its name is unknown until pi is
// asked for it.
func (f fold) otherSession(data protocol.Params, text string) {
	if agent.True(data, "cancelled") {
		return
	}
	agent.SetAgentSession(f.s, "")
	agent.SetQueue(f.s, nil, nil)
	f.Notice(text, protocol.ItemDone)
}

// retry announces another attempt; the one before, if any, has failed.
func (f fold) retry() {
	f.Close("retry", protocol.ItemError)
	text := "retry " + number(f.p, "attempt") + " of " + number(f.p, "maxAttempts") +
		" in " + number(f.p, "delayMs") + " ms: " + agent.String(f.p, "errorMessage")
	f.Replace(f.Open("retry", protocol.ItemNotice), agent.Text, text)
}

func number(p protocol.Params, name string) string {
	return strconv.FormatUint(agent.Uint(p, name), 10)
}

// compaction announces that pi shortens the session.
func (f fold) compaction() {
	text := "compacting the session"
	if reason := agent.String(f.p, "reason"); reason != "" {
		text += " (" + reason + ")"
	}
	f.Replace(f.Open("compaction", protocol.ItemNotice), agent.Text, text)
}

// compacted says how that ended.
func (f fold) compacted() {
	it := f.Item("compaction")
	if it == nil {
		it = f.Open("compaction", protocol.ItemNotice)
	}
	result := agent.Member(f.p, "result")
	status := protocol.ItemDone
	text := "session compacted, " + number(result, "tokensBefore") + " tokens before"
	if summary := agent.String(result, "summary"); summary != "" {
		text += ":\n" + summary
	}
	if wrong := agent.String(f.p, "errorMessage"); wrong != "" {
		status, text = protocol.ItemError, wrong
	}
	if agent.True(f.p, "aborted") {
		status, text = protocol.ItemInterrupted, "compaction aborted"
	}
	f.Replace(it, agent.Text, text)
	f.Close("compaction", status)
}
