// Package bench measures what a user of rejoin waits for, from outside: a child
// prints, a client reads, the server is between them. Nothing asserts a time.
//
//	go test -run '^$' -bench . ./tests/bench           small figures, for a look
//	BENCH=1 go test -run '^$' -bench . -benchtime 1x -timeout 1h ./tests/bench
//
// TestBenchCommand runs every row of `rejoin bench`, which measures the same and more
// without Go; peers/run.sh has other servers of streams do its rows.
//
// BASELINE.md keeps figures with the machine they come from.
package bench
