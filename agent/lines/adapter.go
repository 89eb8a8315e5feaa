package lines

import (
	"strings"

	"rejoin/agent"
	"rejoin/protocol"
)

// Name is what configurations call this adapter.
const Name = "lines"

// An Adapter is ready to use as its zero value.
type Adapter struct{}

var _ agent.Adapter = Adapter{}

// Name returns "lines".
func (Adapter) Name() string { return Name }

// JSONLines is false: what the child prints is text.
func (Adapter) JSONLines() bool { return false }

// Encode returns the text of a raw send's JSON string, or of prompt's text
// member. Text with LF or CR in it would be more than one line and is
// invalid_params. The other verbs are unsupported.
func (Adapter) Encode(verb string, value protocol.RawJSON) ([]byte, error) {
	switch verb {
	case "":
		if len(value) == 0 {
			return nil, protocol.Required("command")
		}
		text, ok := protocol.DecodeString(value)
		if !ok {
			return nil, protocol.Errorf(protocol.ReasonInvalidParams, "command must be a string for adapter %s", Name)
		}
		return line("command", text)
	case "prompt":
		text, err := agent.PromptText(value, Name)
		if err != nil {
			return nil, err
		}
		return line("text", text)
	}
	return nil, agent.Unsupported(verb, Name)
}

func line(member, text string) ([]byte, error) {
	if strings.ContainsAny(text, "\n\r") {
		return nil, protocol.Errorf(protocol.ReasonInvalidParams, "%s must be one line: it has a line feed or carriage return", member)
	}
	return []byte(text), nil
}

// Drive returns a driver that writes what Encode makes.
func (a Adapter) Drive(protocol.Run) agent.Driver { return agent.Plain{Encode: a.Encode} }
