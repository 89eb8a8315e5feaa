// Package cli tests the command line from outside: the built binary, its output
// and its exit codes, against servers that are killed and started again.
package cli
