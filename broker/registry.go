package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"rejoin/journal"
	"rejoin/protocol"
)

// ErrNotOwner says that the newest run of the session is not the caller's. It wraps
// journal.ErrFenced: kill the child, write nothing.
var ErrNotOwner = fmt.Errorf("broker: the session's newest run is another's: %w", journal.ErrFenced)

var (
	// errNoRecord: the registry does not have the session. No retry helps.
	errNoRecord = errors.New("broker: no such session record")
	// errTaken: the id of a new session is in use, or was.
	errTaken = errors.New("broker: session id taken")
)

// Registry keeps one SessionRecord per session in the bucket "sessions", and a
// copy of all of them in memory. A write is seen by every later read through
// the same Registry; writes of others arrive by the bucket's watch. Safe for
// concurrent use.
type Registry struct {
	changed func(old, cur *protocol.SessionRecord) // called after each change, outside mu; must not block
	// deciding, unless nil, is called before a change can be seen, with mu held:
	// what follows from the change is decided when it is seen. It must not block.
	deciding func(old, cur *protocol.SessionRecord)

	// lean keeps no copy in memory: every use asks the bucket.
	lean bool

	lateBucket

	mu    sync.Mutex
	cache map[protocol.Key]entry
	words words // of the records in cache
}

// entry is a record as of a revision. A nil rec says that the key was deleted
// here; it hides older news from the watch and goes when the deletion's arrives.
// Records are shared and never changed.
type entry struct {
	rec *protocol.SessionRecord
	rev uint64
}

func newRegistry(changed func(old, cur *protocol.SessionRecord)) *Registry {
	return &Registry{changed: changed, cache: make(map[protocol.Key]entry)}
}

// OpenRegistry returns the registry for a worker that has no broker beside it: it
// keeps no copy, so that it needs no watch and its memory is no worker's concern.
func OpenRegistry(ctx context.Context, node *journal.Node) (*Registry, error) {
	bucket, err := node.Bucket(ctx, protocol.BucketSessions)
	if err != nil {
		return nil, err
	}
	r := newRegistry(func(_, _ *protocol.SessionRecord) {})
	r.lean = true
	r.setBucket(bucket)
	return r, nil
}

// Record returns the newest record of k, from the bucket; nil when there is none.
func (r *Registry) Record(ctx context.Context, k protocol.Key) (*protocol.SessionRecord, error) {
	e, err := r.fetch(ctx, k)
	if errors.Is(err, errNoRecord) {
		return nil, nil
	}
	return e.rec, err
}

// Update changes the record of k while its newest run is run, by
// compare-and-set, as often as others are faster; UpdatedAt is change's to set.
// Errors: ErrNotOwner when the newest run is another, or the session is gone;
// those of the journal.
func (r *Registry) Update(ctx context.Context, k protocol.Key, run protocol.Run, change func(*protocol.SessionRecord)) error { // I-B2
	_, err := r.change(ctx, k, func(rec *protocol.SessionRecord) error {
		if rec.Run != run {
			return ErrNotOwner
		}
		change(rec)
		return nil
	})
	if errors.Is(err, errNoRecord) {
		return ErrNotOwner
	}
	return err
}

// Confirm proves that run is the newest of k: it stores the record again as it is, by
// compare-and-set, so that neither the copy in memory nor a server that lags behind
// can answer. Errors as Update's.
func (r *Registry) Confirm(ctx context.Context, k protocol.Key, run protocol.Run) error { // I-B2
	bucket, err := r.open()
	if err != nil {
		return err
	}
	for {
		e, err := bucket.Get(ctx, registryKey(k))
		if errors.Is(err, journal.ErrNotFound) {
			return ErrNotOwner
		}
		if err != nil {
			return err
		}
		rec, err := decodeRecord(e.Value)
		if err != nil {
			return fmt.Errorf("record of %s: %w", k, err)
		}
		if rec.Run > run {
			return ErrNotOwner
		}
		rev, err := bucket.Update(ctx, registryKey(k), e.Value, e.Revision)
		switch {
		case errors.Is(err, journal.ErrRevision): // somebody was faster, or that was an old answer
			continue
		case err != nil:
			return err
		case rec.Run < run: // it was granted by nobody
			return ErrNotOwner
		}
		r.put(k, rec, rev)
		return nil
	}
}

