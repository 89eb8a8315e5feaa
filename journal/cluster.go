package journal

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/oklog/ulid/v2"

	"rejoin/protocol"
)

const (
	replicasDefault = 3
	replicasMax     = 5 // what JetStream takes

	bucketCluster = "cluster"
	keyFormat     = "format"

	// waitTold is how often the log says again what is waited for.
	waitTold = 30 * time.Second
	// missingFor is how long a cluster must say that a stream is not there before it
	// is believed: a server that has just started may not know yet.
	missingFor = 10 * time.Second
)

// JetStream's answers that need an answer of ours.
const (
	apiStreamNotFound = 10059
	apiNoReplicas     = 10074 // of a server on its own
)

// clusterRecord is what a cluster holds, under the key format of the bucket
// cluster: DATA/format of a journal that many processes share. It is written twice,
// before and after the streams are made; once Ready, a missing stream is a loss.
type clusterRecord struct {
	format
	Instance string `json:"instance"` // ULID of the journal
}

func newClusterRecord(shards int, now time.Time) (*clusterRecord, error) {
	id, err := ulid.New(ulid.Timestamp(now), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make instance id: %w", err)
	}
	r := &clusterRecord{format: *newFormat(shards), Instance: id.String()}
	for _, b := range []string{protocol.BucketWorkers, protocol.BucketGateways} {
		r.Expect = append(r.Expect, bucketStream(b))
	}
	return r, nil
}

// clusterRecordPath names the record where a file's path is expected.
const clusterRecordPath = "key " + keyFormat + " of the NATS bucket " + bucketCluster

func readClusterRecord(data []byte) (*clusterRecord, error) {
	r := new(clusterRecord)
	if err := json.Unmarshal(data, r); err != nil {
		return nil, &FormatError{Path: clusterRecordPath, Reason: "not readable: " + err.Error()}
	}
	if err := r.check(clusterRecordPath); err != nil {
		return nil, err
	}
	if _, err := ulid.ParseStrict(r.Instance); err != nil {
		return nil, &FormatError{Path: clusterRecordPath, Reason: "holds no ULID"}
	}
	return r, nil
}

// openCluster finds the journal in the cluster, or makes it where that is ours to
// do. It waits until ctx ends for what others have to do.
func (n *Node) openCluster(ctx context.Context) error {
	w := waiter{log: n.log}
	for try := 0; ; try++ {
		r, err := n.lookCluster(ctx)
		if err == nil {
			n.remote.record, n.format = *r, &r.format
			if err = n.openShards(ctx); err == nil {
				return nil
			}
		}
		var later *laterError
		if !errors.As(err, &later) && !errors.Is(err, ErrUnavailable) {
			return err
		}
		if n.alone() {
			err = &laterError{"no other member is connected: one of them has to run"}
		}
		w.tell(err)
		if err := pause(ctx, try); err != nil {
			return fmt.Errorf("journal: wait for the cluster: %w", errors.Join(err, w.last))
		}
	}
}

// A laterError says what somebody else has to do first.
type laterError struct{ what string }

// Error says what is waited for.
func (e *laterError) Error() string { return e.what }

// waiter logs what is waited for: when it changes, and now and then.
type waiter struct {
	log  *slog.Logger
	last error
	told time.Time
}

func (w *waiter) tell(err error) {
	if w.last != nil && w.last.Error() == err.Error() && time.Since(w.told) < waitTold {
		return
	}
	w.last, w.told = err, time.Now()
	w.log.Warn("waiting for the journal", slog.Any(protocol.LogError, err))
}

// lookCluster takes one look, and every step that can be taken. Errors:
// *laterError, ErrUnavailable, or what ends Connect.
func (n *Node) lookCluster(ctx context.Context) (*clusterRecord, error) {
	b, err := n.clusterBucket(ctx)
	if err != nil {
		return nil, err
	}
	r, rev, err := n.clusterRecord(ctx, b)
	switch {
	case err != nil:
		return nil, err
	case r.Ready:
		return r, n.checkCluster(ctx, r)
	case !n.remote.cfg.Create:
		return nil, &laterError{"a broker is making the journal's streams"}
	}
	if err := n.makeCluster(ctx, r); err != nil {
		return nil, err
	}
	done := &clusterRecord{format: *r.made(), Instance: r.Instance}
	data, err := json.Marshal(done)
	if err != nil {
		return nil, fmt.Errorf("journal: encode format: %w", err)
	}
	if _, err := b.Update(ctx, keyFormat, data, rev); err != nil {
		if errors.Is(err, ErrRevision) {
			return nil, &laterError{"another broker has just made the journal"}
		}
		return nil, err
	}
	return done, nil
}

