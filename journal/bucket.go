package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Errors of a Bucket.
var (
	// ErrExists: Create found the key.
	ErrExists = errors.New("journal: key exists")
	// ErrNotFound: the bucket does not have the key.
	ErrNotFound = errors.New("journal: key not found")
	// ErrRevision: Update lost against somebody faster; read again.
	ErrRevision = errors.New("journal: revision is not the newest")
)

// Headers of what is stored in a bucket, as NATS has them (ADR-8, ADR-43, ADR-48).
const (
	headerOperation = "KV-Operation"
	headerMarker    = "Nats-Marker-Reason"
	headerRollup    = "Nats-Rollup"
	headerTTL       = "Nats-TTL"
	operationPurge  = "PURGE"
	operationPut    = "PUT"
)

// apiInFlight: another message of the subject has just been given to the servers of
// a replicated stream, perhaps our own one before; this one was not stored.
const apiInFlight = 10164

// putPatience bounds one write to a bucket: an attempt that was not answered is the
// last one, because its outcome is unknown.
const putPatience = 5 * time.Second

// Bucket is a key-value bucket with compare-and-set, as durable as the journal.
// Safe for concurrent use. After ErrUnavailable the outcome of a write is
// unknown: read before writing again. What is read is what the leader has.
type Bucket struct {
	n    *Node
	name string
}

// Entry of a bucket; Revision is for compare-and-set.
type Entry struct {
	Key      string
	Value    []byte
	Revision uint64
	Deleted  bool
}

// Bucket opens one of the expected buckets: protocol.BucketSessions or BucketStarts, and
// in a cluster protocol.BucketWorkers and protocol.BucketGateways too. Errors:
// *MissingStreamError, ErrUnavailable, ctx's.
func (n *Node) Bucket(ctx context.Context, name string) (*Bucket, error) {
	found, err := n.hasStream(ctx, bucketStream(name))
	switch {
	case err != nil:
		return nil, fmt.Errorf("open bucket %s: %w", name, err)
	case !found && n.remote != nil:
		return nil, &MissingStreamError{Stream: bucketStream(name), Format: clusterRecordPath}
	case !found:
		return nil, missingStream(n.cfg.Dir, bucketStream(name))
	}
	return n.bucket(name), nil
}

func (n *Node) bucket(name string) *Bucket { return &Bucket{n: n, name: name} }

// bucketPrefix begins the subjects that a bucket's entries are stored on, as NATS
// does; bucketLive is where a cluster tells each of them once stored.
func bucketPrefix(bucket string) string { return "$KV." + bucket + "." }

func bucketLive(bucket string) string { return "bucket." + bucket + ".>" }

// subject is where the entry of a key is stored.
func (b *Bucket) subject(key string) (string, error) {
	ok := key != "" && key[0] != '.' && key[len(key)-1] != '.' && !strings.Contains(key, "..")
	for _, c := range []byte(key) {
		ok = ok && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-/_=.", c) >= 0)
	}
	if !ok {
		return "", fmt.Errorf("journal: invalid key %q", key)
	}
	return bucketPrefix(b.name) + key, nil
}

// Get returns the entry of key, or ErrNotFound. Other errors: ErrUnavailable, ctx's.
func (b *Bucket) Get(ctx context.Context, key string) (Entry, error) {
	e, err := b.last(ctx, key)
	if err == nil && e.Deleted {
		err = ErrNotFound
	}
	if err != nil {
		return Entry{}, fmt.Errorf("get %s: %w", key, err)
	}
	return e, nil
}

// last returns the newest entry of key, also one that says it was deleted.
func (b *Bucket) last(ctx context.Context, key string) (Entry, error) {
	subject, err := b.subject(key)
	if err != nil {
		return Entry{}, err
	}
	e, ok, err := b.ask(ctx, fmt.Sprintf(`{"last_by_subj":%q}`, subject))
	if err == nil && !ok {
		err = ErrNotFound
	}
	return e, err
}