// Deleted reports whether a session is gone or going: its tombstone is set, or
// the registry does not know it. It asks the bucket, not the copy in memory.
func (r *Registry) Deleted(ctx context.Context, k protocol.Key) (bool, error) {
	e, err := r.fetch(ctx, k)
	if errors.Is(err, errNoRecord) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return e.rec.Deleting || e.rec.Deleted, nil
}

// record returns the record of k as known here; nil when there is none.
func (r *Registry) record(k protocol.Key) *protocol.SessionRecord {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cache[k].rec
}

// records returns all records that keep wants, in no order.
func (r *Registry) records(keep func(*protocol.SessionRecord) bool) []*protocol.SessionRecord {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*protocol.SessionRecord
	for _, e := range r.cache {
		if e.rec != nil && keep(e.rec) {
			out = append(out, e.rec)
		}
	}
	return out
}

// create stores the record of a new session; errTaken when its id is in use or
// was.
func (r *Registry) create(ctx context.Context, rec *protocol.SessionRecord) error {
	bucket, err := r.open()
	if err != nil {
		return err
	}
	value, err := json.Marshal(rec)
	if err != nil {
		return fmt.Errorf("encode session record: %w", err)
	}
	rev, err := bucket.Create(ctx, registryKey(rec.Key()), value)
	if errors.Is(err, journal.ErrExists) {
		return errTaken
	}
	if err != nil {
		return err
	}
	r.put(rec.Key(), clone(rec), rev)
	return nil
}

// change applies f to the newest record of k and stores the result, as often as
// somebody else is faster. An error of f is returned and nothing is stored,
// once f has seen what the bucket has: the copy in memory may be behind. A
// record that f leaves as it was is not stored either.
func (r *Registry) change(
	ctx context.Context, k protocol.Key, f func(*protocol.SessionRecord) error,
) (*protocol.SessionRecord, error) {
	bucket, err := r.open()
	if err != nil {
		return nil, err
	}
	cur, fresh, err := r.current(ctx, k)
	for ; err == nil; cur, err = r.fetch(ctx, k) {
		next := clone(cur.rec)
		if err := f(next); err != nil {
			if fresh {
				return nil, err
			}
			fresh = true
			continue
		}
		if reflect.DeepEqual(next, cur.rec) {
			return cur.rec, nil
		}
		value, err := json.Marshal(next)
		if err != nil {
			return nil, fmt.Errorf("encode session record: %w", err)
		}
		rev, err := bucket.Update(ctx, registryKey(k), value, cur.rev)
		if err == nil {
			r.put(k, next, rev)
			return next, nil
		}
		if !errors.Is(err, journal.ErrRevision) {
			return nil, err
		}
		fresh = true
	}
	return nil, err
}

// remove forgets the session wholly, as if it had never been.
func (r *Registry) remove(ctx context.Context, k protocol.Key) error {
	bucket, err := r.open()
	if err != nil {
		return err
	}
	if err := bucket.Delete(ctx, registryKey(k)); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, ok := r.cache[k]; ok {
		r.cache[k] = entry{rev: e.rev}
	}
	return nil
}

// removeAt is remove of a record that is still as it was read; ErrNotOwner when it
// is not.
func (r *Registry) removeAt(ctx context.Context, e entry) error {
	bucket, err := r.open()
	if err != nil {
		return err
	}
	k := e.rec.Key()
	err = bucket.DeleteAt(ctx, registryKey(k), e.rev)
	if errors.Is(err, journal.ErrRevision) {
		return ErrNotOwner
	}
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if now, ok := r.cache[k]; ok && now.rev == e.rev {
		r.cache[k] = entry{rev: e.rev}
	}
	return nil
}

