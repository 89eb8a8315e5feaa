package broker

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"rejoin/protocol"
)

// tokens is who may come: the server's own token and those of a token file, which
// may change at any time. Safe for concurrent use.
type tokens struct {
	path string // of the token file; empty: none
	now  func() time.Time
	log  *slog.Logger

	current atomic.Pointer[tokenSet] // never nil

	mu        sync.Mutex // one reader of the file at a time
	mark      fileMark   // of the file as it was read last, well or not; zero: never
	young     bool       // it was so young then that its mark may hide a later change
	content   [sha256.Size]byte
	complaint string    // what was wrong with it, as it was told
	checked   time.Time // when expiry was looked at last
	onChange  map[int]func(TokenChange)
	next      int // last key given out in onChange
}

// A tokenSet is what may be shown at one moment. It is not changed.
type tokenSet struct {
	local *[sha256.Size]byte // of the server's own token; nil: there is none
	all   []Token
	byID  map[string]*Token
}

// A TokenChange says what a token file said anew: who was added, and who was
// removed or has expired. One whose entry reads differently is both.
type TokenChange struct{ Added, Removed []Principal }

const (
	// tokenPoll is how often the token file and the expiry of its tokens are looked at.
	tokenPoll = 250 * time.Millisecond
	// tokenYoung is how old a file must be for its times to tell every later
	// change: far more than the granularity of any file system's.
	tokenYoung = 2 * time.Second
)

func newTokens(cfg Config) (*tokens, error) {
	t := &tokens{
		path: cfg.TokenFile, now: cfg.Now, log: cfg.Logger, checked: cfg.Now(),
		onChange: make(map[int]func(TokenChange)),
	}
	first := &tokenSet{}
	if cfg.Token != "" {
		sum := sha256.Sum256([]byte(cfg.Token))
		first.local = &sum
	}
	t.current.Store(first)
	if t.path == "" {
		return t, nil
	}
	return t, t.check(true)
}

// required reports whether anything must be shown.
func (t *tokens) required() bool { return t.path != "" || t.current.Load().local != nil }

// authenticate returns who shows token. Every entry is compared in full, so that
// the time tells neither which one it is nor how much of one was right. For one
// that has expired the principal is told, too.
func (t *tokens) authenticate(token string) (Principal, bool) { // I-A1
	if !t.required() {
		return Local(), true
	}
	set := t.current.Load()
	p, ok := set.match(token, t.now())
	if ok || t.path == "" {
		return p, ok
	}
	t.look() // one that was added a moment ago is good at once
	if now := t.current.Load(); now != set {
		return now.match(token, t.now())
	}
	return p, ok
}

func (s *tokenSet) match(token string, now time.Time) (Principal, bool) {
	got := sha256.Sum256([]byte(token))
	local, found := 0, 0
	if s.local != nil {
		local = subtle.ConstantTimeCompare(got[:], s.local[:])
	}
	for i := range s.all {
		found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(got[:], s.all[i].hash[:]), i+1, found)
	}
	switch {
	case local == 1:
		return Local(), true
	case found == 0:
		return Principal{}, false
	}
	e := &s.all[found-1]
	return e.principal(), !e.Expired(now)
}

// valid reports whether p may still do what it could when it came.
func (t *tokens) valid(p Principal) bool {
	if p.Token == "" {
		return true
	}
	e := t.current.Load().byID[p.Token]
	return e != nil && e.principal() == p && !e.Expired(t.now())
}

// run looks at the file and at the clock until ctx ends.
func (t *tokens) run(ctx context.Context) {
	if t.path == "" {
		return
	}
	tick := time.NewTicker(tokenPoll)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			t.look()
		case <-ctx.Done():
			return
		}
	}
}

// look is check for callers that have nobody to tell of an error.
func (t *tokens) look() {
	if err := t.check(false); err != nil {
		t.log.Error("token file not read; the tokens that were read before stay", slog.Any(protocol.LogError, err))
	}
}

