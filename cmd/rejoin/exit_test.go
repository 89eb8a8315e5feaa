package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"rejoin/client"
	"rejoin/protocol"
)

func TestExitCode(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		code int
	}{
		{"nothing", nil, exitOK},
		{"any", errors.New("x"), exitFailed},
		{"interrupted", context.Canceled, exitFailed},
		{"usage", fmt.Errorf("x: %w", usagef("y")), exitUsage},
		{"unreachable", fmt.Errorf("x: %w", &client.DialError{Err: errors.New("refused")}), exitUnreachable},
		{"lost", fmt.Errorf("x: %w", client.ErrLost), exitUnreachable},
		{"no token", &client.RPCError{Code: protocol.CodeAuth}, exitUnauthorised},
		{"role", errors.Join(&client.RPCError{Code: protocol.CodeForbidden}, nil), exitUnauthorised},
		{"not found", &client.RPCError{Code: protocol.CodeSessionNotFound}, exitFailed},
		{"own code", &exitError{7}, 7},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := exitCode(c.err); got != c.code {
				t.Errorf("exit code %d, want %d", got, c.code)
			}
		})
	}
}

func TestCommandLines(t *testing.T) {
	const nowhere = "--server=tcp://127.0.0.1:1"
	for _, c := range []struct {
		args string
		code int
		says string // part of what stderr says
	}{
		{"bogus", exitUsage, `no command "bogus"`},
		{"lss", exitUsage, "did you mean ls or logs?"},
		{"ls --nope", exitUsage, "unknown flag: --nope"},
		{"ls extra", exitUsage, `unexpected argument "extra"`},
		{"send x", exitUsage, "TEXT or CMD is missing"},
		{"send x --json {", exitUsage, "not a JSON value"},
		{"send x y --command-id \u00e4", exitUsage, "--command-id"},
		{"events", exitUsage, "SID is missing"},
		{"events x --after -1", exitUsage, `rejoin: invalid argument "-1" for "--after" flag: want a whole number from 0 on`},
		{"send x y --wait 0s", exitUsage, "--wait"},
		{"stop x --grace -1s", exitUsage, "--grace"},
		{"stop x --grace 1h", exitUsage, "--grace"},
		{"start x", exitUsage, `unexpected argument "x"`},
		{"start --restart maybe", exitUsage, "--restart"},
		{"start --session-id a/b", exitUsage, "--session-id"},
		{"ls --server gopher://x", exitUsage, "--server"},
		{"ls --server wss://x:1", exitUsage, "does not speak wss yet"},
		{"ls --server tls://127.0.0.1:1", exitUnreachable, "connection refused"},
		{"ls --server tls://127.0.0.1:1 --tls-ca /nowhere.pem", exitUsage, "--tls-ca /nowhere.pem: no such file"},
		{"ls --server tls://127.0.0.1:1 --tls-cert /x", exitUsage, "go together"},
		{"ls " + nowhere, exitUnreachable, "cannot connect to tcp://127.0.0.1:1: connect: connection refused\nIs a server running?"},
		{"attach x " + nowhere, exitUnreachable, "cannot connect"},
		{"start " + nowhere, exitUnreachable, "cannot connect"},
		{"ls --server unix:///nowhere/r.sock", exitUnreachable, "no such file"},
		{"ls --data-dir /nowhere", exitUnreachable, "no server runs in /nowhere\n`rejoin serve --data-dir /nowhere` starts one"},
		{"ls --data-dir /proc/self/stat", exitFailed, "read /proc/self/stat/server.json: not a directory"},
		{"token add x", exitUsage, "rejoin: --role is required: admin, operator or observer"},
		{"token add x --role boss", exitUsage, "want admin, operator or observer"},
		{"token add a/b --role admin", exitUsage, "name must match"},
		{"token", exitFailed, "there is no token in"},
		{"serve x", exitUsage, `unexpected argument "x"`},
		{"serve --listen ftp://x", exitUsage, "rejoin: --listen ftp://x: unknown scheme"},
		{"serve --listen ws://127.0.0.1:1", exitUsage, "unknown scheme"},
		{"serve --listen tls://127.0.0.1:1", exitUsage, "--tls-cert and --tls-key"},
		{"serve --tls-cert c.pem --tls-key k.pem", exitUsage, "there is none: --listen tls://"},
		{"serve --listen tls://127.0.0.1:0 --tls-cert /nowhere.pem --tls-key k.pem", exitFailed, "certificate /nowhere.pem: no such file"},
		{"serve --listen tcp://127.0.0.1:1?auth=peer", exitUsage, "auth=peer is for unix sockets"},
		{"serve --no-auth --listen tls://:1 --tls-cert c --tls-key k", exitUsage, "--no-auth would let everyone"},
		{"serve --listen tcp://127.0.0.1:1?dialect=pi", exitUsage, "dialect"},
		{"serve --listen tcp://127.0.0.1:1?x=1", exitUsage, "unknown parameter"},
		{"serve --listen tcp://0.0.0.0:1", exitUsage, "allow it with --insecure"},
		{"serve --listen tcp://example.org:1", exitUsage, "allow it with --insecure"},
		{"serve --no-auth --listen tcp://:1", exitUsage, "--no-auth"},
		{"serve --no-auth --token x", exitUsage, "exclude each other"},
		{"serve --token=", exitUsage, "--token is empty"},
		{"serve --durability never", exitUsage, `rejoin: --durability "never": want`},
		{"serve --max-request-bytes 12", exitUsage, "between 1KiB and 64MiB"},
		{"serve --max-event-bytes 1GB", exitUsage, "is not a size"},
		{"serve --max-event-bytes 1GiB", exitUsage, "between 1KiB and 32MiB"},
		{"serve --auth-timeout -1s", exitUsage, "must be positive"},
		{"serve --log-format xml", exitUsage, "text or json"},
		{"serve --log-level loud", exitUsage, "debug, info"},
		{"serve --config /nowhere.yaml", exitUsage, "no such file"},
	} {
		t.Run(c.args, func(t *testing.T) {
			code, out, errOut := runApp(t, nil, strings.Fields(c.args)...)
			if code != c.code || !strings.Contains(errOut, c.says) || out != "" {
				t.Errorf("exit code %d, stdout %q, stderr:\n%s\nwant %d and %q", code, out, errOut, c.code, c.says)
			}
			if strings.Contains(errOut, "goroutine ") {
				t.Error("a stack trace")
			}
		})
	}
}

func TestHelpAndVersion(t *testing.T) {
	for _, args := range [][]string{{}, {"--help"}, {"serve", "--help"}, {"help", "attach"}, {"version"}} {
		if code, out, errOut := runApp(t, nil, args...); code != exitOK || out == "" || errOut != "" {
			t.Errorf("%v: exit code %d, stdout %q, stderr %q", args, code, out, errOut)
		}
	}
}

// A missing token has a remedy; a refusal says itself what it is about.
func TestHint(t *testing.T) {
	for code, says := range map[int]string{protocol.CodeAuth: "--token", protocol.CodeForbidden: ""} {
		if got := hint(&client.RPCError{Code: code}); !strings.Contains(got, says) || (got == "") != (says == "") {
			t.Errorf("%d: %q", code, got)
		}
	}
}
