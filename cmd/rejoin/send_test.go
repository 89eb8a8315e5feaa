package main

import (
	"errors"
	"strings"
	"testing"

	"rejoin/client"
)

// TestDelayTeller: whoever waits for a command is told once why, whatever it is.
func TestDelayTeller(t *testing.T) {
	full := &client.RPCError{Message: "the journal is full"}
	for _, c := range []struct {
		name string
		err  error
		want string
	}{
		{"a refusal", full, "not taken yet, trying again: the journal is full\n"},
		{"no connection", errors.New("refused"), "no answer from the server, trying again\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out strings.Builder
			d := delayTeller{out: &out}
			d.retry(c.err)
			if out.Len() > 0 {
				t.Errorf("said at once: %q", out.String())
			}
			d.patienceEnds()
			d.retry(c.err)
			if out.String() != c.want {
				t.Errorf("said %q, want %q", out.String(), c.want)
			}
		})
	}
}
