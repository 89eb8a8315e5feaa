// Package snapshot folds events into the state they add up to, and keeps
// checkpoints of it, so that nothing has to fold a long log.
//
// It owns the fold (New, Apply, Folds), its one deterministic encoder and hash
// (Encode, Decode, Hash), the ledger of admitted command ids (Ledger), the
// stored form of a checkpoint and of a ledger's pages, when a checkpoint is
// taken (Keeper), what of a log and of its checkpoints may go (Retention, Store)
// and the Reader, which gives the state now or as of any seq to whoever wants
// it: a gateway that attaches a client, a worker or a broker that takes a
// session over, a broker that answers for a session without an owner.
//
// Invariants:
//
//   - I-S1 (state.go, ledger.go): the fold is pure and total. It reads no
//     clock and no random source; a body it cannot read counts by its seq and
//     changes nothing else.
//   - I-S2 (state.go, encode.go, checkpoint.go): folding in pieces, with a
//     checkpoint stored and read between them, equals folding at once.
//   - I-S3 (reader.go): a Snapshot at n holds every event up to n and no
//     other, so that the events from n+1 continue it.
//   - I-J6 (shelf.go, at.go): a state can be rebuilt for every seq from floor−1
//     on. A checkpoint ends the record it falls into (Writer.EndRecord), a log
//     is trimmed to right behind one that was read back and verified, and that
//     one stays until the log is trimmed further. The newest is never the only
//     one left.
//   - I-B1 (ledger.go, page.go): a ledger rebuilt from checkpoint and log equals
//     the one its owner kept while it wrote them. Full pages are stored before
//     the checkpoint that needs them.
//
// A checkpoint that does not decode or verify is reported and left out; the one
// before it serves, and newer ones replace it. Nothing is trimmed meanwhile, and
// never to a checkpoint that another process wrote (shelf.go). Where none is left
// that a fold could start from, and where the log has a hole, a fold takes what
// is readable and says so (Snapshot.Damaged, History.Lost). One of another fold version is
// left out too, as long as the log is complete; else its state goes on under the
// new fold, and its owner records that (Reader.Upgrade).
//
// It does not know children or sockets and speaks to the journal only. Reader
// and Store start no goroutine: they work in the caller's. A Keeper has one
// while it stores a checkpoint or fits the log to its retention; Keeper.Close
// waits for it. Its timer only starts that one, and not after Close.
package snapshot
