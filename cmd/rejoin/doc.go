// Command rejoin is the server and the client of rejoin in one binary: serve is
// the composition root, everything else talks to a server through package client.
//
// # What it owns
//
//   - the command line: flags, files and exit codes (root.go, exit.go, one file
//     per command);
//   - what a server is made of and the order in which it starts and stops
//     (serve.go, wire.go), its configuration (settings.go), its token (secret.go)
//     and how others find it (ready.go);
//   - what a terminal shows of a session (render.go).
//
// It decides nothing about sessions and owns no wire format.
//
// # Order
//
// Start: journal, broker, orphans killed (I-W3), recovery, worker, listeners,
// ready file. Stop: listeners, children by the kill ladder with their last events
// still reaching clients, connections, broker, journal. A watchdog ends the process
// 9.5 s after the first signal whatever hangs; a second signal ends it at once.
//
// # Goroutines
//
// serve waits for all it starts: worker, broker, one per listener, and the
// watchdog, which dies with the process. Client commands start none of their own.
package main
