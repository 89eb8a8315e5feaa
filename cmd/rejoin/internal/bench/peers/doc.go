// Command peers measures other servers of streams beside rejoin: the rows that each
// can do, by the clients of `rejoin bench`, alternating, so that whatever else the
// machine does hits all alike. tests/bench/peers/run.sh installs them and runs it.
//
//	peers [-bin DIR] [-rows fan,fan20] [-peers rejoin,raw,centrifugo] [-n 5] [-json FILE]
//
// Peers are what they are by default, but for what the work needs: Centrifugo keeps
// history in memory and recovers from it, nats-server has a file store where a
// stream is to be read again. raw is the least that could be called a server: a
// shared log in memory, a cursor and a goroutine per observer, one writev for
// everything pending. It keeps nothing and authenticates nobody.
package main
