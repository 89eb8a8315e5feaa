// Package harness runs the rejoin binary as its users do and looks at it from
// outside: a server with a data directory of its own, a JSON-RPC client that
// trusts nothing, children that are this test binary again, waits that wait for
// conditions.
//
// It binds to the wire protocol and the command line only. It imports no other
// package of the module, so a mistake there cannot hide itself here.
//
// A package of tests begins with
//
//	func TestMain(m *testing.M) { harness.Main(m, nil) }
//
// which runs children, fails on goroutines left behind, and removes what was built.
package harness
