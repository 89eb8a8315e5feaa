// Package demoagent is the scripted agent behind `rejoin demo-agent`: a program
// that needs no model and no key, speaks JSON lines in the manner of pi's RPC
// mode and does on request what agents do by accident.
//
// Stdin takes one command per line, each answered by a response that echoes its
// id; a line that is no command gets a response with success false.
//
//	{"id":"1","type":"prompt","message":"tool"}    also steer, follow_up
//	{"id":"2","type":"abort"}                      stops the reply
//	{"id":"3","type":"get_state"}
//	{"type":"extension_ui_response","id":"ask-1","confirmed":true}
//
// A prompt made of the words of Words is a script; any other is answered by a
// reply that says so. Replies stream word by word, --pace apart. A prompt that
// comes during a reply waits for its end (at most 256 wait); a steer
// goes before what waits. At the end of stdin what was asked for is finished
// without pauses, questions count as cancelled, and the program exits with 0.
//
// Goroutines: Run is the only writer; one more reads stdin and hands over one
// line at a time, so that an agent that hangs stops reading, too. It ends with
// stdin or, when the agent exits before that, with the process.
package demoagent
