package broker

import (
	"crypto/sha256"
	"crypto/subtle"

	"rejoin/protocol"
)

// Role is what a token may do.
type Role uint8

// The roles; each may do what those before it may.
const (
	RoleObserver Role = iota // read
	RoleOperator             // start, command, stop, delete
	RoleAdmin                // start any program
)

// Principal is who a connection is.
type Principal struct {
	Name      string
	Workspace string
	Role      Role
}

// Authenticate returns who presents token. With no token configured everybody
// is the admin. The comparison takes the same time for every token.
func (b *Broker) Authenticate(token string) (Principal, bool) { // I-A1
	admin := Principal{Name: "admin", Workspace: protocol.DefaultWorkspace, Role: RoleAdmin}
	if b.cfg.Token == "" {
		return admin, true
	}
	got, want := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(b.cfg.Token))
	if subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
		return Principal{}, false
	}
	return admin, true
}

// AuthRequired reports whether a token is configured.
func (b *Broker) AuthRequired() bool { return b.cfg.Token != "" }

// need refuses a principal below role.
func (p Principal) need(role Role) error {
	if p.Role < role {
		return protocol.Errorf(protocol.ReasonForbidden, "the token's role does not allow this")
	}
	return nil
}
