package snapshot_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"rejoin/agent/jsonl"
	"rejoin/journal"
	"rejoin/protocol"
	"rejoin/snapshot"
	"rejoin/tests/harness"
)

// small keeps few events and trims at once.
var small = snapshot.Retention{MaxEvents: 60}

func prompt(tb testing.TB, node *journal.Node) *snapshot.Store {
	tb.Helper()
	return snapshot.NewStore(node, folds, slog.New(slog.NewTextHandler(tb.Output(), nil)), snapshot.StoreConfig{
		EveryEvents: 50, Soonest: time.Nanosecond, TrimPause: time.Nanosecond, IdleAfter: time.Hour,
	})
}

// trimmed is a session whose log has been trimmed; its run has ended.
func trimmed(t *testing.T, node *journal.Node, st *snapshot.Store) (*kept, protocol.Seq) {
	t.Helper()
	k := begin(t, node, "s", st, jsonl.Adapter{}, small)
	for i := range 8 {
		k.tell(fmt.Sprintf(brokerBodies[1], i))
		k.say(50)
		k.flush()
	}
	k.tell(sessionEnd)
	k.finish()
	floor, err := node.Floor(k.ctx, k.log)
	if err != nil || floor < 100 {
		t.Fatalf("floor %d, %v", floor, err)
	}
	return k, floor
}

// next is the session's next run, with the history that r loads.
func next(t *testing.T, k *kept, st *snapshot.Store, r *snapshot.Reader) (*kept, *snapshot.History) {
	t.Helper()
	h, err := r.Load(k.ctx, k.log, 0)
	if err != nil {
		t.Fatal(err)
	}
	k.open("", 0, `{"type":"session_resumed","run":2}`)
	again := keep(k.book, st, jsonl.Adapter{}, small, h)
	again.apply(&k.events[len(k.events)-1])
	return again, h
}

func problems(t *testing.T, k *kept, r *snapshot.Reader) string {
	t.Helper()
	report, err := r.Verify(k.ctx, k.log)
	if err != nil {
		t.Errorf("verify: %v", err)
	}
	return strings.Join(report.Problems, "\n")
}

// TestLostCheckpoints: all checkpoints of a trimmed log are gone. What is left is
// a state of what can be read, said to be that; the next run makes new ones.
func TestLostCheckpoints(t *testing.T) {
	node := newNode(t)
	st := prompt(t, node)
	k, floor := trimmed(t, node, st)
	if got := problems(t, k, snapshot.NewReader(node, folds, 0)); got != "" {
		t.Fatalf("before: %s", got)
	}
	if err := st.Remove(k.ctx, k.log); err != nil {
		t.Fatal(err)
	}
	r := snapshot.NewReader(node, folds, 0)
	r.Know(func(key protocol.Key) (snapshot.Origin, bool) {
		return snapshot.Origin{Agent: "a", Adapter: "jsonl", Title: "known"}, key == k.log.Key
	})
	now, err := r.Latest(k.ctx, k.log, 0)
	if err != nil || !now.Damaged || now.Seq != protocol.Seq(len(k.events)) || now.Fold.Adapter != "jsonl" ||
		!strings.Contains(string(now.State), `"title":"known"`) || !strings.Contains(string(now.State), `"status":"ended"`) {
		t.Errorf("now: %d, %v, %s", now.Seq, err, now.State)
	}
	for _, seq := range []protocol.Seq{floor - 1, floor, floor + 10} {
		at, err := r.At(k.ctx, k.log, seq)
		if err != nil || !at.Damaged || at.Seq != seq || at.Epoch != k.epochs[0] || at.Fold.Adapter != "jsonl" {
			t.Errorf("at %d: seq %d of %s, fold %v, damaged %t, %v", seq, at.Seq, at.Epoch, at.Fold, at.Damaged, err)
			continue
		}
		if s, err := snapshot.Decode(at.State); err != nil || s.Seq != seq || s.Epoch != at.Epoch || at.Hash != snapshot.Hash(at.State) {
			t.Errorf("state at %d: %s, %v", seq, at.State, err)
		}
	}
	if got := problems(t, k, r); !strings.Contains(got, "no checkpoint for the state at") {
		t.Errorf("problems: %q", got)
	}
	again, h := next(t, k, st, r)
	if !h.Lost {
		t.Error("the history is not said to be incomplete")
	}
	for range 6 {
		again.say(50)
		again.flush()
	}
	again.tell(sessionEnd)
	again.finish()
	fresh := snapshot.NewReader(node, folds, 0)
	if now, err := fresh.Latest(k.ctx, k.log, 0); err != nil || now.Damaged || now.Hash != snapshot.Hash(snapshot.Encode(again.state)) {
		t.Errorf("after the next run: damaged %t, %v", now.Damaged, err)
	}
	if got := problems(t, k, fresh); got != "" {
		t.Errorf("verify after the next run: %s", got)
	}
}

