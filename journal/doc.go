// Package journal keeps the history of every session in durable order: append
// with a fence, ranged reads both ways, the live tail and its watch hub, the
// record codec, the embedded NATS server with its JetStream store, the request
// bus between roles and the buckets of the registry. It is the only package
// that speaks NATS, and a JetStream sequence never leaves it. It does not know
// what an event's body means.
//
// # Promises
//
//   - I-P1: decode∘encode of a record is identity (record.go).
//   - I-J1: within an epoch seq is dense: the writer numbers events (writer.go)
//     and every read checks density, CRC and chain (read.go, reader.go).
//   - I-J2: acknowledged = durable at the configured level: a then is called
//     after the server's acknowledgement (commit.go), the level is the server's
//     sync option (node.go), what an unclean boot may have lost is told until it
//     is settled (boot.go). The hub is fed by stored records only (feed.go).
//   - I-J3: one writer per run: every append carries the position it expects and
//     judge decides what a refusal means (fence.go, takeover.go).
//   - I-J4, I-J5: a reader gets every event after its cursor once, in order, from
//     the ring or the journal, at its own pace (watch.go, pull.go, fill.go).
//
// # On disk
//
// In the data directory (mode 0700): lock (flock, holds the pid), format (layout
// number, shards, expected streams), boot (boot id, clean-stop mark,
// durability), instance (a ULID), encryption (cipher and name of the key, only of
// an encrypted journal), jetstream (the server's store), meta (copies of what
// describes each stream), quarantine (what a start found damaged, with a report of
// each), guard, guard.new and guard.old (the streams as they were, while they are
// opened), probe (what the health watch writes, for a moment). The small files are
// replaced atomically. format has layout 1, the first; a later layout
// is migrated to where openFormat checks it, after a backup. A stream that a
// ready format expects and that is not there is never created anew.
//
// Records are stored on subject j.<shard>.<workspace>.<session> of stream
// J<shard> and republished, once stored, on live.<shard>.<workspace>.<session>.
// record.go has the layout of a record byte by byte.
//
// # In a cluster
//
// Connect gives the same Node over NATS servers of other processes: no data
// directory but for a lock and an instance, no guard, no boot mark. What
// DATA/format says stands under the key format of the bucket cluster
// (cluster.go). Heads, buckets and blobs are asked of leaders, history of any
// replica and then of the leader (direct.go); a log that seems to have lost
// something is asked again for a while (doubt.go); buckets are watched by what
// their streams republish (bucketwatch.go); health is what a client can see
// (healthremote.go).
//
// # Goroutines
//
//   - per open Writer one, from OpenWriter to Close; Node.Close ends and waits
//     for those left open.
//   - per Hub a feeder per shard, the fillers, the readers (in a cluster one of each
//     per shard) and the clock; Hub.close waits for them.
//   - per served bus subject and per bucket watch one of NATS, which the stop
//     function and Watch wait for.
//   - the boot guard's readers of blocks, one per processor, which Start and a
//     restart of the engine wait for.
//   - the health watch, which also restarts the engine; Node.Close waits for it.
//   - those of the two embedded servers, one for the streams (the engine) and one
//     for the bus, and of the connections to them, ended by Node.Close.
package journal
