// Package natsconf writes what a NATS cluster needs to carry rejoin whose roles
// are processes of their own: a configuration and a certificate per server, a CA,
// and a seed (an nkey) per role.
//
// # What it owns
//
//   - the plan: which servers there are, by what names, on what ports (plan.go);
//   - certificates (pki.go) and seeds (seeds.go), made once and kept;
//   - the servers' configuration files (conf.go) with the subjects that each role
//     may use, which journal.GrantOf says.
//
// # Invariants
//
// A second run over a folder keeps the CA and every seed that is there, so that it
// renews certificates, adds servers and takes in new grants without shutting
// anybody out. No private key is ever readable by others, and none is overwritten
// but those of certificates.
//
// It starts no goroutine and reaches no network.
package natsconf