// TestCheckpointsTrimmedPast: a server that is killed between a trim and the
// removal of the checkpoints before it leaves them behind. They are no damage,
// whichever fold made them.
func TestCheckpointsTrimmedPast(t *testing.T) {
	one, two := counting{version: 1}, counting{version: 2}
	for name, c := range map[string]struct {
		second, verifies counting // the fold of the run that trims, and verify's
		compared         bool
	}{
		"one fold":                          {one, one, true},
		"left by another fold":              {two, two, true},
		"the log hangs on one of another's": {two, one, false},
	} {
		t.Run(name, func(t *testing.T) {
			node := newNode(t)
			st := prompt(t, node)
			k := begin(t, node, "s", st, one, snapshot.Retention{})
			for range 4 {
				k.say(50)
				k.flush()
			}
			k.tell(sessionEnd)
			k.finish()
			left := make(map[string][]byte)
			for _, name := range checkpoints(k) {
				left[name] = mustGet(t, k, []string{name}, "")
			}
			h, err := snapshot.NewReader(node, snapshot.Folds{"jsonl": c.second}, 0).Load(k.ctx, k.log, 0)
			if err != nil {
				t.Fatal(err)
			}
			k.open("", 0, `{"type":"session_resumed","run":2}`)
			again := keep(k.book, st, c.second, small, h)
			again.apply(&k.events[len(k.events)-1])
			for range 4 {
				again.say(50)
				again.flush()
			}
			again.tell(sessionEnd)
			again.finish()
			if floor, err := node.Floor(k.ctx, k.log); err != nil || floor < 210 || len(left) < 2 {
				t.Fatalf("floor %d, %v; %d checkpoints of the first run", floor, err, len(left))
			}
			for name, blob := range left {
				if err := node.Snaps().Put(k.ctx, k.log, name, blob); err != nil {
					t.Fatal(err)
				}
			}
			report, err := snapshot.NewReader(node, snapshot.Folds{"jsonl": c.verifies}, 0).Verify(k.ctx, k.log)
			if err != nil || len(report.Problems) > 0 || (report.Compared > 0) != c.compared {
				t.Errorf("verify: %+v, %v", report, err)
			}
		})
	}
}

// TestNoTrimInDoubt: as long as a kept checkpoint cannot be read, nothing is
// trimmed before two newer ones were stored and read back.
func TestNoTrimInDoubt(t *testing.T) {
	node := newNode(t)
	st := prompt(t, node)
	k, floor := trimmed(t, node, st)
	var seqs []int
	for _, name := range checkpoints(k) {
		n, err := strconv.Atoi(name)
		if err != nil {
			t.Fatal(err)
		}
		seqs = append(seqs, n)
	}
	slices.Sort(seqs)
	if err := node.Snaps().Put(k.ctx, k.log, strconv.Itoa(seqs[0]), []byte("x")); err != nil {
		t.Fatal(err)
	}
	again, h := next(t, k, st, snapshot.NewReader(node, folds, 0))
	if h.Lost {
		t.Error("nothing is lost yet")
	}
	again.say(40) // room for one checkpoint
	again.finish()
	if now, err := node.Floor(k.ctx, k.log); err != nil || now != floor || len(checkpoints(k)) != len(seqs)+1 {
		t.Errorf("floor %d before, %d after one new checkpoint (%v); checkpoints %v, %v", floor, now, err, seqs, checkpoints(k))
	}
	again, _ = next(t, k, st, snapshot.NewReader(node, folds, 0))
	for range 4 {
		again.say(50)
		again.flush()
	}
	again.tell(sessionEnd)
	again.finish()
	if now, err := node.Floor(k.ctx, k.log); err != nil || now <= floor {
		t.Errorf("floor %d after the run, %v", now, err)
	}
	if got := problems(t, k, snapshot.NewReader(node, folds, 0)); got != "" {
		t.Errorf("verify after the run: %s", got)
	}
}

