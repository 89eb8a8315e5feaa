// Package snapshot folds events into the state they add up to.
//
// It owns the fold (New, Apply), its one deterministic encoder and hash
// (Encode, Decode, Hash), the ledger of admitted command ids (Ledger) and the
// Reader, which folds logs for whoever wants a state: a gateway that attaches
// a client, a worker or a broker that takes a session over, a broker that
// answers for a session without an owner.
//
// Invariants:
//
//   - I-S1 (state.go, ledger.go): the fold is pure and total. It reads no
//     clock and no random source; a body it cannot read counts by its seq and
//     changes nothing else.
//   - I-S2 (state.go, encode.go): folding in pieces, with an Encode and a
//     Decode between them, equals folding at once.
//   - I-S3 (reader.go): a Snapshot at n holds every event up to n and no
//     other, so that the events from n+1 continue it.
//   - I-B1 (ledger.go): a ledger rebuilt from a log equals the one its owner
//     kept while it wrote that log.
//
// It does not write to the journal, know children or sockets, or keep anything
// on disk. It starts no goroutine: a Reader folds in the caller's.
package snapshot
