// Package stalled holds a thousand readers still while a session floods, and looks
// at what that costs the server and the readers that go on. REJOIN_STALLED=full
// makes it a thousand and 64 MB; otherwise it is a small copy of the same.
package stalled
