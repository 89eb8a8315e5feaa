// Package model judges what was seen of sessions from outside.
//
// A History holds what every client saw frame by frame, what was sent and what
// was answered, what the children wrote into their own books, which processes
// were left, and the log as it was read in the end. Each check is named after a
// promise of docs/ARCHITECTURE.md and returns the first breach that it finds;
// Validate runs them all. The checks know nothing of how rejoin works, with one
// exception: CheckState folds the log with the product's own fold, which is what
// a state promises to equal.
//
// The package starts no goroutine but in the child (Child), which is a program of
// its own. A Recorder is safe for concurrent use; everything else belongs to one
// goroutine.
package model
