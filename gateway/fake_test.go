package gateway

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"rejoin/broker"
	"rejoin/journal"
	"rejoin/protocol"
	"rejoin/snapshot"
)

const testEpoch = protocol.Epoch("01ARZ3NDEKTSV4RRFFQ69G5FAV")

// fakeLog is a log in memory: watch, history and fold in one.
type fakeLog struct {
	syncing func(context.Context) error // what Sync waits for; nil: nothing
	key     protocol.Key

	mu     sync.Mutex
	epoch  protocol.Epoch
	floor  protocol.Seq
	lines  [][]byte // of seq 1…
	wakers map[journal.Waker]int
	refs   int
	status map[protocol.Seq]journal.PullStatus // what a pull of that seq answers
	folds  int                                 // how many snapshots were made
	fold   func() error                        // asked before each
}

func newFakeLog(session string) *fakeLog {
	return &fakeLog{
		key: protocol.Key{Workspace: protocol.DefaultWorkspace, Session: session}, epoch: testEpoch, floor: 1,
		wakers: make(map[journal.Waker]int), status: make(map[protocol.Seq]journal.PullStatus),
	}
}

// append adds n events with bodies of about size bytes and wakes the watchers.
func (l *fakeLog) append(n, size int) {
	l.mu.Lock()
	pad := strings.Repeat("p", size)
	for range n {
		seq := protocol.Seq(len(l.lines) + 1)
		body := fmt.Appendf(nil, `{"n":%d,"p":"%s"}`, seq, pad)
		l.lines = append(l.lines, protocol.AppendEventLine(nil, &protocol.Event{Seq: seq, TS: 1, Run: 1, Body: body}))
	}
	wakers := slices.Collect(maps.Keys(l.wakers))
	l.mu.Unlock()
	for _, k := range wakers {
		k.Wake()
	}
}

func (l *fakeLog) set(f func()) {
	l.mu.Lock()
	f()
	wakers := slices.Collect(maps.Keys(l.wakers))
	l.mu.Unlock()
	for _, k := range wakers {
		k.Wake()
	}
}

func (l *fakeLog) position() journal.Position {
	return journal.Position{Epoch: l.epoch, Floor: l.floor, Head: protocol.Seq(len(l.lines))}
}

func (l *fakeLog) Position() journal.Position {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.position()
}

func (l *fakeLog) Sync(ctx context.Context) (journal.Position, error) {
	if l.syncing != nil {
		if err := l.syncing(ctx); err != nil {
			return journal.Position{}, err
		}
	}
	return l.Position(), nil
}

func (l *fakeLog) Add(k journal.Waker) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wakers[k]++
}

func (l *fakeLog) Remove(k journal.Waker) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wakers[k]--; l.wakers[k] == 0 {
		delete(l.wakers, k)
	}
}

func (l *fakeLog) Release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refs--; l.refs < 0 {
		panic("released too often")
	}
}

func (l *fakeLog) Pull(dst, prefix []byte, c protocol.Cursor, until protocol.Seq, max, limit int) ([]byte, protocol.Seq, journal.PullStatus) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refs == 0 {
		panic("pull after the release")
	}
	if c.Epoch != l.epoch {
		return dst, c.Seq, journal.PullEpoch
	}
	last, n := c.Seq, 0
	for {
		switch st, bad := l.status[last+1]; {
		case until > 0 && last >= until, limit > 0 && n >= limit:
			return dst, last, journal.PullMore
		case bad:
			return dst, last, st
		case last+1 < l.floor:
			return dst, last, journal.PullTrimmed
		case int(last) >= len(l.lines):
			return dst, last, journal.PullIdle
		}
		line := l.lines[last]
		if n > 0 && len(dst)+len(prefix)+len(line)+1 > max {
			return dst, last, journal.PullMore
		}
		dst = append(append(append(dst, prefix...), line...), '\n')
		last++
		n++
	}
}

// fakeRecord holds up to a few events.
type fakeRecord struct {
	epoch protocol.Epoch
	base  protocol.Seq
	lines [][]byte
}

