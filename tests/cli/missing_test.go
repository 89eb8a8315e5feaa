package cli_test

import (
	"testing"

	"rejoin/tests/harness"
)

// A known agent that is not installed is told from one that nobody knows.
func TestAgentThatIsNotInstalled(t *testing.T) {
	s := harness.Start(t, harness.Options{Env: []string{"PATH=/nowhere"}})
	refused(t, s.Dir, 1, "pi was not found on the server's PATH when it started; install it and restart the server", "start", "--agent", "pi")
	refused(t, s.Dir, 1, `agent "pie" is not configured; known: demo`, "start", "--agent", "pie")
}
