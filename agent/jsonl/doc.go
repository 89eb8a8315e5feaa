// Package jsonl is the adapter for programs that read and print one JSON value
// per line and about which nothing more is known: raw sends pass, portable verbs
// do not. It starts no goroutine.
package jsonl
