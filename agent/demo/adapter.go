// Package demo is the adapter for rejoin's scripted agent (rejoin demo-agent),
// which speaks JSON lines in the manner of pi's RPC mode. It starts no goroutine.
package demo

import (
	"rejoin/agent"
	"rejoin/protocol"
)

// Name is what configurations call this adapter.
const Name = "demo"

// An Adapter is ready to use as its zero value.
type Adapter struct{}

var _ agent.Adapter = Adapter{}

// Name returns "demo".
func (Adapter) Name() string { return Name }

// JSONLines is true.
func (Adapter) JSONLines() bool { return true }

// Encode passes any JSON object of a raw send as it is and turns prompt, steer,
// follow_up and interrupt into the agent's commands. The other verbs are
// unsupported.
func (Adapter) Encode(verb string, value protocol.RawJSON) ([]byte, error) {
	switch verb {
	case "":
		switch {
		case len(value) == 0:
			return nil, protocol.Required("command")
		case value[0] != '{':
			return nil, protocol.Errorf(protocol.ReasonInvalidParams, "command must be an object for adapter %s", Name)
		}
		return value, nil
	case "prompt", "steer", "follow_up":
		text, err := agent.PromptText(value, Name)
		if err != nil {
			return nil, err
		}
		line := append([]byte(`{"type":"`), verb...)
		line = append(line, `","message":`...)
		line = protocol.AppendString(line, text)
		return append(line, '}'), nil
	case "interrupt":
		return []byte(`{"type":"abort"}`), nil
	}
	return nil, agent.Unsupported(verb, Name)
}
