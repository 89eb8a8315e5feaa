// Package pi is the adapter for pi in its RPC mode (pi --mode rpc): JSON lines,
// each command with an id and a type and answered by a response.
//
// What pi does with commands stands in drive.go. The fold (fold.go, and a file per
// kind of event) understands pi 1.6 and the older manner in which each update
// repeats the message so far; other agents that speak as pi does share both. It
// keeps its part of I-S1 and I-S2: no event is refused, and what is open is named
// in the State. testdata/traces are recorded conversations, testdata/expect what
// people read in them; those texts are written by hand and stay so.
//
// It starts no goroutine.
package pi
