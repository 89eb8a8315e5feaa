package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"rejoin/journal"
	"rejoin/protocol"
)

// canaryPrefix begins the keys under which brokers write their canaries. A worker's
// key, its id, has no dot.
const canaryPrefix = "canary."

// brokerSilent is after how long without its canary a gateway expects no answer of a
// broker any more. It may have done what it was asked.
const brokerSilent = 3 * canaryPatience / 2

// brokerGone is how long the canary of another broker may be silent until it is
// removed.
const brokerGone = 10 * time.Minute

// roster is the workers that there are, as the bucket protocol.BucketWorkers tells,
// and which of them are silent. Safe for concurrent use.
type roster struct {
	own  string           // key of this broker's canary; empty: it writes none
	wake func()           // called, outside mu, when an owner may have come to its end; must not block
	now  func() time.Time // monotonic

	lateBucket

	mu     sync.Mutex
	life   *liveness
	all    map[string]member // by worker id; bounded by the workers that ever were
	others map[string]member // canaries of brokers, by key; bounded by brokerGone

	attending map[*attendant]struct{} // one per request that a worker has in hand
}

// member is an entry as of a revision.
type member struct {
	entry protocol.WorkerEntry
	rev   uint64
	seen  time.Time // when that revision came
}

func newRoster(own string, wake func()) *roster {
	return &roster{
		own: own, wake: wake, now: time.Now, life: newLiveness(),
		all: make(map[string]member), others: make(map[string]member),
		attending: make(map[*attendant]struct{}),
	}
}

// canary is the value under a canary's key.
type canary struct {
	Beat uint64 `json:"beat"`
}

// take takes in an entry of the bucket. An error says that it is not readable.
func (r *roster) take(e journal.Entry) error {
	if strings.HasPrefix(e.Key, canaryPrefix) {
		return r.takeCanary(e)
	}
	var entry protocol.WorkerEntry
	if !e.Deleted {
		if err := json.Unmarshal(e.Value, &entry); err != nil {
			return fmt.Errorf("decode worker entry: %w", err)
		}
	}
	r.mu.Lock()
	if e.Revision <= r.all[e.Key].rev {
		r.mu.Unlock()
		return nil
	}
	now, old := r.now(), r.all[e.Key].entry
	news := old.Owner != entry.Owner || old.Lost != entry.Lost || old.Left != entry.Left
	switch {
	case e.Deleted:
		delete(r.all, e.Key)
		r.life.forget(e.Key)
	case entry.Lost || entry.Left:
		r.all[e.Key] = member{entry, e.Revision, now}
		r.life.forget(e.Key)
	default:
		r.all[e.Key] = member{entry, e.Revision, now}
		r.life.beat(e.Key, now)
	}
	r.mu.Unlock()
	if news {
		r.wake()
		r.tellGone()
	}
	return nil
}

// attendant waits for the end of an owner.
type attendant struct {
	owner string
	gone  func()
}

// whenGone calls f, at most once, when an owner is called lost from now on, or another
// life follows it: what it was asked is not answered any more. One that leaves in order
// answers first, and an entry that is removed says nothing: its worker writes it again,
// or is called lost. F must not block; forget ends it.
func (r *roster) whenGone(owner string, f func()) (forget func()) {
	a := &attendant{owner, f}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.attending[a] = struct{}{}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.attending, a)
	}
}

func (r *roster) tellGone() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for a := range r.attending {
		if r.gone(a.owner) {
			delete(r.attending, a)
			a.gone()
		}
	}
}

// gone reports whether an owner is called lost, or another life has followed it. Mu is
// held.
func (r *roster) gone(owner string) bool {
	m, ok := r.all[protocol.WorkerOf(owner)]
	return ok && (m.entry.Owner != owner || m.entry.Lost)
}

// absent reports whether an owner is gone already. The copy in memory may be older than
// the registry's word of the owner, and a lost one may be back: the bucket decides, and
// where it does not answer the owner is asked.
func (r *roster) absent(ctx context.Context, owner string) bool {
	known := func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.gone(owner)
	}
	return known() && r.refresh(ctx, protocol.WorkerOf(owner)) == nil && known()
}