// clusterBucket opens the bucket of the record, or makes it.
func (n *Node) clusterBucket(ctx context.Context) (*Bucket, error) {
	name := bucketStream(bucketCluster)
	found, err := n.hasStream(ctx, name)
	if err != nil {
		return nil, err
	}
	b := n.bucket(bucketCluster)
	if found {
		return b, nil
	}
	if !n.remote.cfg.Create {
		return nil, &laterError{"no broker has made the journal yet"}
	}
	return b, n.makeStream(ctx, name, func(ctx context.Context) error {
		_, err := n.kvjs.CreateKeyValue(ctx, n.clusterBucketConfig(bucketCluster))
		return err
	})
}

// clusterRecord reads the record, or makes one where there are no streams that had one.
func (n *Node) clusterRecord(ctx context.Context, b *Bucket) (*clusterRecord, uint64, error) {
	e, err := b.Get(ctx, keyFormat)
	if err == nil {
		r, err := readClusterRecord(e.Value)
		return r, e.Revision, err
	}
	if !errors.Is(err, ErrNotFound) {
		return nil, 0, err
	}
	if !n.remote.cfg.Create {
		return nil, 0, &laterError{"no broker has made the journal yet"}
	}
	if found, err := n.hasStream(ctx, shardStream(0)); err != nil {
		return nil, 0, err
	} else if found {
		// Whoever made it wrote the record first: it is there now, or was lost.
		if _, err := b.Get(ctx, keyFormat); err == nil {
			return nil, 0, &laterError{"another broker is making the journal"}
		} else if !errors.Is(err, ErrNotFound) {
			return nil, 0, err
		}
		return nil, 0, &FormatError{Path: clusterRecordPath, Reason: "the record is missing although the servers have stream " + shardStream(0) + "; put it back from a backup"}
	}
	r, err := newClusterRecord(n.remote.cfg.Shards, n.clock())
	if err != nil {
		return nil, 0, fmt.Errorf("journal: %w", err)
	}
	data, err := json.Marshal(r)
	if err != nil {
		return nil, 0, fmt.Errorf("journal: encode format: %w", err)
	}
	rev, err := b.Create(ctx, keyFormat, data)
	if errors.Is(err, ErrExists) {
		return nil, 0, &laterError{"another broker is making the journal"}
	}
	return r, rev, err
}

