package jsonl

import (
	"rejoin/agent"
	"rejoin/protocol"
)

// Name is what configurations call this adapter.
const Name = "jsonl"

// An Adapter is ready to use as its zero value.
type Adapter struct{}

var _ agent.Adapter = Adapter{}

// Name returns "jsonl".
func (Adapter) Name() string { return Name }

// JSONLines is true.
func (Adapter) JSONLines() bool { return true }

// Encode passes any JSON value of a raw send as it is; every verb is unsupported.
func (Adapter) Encode(verb string, value protocol.RawJSON) ([]byte, error) {
	switch {
	case verb != "":
		return nil, agent.Unsupported(verb, Name)
	case len(value) == 0:
		return nil, protocol.Required("command")
	}
	return value, nil
}

// Drive returns a driver that writes what Encode makes.
func (a Adapter) Drive(protocol.Run) agent.Driver { return agent.Plain{Encode: a.Encode} }
