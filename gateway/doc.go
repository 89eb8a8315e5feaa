// Package gateway is the connection core: it speaks the native protocol over
// any Pipe of frames. Listeners (gateway-tcp) accept and hand a Pipe to
// Server.Serve; everything about JSON-RPC, methods, subscriptions, roles and
// limits is here.
//
// # Invariants
//
//   - I-G1: per subscription events are in seq order and follow its response.
//     A subscription is a cursor with a generation, both under conn.mu
//     (subscription.go). Its response and its activation are one critical
//     section (conn.answer); the writer takes responses and one ready
//     subscription in one critical section (writer.go, fill), pulls outside it,
//     and commits only while the generation is unchanged.
//   - I-G2: per-connection memory is bounded: one pooled buffer while there is
//     something to send (64 KiB and one event), at most ResponseBytesQueued of
//     responses before no further request is read (reader.go) or heavy one
//     performed (jobs.go), one snapshot at a time (snapshots.go). A watch of
//     sessions is a cursor, too (watch.go); at most protocol.WatchesMax.
//   - I-J5: a slow reader costs a cursor and delays nobody: the writer pulls,
//     nobody pushes, and Wake only marks.
//   - I-A1: before authentication only authenticate and ping do anything
//     (reader.go, prepare).
//
// # What it does not do
//
// It starts no process, speaks no NATS, decides nothing about sessions (broker
// does) and keeps no event (journal does).
//
// # Goroutines
//
// Per connection a reader (the caller of Serve) and, while there is something to
// write, a writer; besides them one per request in work (at most protocol.RequestsInWorkMax) and one that fetches
// a snapshot while a subscription needs one. Serve waits for all of them. The
// server has one for each session that is being deleted; Close waits for those.
package gateway