// TestLostLedgerPage: a page of the ledger is gone. With a complete log it is made
// anew; with a trimmed one its ids are unknown, the others are not, and verify says so.
func TestLostLedgerPage(t *testing.T) {
	for name, retention := range map[string]snapshot.Retention{"whole": {}, "trimmed": small, "late": small} {
		t.Run(name, func(t *testing.T) {
			node := newNode(t)
			st := prompt(t, node)
			k := begin(t, node, "s", st, jsonl.Adapter{}, retention)
			damage := func() {
				if err := node.Snaps().Put(k.ctx, k.log, "l0", []byte("x")); err != nil {
					t.Fatal(err)
				}
			}
			for i := range 600 { // two pages and a part of one
				k.tell(fmt.Sprintf(brokerBodies[1], i))
				if i%20 == 0 {
					k.flush()
				}
			}
			k.tell(sessionEnd)
			k.finish()
			r := snapshot.NewReader(node, folds, 0)
			if name != "late" {
				damage()
				if got := problems(t, k, r); !strings.Contains(got, "ledger page 0") {
					t.Errorf("problems: %q", got)
				}
			}
			again, h := next(t, k, st, r)
			if name == "late" { // the owner has read it
				damage()
			}
			lost := name == "trimmed"
			_, first := h.Ledger.Lookup("c0")
			_, last := h.Ledger.Lookup("c599")
			_, second := h.Ledger.Lookup("c300")
			if h.Lost != lost || first == lost || !second || !last {
				t.Errorf("lost %t; known: c0 %t, c300 %t, c599 %t", h.Lost, first, second, last)
			}
			for range 5 {
				again.say(50)
				again.flush()
			}
			again.tell(sessionEnd)
			again.finish()
			fresh := snapshot.NewReader(node, folds, 0)
			if got := problems(t, k, fresh); got != "" {
				t.Errorf("verify after the next run: %s", got)
			}
			h2, err := fresh.Load(k.ctx, k.log, 0)
			if err != nil || h2.Lost || h2.Ledger.Len() != h.Ledger.Len() {
				t.Errorf("after the next run: %d commands of %d, %v", h2.Ledger.Len(), h.Ledger.Len(), err)
			}
		})
	}
}

// TestStateBeforeTheFirstEvent is of the session's epoch and fold.
func TestStateBeforeTheFirstEvent(t *testing.T) {
	node := newNode(t)
	b := newBook(t, node, "s")
	b.open(protocol.NewEpoch(time.Now()), 0, start)
	b.add(protocol.SourceChild, `{}`)
	b.flush()
	r := snapshot.NewReader(node, folds, 0)
	for range 2 { // the second one is kept
		s, err := r.At(b.ctx, b.log, 0)
		if err != nil || s.Seq != 0 || s.Epoch != b.epochs[0] || s.Fold != folds.VersionOf("jsonl") || s.Hash != snapshot.Hash(s.State) {
			t.Errorf("state at 0: %+v, %v", s, err)
		}
	}
}

// TestRetentionHolds at the end of a run and when a session is idle, whatever
// burst came before.
func TestRetentionHolds(t *testing.T) {
	for name, r := range map[string]snapshot.Retention{"events": {MaxEvents: 20}, "bytes": {MaxBytes: 4 << 10}} {
		t.Run(name, func(t *testing.T) {
			node := newNode(t)
			st := snapshot.NewStore(node, folds, nil, snapshot.StoreConfig{Soonest: time.Hour, IdleAfter: 50 * time.Millisecond})
			k := begin(t, node, "s", st, jsonl.Adapter{}, r)
			within := func() (bool, string) {
				floor, err := node.Floor(k.ctx, k.log)
				if err != nil {
					t.Fatal(err)
				}
				events, bytes := uint64(0), int64(0)
				for _, e := range k.events[floor-1:] {
					events, bytes = events+1, bytes+int64(len(e.Body))
				}
				return (r.MaxEvents == 0 || events <= r.MaxEvents) && (r.MaxBytes == 0 || bytes <= r.MaxBytes), fmt.Sprint(events, " events, ", bytes, " bytes")
			}
			// The first checkpoint of a run is due at once, none after it.
			k.say(700)
			k.flush()
			harness.Eventually(t, "an idle session is within its retention", func() bool { ok, _ := within(); return ok })
			k.say(700)
			k.tell(sessionEnd)
			k.finish()
			if ok, what := within(); !ok {
				t.Errorf("after the end: %s are kept", what)
			}
			if got := problems(t, k, snapshot.NewReader(node, folds, 0)); got != "" {
				t.Errorf("verify: %s", got)
			}
		})
	}
}

