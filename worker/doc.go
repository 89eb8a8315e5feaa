// Package worker owns children: it spawns them, reads what they print, writes
// what they are told, ends them and their descendants, and is the one writer of
// their sessions' logs.
//
// # What it owns
//
// A session here is an actor: one mutex over its journal writer, its fold and
// its ledger. Every event is folded before it is handed to the journal, under
// that mutex, so what a command's expect is held against is never older than
// what any client can have seen. Commands are admitted in the order in which
// the bus brings them (admit.go).
//
// # Invariants
//
//   - I-W1: a line reaches stdin only after its command event is durable, and
//     that of a held command only after its command_released is (perform.go: the
//     line is queued by the journal's callback).
//   - I-W2: stdout lines become events in order; whatever is left out is said
//     by an error event (stdout.go), and session_end comes after the last line
//     (finish.go).
//   - I-W3: no child outlives its owner's orderly end (ladder.go). When the
//     owner is killed the leader dies with it (spawn_linux.go: PDEATHSIG, from a
//     thread that lives as long as the worker), its descendants at the next
//     start of the data directory (orphans_linux.go).
//   - I-W4: a child that does not read, or floods, harms no other session: each
//     has its own bounded stdin queue (stdin.go), and its stdout is read no
//     faster than its log takes it (stdout.go).
//   - I-B1, I-B3: one ledger look-up before every admission (admit.go); every
//     admitted command gets its outcome from the agent's answer, from the stdin
//     writer or at the run's end (perform.go, stdin.go, finish.go). Of several
//     answers to an interaction the first is taken: it and what it resolves are
//     one record, folded before the next command is looked at.
//   - I-B2: a fenced writer kills its child and writes nothing (finish.go).
//
// # What it does not do
//
// It grants no runs, keeps no registry, decides no restart and resumes nothing
// by itself: the broker does. It knows nothing of sockets, and of a child's
// lines no more than its agent.Adapter and the run's agent.Driver tell: the
// driver says what is written, what waits and whose answer a line is; the session
// carries that out under its mutex, in order.
//
// # Goroutines
//
// A worker has its Run, the spawning thread (spawn_linux.go), the reaper of
// orphans where it is a subreaper (offspring_linux.go) and at most protocol.WorkerRequestsMax requests in work; a child has its supervisor, its exit watcher and one
// goroutine for each of stdin, stdout and stderr. Run waits for all of them.
package worker
