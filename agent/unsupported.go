package agent

import "rejoin/protocol"

// Unsupported returns the error for a verb, or another thing a command asks for,
// that the adapter's kind of child does not have. Trying again does not help.
func Unsupported(what, adapter string) *protocol.Error {
	return protocol.Errorf(protocol.ReasonUnsupported, "%s is not supported by adapter %s", what, adapter)
}

// PromptText returns the text of the params of prompt, steer and follow_up for
// adapters that take nothing but text.
func PromptText(value protocol.RawJSON, adapter string) (string, error) {
	p, err := protocol.ParseParams(value)
	if err != nil {
		return "", err
	}
	text, ok, err := p.String("text")
	switch {
	case err != nil:
		return "", err
	case !ok:
		return "", protocol.Required("text")
	case p.Has("images"):
		return "", Unsupported("images", adapter)
	}
	return text, nil
}
