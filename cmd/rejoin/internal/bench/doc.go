// Package bench is the work of `rejoin bench`: rows of load on a server in a
// process of its own, with real children, real sockets and clients that doubt what
// they get.
//
// A child prints numbered lines of one size (Lines) and keeps their SHA-256. Every
// subscription (Observer) checks that its seqs are dense, that its epoch stays what
// it is, that the lines are numbered without a gap, and hashes their bytes; at the
// end of a row its hash must be the child's. A row in which anything differs is
// void, whatever it measured.
//
// Rows that every server of streams can do (Common) see it as a Target, so that
// others can be measured beside this one by the same clients. Nothing here fails
// because something took long, but for the time limit of a whole row.
//
// Goroutines: each Observer's reader ends with its connection, which the row
// closes and waits for; everything else is started and awaited inside one function.
package bench
