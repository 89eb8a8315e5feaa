package gateway

import (
	"os"
	"strings"
	"testing"

	"rejoin/broker"
)

// TestMethodsHaveRoles wants each method of the table in the row of its role in
// docs/protocol.md, so that none is added without a decision.
func TestMethodsHaveRoles(t *testing.T) {
	b, err := os.ReadFile("../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, m := range methods {
		if name == "authenticate" || verbs[name] != nil && m.role == broker.RoleOperator {
			continue
		}
		found := false
		for _, line := range strings.Split(string(b), "\n") {
			if strings.HasPrefix(line, "| "+m.role.String()+" | ") && strings.Contains(line, "`"+name+"`") {
				found = true
			}
		}
		if !found {
			t.Errorf("docs/protocol.md does not say that %s is for the role %s", name, m.role)
		}
	}
}
