package snapshot_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"rejoin/agent"
	"rejoin/agent/jsonl"
	"rejoin/journal"
	"rejoin/protocol"
	"rejoin/snapshot"
)

// records keeps the warnings of a logger.
type records struct {
	slog.Handler
	mu   sync.Mutex
	text []string
}

func (r *records) Handle(_ context.Context, rec slog.Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.text = append(r.text, rec.Message)
	return nil
}

func (r *records) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }
func (r *records) WithAttrs([]slog.Attr) slog.Handler           { return r }

func (r *records) count(message string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, t := range r.text {
		if strings.Contains(t, message) {
			n++
		}
	}
	return n
}

// counting is jsonl with a fold of its own, in several versions: it notes how
// many lines it has seen, and who saw them.
type counting struct {
	jsonl.Adapter
	version int
}

func (c counting) FoldVersion() int { return c.version }

func (c counting) Fold(s *protocol.State, _ *protocol.Event) {
	s.ItemsDropped++
	if s.Extra == nil {
		s.Extra = &protocol.StateExtra{}
	}
	s.Extra.Thinking = "v" + strconv.Itoa(c.version)
}

// kept is a book whose events pass a keeper.
type kept struct {
	*book
	table   snapshot.Folds
	adapter agent.Adapter
	state   *protocol.State
	ledger  *snapshot.Ledger
	keeper  *snapshot.Keeper
}

func keep(b *book, st *snapshot.Store, a agent.Adapter, r snapshot.Retention, h *snapshot.History) *kept {
	k := &kept{book: b, table: snapshot.Folds{"jsonl": a}, adapter: a, state: h.State, ledger: h.Ledger}
	k.keeper = st.Keep(b.log, b.w, a, r, h.Bytes)
	return k
}

// begin opens the first run of a log.
func begin(tb testing.TB, node *journal.Node, id string, st *snapshot.Store, a agent.Adapter, r snapshot.Retention) *kept {
	tb.Helper()
	b := newBook(tb, node, id)
	b.open(protocol.NewEpoch(time.Now()), 0, start)
	k := keep(b, st, a, r, snapshot.NewHistory(id))
	k.apply(&b.events[0])
	return k
}

func (k *kept) apply(e *protocol.Event) {
	snapshot.Apply(k.adapter, k.state, k.w.Epoch(), e)
	k.ledger.Apply(e)
	k.keeper.Applied(k.state, k.ledger, e)
}

func (k *kept) say(n int) {
	k.tb.Helper()
	for i := range n {
		if err := k.w.WaitRoom(k.ctx); err != nil {
			k.tb.Fatal(err)
		}
		k.add(protocol.SourceChild, fmt.Sprintf(`{"n":%d}`, i))
		k.apply(&k.events[len(k.events)-1])
	}
}

func (k *kept) tell(body string) {
	k.tb.Helper()
	k.add(protocol.SourceBroker, body)
	k.apply(&k.events[len(k.events)-1])
}

func (k *kept) finish() {
	k.tb.Helper()
	if err := k.keeper.Close(k.ctx); err != nil {
		k.tb.Errorf("close keeper: %v", err)
	}
	k.close()
}

const sessionEnd = `{"type":"session_end","reason":"exited","exitCode":0,"signal":null}`

func checkpoints(k *kept) []string {
	k.tb.Helper()
	names, err := k.node.Snaps().List(k.ctx, k.log)
	if err != nil {
		k.tb.Fatal(err)
	}
	var list []string
	for _, n := range names {
		if !strings.HasPrefix(n, "l") {
			list = append(list, n)
		}
	}
	return list
}

