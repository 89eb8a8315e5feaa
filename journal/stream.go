package journal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"rejoin/protocol"
)

// markerTTL is how long a bucket remembers that a key was deleted, for
// watchers; after it nothing of the key is left.
const markerTTL = time.Minute

// What a shard takes above its quota: percent of it, and bytes at least.
const (
	shardReserve    = 6
	shardReserveMin = 4 << 10
)

// subjectOf is where a log's records are stored.
func subjectOf(l Log) string {
	return "j." + strconv.Itoa(l.Shard) + "." + l.Key.Workspace + "." + l.Key.Session
}

// keyOf returns whose log is stored on a subject; ok is false of any other subject.
func keyOf(subject string) (k protocol.Key, ok bool) {
	token := strings.Split(subject, ".")
	if len(token) != 4 || !protocol.ValidSessionID(token[2]) || !protocol.ValidSessionID(token[3]) {
		return k, false
	}
	return protocol.Key{Workspace: token[2], Session: token[3]}, true
}

// liveSubjectOf is where the server republishes a log's records once stored.
func liveSubjectOf(l Log) string { return "live" + subjectOf(l)[1:] }

// checkLog refuses a log whose name would not be one subject of one shard.
func (n *Node) checkLog(l Log) error {
	if !protocol.ValidSessionID(l.Key.Workspace) || !protocol.ValidSessionID(l.Key.Session) {
		return fmt.Errorf("journal: invalid key %q", l.Key)
	}
	if l.Shard < 0 || l.Shard >= n.format.Shards {
		return fmt.Errorf("journal: shard %d of %s: there are %d", l.Shard, l.Key, n.format.Shards)
	}
	return nil
}

// openStreams makes sure that every expected stream exists: created while the
// first start is unfinished, only looked for afterwards.
func (n *Node) openStreams(ctx context.Context) error {
	for range n.format.Shards {
		n.turns = append(n.turns, newTurnstile(turnsPerShard))
	}
	quota, err := n.quota()
	if err != nil {
		return err
	}
	if n.format.Ready {
		if err := n.checkStreams(ctx, n.guard.remake); err != nil {
			return err
		}
	}
	for range n.format.Shards {
		n.gates = append(n.gates, &gate{disk: n.disk, quota: max(quota/int64(n.format.Shards), 1), stale: true, soon: n.health.soon})
	}
	for i := range n.format.Shards {
		if err := n.openStream(ctx, n.js, shardConfig(i, quota/int64(n.format.Shards))); err != nil {
			return err
		}
	}
	if err := n.openStream(ctx, n.snapjs, snapConfig(max(quota/snapShare, snapBytesMin))); err != nil {
		return err
	}
	for _, name := range []string{protocol.BucketSessions, protocol.BucketStarts} {
		if !n.format.Ready || slices.Contains(n.guard.remake, bucketStream(name)) {
			if _, err := n.kvjs.CreateOrUpdateKeyValue(ctx, bucketConfig(name)); err != nil {
				return fmt.Errorf("journal: create bucket %s: %w", name, err)
			}
		}
	}
	if n.format.Ready && len(n.format.Adding) == 0 {
		return nil
	}
	done := n.format.made()
	if err := done.write(n.cfg.Dir); err != nil {
		return err
	}
	n.format = done
	return nil
}

// checkStreams looks for every expected stream but those that are made anew.
// Errors: *MissingStreamError, the server's, ctx's.
func (n *Node) checkStreams(ctx context.Context, remade []string) error {
	var have []string
	names := n.js.StreamNames(ctx)
	for name := range names.Name() {
		have = append(have, name)
	}
	if err := names.Err(); err != nil {
		return fmt.Errorf("journal: list streams: %w", err)
	}
	for _, name := range n.format.Expect {
		if !slices.Contains(have, name) && !slices.Contains(remade, name) {
			return missingStream(n.cfg.Dir, name)
		}
	}
	return nil
}

// openStream creates a stream, or sets its limit.
func (n *Node) openStream(ctx context.Context, js jetstream.JetStream, want jetstream.StreamConfig) error {
	if n.format.mayCreate(want.Name) || slices.Contains(n.guard.remake, want.Name) {
		if _, err := js.CreateOrUpdateStream(ctx, want); err != nil {
			return fmt.Errorf("journal: create stream %s: %w", want.Name, err)
		}
		return nil
	}
	st, err := js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return missingStream(n.cfg.Dir, want.Name)
	}
	if err != nil {
		return fmt.Errorf("journal: open stream %s: %w", want.Name, err)
	}
	// A limit below what is there already would refuse even the record of a delete.
	want.MaxBytes = max(want.MaxBytes, shardLimit(int64(st.CachedInfo().State.Bytes)))
	if have := st.CachedInfo().Config; have.MaxBytes != want.MaxBytes {
		have.MaxBytes = want.MaxBytes
		if _, err := js.UpdateStream(ctx, have); err != nil {
			return fmt.Errorf("journal: set limit of stream %s: %w", want.Name, err)
		}
	}
	return nil
}

func shardConfig(shard int, maxBytes int64) jetstream.StreamConfig {
	s := strconv.Itoa(shard)
	return jetstream.StreamConfig{
		Name:        shardStream(shard),
		Subjects:    []string{"j." + s + ".>"},
		Retention:   jetstream.LimitsPolicy,
		Storage:     jetstream.FileStorage,
		Discard:     jetstream.DiscardNew,
		MaxBytes:    shardLimit(maxBytes),
		MaxMsgSize:  messageBytesMax,
		Duplicates:  100 * time.Millisecond, // the least; no record carries a message id
		AllowDirect: true,
		DenyDelete:  true,
		Replicas:    1,
		RePublish:   &jetstream.RePublish{Source: "j." + s + ".>", Destination: "live." + s + ".>"},
	}
}

// shardLimit is where the server refuses what it is given: above a shard's quota,
// at which writers refuse commands and output, so that ends and deletes fit.
func shardLimit(quota int64) int64 { return quota + max(quota/100*shardReserve, shardReserveMin) }

func bucketConfig(name string) jetstream.KeyValueConfig {
	return jetstream.KeyValueConfig{Bucket: name, History: 1, Storage: jetstream.FileStorage, Replicas: 1, LimitMarkerTTL: markerTTL}
}
