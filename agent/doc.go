// Package agent knows what each kind of child means: how a command becomes lines
// of its stdin (Driver), and what its lines say about the session (Adapter.Fold).
// One folder per adapter; an adapter never sees a process or the journal.
//
// What an adapter lacks it refuses with unsupported, never with an empty
// success. What it lets through reaches stdin as exactly one line: no line of an
// Input has an LF in it (part of I-W1: what the journal says is what the child
// gets).
//
// A fold is pure and total (part of I-S1), and has no memory but the State (part
// of I-S2): transcript.go, text.go and state.go are its tools, which keep every
// bound of protocol.State whatever a child prints. State.Scratch (scratch.go)
// makes them fast, and only that: a fold that finds none does the same. value.go
// reads JSON as a fold must, which never fails.
//
// The package starts no goroutine. All adapters pass the suites in
// conformance_test.go and fold_test.go.
package agent