// TestDamagedCheckpoints: whatever is stored under the name of a checkpoint or
// of a page, states and ledgers are the same; it is reported, and gone once
// newer ones exist.
func TestDamagedCheckpoints(t *testing.T) {
	warned := &records{}
	node := newNode(t)
	st := snapshot.NewStore(node, folds, slog.New(warned), snapshot.StoreConfig{EveryEvents: 100})
	k := begin(t, node, "s", st, jsonl.Adapter{}, snapshot.Retention{})
	for i := range 300 { // more than a page
		k.tell(fmt.Sprintf(brokerBodies[1], i))
		k.flush()
	}
	k.tell(sessionEnd)
	k.finish()
	names := checkpoints(k)
	if len(names) < 3 {
		t.Fatalf("checkpoints %v", names)
	}
	newest := strconv.Itoa(len(k.events))
	good, err := node.Snaps().Get(k.ctx, k.log, newest)
	if err != nil {
		t.Fatal(err)
	}
	for name, blob := range map[string][]byte{
		"empty": {}, "text": []byte("hello"), "cut": good[:len(good)/2], "another's": mustGet(t, k, names, newest),
		"flipped": append([]byte{good[0] ^ 1}, good[1:]...),
	} {
		t.Run(name, func(t *testing.T) {
			if err := node.Snaps().Put(k.ctx, k.log, newest, blob); err != nil {
				t.Fatal(err)
			}
			r := snapshot.NewReader(node, folds, 0)
			k.check(r)
			h, err := r.Load(k.ctx, k.log, 0)
			if err != nil || !sameLedger(h.Ledger, k.ledger, 300) || h.Ledger.Len() != 300 {
				t.Errorf("ledger: %v", err)
			}
			report, err := r.Verify(k.ctx, k.log)
			if err != nil || len(report.Problems) != 1 {
				t.Errorf("verify: %+v, %v", report, err)
			}
		})
	}
	t.Run("page", func(t *testing.T) {
		if err := node.Snaps().Put(k.ctx, k.log, newest, good); err != nil {
			t.Fatal(err)
		}
		if err := node.Snaps().Put(k.ctx, k.log, "l0", []byte("x")); err != nil {
			t.Fatal(err)
		}
		r := snapshot.NewReader(node, folds, 0)
		h, err := r.Load(k.ctx, k.log, 0)
		if err != nil || !sameLedger(h.Ledger, k.ledger, 300) {
			t.Errorf("ledger: %v", err)
		}
		if report, err := r.Verify(k.ctx, k.log); err != nil || len(report.Problems) == 0 {
			t.Errorf("verify: %+v, %v", report, err)
		}
	})
	// The next run replaces what is damaged.
	if err := node.Snaps().Put(k.ctx, k.log, newest, []byte("x")); err != nil {
		t.Fatal(err)
	}
	h, err := snapshot.NewReader(node, folds, 0).Load(k.ctx, k.log, 0)
	if err != nil {
		t.Fatal(err)
	}
	k.open("", 0, `{"type":"session_resumed","run":2}`)
	again := keep(k.book, st, jsonl.Adapter{}, snapshot.Retention{}, h)
	again.apply(&k.events[len(k.events)-1])
	for range 4 {
		again.say(120)
		again.flush()
	}
	again.tell(sessionEnd)
	again.finish()
	if warned.count("checkpoint is left out") == 0 {
		t.Error("the damaged checkpoint is not reported")
	}
	r := snapshot.NewReader(node, folds, 0)
	report, err := r.Verify(k.ctx, k.log)
	if err != nil || len(report.Problems) > 0 {
		t.Errorf("verify after the next run: %+v, %v", report, err)
	}
	again.check(r)
	if h, err := r.Load(k.ctx, k.log, 0); err != nil || !sameLedger(h.Ledger, again.ledger, 300) {
		t.Errorf("ledger after the next run: %v", err)
	}
}

// mustGet returns a checkpoint other than the one named.
func mustGet(tb testing.TB, k *kept, names []string, but string) []byte {
	tb.Helper()
	for _, n := range names {
		if n != but {
			b, err := k.node.Snaps().Get(k.ctx, k.log, n)
			if err != nil {
				tb.Fatal(err)
			}
			return b
		}
	}
	tb.Fatal("there is no other checkpoint")
	return nil
}

// TestWrongStateIsFound: verify notices a checkpoint that decodes and lies.
func TestWrongStateIsFound(t *testing.T) {
	node := newNode(t)
	st := snapshot.NewStore(node, folds, nil, snapshot.StoreConfig{EveryEvents: 50})
	k := begin(t, node, "s", st, counting{version: 1}, snapshot.Retention{})
	k.say(70)
	k.state.ItemsDropped += 3 // the owner goes wrong
	k.tell(sessionEnd)
	k.finish()
	report, err := snapshot.NewReader(node, k.table, 0).Verify(k.ctx, k.log)
	if err != nil || len(report.Problems) != 1 || !strings.Contains(report.Problems[0], "its state") || report.Compared == 0 {
		t.Errorf("verify: %+v, %v", report, err)
	}
}

