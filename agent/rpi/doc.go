// Package rpi is the adapter for rpi in its RPC mode (rpi --mode rpc), a relative
// of pi: the same events, other commands and answers. It asks no questions and
// has no queue. It starts no goroutine.
package rpi
