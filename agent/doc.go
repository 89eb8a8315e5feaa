// Package agent knows what each kind of child means: how a portable command
// becomes lines of its stdin. One folder per adapter; an adapter never sees a
// process or the journal.
//
// What an adapter lacks it refuses with unsupported, never with an empty
// success. What it lets through reaches stdin as exactly one line: no line
// Encode returns has an LF in it (part of I-W1: what the journal says is what
// the child gets).
//
// The package starts no goroutine. All adapters pass the suite in
// conformance_test.go.
package agent
