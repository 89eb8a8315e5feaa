// Package demo is the adapter for rejoin's scripted agent (rejoin demo-agent),
// which speaks JSON lines in the manner of pi's RPC mode. It starts no goroutine.
package demo