// TestFoldUpgrade: a fold of a new version folds a complete log anew; of a
// trimmed one it goes on from the state of the old one, and records that.
func TestFoldUpgrade(t *testing.T) {
	node := newNode(t)
	one, two := counting{version: 1}, counting{version: 2}
	st := snapshot.NewStore(node, snapshot.Folds{"jsonl": one}, nil, snapshot.StoreConfig{EveryEvents: 50, Soonest: time.Nanosecond, TrimPause: time.Nanosecond})
	for name, r := range map[string]snapshot.Retention{"whole": {}, "trimmed": {MaxEvents: 60}} {
		t.Run(name, func(t *testing.T) {
			k := begin(t, node, name, st, one, r)
			for range 8 {
				k.say(50)
				k.flush()
			}
			k.tell(sessionEnd)
			k.finish()
			floor, err := node.Floor(k.ctx, k.log)
			if err != nil || (floor > 1) != (r.MaxEvents > 0) {
				t.Fatalf("floor %d, %v", floor, err)
			}
			reader := snapshot.NewReader(node, snapshot.Folds{"jsonl": two}, 0)
			h, err := reader.Load(k.ctx, k.log, 0)
			if err != nil {
				t.Fatal(err)
			}
			body, upgraded := reader.Upgrade(h)
			if upgraded != (r.MaxEvents > 0) {
				t.Fatalf("upgrade: %t, %+v", upgraded, body)
			}
			if h.State.ItemsDropped != 400 {
				t.Errorf("%d lines in the state", h.State.ItemsDropped)
			}
			if !upgraded {
				if h.State.Extra.Thinking != "v2" {
					t.Errorf("the complete log is not folded anew: %s", h.State.Extra.Thinking)
				}
				return
			}
			if body.From%1000 != 1 || body.To%1000 != 2 || body.Adapter != "jsonl" || body.StateHash != snapshot.Hash(snapshot.Encode(h.State)) {
				t.Errorf("event %+v", body)
			}
			if at, err := reader.At(k.ctx, k.log, floor-1); err != nil || at.Seq != floor-1 {
				t.Errorf("state before the floor by the new fold: %v", err)
			}
			// The owner that resumes records it once; from then on all is as ever.
			k.open("", 0, `{"type":"session_resumed","run":2}`)
			st := snapshot.NewStore(node, snapshot.Folds{"jsonl": two}, nil, snapshot.StoreConfig{EveryEvents: 50})
			next := keep(k.book, st, two, r, h)
			next.apply(&k.events[len(k.events)-1])
			next.tell(fmt.Sprintf(`{"type":"fold_upgraded","adapter":"jsonl","from":%d,"to":%d,"stateHash":%q}`, body.From, body.To, body.StateHash))
			for range 6 {
				next.say(60)
				next.flush()
			}
			next.tell(sessionEnd)
			next.finish()
			h, err = reader.Load(k.ctx, k.log, 0)
			if err != nil || h.From != nil || snapshot.Hash(snapshot.Encode(h.State)) != snapshot.Hash(snapshot.Encode(next.state)) {
				t.Errorf("after the upgrade: %v", err)
			}
			report, err := reader.Verify(k.ctx, k.log)
			if err != nil || len(report.Problems) > 0 || report.Compared == 0 {
				t.Errorf("verify: %+v, %v", report, err)
			}
		})
	}
}

// TestLostTail: a log that lost its end goes on from the checkpoint that has it.
func TestLostTail(t *testing.T) {
	node := newNode(t)
	st := snapshot.NewStore(node, folds, nil, snapshot.StoreConfig{EveryEvents: 1000})
	k := begin(t, node, "s", st, counting{version: 1}, snapshot.Retention{})
	k.tell(fmt.Sprintf(brokerBodies[1], 7))
	k.say(30)
	k.tell(sessionEnd)
	k.finish()
	blob, err := node.Snaps().Get(k.ctx, k.log, "33")
	if err != nil {
		t.Fatal(err)
	}

	// The same session in a data directory that lost all of its log but the start.
	lost := newNode(t)
	b := newBook(t, lost, "s")
	b.open(k.epochs[0], 0, start)
	b.close()
	if err := lost.Snaps().Put(b.ctx, b.log, "33", blob); err != nil {
		t.Fatal(err)
	}
	r := snapshot.NewReader(lost, k.table, 0)
	if high, err := r.High(b.ctx, b.log); err != nil || high != 33 {
		t.Fatalf("high %d, %v", high, err)
	}
	if s, err := r.Latest(b.ctx, b.log, 0); err != nil || s.Seq != 1 {
		t.Fatalf("before the new epoch: %d, %v", s.Seq, err)
	}
	h, err := r.LoadLost(b.ctx, b.log)
	if err != nil || h.State.Seq != 33 {
		t.Fatalf("LoadLost: %v", err)
	}
	if a, ok := h.Ledger.Lookup("c7"); !ok || a.Seq != 2 {
		t.Error("the command is forgotten")
	}
	b.open(protocol.NewEpoch(time.Now()), 33, `{"type":"epoch_start","previousEpoch":"x","previousHead":33,"reason":"unclean_boot"}`)
	b.add(protocol.SourceChild, `1`)
	b.flush()
	for _, reader := range []*snapshot.Reader{r, snapshot.NewReader(lost, k.table, 0)} {
		s, err := reader.Latest(b.ctx, b.log, 0)
		if err != nil || s.Seq != 35 || !strings.Contains(string(s.State), `"itemsDropped":32`) {
			t.Errorf("Latest: %v, %s", err, s.State)
		}
		at, err := reader.At(b.ctx, b.log, 33)
		if err != nil || at.Seq != 33 || at.Hash != snapshot.Hash(snapshot.Encode(k.state)) {
			t.Errorf("At: %v, %s", err, at.State)
		}
		report, err := reader.Verify(b.ctx, b.log)
		if err != nil || len(report.Problems) > 0 {
			t.Errorf("verify: %+v, %v", report, err)
		}
	}
}

