package agent

import "rejoin/protocol"

// A Driver is one run's conversation with its child: what a command becomes on
// stdin, what must wait, whose answer a line is, and what rejoin itself has to
// say. It is a deterministic state machine: no goroutine, no clock, no random
// source. It belongs to the session's owner, who calls it under one lock and
// carries out what it returns at once and in order. After a method that returned
// an error nothing has changed.
type Driver interface {
	// Turns reports whether State.Turn says something about this kind of child.
	Turns() bool
	// Start is what rejoin says when the run begins.
	Start(s *protocol.State) []Effect
	// Admit takes a client's command. Among the effects is exactly one Input with
	// the request's id. Errors are *protocol.Error: unsupported, invalid_params,
	// already_resolved, overloaded.
	Admit(s *protocol.State, r *Request) ([]Effect, error)
	// Hear takes a line that the child printed, JSON and not folded yet, and
	// returns it as it is to be recorded (line itself, or a buffer that the next
	// Hear may reuse), the command that it answers if any, and what follows from it.
	Hear(s *protocol.State, line []byte) (record []byte, command string, effects []Effect)
	// Wrote says that the pipe took the whole line of a command.
	Wrote(command string) []Effect
	// Broke says that a command's line could not be written: the child reads no
	// more, so nothing that is held back will ever be released.
	Broke(command string)
	// Told reports whether a command without outcome was written as a whole.
	Told(command string) bool
	// Stop is what rejoin says before it closes the child's stdin for good.
	Stop(s *protocol.State) []Effect
}

// A Request is a client's command at its admission.
type Request struct {
	ID     string           // command id
	Verb   string           // portable verb; empty: a raw send
	Value  protocol.RawJSON // the raw send's value, or the verb's params; without insignificant white space
	Client string           // name of the client
	// Resolved tells how the interaction was resolved that is not pending any more
	// and whose id is satisfies, the newest of several.
	Resolved func(is func(interaction string) bool) (protocol.InteractionResolved, bool)
}

// An Effect is one thing that a driver wants done. Exactly one member is set.
type Effect struct {
	Input   *Input
	Release string                   // id of a held command: record its release, then write its line
	Outcome *protocol.CommandOutcome // record it
}

// An Input is a command to be recorded and then written to stdin.
type Input struct {
	ID       string
	Value    protocol.RawJSON              // of a command of rejoin's own: the raw value that is recorded
	Line     []byte                        // without LF
	Held     bool                          // written only once it was released
	Resolves *protocol.InteractionResolved // recorded with it, in one record
	Limit    string                        // the limit that made it necessary, for counting; empty: none
}

// Plain is the driver of children about whose conversation nothing is known: every
// line that the adapter makes is written at once, and done when the pipe took it.
type Plain struct {
	Encode func(verb string, value protocol.RawJSON) ([]byte, error) // Adapter.Encode
}

var _ Driver = Plain{}

// Turns is false.
func (Plain) Turns() bool { return false }

// Start is nothing.
func (Plain) Start(*protocol.State) []Effect { return nil }

// Admit encodes.
func (p Plain) Admit(_ *protocol.State, r *Request) ([]Effect, error) {
	line, err := p.Encode(r.Verb, r.Value)
	if err != nil {
		return nil, err
	}
	return []Effect{{Input: &Input{ID: r.ID, Line: line}}}, nil
}

// Hear returns the line as it is.
func (Plain) Hear(_ *protocol.State, line []byte) ([]byte, string, []Effect) { return line, "", nil }

// Wrote is the command's end.
func (Plain) Wrote(command string) []Effect {
	return []Effect{{Outcome: &protocol.CommandOutcome{Type: protocol.TypeCommandOutcome, CommandID: command, Outcome: protocol.OutcomeDone}}}
}

// Broke changes nothing.
func (Plain) Broke(string) {}

// Told is false: what was written has its outcome.
func (Plain) Told(string) bool { return false }

// Stop is nothing.
func (Plain) Stop(*protocol.State) []Effect { return nil }