// check reads the file again if it changed (always: in any case) and tells of what
// is different. When it cannot be read, what was read before stays, and the error
// is returned: once, unless always.
func (t *tokens) check(always bool) error {
	t.mu.Lock()
	old := t.current.Load()
	next, err := t.read(old, always)
	repaired := err == nil && t.complaint != ""
	switch {
	case err == nil:
		t.complaint = ""
	case err.Error() == t.complaint && !always:
		err = nil
	default:
		t.complaint = err.Error()
	}
	t.current.Store(next)
	now := t.now()
	change := difference(old, next, t.checked, now)
	t.checked = now
	fs := slices.Collect(maps.Values(t.onChange))
	t.mu.Unlock()
	if repaired {
		t.log.Info("token file read again; it is in force", slog.String("path", t.path))
	}
	if len(change.Added)+len(change.Removed) == 0 {
		return err
	}
	t.log.Info("tokens changed", slog.Int("added", len(change.Added)), slog.Int("removed", len(change.Removed)))
	for _, f := range fs {
		f(change)
	}
	return err
}

// read returns what the file says now, or old. Mu is held. A file that was never
// there has no tokens; one that has gone is an error.
func (t *tokens) read(old *tokenSet, always bool) (*tokenSet, error) {
	st, err := os.Stat(t.path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && t.mark == fileMark{}:
		return old, nil
	case err != nil:
		return old, err
	case markOf(st) == t.mark && !t.young && !always:
		return old, t.told()
	}
	b, mark, err := readTokenBytes(t.path)
	if t.mark = mark; mark == (fileMark{}) {
		t.mark = markOf(st)
	}
	t.young = time.Since(time.Unix(0, max(t.mark.mtime, t.mark.ctime))) < tokenYoung
	if err != nil {
		return old, err
	}
	all, bad := parseTokens(b)
	if bad != nil {
		bad.Path = t.path
		return old, bad
	}
	sum := sha256.Sum256(b)
	if sum == t.content {
		return old, nil
	}
	t.content = sum
	next := &tokenSet{local: old.local, all: all, byID: make(map[string]*Token, len(all))}
	for i := range all {
		next.byID[all[i].ID] = &all[i]
	}
	return next, nil
}

// told is the error of a file that has not changed since.
func (t *tokens) told() error {
	if t.complaint == "" {
		return nil
	}
	return errors.New(t.complaint)
}

// difference says who came and who went from old to next, and from one look at
// the clock to the other.
func difference(old, next *tokenSet, from, to time.Time) (c TokenChange) {
	for i := range old.all {
		e := &old.all[i]
		n := next.byID[e.ID]
		if n == nil || n.principal() != e.principal() || !e.Expired(from) && e.Expired(to) {
			c.Removed = append(c.Removed, e.principal())
		}
	}
	for i := range next.all {
		e := &next.all[i]
		if o := old.byID[e.ID]; o == nil || o.principal() != e.principal() {
			c.Added = append(c.Added, e.principal())
		}
	}
	return c
}

// Authenticate returns who presents token. With no token configured everybody is
// the local admin. Of a token that has expired, the principal is returned, too.
func (b *Broker) Authenticate(token string) (Principal, bool) { return b.tokens.authenticate(token) }

// AuthRequired reports whether a token is asked for.
func (b *Broker) AuthRequired() bool { return b.tokens.required() }

// Valid reports whether the token by which p came still stands in the token file
// as it did, and has not expired.
func (b *Broker) Valid(p Principal) bool { return b.tokens.valid(p) }

// ReloadTokens reads the token file again. After an error the tokens are those
// that were read before.
func (b *Broker) ReloadTokens() error {
	if b.tokens.path == "" {
		return nil
	}
	return b.tokens.check(true)
}

// OnTokens registers f to be called after every change of who may come. It must
// not block.
func (b *Broker) OnTokens(f func(TokenChange)) (cancel func()) {
	t := b.tokens
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next++
	n := t.next
	t.onChange[n] = f
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.onChange, n)
	}
}