func (r *roster) takeCanary(e journal.Entry) error {
	var c canary
	if !e.Deleted {
		if err := json.Unmarshal(e.Value, &c); err != nil {
			return fmt.Errorf("decode canary: %w", err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case e.Key == r.own:
		r.life.echo(c.Beat, r.now())
	case e.Revision <= r.others[e.Key].rev:
	case e.Deleted:
		delete(r.others, e.Key)
		r.life.forget(e.Key)
	default:
		r.others[e.Key] = member{rev: e.Revision, seen: r.now()}
		r.life.beat(e.Key, r.now())
	}
	return nil
}

// worker returns the entry of a worker.
func (r *roster) worker(id string) (protocol.WorkerEntry, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m, ok := r.all[id]
	return m.entry, ok
}

// workers returns every entry, by id.
func (r *roster) workers() map[string]protocol.WorkerEntry {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make(map[string]protocol.WorkerEntry, len(r.all))
	for id, m := range r.all {
		out[id] = m.entry
	}
	return out
}

// brokers counts the brokers that write canaries.
func (r *roster) brokers() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, now := 0, r.now()
	if r.own != "" {
		n++
	}
	for _, m := range r.others {
		if now.Sub(m.seen) <= brokerSilent {
			n++
		}
	}
	return n
}

// singing returns the ids of the other brokers whose canaries are heard, in no order.
func (r *roster) singing() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var ids []string
	for key, m := range r.others { // maps are walked in another order each time: brokers share the work
		if r.now().Sub(m.seen) <= brokerSilent {
			ids = append(ids, strings.TrimPrefix(key, canaryPrefix))
		}
	}
	return ids
}

// whenSilent calls f once the canary of a broker has not been heard for
// brokerSilent, or is gone, unless ctx ends or stop is called before. Stop waits for
// f.
func (r *roster) whenSilent(ctx context.Context, id string, f func()) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(protocol.HeartbeatEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			r.mu.Lock()
			m, ok := r.others[canaryPrefix+id]
			silent := !ok || r.now().Sub(m.seen) > brokerSilent
			r.mu.Unlock()
			if silent {
				f()
				return
			}
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// first reports whether this broker's canary is the first of those there are: what
// one broker is to do for all is done by that one.
func (r *roster) first() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	for key, m := range r.others {
		if key < r.own && now.Sub(m.seen) <= brokerSilent {
			return false
		}
	}
	return true
}

// expect begins to watch workers that the registry names and that have no entry.
func (r *roster) expect(ids map[string]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id := range ids {
		if _, ok := r.all[id]; !ok {
			r.life.expect(id, r.now())
		}
	}
}

// silent returns the workers, by id, and the canaries of brokers that are silent
// for too long.
func (r *roster) silent() (workers map[string]member, canaries []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	workers = make(map[string]member)
	for key := range r.life.quiet {
		_, isCanary := r.others[key]
		switch {
		case isCanary && r.life.silent(key, brokerGone):
			canaries = append(canaries, key)
		case !isCanary && r.life.silent(key, protocol.WorkerLostAfter):
			workers[key] = r.all[key]
		}
	}
	return workers, canaries
}

// fate tells what became of an owner, as far as the copy in memory knows; empty:
// nothing, or nothing is known.
func (r *roster) fate(owner string) (reason string) {
	e, ok := r.worker(protocol.WorkerOf(owner))
	switch {
	case !ok:
		return ""
	case e.Owner != owner:
		return protocol.InterruptedWorkerRestart
	case e.Lost:
		return protocol.InterruptedWorkerLost
	case e.Left:
		return protocol.InterruptedWorkerStop
	}
	return ""
}

// refresh reads the newest entry of a worker from the bucket.
func (r *roster) refresh(ctx context.Context, id string) error {
	bucket, err := r.open()
	if err != nil {
		return err
	}
	e, err := bucket.Get(ctx, id)
	if errors.Is(err, journal.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return r.take(e)
}

// lose calls a worker lost, unless it has written since it was seen: then the watch
// tells. A worker without an entry gets one that says so.
func (r *roster) lose(ctx context.Context, id string, m member, owner string) (lost bool, err error) {
	bucket, err := r.open()
	if err != nil {
		return false, err
	}
	entry := m.entry
	entry.Labels = maps.Clone(entry.Labels)
	entry.Lost = true
	if m.rev == 0 {
		entry.ID, entry.Owner = id, owner
	}
	value, err := json.Marshal(entry)
	if err != nil {
		return false, fmt.Errorf("encode worker entry: %w", err)
	}
	rev, err := bucket.PutOver(ctx, id, value, m.rev)
	switch {
	case errors.Is(err, journal.ErrExists), errors.Is(err, journal.ErrRevision):
		return false, r.refresh(ctx, id)
	case err != nil:
		return false, err
	}
	return true, r.take(journal.Entry{Key: id, Value: value, Revision: rev})
}