// ask reads one message through the leader; ok is false when there is none.
// Errors: ErrUnavailable, ctx's.
func (b *Bucket) ask(ctx context.Context, req string) (e Entry, ok bool, err error) {
	within, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	msg, err := b.n.kvs.askLeader(within, b.n.kv, bucketStream(b.name), req)
	if err != nil {
		return Entry{}, false, unavailable(ctx, err)
	}
	var a msgAnswer
	if err := json.Unmarshal(msg.Data, &a); err != nil {
		return Entry{}, false, fmt.Errorf("%w: decode answer: %w", ErrUnavailable, err)
	}
	hdr, ok, err := a.header()
	if err != nil || !ok {
		return Entry{}, false, err
	}
	return b.entry(a.Message.Subject, a.Message.Data, hdr, a.Message.Seq), true, nil
}

// entry makes an entry of a stored message.
func (b *Bucket) entry(subject string, data []byte, hdr nats.Header, seq uint64) Entry {
	op := hdr.Get(headerOperation)
	return Entry{
		Key: strings.TrimPrefix(subject, bucketPrefix(b.name)), Value: data, Revision: seq,
		Deleted: op != "" && op != operationPut || hdr.Get(headerMarker) != "",
	}
}

// Create stores value under a key that is not there, or fails with ErrExists.
// Other errors: ErrUnavailable, ctx's.
func (b *Bucket) Create(ctx context.Context, key string, value []byte) (uint64, error) {
	rev, err := b.put(ctx, key, value, expecting(0))
	if isWrongLast(err) { // it is there, or a note that it was deleted
		var e Entry
		e, err = b.last(ctx, key)
		switch {
		case err == nil && !e.Deleted:
			err = ErrExists
		case err == nil || errors.Is(err, ErrNotFound):
			if rev, err = b.put(ctx, key, value, expecting(e.Revision)); isWrongLast(err) {
				err = ErrExists // somebody was faster
			}
		}
	}
	if err != nil {
		return 0, fmt.Errorf("create %s: %w", key, err)
	}
	return rev, nil
}

// Update replaces the value if rev is still the newest revision of key, or
// fails with ErrRevision. Other errors: ErrUnavailable, ctx's.
func (b *Bucket) Update(ctx context.Context, key string, value []byte, rev uint64) (uint64, error) {
	next, err := b.put(ctx, key, value, expecting(rev))
	if isWrongLast(err) {
		err = ErrRevision
	}
	if err != nil {
		return 0, fmt.Errorf("update %s: %w", key, err)
	}
	return next, nil
}

// PutOver is Update of an entry of which revision rev is known, and Create where none
// is (zero). Errors: ErrRevision, ErrExists, ErrUnavailable, ctx's.
func (b *Bucket) PutOver(ctx context.Context, key string, value []byte, rev uint64) (uint64, error) {
	if rev == 0 {
		return b.Create(ctx, key, value)
	}
	return b.Update(ctx, key, value, rev)
}

// Delete forgets the key wholly: Create works again, watchers are told, and
// the note that tells them vanishes after a minute. A missing key is no error.
// Errors: ErrUnavailable, ctx's.
func (b *Bucket) Delete(ctx context.Context, key string) error {
	hdr := nats.Header{}
	hdr.Set(headerOperation, operationPurge)
	hdr.Set(headerRollup, "sub")
	hdr.Set(headerTTL, markerTTL.String())
	if _, err := b.put(ctx, key, nil, hdr); err != nil {
		return fmt.Errorf("delete %s: %w", key, err)
	}
	return nil
}

// DeleteAt is Delete of an entry whose newest revision is rev; else it fails with
// ErrRevision.
func (b *Bucket) DeleteAt(ctx context.Context, key string, rev uint64) error {
	hdr := expecting(rev)
	hdr.Set(headerOperation, operationPurge)
	hdr.Set(headerRollup, "sub")
	hdr.Set(headerTTL, markerTTL.String())
	_, err := b.put(ctx, key, nil, hdr)
	if isWrongLast(err) {
		err = ErrRevision
	}
	if err != nil {
		return fmt.Errorf("delete %s: %w", key, err)
	}
	return nil
}

