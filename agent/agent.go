package agent

import "rejoin/protocol"

// An Adapter is what rejoin knows about one kind of child. Implementations have
// no state and are safe for concurrent use.
type Adapter interface {
	// Name is what configurations and start_session call it.
	Name() string
	// JSONLines reports whether the child prints one JSON value per line; false:
	// lines are text.
	JSONLines() bool
	// Encode turns a command into the line that reaches stdin, without LF.
	// Verb is empty for a raw send; then value is the client's JSON value with
	// insignificant white space removed, else the verb's params object.
	// Errors are *protocol.Error: unsupported, invalid_params.
	Encode(verb string, value protocol.RawJSON) (line []byte, err error)
}