// makeCluster makes every stream of r that is not there.
func (n *Node) makeCluster(ctx context.Context, r *clusterRecord) error {
	quota := n.remote.cfg.MaxBytes
	want := []jetstream.StreamConfig{snapConfig(max(quota/snapShare, snapBytesMin))}
	for i := range r.Shards {
		want = append(want, shardConfig(i, quota/int64(r.Shards)))
	}
	for _, c := range want {
		c.Replicas = n.replicas()
		if err := n.makeStream(ctx, c.Name, func(ctx context.Context) error {
			_, err := n.js.CreateStream(ctx, c)
			return err
		}); err != nil {
			return err
		}
	}
	for _, name := range clusterBuckets {
		if err := n.makeStream(ctx, bucketStream(name), func(ctx context.Context) error {
			_, err := n.kvjs.CreateKeyValue(ctx, n.clusterBucketConfig(name))
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// clusterBuckets are the buckets that processes share, besides that of the record.
var clusterBuckets = []string{protocol.BucketSessions, protocol.BucketStarts, protocol.BucketWorkers, protocol.BucketGateways}

// clusterBucketConfig is that of a bucket whose changes are told like live records.
func (n *Node) clusterBucketConfig(name string) jetstream.KeyValueConfig {
	c := bucketConfig(name)
	c.Replicas = n.replicas()
	c.RePublish = &jetstream.RePublish{Source: bucketPrefix(name) + ">", Destination: bucketLive(name)}
	return c
}

// replicas is how many copies new streams have.
func (n *Node) replicas() int {
	switch {
	case n.remote.cfg.Replicas > 0:
		return n.remote.cfg.Replicas
	case n.pub.ConnectedClusterName() == "":
		return 1
	}
	return replicasDefault
}

// makeStream makes a stream that may just have been made by another process.
func (n *Node) makeStream(ctx context.Context, name string, create func(context.Context) error) error {
	within, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	err := create(within)
	var api *jetstream.APIError
	switch {
	case err == nil, errors.Is(err, jetstream.ErrStreamNameAlreadyInUse), errors.Is(err, jetstream.ErrBucketExists):
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &api) && api.ErrorCode == apiNoReplicas:
		return &RefusedError{"the NATS server is no member of a cluster: it keeps one copy only"}
	case errors.As(err, &api):
		return &laterError{fmt.Sprintf("the NATS servers do not make stream %s with %d replicas: %s", name, n.replicas(), api.Description)}
	case errors.Is(err, jetstream.ErrLimitMarkerTTLNotSupported):
		return &RefusedError{"the NATS servers are too old: version 2.15.2 or later is needed"}
	}
	return fmt.Errorf("make stream %s: %w", name, unavailable(ctx, err))
}

// hasStream asks whether the cluster has a stream. Errors: ErrUnavailable, ctx's.
func (n *Node) hasStream(ctx context.Context, name string) (bool, error) {
	_, found, err := n.streamInfo(ctx, name)
	return found, err
}

// streamInfo is what we read of a stream's description.
type streamInfo struct {
	Config struct {
		MaxBytes int64 `json:"max_bytes"`
		Replicas int   `json:"num_replicas"`
	} `json:"config"`
	State struct {
		Messages uint64 `json:"messages"`
		Bytes    int64  `json:"bytes"`
		LastSeq  uint64 `json:"last_seq"`
	} `json:"state"`
	Cluster *groupSays `json:"cluster"` // nil of a server on its own
}

// streamInfo describes a stream. Errors: ErrUnavailable, ctx's.
func (n *Node) streamInfo(ctx context.Context, name string) (info streamInfo, found bool, err error) {
	return streamInfoOver(ctx, n.read, name)
}

// streamInfoOver is streamInfo over a connection.
func streamInfoOver(ctx context.Context, nc *nats.Conn, name string) (info streamInfo, found bool, err error) {
	var answer struct {
		Error *apiError `json:"error"`
		streamInfo
	}
	if err := askAPI(ctx, nc, "STREAM.INFO."+name, nil, &answer); err != nil {
		return info, false, fmt.Errorf("look for stream %s: %w", name, err)
	}
	switch {
	case answer.Error == nil && answer.Cluster != nil && answer.Cluster.Leader == "":
		// Without a majority any replica says what it has.
		return info, false, fmt.Errorf("%w: stream %s has no leader", ErrUnavailable, name)
	case answer.Error == nil:
		return answer.streamInfo, true, nil
	case answer.Error.ErrCode == apiStreamNotFound:
		return info, false, nil
	}
	return info, false, fmt.Errorf("%w: look for stream %s: %w", ErrUnavailable, name, answer.Error)
}

// checkCluster looks for every stream that a ready record expects. Errors:
// *MissingStreamError once the servers have said so for missingFor; ErrUnavailable,
// ctx's.
func (n *Node) checkCluster(ctx context.Context, r *clusterRecord) error {
	began := time.Now()
	for try := 0; ; try++ {
		missing := ""
		for _, name := range r.Expect {
			info, found, err := n.streamInfo(ctx, name)
			switch {
			case err != nil:
				return err
			case !found:
				missing = name
			}
			if try == 0 && found {
				n.warnStream(name, r, info)
			}
		}
		if missing == "" {
			return nil
		}
		if time.Since(began) > missingFor {
			return &MissingStreamError{Stream: missing, Format: clusterRecordPath}
		}
		if err := pause(ctx, try); err != nil {
			return err
		}
	}
}

// warnStream says what of a stream is not as configured. Nothing is changed.
func (n *Node) warnStream(name string, r *clusterRecord, info streamInfo) {
	c := &n.remote.cfg
	if want := c.Replicas; want > 0 && want != info.Config.Replicas {
		n.log.Warn("a stream has another number of replicas than configured; it stays as it is", slog.String("stream", name),
			slog.Int("replicas", info.Config.Replicas), slog.Int("configured", want))
	}
	if !slices.Contains(shardStreams(r.Shards), name) || !c.Create {
		return
	}
	if want := shardLimit(c.MaxBytes / int64(r.Shards)); want != info.Config.MaxBytes {
		n.log.Warn("a shard has another limit than configured; it stays as it is", slog.String("stream", name),
			slog.Int64("limit", info.Config.MaxBytes), slog.Int64("configured", want))
	}
}

func shardStreams(shards int) []string {
	var all []string
	for i := range shards {
		all = append(all, shardStream(i))
	}
	return all
}

// openShards makes what writers of each shard share.
func (n *Node) openShards(ctx context.Context) error {
	n.turns, n.gates = nil, nil
	for i := range n.format.Shards {
		info, found, err := n.streamInfo(ctx, shardStream(i))
		if err == nil && !found {
			err = &MissingStreamError{Stream: shardStream(i), Format: clusterRecordPath}
		}
		if err != nil {
			return err
		}
		if i == 0 && n.remote.cfg.Replicas == 0 && info.Config.Replicas == 1 {
			n.log.Warn("the journal has one copy only: nothing is served while its server is away")
		}
		n.turns = append(n.turns, newTurnstile(turnsPerShard))
		g := &gate{disk: n.disk, term: newTerm(n.life), quota: max(shardQuota(info.Config.MaxBytes), 1), soon: n.health.soon}
		g.measured(info.State.Bytes)
		n.gates = append(n.gates, g)
	}
	return nil
}

// shardQuota is the quota of a shard whose stream has that limit: shardLimit, the
// other way, to a few bytes.
func shardQuota(limit int64) int64 {
	return limit - max(limit/(100+shardReserve)*shardReserve, shardReserveMin)
}

// Replicas returns how many copies the journal has: 1 where the server is embedded.
// Errors: ErrUnavailable, ctx's.
func (n *Node) Replicas(ctx context.Context) (int, error) {
	if n.remote == nil {
		return 1, nil
	}
	info, _, err := n.streamInfo(ctx, shardStream(0))
	return info.Config.Replicas, err
}
