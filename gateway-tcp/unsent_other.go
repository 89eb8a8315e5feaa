//go:build !linux

package gatewaytcp

import "syscall"

// boundUnsent: elsewhere the socket's buffer is the bound.
func boundUnsent(string, string, syscall.RawConn) error { return nil }
