package broker

import (
	"fmt"

	"rejoin/protocol"
)

// Role is what a token may do.
type Role uint8

// The roles; each may do what those before it may.
const (
	RoleObserver Role = iota // read
	RoleOperator             // start configured agents, command, stop, delete, read stderr
	RoleAdmin                // start any program
)

// roleNames are the roles as they are written.
var roleNames = [...]string{"observer", "operator", "admin"}

// String is the role as it is written.
func (r Role) String() string {
	if int(r) < len(roleNames) {
		return roleNames[r]
	}
	return fmt.Sprintf("role %d", r)
}

// ParseRole is the inverse of String.
func ParseRole(s string) (Role, error) {
	for i, name := range roleNames {
		if s == name {
			return Role(i), nil
		}
	}
	return 0, fmt.Errorf("role %q: want admin, operator or observer", s)
}

// Principal is who a connection is. Two of the same token are equal for as long
// as its line of the token file says the same.
type Principal struct {
	Name      string // of the token; it stands in events
	Workspace string
	Role      Role
	Token     string // id of the token; empty: the server's own
	ExpiresMs int64  // ms since 1970; 0: never
	mark      [8]byte
}

// LocalName is the name of whoever shows the server's own token: the admin of the
// workspace protocol.DefaultWorkspace.
const LocalName = "admin"

// Local is that admin; also everybody where no token is asked for.
func Local() Principal {
	return Principal{Name: LocalName, Workspace: protocol.DefaultWorkspace, Role: RoleAdmin}
}

// needOwn refuses a principal below role, and one of another workspace than the
// server's own: what it asks for concerns them all.
func (p Principal) needOwn(role Role) error {
	if p.Workspace != protocol.DefaultWorkspace {
		return protocol.Errorf(protocol.ReasonForbidden, "this concerns every workspace: a token of the workspace %s may do it", protocol.DefaultWorkspace)
	}
	return p.need(role)
}

// need refuses a principal below role.
func (p Principal) need(role Role) error {
	if p.Role < role {
		return protocol.Errorf(protocol.ReasonForbidden, "the token's role does not allow this")
	}
	return nil
}
