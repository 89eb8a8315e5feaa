// Package trim tests that logs which are trimmed under load lose nobody an
// event, a state or a command id.
package trim
