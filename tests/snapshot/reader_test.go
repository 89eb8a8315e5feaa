package snapshot_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"rejoin/agent/jsonl"
	"rejoin/journal"
	"rejoin/protocol"
	"rejoin/snapshot"
	"rejoin/tests/harness"
)

var folds = snapshot.Folds{"jsonl": jsonl.Adapter{}}

// book is a log under test, with the events it should hold.
type book struct {
	tb     testing.TB
	ctx    context.Context
	node   *journal.Node
	log    journal.Log
	w      *journal.Writer
	run    protocol.Run
	events []protocol.Event
	epochs []protocol.Epoch // of events
}

func newNode(tb testing.TB) *journal.Node {
	tb.Helper()
	node, err := journal.Start(harness.Context(tb), journal.Config{
		Dir: tb.TempDir(), MaxBytes: 256 << 20,
	})
	if err != nil {
		tb.Fatalf("journal: %v", err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
		defer cancel()
		if err := node.Close(ctx); err != nil {
			tb.Errorf("close the journal: %v", err)
		}
	})
	return node
}

func newBook(tb testing.TB, node *journal.Node, id string) *book {
	tb.Helper()
	k := protocol.Key{Workspace: "default", Session: id}
	b := &book{tb: tb, ctx: harness.Context(tb), node: node, log: journal.Log{Key: k, Shard: node.ShardOf(k)}}
	tb.Cleanup(func() { b.close() })
	return b
}

func (b *book) close() {
	if b.w == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	defer cancel()
	if err := b.w.Close(ctx); err != nil {
		b.tb.Errorf("close writer: %v", err)
	}
	b.w = nil
}

// open takes the log over by the next run; epoch "" continues.
func (b *book) open(epoch protocol.Epoch, minHead protocol.Seq, bodies ...string) {
	b.tb.Helper()
	b.close()
	b.run++
	var first []*protocol.Event
	w, err := b.node.OpenWriter(b.ctx, journal.WriterConfig{
		Log: b.log, Run: b.run, Epoch: epoch, MinHead: minHead,
		First: func(_ context.Context, _ journal.Tail, base protocol.Seq) ([]*protocol.Event, error) {
			first = nil
			for i, body := range bodies {
				first = append(first, &protocol.Event{Seq: base + protocol.Seq(i), TS: 1, Run: b.run, Source: protocol.SourceBroker, Body: []byte(body)})
			}
			return first, nil
		},
		Deleted: func(context.Context) (bool, error) { return false, nil },
	})
	if err != nil {
		b.tb.Fatalf("open writer: %v", err)
	}
	b.w = w
	for _, e := range first {
		b.note(e)
	}
}

func (b *book) note(e *protocol.Event) {
	b.events = append(b.events, *e)
	b.epochs = append(b.epochs, b.w.Epoch())
}

func (b *book) add(source protocol.Source, body string) {
	b.tb.Helper()
	e := &protocol.Event{TS: 1, Run: b.run, Source: source, Body: []byte(body)}
	seq, err := b.w.Append(e, nil)
	if err != nil {
		b.tb.Fatalf("append: %v", err)
	}
	e.Seq = seq
	b.note(e)
}

func (b *book) flush() {
	b.tb.Helper()
	if err := b.w.Flush(b.ctx); err != nil {
		b.tb.Fatalf("flush: %v", err)
	}
}

// want folds the events up to n without a log.
func (b *book) want(n int) (*protocol.State, *snapshot.Ledger) {
	s, l := snapshot.New(b.log.Key.Session), snapshot.NewLedger()
	for i := range n {
		folds.Apply(s, b.epochs[i], &b.events[i])
		l.Apply(&b.events[i])
	}
	return s, l
}

func (b *book) check(r *snapshot.Reader) {
	b.tb.Helper()
	got, err := r.Latest(b.ctx, b.log, 0)
	if err != nil {
		b.tb.Fatalf("Latest: %v", err)
	}
	s, _ := b.want(len(b.events))
	want := folds.Take(s)
	if got.Hash != want.Hash || got.Seq != want.Seq || got.Epoch != want.Epoch || got.Fold != want.Fold {
		b.tb.Fatalf("Latest\n got %s\nwant %s", got.State, want.State)
	}
	if snapshot.Hash(got.State) != got.Hash {
		b.tb.Fatal("the hash is not that of the state")
	}
}

const start = `{"type":"session_start","agent":"a","adapter":"jsonl","pid":1,"run":1,"title":"t"}`

var brokerBodies = []string{
	`{"type":"session_title","title":"é %d"}`,
	`{"type":"command","commandId":"c%d","client":{"name":"n","connection":1},"command":%[1]d}`,
	`{"type":"command_outcome","commandId":"c%d","outcome":"done"}`,
	`{"type":"error","error":"x","text":"%d"}`,
}

