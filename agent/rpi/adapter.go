package rpi

import (
	"rejoin/agent"
	"rejoin/protocol"
)

// Name is what configurations call this adapter.
const Name = "rpi"

// An Adapter is ready to use as its zero value.
type Adapter struct{}

var _ agent.Adapter = Adapter{}

// Name returns "rpi".
func (Adapter) Name() string { return Name }

// JSONLines is true.
func (Adapter) JSONLines() bool { return true }

// Drive returns the driver of a run of rpi.
func (Adapter) Drive(run protocol.Run) agent.Driver {
	return agent.NewTalk(agent.Speech{
		Name: Name, Phrase: phrase, Reply: reply,
		Probe: []byte(`{"type":"get_state"}`), Abort: []byte(`{"type":"abort"}`),
		OnePrompt: true,
	}, run)
}

// phrase makes rpi's line of a command.
func phrase(_ *protocol.State, r *agent.Request) (agent.Phrase, error) {
	switch r.Verb {
	case "":
		return raw(r.Value)
	case "prompt":
		text, err := agent.PromptText(r.Value, Name)
		if err != nil {
			return agent.Phrase{}, err
		}
		line := protocol.AppendString([]byte(`{"type":"prompt","content":`), text)
		return agent.Phrase{Line: append(line, '}'), Type: "prompt", Prompt: true}, nil
	case "interrupt":
		return agent.Phrase{Line: []byte(`{"type":"abort"}`), Type: "abort", Aborts: true}, nil
	case "set_model":
		p, err := protocol.ParseParams(r.Value)
		if err != nil {
			return agent.Phrase{}, err
		}
		model, ok, err := p.String("model")
		switch {
		case err != nil:
			return agent.Phrase{}, err
		case !ok || model == "":
			return agent.Phrase{}, protocol.Required("model")
		}
		line := protocol.AppendString([]byte(`{"type":"set_model","model":`), model)
		return agent.Phrase{Line: append(line, '}'), Type: "set_model", Probes: true}, nil
	}
	return agent.Phrase{}, agent.Unsupported(r.Verb, Name)
}

// raw lets through what may be a command.
func raw(value protocol.RawJSON) (agent.Phrase, error) {
	if len(value) == 0 {
		return agent.Phrase{}, protocol.Required("command")
	}
	kind := agent.String(agent.Object(value), "type")
	if kind == "" {
		return agent.Phrase{}, protocol.Errorf(protocol.ReasonInvalidParams, "command must be an object with a type for adapter %s", Name)
	}
	changes := kind == "set_model" || kind == "set_thinking_level" || kind == "set_active_tools"
	return agent.Phrase{Line: value, Type: kind, Prompt: kind == "prompt", Aborts: kind == "abort", Probes: changes}, nil
}

// reply reads a response. rpi does not repeat in it what it answers.
func reply(line []byte) (r agent.Reply, ok bool) {
	p := agent.Object(line)
	if agent.String(p, "type") != "response" {
		return r, false
	}
	r.OK = agent.String(p, "status") == "ok"
	r.Error = agent.String(p, "error")
	r.Result, _ = p.Raw("result")
	return r, true
}
