package journal

import "rejoin/protocol"

// A Log names where a session's records are. The shard is chosen at creation
// (Node.ShardOf) and kept with the session.
type Log struct {
	Key   protocol.Key
	Shard int
}