func (r fakeRecord) Epoch() protocol.Epoch { return r.epoch }
func (r fakeRecord) Base() protocol.Seq    { return r.base }
func (r fakeRecord) Len() int              { return len(r.lines) }
func (r fakeRecord) Line(i int) []byte     { return r.lines[i] }

const fakeRecordLen = 3

// records returns the records that hold the seqs from..to, whole ones.
func (l *fakeLog) records(from, to protocol.Seq) []record {
	var out []record
	for base := (from-1)/fakeRecordLen*fakeRecordLen + 1; base <= to && int(base) <= len(l.lines); base += fakeRecordLen {
		end := min(int(base)-1+fakeRecordLen, len(l.lines))
		out = append(out, fakeRecord{l.epoch, base, l.lines[base-1 : end]})
	}
	return out
}

// fakeWorld is every backend.
type fakeWorld struct {
	mu      sync.Mutex
	logs    map[string]*fakeLog
	token   string
	role    broker.Role
	deleted map[string]bool
	revoked map[string]bool // tokens, by id
	calls   []string        // effects, in the order in which they happened
	before  func(call string)
	feed    fakeFeed
	verify  func(context.Context) // asked before each
	usage   journal.Usage
	remote  bool                                                  // servers elsewhere hold the logs
	owner   func(context.Context) (journal.Position, bool, error) // what OwnerHead answers; nil: no owner
	known   map[string]journal.Position                           // by session: what was shown
}

func (w *fakeWorld) OwnerHead(ctx context.Context, _ broker.Principal, _ string) (journal.Position, bool, error) {
	if w.owner == nil {
		return journal.Position{}, false, nil
	}
	return w.owner(ctx)
}

func (w *fakeWorld) Known(l journal.Log) (journal.Position, bool) {
	p, ok := w.known[l.Key.Session]
	return p, ok
}

func newFakeWorld(sessions ...string) *fakeWorld {
	w := &fakeWorld{logs: make(map[string]*fakeLog), deleted: make(map[string]bool), role: broker.RoleAdmin, before: func(string) {}}
	for _, s := range sessions {
		w.logs[s] = newFakeLog(s)
	}
	return w
}

func (w *fakeWorld) backends() backends {
	return backends{auth: w, lifecycle: w, commands: w, sessions: w, workers: w, watches: w, history: w, folds: w, remote: w.remote, durability: "always", usage: func() journal.Usage { return w.usage }}
}

func (w *fakeWorld) do(call string) {
	w.before(call)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, call)
}

func (w *fakeWorld) done() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.calls)
}

func (w *fakeWorld) Authenticate(token string) (broker.Principal, bool) {
	return broker.Principal{Name: "test", Workspace: protocol.DefaultWorkspace, Role: w.role}, w.token == "" || token == w.token
}
func (w *fakeWorld) AuthRequired() bool { return w.token != "" }

func (w *fakeWorld) Valid(p broker.Principal) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.revoked[p.Token]
}

func (w *fakeWorld) Log(_ context.Context, _ broker.Principal, session string) (journal.Log, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.logs[session]
	if l == nil || w.deleted[session] {
		return journal.Log{}, protocol.ErrSessionNotFound(session)
	}
	return journal.Log{Key: l.key}, nil
}

func (w *fakeWorld) Info(ctx context.Context, p broker.Principal, session string) (protocol.SessionInfo, error) {
	if _, err := w.Log(ctx, p, session); err != nil {
		return protocol.SessionInfo{}, err
	}
	return protocol.SessionInfo{ID: session, State: "running", Status: protocol.StatusIdle}, nil
}

func (w *fakeWorld) List(context.Context, broker.Principal, broker.ListParams) ([]protocol.SessionInfo, error) {
	return nil, nil
}

func (w *fakeWorld) Feed(broker.Principal) feed { return &w.feed }

// fakeFeed is a feed of which a test sets the value of each session.
type fakeFeed struct {
	mu       sync.Mutex
	changes  []broker.Change // at most one per session, the newest change last
	heads    []broker.Change
	watchers map[broker.Watcher]bool
}

