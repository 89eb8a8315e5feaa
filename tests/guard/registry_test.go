package guard_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"rejoin/tests/harness"
)

// TestRegistryGone: the blocks of the registry are gone, after a kill and after a
// stop. No record tells of it, but the logs do: every session is there, and none
// that was deleted is.
func TestRegistryGone(t *testing.T) {
	for name, end := range map[string]func(*harness.Server){"killed": (*harness.Server).Kill9, "stopped": func(s *harness.Server) { s.Term() }} {
		t.Run(name, func(t *testing.T) {
			s := harness.Start(t, harness.Options{Args: []string{"--durability", "1s"}})
			c := harness.Dial(t, s)
			for _, id := range []string{"one", "two", "deleted"} {
				printer(t, c, id, 40)
			}
			if _, err := c.Call(harness.Context(t), "delete_session", map[string]any{"sessionId": "deleted"}); err != nil {
				t.Fatal(err)
			}
			end(s)
			gone := blocks(t, s.Dir, "KV_sessions")
			for _, path := range gone {
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
			}
			if len(gone) == 0 {
				t.Fatal("the registry has no blocks")
			}
			s.Run()
			c = harness.Dial(t, s)
			all, err := c.Call(harness.Context(t), "list_sessions", map[string]any{})
			if err != nil {
				t.Fatal(err)
			}
			var list []struct{ ID string }
			if err := json.Unmarshal(all, &list); err != nil || len(list) != 2 {
				t.Errorf("list_sessions: %s, %v", all, err)
			}
			for _, id := range []string{"one", "two"} {
				if bodies := replay(t, c, id); !strings.Contains(bodies, `{"line":"last"}`) {
					t.Errorf("%s: %.300s", id, bodies)
				}
				if problems := verify(t, c, id); problems != "" {
					t.Errorf("verify %s: %s", id, problems)
				}
			}
			if _, err := c.Call(harness.Context(t), "start_session", map[string]any{"sessionId": "deleted"}); err == nil {
				t.Error("the id of a deleted session is free again")
			}
			s.Says("one was made from its log")
		})
	}
}
