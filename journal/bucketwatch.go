package journal

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"rejoin/protocol"
)

const (
	// watchChanges are the live changes of a bucket that wait for its watcher; more
	// are lost, which shows as a gap.
	watchChanges = 1024
	// watchCheck is how often a watch that hears nothing asks how far the bucket is.
	watchCheck = 5 * time.Second
	// watchForget is how long a watch may not have been sure to have everything
	// before it reads the whole bucket again: the note of a deleted key lasts
	// markerTTL, and after it only what is not there tells.
	watchForget = markerTTL / 2
	// watchBack is how long a bucket must end before what was read of it before that
	// is believed: a leader that was deposed says so for a moment.
	watchBack = 10 * time.Second
)

// bucketWatch reads a bucket of a cluster: the live changes that its leader tells
// once they are stored, and, of what they leave out, the stream itself. A bucket's
// stream sequences are dense, so that every loss shows. One goroutine.
type bucketWatch struct {
	b     *Bucket
	f     func(Entry)
	live  chan *nats.Msg    // capacity watchChanges
	known map[string]uint64 // revision of each present key, as told

	last   uint64    // everything up to this stream sequence was told
	sure   time.Time // when it was known to be all
	short  time.Time // since when the bucket ends before last; zero: it does not
	whole  bool      // everything is to be read again
	loaded bool
	tries  int // failures in a row
}

// watchCluster is Watch in a cluster. The only error is ctx's, or ErrUnavailable
// of a node that was closed.
func (b *Bucket) watchCluster(ctx context.Context, f func(Entry)) error {
	w := &bucketWatch{b: b, f: f, live: make(chan *nats.Msg, watchChanges), known: map[string]uint64{}}
	sub, err := b.n.kv.ChanSubscribe(bucketLive(b.name), w.live)
	if err != nil {
		return fmt.Errorf("watch bucket: %w", unavailable(ctx, err))
	}
	defer func() {
		// Only a closed connection refuses, and that has no subscriptions.
		_ = sub.Unsubscribe()
	}()
	return w.run(ctx)
}

func (w *bucketWatch) run(ctx context.Context) error {
	check := time.NewTimer(0)
	defer check.Stop()
	again := w.b.n.kvs.again.next()
	for {
		select {
		case m := <-w.live:
			if w.change(m) {
				continue
			}
		case <-again:
			again = w.b.n.kvs.again.next()
		case <-check.C:
		case <-ctx.Done():
			return ctx.Err()
		case <-w.b.n.life.Done():
			return fmt.Errorf("%w: watch ended: %w", ErrUnavailable, ErrClosed)
		}
		check.Reset(w.catchUp(ctx))
	}
}

// change takes a live one; false asks for what it shows to be missing.
func (w *bucketWatch) change(m *nats.Msg) bool {
	seq := headerNumber(m.Header, headerSequence)
	switch {
	case seq != 0 && seq <= w.last && w.short.IsZero():
		return true
	case !w.loaded || seq != w.last+1:
		return false
	}
	w.tell(w.b.entry(m.Header.Get(headerSubject), m.Data, m.Header, seq))
	w.last, w.sure = seq, time.Now()
	return true
}

func (w *bucketWatch) tell(e Entry) {
	w.last = max(w.last, e.Revision)
	if e.Deleted {
		if _, known := w.known[e.Key]; !known && !w.loaded {
			return
		}
		delete(w.known, e.Key)
	} else {
		w.known[e.Key] = e.Revision
	}
	w.f(e)
}

// catchUp reads what is missing and returns when to look again.
func (w *bucketWatch) catchUp(ctx context.Context) time.Duration {
	err := w.read(ctx)
	if err == nil {
		w.tries = 0
		return watchCheck
	}
	if ctx.Err() == nil && w.tries == 0 {
		w.b.n.log.Warn("read a bucket", slog.String("bucket", w.b.name), slog.Any(protocol.LogError, err))
	}
	w.tries++
	return min(50*time.Millisecond<<min(w.tries, 6), pauseMax)
}

