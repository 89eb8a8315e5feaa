package demoagent

import (
	"rejoin/protocol"
)

// A command is one line of stdin, read.
type command struct {
	id       protocol.RawJSON // nil: absent
	kind     string           // the member type
	message  string
	steers   bool // a prompt with streamingBehavior steer
	answered bool // of extension_ui_response: confirmed is true
	wrong    string
}

// parseCommand reads a line; what is wrong with it is in the command.
func parseCommand(line []byte) command {
	if err := protocol.ValidateJSON(line); err != nil {
		return command{kind: "parse", wrong: "Failed to parse command: " + err.Error()}
	}
	p, err := protocol.ParseParams(line)
	if err != nil {
		return command{wrong: "A command is an object, such as " + example}
	}
	var c command
	c.id, _ = p.Raw("id")
	var typed bool
	if c.kind, typed, err = p.String("type"); err != nil || !typed {
		c.wrong = "A command has a type, such as " + example
		return c
	}
	switch c.kind {
	case "prompt", "steer", "follow_up":
		var ok bool
		if c.message, ok, err = p.String("message"); err != nil {
			c.wrong = err.Error()
		} else if !ok {
			c.wrong = "message is required"
		}
		behaviour, _, err := p.String("streamingBehavior")
		if err != nil {
			c.wrong = err.Error()
		}
		c.steers = behaviour == "steer"
	case "extension_ui_response":
		// Anything but a clear yes is a no.
		confirmed, _, err := p.Bool("confirmed")
		c.answered = confirmed && err == nil
	case "abort", "get_state":
	default:
		c.wrong = "Unknown command: " + c.kind
	}
	return c
}

const example = `{"type":"prompt","message":"help"}`
