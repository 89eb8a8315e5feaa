// Package audit keeps the audit log: a file with one JSON object per line and
// state-changing request, authentication, and end of a token, rotated by size.
//
// Who records never waits: a queue of protocol.AuditEntriesQueued lies between.
// When it is full, or the file cannot be written, entries are lost; that is
// counted, logged as an error, and stands in the file itself once it can be
// written again. A disk that is full must not keep anybody from stopping an agent.
//
// The one goroutine is Run, which its caller waits for.
package audit
