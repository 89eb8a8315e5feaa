package broker

import (
	"testing"

	"rejoin/protocol"
)

// TestPrincipalOf: a gateway names a role and a workspace that a token can have.
func TestPrincipalOf(t *testing.T) {
	if p, err := principalOf(protocol.Caller{Workspace: "default", Role: "operator"}); err != nil || p.Role != RoleOperator || p.Workspace != "default" {
		t.Errorf("got %+v, %v", p, err)
	}
	for _, c := range []protocol.Caller{
		{Workspace: "default"},
		{Workspace: "default", Role: "root"},
		{Role: "admin"},
		{Workspace: "a.b", Role: "admin"},
		{Workspace: ">", Role: "admin"},
		{Workspace: "..", Role: "admin"},
		{Workspace: "x y", Role: "admin"},
	} {
		if p, err := principalOf(c); err == nil {
			t.Errorf("%+v is %+v", c, p)
		}
	}
}