func (f *fakeFeed) Add(w broker.Watcher) broker.FeedCursor {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.watchers == nil {
		f.watchers = make(map[broker.Watcher]bool)
	}
	f.watchers[w] = true
	return broker.FeedCursor{}
}

func (f *fakeFeed) Remove(w broker.Watcher) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.watchers, w)
}

func (f *fakeFeed) len() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.watchers)
}

func takeSome(from *[]broker.Change, limit int) (out []broker.Change, more bool) {
	n := min(limit, len(*from))
	out, *from = (*from)[:n], (*from)[n:]
	return out, len(*from) > 0
}

func (f *fakeFeed) Changes(_ *broker.FeedCursor, limit int) ([]broker.Change, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return takeSome(&f.changes, limit)
}

func (f *fakeFeed) Heads(_ *broker.FeedCursor, limit int) ([]broker.Change, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return takeSome(&f.heads, limit)
}

// set puts news into the feed and wakes its watchers.
func (f *fakeFeed) set(changes, heads []broker.Change) {
	f.mu.Lock()
	f.changes, f.heads = append(f.changes, changes...), append(f.heads[:0], heads...)
	watchers := slices.Collect(maps.Keys(f.watchers))
	f.mu.Unlock()
	for _, w := range watchers {
		if len(changes) > 0 {
			w.Wake()
		}
		if len(heads) > 0 {
			w.WakeHeads()
		}
	}
}

func (w *fakeWorld) Stderr(_ context.Context, _ broker.Principal, session string, run protocol.Run) (string, error) {
	return fmt.Sprintf("%s run %d <&>", session, run), nil
}

func (w *fakeWorld) Start(_ context.Context, _ broker.Principal, s broker.StartParams) (protocol.SessionInfo, error) {
	w.do("start " + s.SessionID)
	return protocol.SessionInfo{ID: s.SessionID}, nil
}

func (w *fakeWorld) Workers(context.Context, broker.Principal) ([]protocol.WorkerInfo, error) {
	return []protocol.WorkerInfo{{ID: "w", State: protocol.WorkerLive, Labels: map[string]string{"repo": "a"}, Capacity: 3, Sessions: 1}}, nil
}

func (w *fakeWorld) DrainWorker(_ context.Context, _ broker.Principal, id string, d protocol.DrainParams) (protocol.WorkerInfo, error) {
	w.do(fmt.Sprintf("drain %s %v %v", id, d.Undo, d.Move))
	return protocol.WorkerInfo{ID: id, State: protocol.WorkerDraining, Labels: map[string]string{}}, nil
}

func (w *fakeWorld) Resume(_ context.Context, _ broker.Principal, session, _ string, _ *protocol.Expect) (protocol.SessionInfo, error) {
	w.do("resume " + session)
	return protocol.SessionInfo{ID: session}, nil
}

func (w *fakeWorld) Stop(_ context.Context, _ broker.Principal, session string, grace time.Duration) error {
	w.do(fmt.Sprintf("stop %s %s", session, grace))
	return nil
}

func (w *fakeWorld) Delete(_ context.Context, _ broker.Principal, session string) error {
	w.do("delete " + session)
	return nil
}

func (w *fakeWorld) Command(ctx context.Context, p broker.Principal, session string, in protocol.CommandInput) (protocol.SendResult, error) {
	if _, err := w.Log(ctx, p, session); err != nil {
		return protocol.SendResult{}, err
	}
	w.do(session + " " + in.Verb + string(in.Command) + string(in.Params))
	return protocol.SendResult{SessionID: session, Status: "sent", CommandID: in.ID, Seq: 1}, nil
}

func (w *fakeWorld) CommandStatus(_ context.Context, _ broker.Principal, _ string, ids []string) ([]protocol.CommandStatus, error) {
	st := make([]protocol.CommandStatus, len(ids))
	for i, id := range ids {
		st[i] = protocol.CommandStatus{CommandID: id, Outcome: protocol.OutcomeUnknown}
	}
	return st, nil
}

