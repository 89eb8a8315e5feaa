package journal

import "context"

// term is the time in which a shard of a cluster has one leader. What was asked of
// the former one, and is not answered yet, will not be: whoever waits for it asks
// the next one. A nil term, of an embedded server, never ends. Safe for concurrent
// use.
type term struct{ r reach }

// newTerm begins the first one; all end with parent.
func newTerm(parent context.Context) *term {
	t := &term{}
	t.r.begin(parent)
	return t
}

// over ends this term and begins the next.
func (t *term) over(parent context.Context) {
	if t == nil {
		return
	}
	t.r.begin(parent)
	t.r.found()
}

// next returns a channel that is closed at the end of this term, nil of a nil one.
func (t *term) next() <-chan struct{} {
	if t == nil {
		return nil
	}
	return t.r.again.next()
}

// within returns a context that also ends with this term.
func (t *term) within(ctx context.Context) (context.Context, context.CancelFunc) {
	if t == nil {
		return ctx, func() {}
	}
	return t.r.mortal(ctx)
}