// TestHole: a part of the log is missing between others. Folds go over it and say
// so, watches lead across it, verify names it.
func TestHole(t *testing.T) {
	dir := t.TempDir()
	start := func() *journal.Node {
		node, err := journal.Start(harness.Context(t), journal.Config{Dir: dir, MaxBytes: 112 << 10, Shards: 1})
		if err != nil {
			t.Fatal(err)
		}
		return node
	}
	stop := func(node *journal.Node) {
		ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
		defer cancel()
		if err := node.Close(ctx); err != nil {
			t.Errorf("close the journal: %v", err)
		}
	}
	node := start()
	b := newBook(t, node, "s")
	b.open(protocol.NewEpoch(time.Now()), 0, startLine)
	for range 17 {
		for range 10 {
			b.add(protocol.SourceChild, fmt.Sprintf(`{"pad":%q}`, randomText(500)))
		}
		b.flush()
	}
	b.close()
	stop(node)

	msgs := filepath.Join(dir, "jetstream", "$G", "streams", "J0", "msgs")
	if _, err := os.Stat(filepath.Join(msgs, "3.blk")); err != nil {
		t.Fatalf("the log has too few blocks: %v", err)
	}
	for _, name := range []string{"2.blk", "index.db"} {
		if err := os.Remove(filepath.Join(msgs, name)); err != nil {
			t.Fatal(err)
		}
	}
	node = start()
	defer stop(node)
	b.node = node
	r := snapshot.NewReader(node, folds, 0)
	now, err := r.Latest(b.ctx, b.log, 0)
	if err != nil || !now.Damaged || now.Seq != protocol.Seq(len(b.events)) {
		t.Errorf("now: %d, damaged %t, %v", now.Seq, now.Damaged, err)
	}
	if at, err := r.At(b.ctx, b.log, 5); err != nil || at.Damaged || at.Seq != 5 {
		t.Errorf("before the hole: damaged %t, %v", at.Damaged, err)
	}
	report, err := r.Verify(b.ctx, b.log)
	if err != nil || len(report.Problems) != 1 || !strings.Contains(report.Problems[0], " are missing: journal: damaged: default/s at seq ") || report.Head != now.Seq {
		t.Errorf("verify: %+v, %v", report, err)
	}
	w, err := node.Hub().Watch(b.ctx, b.log)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Release()
	at := protocol.Cursor{Epoch: b.epochs[0]}
	damaged := false
	harness.Eventually(t, "the head", func() bool {
		_, last, status := w.Pull(nil, nil, at, 0, 64<<10, 0)
		at.Seq = last
		if status == journal.PullDamaged {
			damaged = true
			at.Seq = now.Seq // as a snapshot leads there
		}
		return at.Seq == now.Seq && status == journal.PullIdle
	})
	if !damaged {
		t.Error("the watch did not tell of the hole")
	}
	// The owner goes on.
	h, err := r.Load(b.ctx, b.log, 0)
	if err != nil || !h.Lost {
		t.Fatalf("load: %v", err)
	}
	b.open("", 0, `{"type":"session_resumed","run":2}`)
	b.close()
	if s, err := snapshot.NewReader(node, folds, 0).Latest(b.ctx, b.log, 0); err != nil || s.Seq != now.Seq+1 {
		t.Errorf("after the next run: %v", err)
	}
}

const startLine = start

var textSource = uint64(1)

// randomText does not compress.
func randomText(n int) string {
	b := make([]byte, n)
	for i := range b {
		textSource = textSource*6364136223846793005 + 1442695040888963407
		b[i] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-"[textSource>>58]
	}
	return string(b)
}
