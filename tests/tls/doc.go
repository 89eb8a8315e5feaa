// Package tls looks at a server over TLS from outside: certificates and their
// reload, mutual TLS, strangers, floods.
package tls