// read brings the watch to where the bucket is. Errors: ErrUnavailable, ctx's.
func (w *bucketWatch) read(ctx context.Context) error {
	asked := time.Now()
	info, found, err := streamInfoOver(ctx, w.b.n.kv, bucketStream(w.b.name))
	switch {
	case err != nil:
		return err
	case !found:
		return fmt.Errorf("%w: bucket %s is missing", ErrUnavailable, w.b.name)
	}
	if err := w.shorter(info.State.LastSeq); err != nil {
		return err
	}
	if !w.loaded || asked.Sub(w.sure) > watchForget {
		w.whole = true
	}
	if w.whole {
		err = w.readAll(ctx, info.State.LastSeq)
	} else {
		err = w.readFrom(ctx, info.State.LastSeq)
	}
	if err != nil {
		return err
	}
	w.whole, w.sure = false, asked
	return nil
}

// shorter deals with a bucket that ends before what was told: a deposed leader
// says so for a moment, and then ErrUnavailable is the answer; a store that lost
// something says so for longer.
func (w *bucketWatch) shorter(last uint64) error {
	switch {
	case last >= w.last:
		w.short = time.Time{}
		return nil
	case w.short.IsZero():
		w.short = time.Now()
	case time.Since(w.short) > watchBack:
		w.b.n.log.Error("a bucket lost what it had stored; it is read again", slog.String("bucket", w.b.name))
		w.short, w.whole = time.Time{}, true
		return nil
	}
	return fmt.Errorf("%w: the bucket ends before what was read of it", ErrUnavailable)
}

// readAll tells every present entry, and the end of those that have gone.
func (w *bucketWatch) readAll(ctx context.Context, upTo uint64) error {
	before := maps.Clone(w.known)
	w.last = 0
	seen := map[string]bool{}
	tell := w.f
	w.f = func(e Entry) {
		seen[e.Key] = true
		tell(e)
	}
	err := w.readFrom(ctx, upTo)
	w.f = tell
	if err != nil {
		return err
	}
	for key := range before {
		if !seen[key] {
			w.tell(Entry{Key: key, Revision: w.last, Deleted: true})
		}
	}
	if !w.loaded {
		w.loaded = true
		w.f(Entry{})
	}
	return nil
}

// readFrom tells what is stored behind last, at least to stream sequence upTo. Any
// replica may answer; one that lags ends early, and then the leader is asked for
// what is next.
func (w *bucketWatch) readFrom(ctx context.Context, upTo uint64) error {
	for w.last < upTo {
		got, err := w.batch(ctx)
		if err != nil {
			return err
		}
		if got > 0 {
			continue
		}
		e, ok, err := w.b.ask(ctx, fmt.Sprintf(`{"seq":%d,"next_by_subj":%q}`, w.last+1, bucketPrefix(w.b.name)+">"))
		switch {
		case err != nil:
			return err
		case !ok: // what was there has been replaced or has gone
			w.last = upTo
		default:
			w.tell(e)
		}
	}
	return nil
}

// batch tells the next entries, up to batchMessages, as any replica has them, and
// returns how many. A replica that does not answer has none. Errors: ctx's.
func (w *bucketWatch) batch(ctx context.Context) (int, error) {
	nc, subject := w.b.n.kv, "$JS.API.DIRECT.GET."+bucketStream(w.b.name)
	req := fmt.Sprintf(`{"seq":%d,"next_by_subj":%q,"batch":%d,"max_bytes":%d}`, w.last+1, bucketPrefix(w.b.name)+">", batchMessages, rangeBytes)
	within, cancel := context.WithTimeout(ctx, replicaTimeout)
	defer cancel()
	var msgs []*nats.Msg
	err := w.b.n.kvs.whileUp(within, func(ctx context.Context) (err error) {
		msgs, _, err = directBatch(ctx, nc, subject, req)
		return err
	})
	if err != nil {
		return 0, ctx.Err() // it has none, then
	}
	for _, m := range msgs {
		if subject := m.Header.Get(headerSubject); strings.HasPrefix(subject, bucketPrefix(w.b.name)) {
			w.tell(w.b.entry(subject, m.Data, m.Header, headerNumber(m.Header, headerSequence)))
		}
	}
	return len(msgs), nil
}
