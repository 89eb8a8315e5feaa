// Package broker decides who may own a session.
//
// It owns the registry (one SessionRecord per session), the feed of what changes
// about sessions (feed.go: state, not a log), the granting of runs,
// the reservations that make start_session idempotent, recovery after a crash,
// deletes, the restart policy, tokens and roles, and the way of a command to the
// owner of its session.
//
// Invariants:
//
//   - I-J3, I-B2 (registry.go, resume.go, takeover.go): every run is granted by
//     compare-and-set in the registry, to one worker or, for a record the broker
//     writes itself, to none; runs only grow.
//   - I-B1 (start.go, command.go): a command id takes effect at most once. A
//     start is reserved in the bucket "starts" before anything else; a command
//     is admitted by the owner alone, and without an owner only recalled from
//     the log.
//   - I-B3 (settle.go, recover.go): what a lost owner left open gets its
//     outcome, then the run its end; only what is missing is written.
//   - I-W3 (recover.go, its part): a session is called interrupted only after
//     its children are dead, which the caller of Recover sees to.
//   - I-A1 (tokens.go, broker.go): the token is compared in constant time;
//     another workspace's session does not exist.
//
// A request that changes something goes on when its caller goes away, within its
// own time limit (Broker.work). The changes of one session's life take turns
// (locks.go); a stop does not wait for its turn while there is a child to end.
//
// Among several processes (Config.Discover, Config.Desk) the registry is others', too:
// workers are found in the bucket "workers" (roster.go, liveness.go, placement.go), sessions of
// lost owners are settled by whichever broker is first (lost.go), starts and restarts are
// counted in the buckets (shared.go, again.go), and a gateway without a broker forwards what grants
// runs (desk.go) to any broker (service.go). I-R2.
//
// It knows no socket and no process. Events never pass through it.
//
// Goroutines, all of Run and awaited by it: the registry's watch, one per agenda
// (restarts, settling, deleting), one that asks owners while somebody watches
// sessions, one that looks at the token file, one that fits ended sessions to
// their retention, and at most restartParallel restarts. Announcements of owners are
// taken on the bus's goroutine. Among several: the watch of workers, the canary, one that settles
// lost owners' sessions with at most recoverParallel more, agendas of stuck and moving
// sessions, and a goroutine per request of a gateway, at most protocol.BrokerRequestsMax. Recover
// uses up to recoverParallel while it runs. Requests run in their caller's.
package broker