// TestLongFoldIsStored: a log that nobody kept checkpoints of is folded once.
func TestLongFoldIsStored(t *testing.T) {
	node := newNode(t)
	b := newBook(t, node, "s")
	b.open(protocol.NewEpoch(time.Now()), 0, start)
	for i := range 45000 {
		if i%1000 == 0 {
			if err := b.w.WaitRoom(b.ctx); err != nil {
				t.Fatal(err)
			}
		}
		b.add(protocol.SourceChild, `{}`)
	}
	b.add(protocol.SourceBroker, fmt.Sprintf(brokerBodies[1], 7))
	b.flush()
	b.check(snapshot.NewReader(node, folds, 0))
	names, err := node.Snaps().List(b.ctx, b.log)
	if err != nil || len(names) != 1 || names[0] != strconv.Itoa(len(b.events)) {
		t.Errorf("checkpoints %v, %v", names, err)
	}
	b.check(snapshot.NewReader(node, folds, 0))
	h, err := snapshot.NewReader(node, folds, 0).Load(b.ctx, b.log, 0)
	if _, ok := h.Ledger.Lookup("c7"); err != nil || !ok {
		t.Errorf("ledger of the checkpoint: %v", err)
	}
}

// TestRemove leaves nothing, of this log only.
func TestRemove(t *testing.T) {
	node := newNode(t)
	st := snapshot.NewStore(node, folds, nil, snapshot.StoreConfig{})
	var books []*kept
	for _, id := range []string{"s", "s1"} {
		k := begin(t, node, id, st, jsonl.Adapter{}, snapshot.Retention{})
		for i := range 300 {
			k.tell(fmt.Sprintf(brokerBodies[1], i))
		}
		k.tell(sessionEnd)
		k.finish()
		books = append(books, k)
	}
	for range 2 {
		if err := st.Remove(books[0].ctx, books[0].log); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range []int{0, 2} {
		if names, err := node.Snaps().List(books[i].ctx, books[i].log); err != nil || len(names) != want {
			t.Errorf("%s: %v, %v", books[i].log.Key, names, err)
		}
	}
}

// TestKeeperOfAFencedRun stores nothing that is not durable, and ends.
func TestKeeperOfAFencedRun(t *testing.T) {
	node := newNode(t)
	st := snapshot.NewStore(node, folds, nil, snapshot.StoreConfig{EveryEvents: 5})
	k := begin(t, node, "s", st, jsonl.Adapter{}, snapshot.Retention{})
	other := newBook(t, node, "s")
	other.run = 1
	other.open("", 0, `{"type":"session_resumed","run":2}`)
	for range 20 {
		e := &protocol.Event{Seq: k.w.Head() + 1, TS: 1, Run: 1, Source: protocol.SourceChild, Body: []byte(`1`)}
		k.apply(e)
		if _, err := k.w.Append(e, nil); err != nil {
			break
		}
	}
	if err := k.keeper.Close(k.ctx); !errors.Is(err, journal.ErrFenced) {
		t.Errorf("close: %v", err)
	}
	if names := checkpoints(k); len(names) != 0 {
		t.Errorf("checkpoints of a fenced run: %v", names)
	}
	var none *snapshot.Keeper
	none.Applied(nil, nil, nil)
	if err := none.Close(k.ctx); err != nil || none.Floor() != 0 {
		t.Errorf("a nil keeper: %v", err)
	}
	k.w = nil // it has failed: there is nothing to close
}