// put stores a message. What was certainly not stored is tried again within
// putPatience. Errors: *apiError of code apiWrongLast; ErrUnavailable, ctx's.
func (b *Bucket) put(ctx context.Context, key string, value []byte, hdr nats.Header) (uint64, error) {
	subject, err := b.subject(key)
	if err != nil {
		return 0, err
	}
	within, cancel := context.WithTimeout(ctx, putPatience)
	defer cancel()
	for try := 0; ; try++ {
		b.n.kvs.await(within)
		rev, err := storeMsg(within, b.n.kv, b.n.kvs, apiTimeout, &nats.Msg{Subject: subject, Data: value, Header: hdr})
		switch {
		case err == nil:
			return rev, nil
		case isWrongLast(err):
			return 0, err
		case !notStored(err) || pause(within, try) != nil:
			return 0, unavailable(ctx, err)
		}
	}
}

// notStored reports that a message did not reach a stream that would take it.
func notStored(err error) bool {
	var api *apiError
	return errors.Is(err, nats.ErrNoResponders) || errors.As(err, &api) && api.ErrCode == apiInFlight
}

// Watch calls f for every present entry, then once with Key "" (all loaded),
// then for changes, until ctx ends, whose error it returns; f runs on the
// caller's goroutine. Of changes of one key that follow fast only the newest is
// sure to come, and an entry may come again: every present one does when the
// server was away. The end of a key that went meanwhile is told then. In a
// cluster Watch survives the loss of servers. ErrUnavailable when the watch broke:
// call Watch again.
func (b *Bucket) Watch(ctx context.Context, f func(Entry)) error {
	if b.n.remote != nil {
		return b.watchCluster(ctx, f)
	}
	kv, err := b.n.kvjs.KeyValue(ctx, b.name)
	if err != nil {
		return fmt.Errorf("watch bucket: %w", unavailable(ctx, err))
	}
	loaded := false
	for {
		again := b.n.reach.again.next()
		err := watchOnce(ctx, kv, again, &loaded, f)
		if !errors.Is(err, errWatchAgain) {
			return err
		}
	}
}

// errWatchAgain: the server was restarted, and with it the watch was forgotten.
var errWatchAgain = errors.New("journal: watch again")

// watchOnce watches until ctx ends, the watch breaks, or again is closed: errWatchAgain.
func watchOnce(ctx context.Context, kv jetstream.KeyValue, again <-chan struct{}, loaded *bool, f func(Entry)) error {
	w, err := kv.WatchAll(ctx)
	if err != nil {
		return fmt.Errorf("watch bucket: %w", unavailable(ctx, err))
	}
	err = pump(ctx, w.Updates(), again, loaded, f)
	if serr := w.Stop(); serr != nil && ctx.Err() == nil && !errors.Is(err, errWatchAgain) {
		err = errors.Join(err, serr)
	}
	// The watcher's goroutine may be blocked on handing over an entry: take them
	// until it has ended.
	for range w.Updates() {
	}
	return err
}

func pump(ctx context.Context, updates <-chan jetstream.KeyValueEntry, again <-chan struct{}, loaded *bool, f func(Entry)) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-again:
			return errWatchAgain
		case e, ok := <-updates:
			switch {
			case !ok:
				if err := ctx.Err(); err != nil {
					return err
				}
				return fmt.Errorf("%w: watch ended", ErrUnavailable)
			case e != nil:
				if entry := entryOf(e); *loaded || !entry.Deleted {
					f(entry)
				}
			case !*loaded:
				*loaded = true
				f(Entry{})
			}
		}
	}
}

func entryOf(e jetstream.KeyValueEntry) Entry {
	return Entry{Key: e.Key(), Value: e.Value(), Revision: e.Revision(), Deleted: e.Operation() != jetstream.KeyValuePut}
}
