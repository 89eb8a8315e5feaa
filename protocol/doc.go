// Package protocol is the vocabulary of rejoin: the nouns every other package
// uses, the bytes they have on the wire and in the journal, the error table and
// the limits. It has no clock, no goroutine and no I/O but what a caller's
// reader hands it.
//
// # Glossary
//
//   - Session: one child process and everything it printed and was told.
//   - Key: (workspace, session id). Ids are unique per workspace, never reused.
//   - Event: one line of a session's history, numbered by its Seq.
//   - Seq: the number of an event in its session; dense inside an Epoch.
//   - Epoch: the name of an unbroken history (a ULID). Only broken continuity
//     starts a new one.
//   - Run: one incarnation of the owner of a session; it only grows.
//   - Cursor: (Epoch, Seq), "I have applied everything up to and including Seq".
//   - Command: an input a client asked for, named by its command id.
//   - Outcome: how a command ended.
//   - State: what the events up to a Seq add up to.
//   - Snapshot: a State with its Seq, Epoch and hash.
//
// # Invariants
//
//   - I-P1, decode∘encode is identity and a child's bytes are untouched: wire.go
//     (the stored line is the tail of the notification) and childline.go (what
//     is no JSON is carried as text or base64, never dropped).
//   - I-P2, no line over its limit is buffered: LineReader in frame.go, which
//     answers with ErrLineTooLong; LineTooLong in childline.go is the event.
//
// Client input is decoded by ParseMessage and Params, never by encoding/json,
// which ignores case, takes repeated names and repairs bad UTF-8.
//
// Everything here is safe for concurrent use unless a type says otherwise.
package protocol
