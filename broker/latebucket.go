package broker

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"rejoin/journal"
)

// errNotOpen: a bucket is used before Recover or Run opened it.
var errNotOpen = fmt.Errorf("broker: the registry is not open: %w", journal.ErrUnavailable)

// errLoaded ends a watch that was made to read what is there.
var errLoaded = errors.New("broker: everything is loaded")

// lateBucket is a bucket that is opened after what keeps a copy of it was made. Safe
// for concurrent use.
type lateBucket struct {
	bucket atomic.Pointer[journal.Bucket]
}

func (l *lateBucket) setBucket(b *journal.Bucket) { l.bucket.Store(b) }

// open returns the bucket, or errNotOpen.
func (l *lateBucket) open() (*journal.Bucket, error) {
	b := l.bucket.Load()
	if b == nil {
		return nil, errNotOpen
	}
	return b, nil
}

// load calls take for each entry that there is, and unreadable for those that take
// refuses.
func (l *lateBucket) load(ctx context.Context, take func(journal.Entry) error, unreadable func(key string, err error)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err := l.tell(ctx, func() { cancel(errLoaded) }, take, unreadable)
	if errors.Is(context.Cause(ctx), errLoaded) {
		return nil
	}
	return err
}

// watch is load that goes on with what changes, until ctx ends or the watch breaks.
func (l *lateBucket) watch(ctx context.Context, take func(journal.Entry) error, unreadable func(key string, err error)) error {
	return l.tell(ctx, func() {}, take, unreadable)
}

func (l *lateBucket) tell(
	ctx context.Context, loaded func(), take func(journal.Entry) error, unreadable func(key string, err error),
) error {
	bucket, err := l.open()
	if err != nil {
		return err
	}
	return bucket.Watch(ctx, func(e journal.Entry) {
		if e.Key == "" {
			loaded()
			return
		}
		if err := take(e); err != nil {
			unreadable(e.Key, err)
		}
	})
}
