package main

import (
	"context"
	"errors"
	"fmt"

	"rejoin/client"
	"rejoin/protocol"
)

// Exit codes, as docs/operations.md has them.
const (
	exitOK           = 0
	exitFailed       = 1
	exitUsage        = 2
	exitUnreachable  = 3
	exitUnauthorised = 4
)

// usageError is a mistake on the command line or in the configuration.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error {
	return &usageError{fmt.Errorf(format, args...)}
}

// exitError ends the program with a code of its own and nothing more to say.
type exitError struct{ code int }

func (e *exitError) Error() string { return fmt.Sprintf("exit status %d", e.code) }

// hintedError is an error with a remedy of its own.
type hintedError struct {
	err  error
	hint string
}

func (e *hintedError) Error() string { return e.err.Error() }
func (e *hintedError) Unwrap() error { return e.err }

// exitCode maps what a command returned.
func exitCode(err error) int {
	var (
		usage *usageError
		dial  *client.DialError
		rpc   *client.RPCError
		exit  *exitError
		none  *noServerError
		away  *unreachableError
	)
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &exit):
		return exit.code
	case errors.As(err, &usage):
		return exitUsage
	case errors.As(err, &rpc) && rpc.Unauthorised():
		return exitUnauthorised
	case errors.As(err, &dial), errors.As(err, &none), errors.As(err, &away), errors.Is(err, client.ErrLost):
		return exitUnreachable
	}
	return exitFailed
}

// hint is what to do about err, or nothing.
func hint(err error) string {
	var (
		usage *usageError
		dial  *client.DialError
		rpc   *client.RPCError
		none  *noServerError
		own   *hintedError
	)
	switch {
	case errors.As(err, &usage):
		return ""
	case errors.As(err, &own):
		return own.hint
	case errors.As(err, &none):
		return "`rejoin serve --data-dir " + none.dir + "` starts one; --server says where another is."
	case errors.As(err, &rpc) && rpc.Code == protocol.CodeAuth:
		return "Give the server's token with --token or REJOIN_TOKEN; `rejoin token` prints it where the server runs."
	case errors.As(err, &dial) && tlsHint(err) != "":
		return tlsHint(err)
	case errors.As(err, &dial) && (errors.As(dial, &rpc) || errors.Is(dial, client.ErrNoTLS)):
		return "" // a server is there, and the error says what it wants
	case errors.As(err, &dial) && dial.Broken():
		return "Something listens there and broke the connection off; --server says where a rejoin server is."
	case errors.As(err, &dial):
		return "Is a server running? `rejoin serve` starts one; --server says where it is."
	}
	return ""
}

// sentence is err for people.
func sentence(err error) string {
	if errors.Is(err, context.Canceled) {
		return "interrupted"
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "no answer in time: " + err.Error()
	}
	return err.Error()
}
