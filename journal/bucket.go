package journal

import (
	"context"
	"errors"
	"fmt"

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

// errWatchAgain: the server was restarted, and with it the watch was forgotten.
var errWatchAgain = errors.New("journal: watch again")

// Bucket is a key-value bucket with compare-and-set, as durable as the journal.
// Safe for concurrent use. After ErrUnavailable the outcome of a write is
// unknown: read before writing again.
type Bucket struct {
	kv    jetstream.KeyValue
	again *broadcast // the server was restarted
}

// Entry of a bucket; Revision is for compare-and-set.
type Entry struct {
	Key      string
	Value    []byte
	Revision uint64
	Deleted  bool
}

// Bucket opens one of the expected buckets: "sessions" or "starts".
func (n *Node) Bucket(ctx context.Context, name string) (*Bucket, error) {
	kv, err := n.kvjs.KeyValue(ctx, name)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil, missingStream(n.cfg.Dir, bucketStream(name))
	}
	if err != nil {
		return nil, fmt.Errorf("open bucket %s: %w", name, unavailable(ctx, err))
	}
	return &Bucket{kv: kv, again: &n.again}, nil
}

// Get returns the entry of key, or ErrNotFound.
func (b *Bucket) Get(ctx context.Context, key string) (Entry, error) {
	e, err := b.kv.Get(ctx, key)
	if err != nil {
		return Entry{}, bucketError(ctx, "get", key, err)
	}
	return entryOf(e), nil
}

// Create stores value under a key that is not there, or fails with ErrExists.
func (b *Bucket) Create(ctx context.Context, key string, value []byte) (uint64, error) {
	rev, err := b.kv.Create(ctx, key, value)
	if err != nil {
		return 0, bucketError(ctx, "create", key, err)
	}
	return rev, nil
}

// Update replaces the value if rev is still the newest revision of key, or
// fails with ErrRevision.
func (b *Bucket) Update(ctx context.Context, key string, value []byte, rev uint64) (uint64, error) {
	next, err := b.kv.Update(ctx, key, value, rev)
	var api *jetstream.APIError
	if errors.As(err, &api) && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant) {
		return 0, fmt.Errorf("update %s: %w", key, ErrRevision)
	}
	if err != nil {
		return 0, bucketError(ctx, "update", key, err)
	}
	return next, nil
}

// Delete forgets the key wholly: Create works again, watchers are told, and
// the note that tells them vanishes after a minute. A missing key is no error.
func (b *Bucket) Delete(ctx context.Context, key string) error {
	if err := b.kv.Purge(ctx, key, jetstream.PurgeTTL(markerTTL)); err != nil {
		return bucketError(ctx, "delete", key, err)
	}
	return nil
}

// Watch calls f for every present entry, then once with Key "" (all loaded),
// then for changes, until ctx ends, whose error it returns; f runs on the
// caller's goroutine. Of changes of one key that follow fast only the newest is
// sure to come, and one may come again: after a restart of the embedded server
// every present entry does. ErrUnavailable when the watch broke: call Watch again.
func (b *Bucket) Watch(ctx context.Context, f func(Entry)) error {
	loaded := false
	for {
		again := b.again.next()
		err := b.watchOnce(ctx, again, &loaded, f)
		if !errors.Is(err, errWatchAgain) {
			return err
		}
	}
}

// watchOnce watches until ctx ends, the watch breaks, or again is closed: errWatchAgain.
func (b *Bucket) watchOnce(ctx context.Context, again <-chan struct{}, loaded *bool, f func(Entry)) error {
	w, err := b.kv.WatchAll(ctx)
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

func bucketError(ctx context.Context, verb, key string, err error) error {
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound), errors.Is(err, jetstream.ErrKeyDeleted):
		return fmt.Errorf("%s %s: %w", verb, key, ErrNotFound)
	case errors.Is(err, jetstream.ErrKeyExists):
		return fmt.Errorf("%s %s: %w", verb, key, ErrExists)
	case errors.Is(err, jetstream.ErrInvalidKey):
		return fmt.Errorf("%s: invalid key %q", verb, key)
	}
	return fmt.Errorf("%s %s: %w", verb, key, unavailable(ctx, err))
}