// current returns what is known here, or else, fresh, what the bucket has.
func (r *Registry) current(ctx context.Context, k protocol.Key) (e entry, fresh bool, err error) {
	r.mu.Lock()
	e = r.cache[k]
	r.mu.Unlock()
	if e.rec != nil {
		return e, false, nil
	}
	e, err = r.fetch(ctx, k)
	return e, true, err
}

// fetch reads the newest record of k from the bucket.
func (r *Registry) fetch(ctx context.Context, k protocol.Key) (entry, error) {
	bucket, err := r.open()
	if err != nil {
		return entry{}, err
	}
	e, err := bucket.Get(ctx, registryKey(k))
	if errors.Is(err, journal.ErrNotFound) {
		return entry{}, errNoRecord
	}
	if err != nil {
		return entry{}, err
	}
	rec, err := decodeRecord(e.Value)
	if err != nil {
		return entry{}, fmt.Errorf("record of %s: %w", k, err)
	}
	r.put(k, rec, e.Revision)
	return entry{rec: rec, rev: e.Revision}, nil
}

// put takes in a record, which nobody else has yet, unless a newer revision is known.
func (r *Registry) put(k protocol.Key, rec *protocol.SessionRecord, rev uint64) {
	if r.lean {
		return
	}
	r.mu.Lock()
	old := r.cache[k]
	if rev <= old.rev {
		r.mu.Unlock()
		return
	}
	if r.deciding != nil {
		r.deciding(old.rec, rec)
	}
	r.words.share(rec)
	if own := rec.Key(); own == k {
		k = own // the record's strings, which are kept anyway
	}
	r.cache[k] = entry{rec: rec, rev: rev}
	r.mu.Unlock()
	r.changed(old.rec, rec)
}

// take takes in an entry of the bucket. An error says that it is not a session's.
func (r *Registry) take(e journal.Entry) error {
	k, ok := parseRegistryKey(e.Key)
	if !ok {
		return errors.New("not a session's key")
	}
	if e.Deleted {
		r.forget(k, e.Revision)
		return nil
	}
	rec, err := decodeRecord(e.Value)
	if err != nil {
		return err
	}
	r.put(k, rec, e.Revision)
	return nil
}

func (r *Registry) forget(k protocol.Key, rev uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, ok := r.cache[k]; ok && e.rev < rev {
		delete(r.cache, k)
	}
}

func decodeRecord(value []byte) (*protocol.SessionRecord, error) {
	rec := new(protocol.SessionRecord)
	if err := json.Unmarshal(value, rec); err != nil {
		return nil, fmt.Errorf("decode session record: %w", err)
	}
	return rec, nil
}

// clone copies a record deep enough that a change of the copy leaves it alone.
func clone(rec *protocol.SessionRecord) *protocol.SessionRecord {
	c := *rec
	c.Argv, c.ResumeArgv, c.Env = slices.Clone(rec.Argv), slices.Clone(rec.ResumeArgv), slices.Clone(rec.Env)
	c.Labels, c.Restarted = maps.Clone(rec.Labels), slices.Clone(rec.Restarted)
	if rec.Limits != nil {
		limits := *rec.Limits
		c.Limits = &limits
	}
	c.EnvAllow = slices.Clone(rec.EnvAllow)
	if rec.Exit != nil {
		exit := *rec.Exit
		c.Exit = &exit
	}
	return &c
}

// registryKey is the bucket's key of a session: <workspace>.<session>.
func registryKey(k protocol.Key) string { return k.Workspace + "." + k.Session }

func parseRegistryKey(s string) (protocol.Key, bool) {
	ws, id, ok := strings.Cut(s, ".")
	return protocol.Key{Workspace: ws, Session: id}, ok && ws != "" && protocol.ValidSessionID(id)
}