func (w *fakeWorld) SetTitle(_ context.Context, _ broker.Principal, session, title string) error {
	w.do("title " + session + " " + title)
	return nil
}

func (w *fakeWorld) Watch(_ context.Context, l journal.Log) (watch, error) {
	f := w.logs[l.Key.Session]
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refs++
	return f, nil
}

func (w *fakeWorld) Tail(_ context.Context, l journal.Log) (journal.Tail, error) {
	p := w.logs[l.Key.Session].Position()
	return journal.Tail{Empty: p.Head == 0, Epoch: p.Epoch, Run: 1, Head: p.Head}, nil
}

func (w *fakeWorld) Floor(_ context.Context, l journal.Log) (protocol.Seq, error) {
	return w.logs[l.Key.Session].Position().Floor, nil
}

func (w *fakeWorld) Read(_ context.Context, l journal.Log, after protocol.Seq, _ int) ([]record, error) {
	f := w.logs[l.Key.Session]
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.records(after+1, after+5), nil
}

func (w *fakeWorld) Behind(_ context.Context, l journal.Log, after protocol.Seq) (protocol.Seq, bool, error) {
	f := w.logs[l.Key.Session]
	f.mu.Lock()
	defer f.mu.Unlock()
	return after + 2, after+2 <= f.position().Head, nil
}

func (w *fakeWorld) Newest(_ context.Context, l journal.Log) (journal.Place, bool, error) {
	f := w.logs[l.Key.Session]
	f.mu.Lock()
	defer f.mu.Unlock()
	return journal.Place{}, false, nil
}

func (w *fakeWorld) ReadBefore(_ context.Context, l journal.Log, before protocol.Seq, limit, _ int) ([]record, error) {
	f := w.logs[l.Key.Session]
	f.mu.Lock()
	defer f.mu.Unlock()
	from := protocol.Seq(1)
	if int(before) > min(limit, 5)+1 {
		from = before - protocol.Seq(min(limit, 5))
	}
	return f.records(from, before-1), nil
}

func (w *fakeWorld) Latest(_ context.Context, l journal.Log, atLeast protocol.Seq) (snapshot.Snapshot, error) {
	f := w.logs[l.Key.Session]
	if f.fold != nil {
		if err := f.fold(); err != nil {
			return snapshot.Snapshot{}, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.folds++
	p := f.position()
	if p.Head < atLeast {
		panic("a snapshot from the future")
	}
	return snapshot.Snapshot{Epoch: p.Epoch, Seq: p.Head, State: []byte(`{"items":[]}`), Hash: "h", Fold: protocol.FoldVersion{Adapter: "jsonl", Version: 1}}, nil
}

func (w *fakeWorld) At(ctx context.Context, l journal.Log, seq protocol.Seq) (snapshot.Snapshot, error) {
	snap, err := w.Latest(ctx, l, 0)
	if p := w.logs[l.Key.Session].Position(); seq+1 < p.Floor || seq > p.Head {
		return snapshot.Snapshot{}, fmt.Errorf("at %d: %w", seq, journal.ErrTrimmed)
	}
	snap.Seq = seq
	return snap, err
}

func (w *fakeWorld) Verify(ctx context.Context, l journal.Log) (snapshot.Report, error) {
	if w.verify != nil {
		w.verify(ctx)
	}
	p := w.logs[l.Key.Session].Position()
	return snapshot.Report{Epoch: p.Epoch, Floor: p.Floor, Head: p.Head, Problems: []string{}}, nil
}

// VerifyHead finds what its events are numbered by.
func (w *fakeWorld) VerifyHead(_ context.Context, l journal.Log, kept snapshot.ChainHead) (string, error) {
	if p := w.logs[l.Key.Session].Position(); kept == (snapshot.ChainHead{Epoch: p.Epoch, Seq: p.Head, Sum: [32]byte{31: byte(p.Head)}}) {
		return "", nil
	}
	return "another", nil
}
