// Package blackbox holds a running server to docs/protocol.md, from outside: the
// faults that users of agents and line protocols meet, and what must be seen
// instead. It binds to the wire and the command line only.
package blackbox
