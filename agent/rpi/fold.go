package rpi

import (
	"strconv"

	"rejoin/agent"
	"rejoin/agent/pi"
	"rejoin/protocol"
)

// foldVersion changes whenever this fold makes another state of the same events.
const foldVersion = 2

// FoldVersion grows with this fold and with pi's.
func (Adapter) FoldVersion() int { return pi.FoldVersion + foldVersion }

// Fold folds what rpi says otherwise than pi, and leaves the rest to pi's fold.
func (Adapter) Fold(s *protocol.State, e *protocol.Event) {
	p := agent.Object(e.Body)
	kind := agent.String(p, "type")
	if e.Source == protocol.SourceBroker {
		kind = ""
	}
	switch kind {
	case "ready":
		mode := agent.String(agent.Member(p, "semantics"), "messageUpdates")
		if mode == "" {
			mode = "snapshot"
		}
		agent.SetNote(s, "messageUpdates", mode)
	case "extension_ui_request": // rpi asks nothing, and nobody could answer
	case "agent_end": // there is no agent_settled
		pi.EndTurn(s, e)
	case "retry_scheduled":
		text := "retry " + number(p, "attempt") + " of " + number(p, "maxRetries") +
			" in " + number(p, "delayMs") + " ms: " + agent.String(p, "error")
		agent.Edit(s, e).Notice(text, protocol.ItemDone)
	case "response":
		if agent.String(p, "status") == "ok" {
			foldState(s, agent.Member(p, "result"))
		}
	default:
		pi.Fold(s, e)
	}
}

// foldState takes what get_state answers; other answers have none of it.
func foldState(s *protocol.State, result protocol.Params) {
	if model := agent.Member(result, "model"); model.Has("id") {
		agent.SetModel(s, agent.String(model, "id"))
	} else {
		agent.SetModel(s, agent.String(result, "model"))
	}
	if level := agent.String(result, "thinkingLevel"); level != "" {
		agent.SetThinking(s, level)
	}
	if session := agent.String(result, "sessionId"); session != "" {
		agent.SetAgentSession(s, session)
	}
}

func number(p protocol.Params, name string) string {
	return strconv.FormatUint(agent.Uint(p, name), 10)
}

// Settle closes what a run of rpi leaves open.
func (Adapter) Settle(s *protocol.State, e *protocol.Event) { agent.Settle(s, e) }