// TestLatest: after whatever is appended, and whether it was asked before or
// not, Latest is the fold of the whole log.
// Proves I-S3 (the state's part).
func TestLatest(t *testing.T) {
	node := newNode(t)
	warm := snapshot.NewReader(node, folds, 2)
	rnd := rand.New(rand.NewPCG(3, 4))
	books := []*book{newBook(t, node, "s0"), newBook(t, node, "s1"), newBook(t, node, "s2")}
	for _, b := range books {
		b.open(protocol.NewEpoch(time.Now()), 0, start)
	}
	for range 40 {
		b := books[rnd.IntN(len(books))] // three logs, two of them kept
		for range rnd.IntN(30) {
			if rnd.IntN(3) > 0 {
				b.add(protocol.SourceChild, `{"type":"session_end"}`)
			} else {
				b.add(protocol.SourceBroker, fmt.Sprintf(brokerBodies[rnd.IntN(len(brokerBodies))], rnd.IntN(20)))
			}
		}
		if rnd.IntN(8) == 0 {
			b.open("", 0, `{"type":"session_interrupted","reason":"server_restart"}`, `{"type":"session_title","title":"x"}`)
		}
		b.flush()
		b.check(warm)
	}
	for _, b := range books {
		b.check(snapshot.NewReader(node, folds, 0))
	}
}

func TestLatestOfEmptyLog(t *testing.T) {
	node := newNode(t)
	b := newBook(t, node, "none")
	b.check(snapshot.NewReader(node, folds, 0))
}

// TestEpochs: the fold goes on over an epoch's end, with a hole between.
func TestEpochs(t *testing.T) {
	node := newNode(t)
	r := snapshot.NewReader(node, folds, 0)
	b := newBook(t, node, "s")
	b.open(protocol.NewEpoch(time.Now()), 0, start)
	b.add(protocol.SourceBroker, fmt.Sprintf(brokerBodies[1], 7))
	b.flush()
	b.check(r)
	b.open(protocol.NewEpoch(time.Now()), 20, `{"type":"epoch_start","previousEpoch":"x","previousHead":20,"reason":"unclean_boot"}`)
	b.check(r)
	b.add(protocol.SourceChild, `1`)
	b.flush()
	b.check(r)
	b.check(snapshot.NewReader(node, folds, 0))
	h, err := r.Load(b.ctx, b.log, 0)
	if err != nil {
		t.Fatal(err)
	}
	if a, ok := h.Ledger.Lookup("c7"); !ok || a.Seq != 2 || h.State.Seq != 22 || h.State.Agent.Name != "a" {
		t.Errorf("history: %+v, %+v", a, h.State)
	}
}

// TestLoad: state and ledger as of every seq.
func TestLoad(t *testing.T) {
	node := newNode(t)
	r := snapshot.NewReader(node, folds, 0)
	b := newBook(t, node, "s")
	b.open(protocol.NewEpoch(time.Now()), 0, start)
	for i := range 40 {
		b.add(protocol.SourceBroker, fmt.Sprintf(brokerBodies[i%len(brokerBodies)], i/len(brokerBodies)))
		b.add(protocol.SourceChild, `{}`)
	}
	b.flush()
	for n := 1; n <= len(b.events); n++ {
		h, err := r.Load(b.ctx, b.log, protocol.Seq(n))
		if err != nil {
			t.Fatal(err)
		}
		s, l := b.want(n)
		if got, want := string(snapshot.Encode(h.State)), string(snapshot.Encode(s)); got != want || !sameLedger(h.Ledger, l, len(b.events)) {
			t.Fatalf("at %d\n got %s\nwant %s", n, got, want)
		}
	}
}

// sameLedger compares what two ledgers know of the commands of brokerBodies.
func sameLedger(a, b *snapshot.Ledger, n int) bool {
	if a.Len() != b.Len() || !slices.Equal(a.Open(), b.Open()) {
		return false
	}
	for i := range n {
		x, okX := a.Lookup(fmt.Sprintf("c%d", i))
		y, okY := b.Lookup(fmt.Sprintf("c%d", i))
		if okX != okY || x.Hash != y.Hash || x.Seq != y.Seq || x.Outcome != y.Outcome || string(x.Result) != string(y.Result) {
			return false
		}
	}
	return true
}

// TestLatestTogether: many callers at once each get at least what was durable
// before they asked.
func TestLatestTogether(t *testing.T) {
	node := newNode(t)
	r := snapshot.NewReader(node, folds, 0)
	b := newBook(t, node, "s")
	b.open(protocol.NewEpoch(time.Now()), 0, start)
	for range 5 {
		for range 200 {
			b.add(protocol.SourceChild, `{"n":1}`)
		}
		b.flush()
		durable := b.w.Durable()
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				if s, err := r.Latest(b.ctx, b.log, durable); err != nil || s.Seq < durable {
					t.Errorf("seq %d of %d, %v", s.Seq, durable, err)
				}
			})
		}
		wg.Wait()
	}
	if _, err := r.Latest(b.ctx, b.log, b.w.Durable()+1); !errors.Is(err, journal.ErrUnavailable) {
		t.Errorf("beyond the log: %v", err)
	}
	ended, cancel := context.WithCancel(b.ctx)
	cancel()
	if _, err := r.Latest(ended, b.log, 0); err == nil {
		t.Error("no error with an ended context")
	}
	b.check(r)
}

func BenchmarkLatest(b *testing.B) {
	node := newNode(b)
	k := newBook(b, node, "s")
	k.open(protocol.NewEpoch(time.Now()), 0, start)
	for range 10000 {
		k.add(protocol.SourceChild, `{"type":"message_update","text":"some text of an agent that streams its answer"}`)
	}
	k.flush()
	b.Run("cold10k", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := snapshot.NewReader(node, folds, 0).Latest(k.ctx, k.log, 0); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("warm", func(b *testing.B) {
		r := snapshot.NewReader(node, folds, 0)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := r.Latest(k.ctx, k.log, 0); err != nil {
				b.Fatal(err)
			}
		}
	})
}
