// Package logqueue stands between everything that logs and a log that may be slow,
// full or read by nobody, so that no logger ever waits for it.
//
// Lines wait in order, up to protocol.LogBytesQueued. Once there is no room, lines
// are left out until all that waits is written; then a line says how many. The same
// goes for lines that could not be written, once they can be again.
//
// The one goroutine is the Queue's, from Open to Close.
package logqueue
