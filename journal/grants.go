package journal

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"rejoin/protocol"
)

// MessageBytesMax is what a NATS server that carries the journal must let pass as
// one payload (its max_payload).
const MessageBytesMax = messageBytesMax

// PendingBytesMax is what such a server should hold back for one connection before
// it cuts it (its max_pending).
const PendingBytesMax = pendingBytesMax

// RoutePing is how often such servers should ask one another whether they are there
// (ping_interval of their cluster): a route over which nothing comes is closed after
// three, 6 to 9 s, and made anew as soon as that can be. nats-server's own 30 s leave a
// route that was cut to the kernel, whose next try is as far off as the cut was long.
const RoutePing = 3 * time.Second

// A Grant is the subjects that a role needs of a NATS server: the least by which it
// works. It keeps mistakes and stolen seeds apart, and no more: JetStream answers on
// whatever reply subject a request names.
type Grant struct {
	Publish   []string
	Subscribe []string
	Answers   bool // it answers requests, on the subjects that they name
}

// GrantOf returns what a role needs where the journal has so many shards (zero: 8).
// An unknown role is an error.
func GrantOf(role protocol.ServerRole, shards int) (Grant, error) {
	if shards == 0 {
		shards = shardsDefault
	}
	g := readsJournal(shards)
	switch role {
	case protocol.RoleGateway:
		g.watches(protocol.BucketSessions, protocol.BucketGateways, protocol.BucketWorkers)
		g.Publish = append(g.Publish,
			keysOf(protocol.BucketGateways), protocol.WorkerSubject("*"), protocol.BrokerSubject, protocol.BrokerSubjectOf("*"))
		g.Subscribe = append(g.Subscribe, protocol.ChangesAll)
	case protocol.RoleBroker:
		g.watches(protocol.BucketSessions, protocol.BucketStarts, protocol.BucketWorkers, protocol.BucketGateways, bucketCluster)
		g.writesJournal(shards)
		g.Publish = append(g.Publish, keysOf(protocol.BucketSessions), keysOf(protocol.BucketStarts), keysOf(protocol.BucketWorkers), keysOf(bucketCluster),
			protocol.WorkerSubject("*"), apiSubject("INFO")) // INFO: whether the servers are new enough for its buckets
		for _, stream := range allStreams(shards) {
			g.Publish = append(g.Publish, apiSubject("STREAM.CREATE."+stream))
		}
		g.Subscribe = append(g.Subscribe, protocol.BrokerSubject, protocol.BrokerSubjectOf("*"), protocol.ChangesAll)
		g.Answers = true
	case protocol.RoleWorker:
		g.watches(protocol.BucketSessions, protocol.BucketWorkers)
		g.writesJournal(shards)
		// An entry of its own is one token; the canaries of brokers are two.
		g.Publish = append(g.Publish, keysOf(protocol.BucketSessions), "$KV."+protocol.BucketWorkers+".*", "changes.>")
		g.Subscribe = append(g.Subscribe, protocol.WorkerSubject("*"))
		g.Answers = true
	default:
		return Grant{}, fmt.Errorf("journal: no role %q", role)
	}
	return g, nil
}

// And returns what two roles in one process need.
func (g Grant) And(o Grant) Grant {
	return Grant{union(g.Publish, o.Publish), union(g.Subscribe, o.Subscribe), g.Answers || o.Answers}
}

func union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

// readsJournal is what every role needs: logs, blobs and buckets to read, and where
// the answers come.
func readsJournal(shards int) Grant {
	var g Grant
	for i := range shards {
		stream := shardStream(i)
		g.Publish = append(g.Publish, apiSubject("STREAM.MSG.GET."+stream), apiSubject("DIRECT.GET."+stream))
		g.Subscribe = append(g.Subscribe, "live."+strconv.Itoa(i)+".>")
	}
	g.Publish = append(g.Publish, apiSubject("STREAM.MSG.GET."+snapStream))
	for _, stream := range allStreams(shards) {
		g.Publish = append(g.Publish, apiSubject("STREAM.INFO."+stream)) // a start looks for all of them
	}
	g.reads(bucketCluster)
	g.Subscribe = append(g.Subscribe, "_INBOX.>", leaderElected)
	return g
}

// reads adds reading keys of buckets.
func (g *Grant) reads(buckets ...string) {
	for _, name := range buckets {
		stream := bucketStream(name)
		g.Publish = append(g.Publish, apiSubject("STREAM.INFO."+stream), apiSubject("STREAM.MSG.GET."+stream), apiSubject("DIRECT.GET."+stream))
	}
}

// watches adds reading and watching buckets.
func (g *Grant) watches(buckets ...string) {
	g.reads(buckets...)
	for _, name := range buckets {
		g.Subscribe = append(g.Subscribe, bucketLive(name))
	}
}

// writesJournal adds appending, checkpoints, and removing what is no longer kept.
func (g *Grant) writesJournal(shards int) {
	for i := range shards {
		g.Publish = append(g.Publish, "j."+strconv.Itoa(i)+".>", apiSubject("STREAM.PURGE."+shardStream(i)))
	}
	g.Publish = append(g.Publish, snapPrefix+">", apiSubject("STREAM.PURGE."+snapStream))
}

// allStreams names every stream of a journal that roles meet on.
func allStreams(shards int) []string {
	all := append(shardStreams(shards), snapStream, bucketStream(bucketCluster))
	for _, name := range clusterBuckets {
		all = append(all, bucketStream(name))
	}
	return all
}

func apiSubject(what string) string { return "$JS.API." + what }

func keysOf(bucket string) string { return "$KV." + bucket + ".>" }
