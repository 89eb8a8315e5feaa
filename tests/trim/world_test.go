package trim_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"rejoin/agent"
	"rejoin/journal"
	"rejoin/protocol"
	"rejoin/snapshot"
	"rejoin/tests/harness"
)

// chained is an adapter whose state depends on every event so far, and on their
// order: no two prefixes of a log fold to the same.
type chained struct {
	agent.Adapter
	version int
}

func (chained) Name() string       { return "chained" }
func (c chained) FoldVersion() int { return c.version }

func (c chained) Fold(s *protocol.State, e *protocol.Event) {
	if s.Extra == nil {
		s.Extra = &protocol.StateExtra{}
	}
	sum := sha256.Sum256(append([]byte(s.Extra.AgentSession), e.Body...))
	s.Extra.AgentSession = hex.EncodeToString(sum[:])
	s.ItemsDropped += uint64(c.version)
	switch {
	case strings.Contains(string(e.Body), "begin"):
		agent.BeginTurn(s, e)
	case strings.Contains(string(e.Body), "end"):
		agent.EndTurn(s, e, func(string) bool { return false })
	}
}

func (chained) Settle(*protocol.State, *protocol.Event) {}

var folds = snapshot.Folds{"chained": chained{version: 1}}

func newNode(tb testing.TB, dir string) *journal.Node {
	tb.Helper()
	node, err := journal.Start(harness.Context(tb), journal.Config{
		Dir: dir, Durability: journal.Durability{Interval: 500 * time.Millisecond}, MaxBytes: 512 << 20,
		Logger: slog.New(slog.NewTextHandler(tb.Output(), nil)),
	})
	if err != nil {
		tb.Fatalf("journal: %v", err)
	}
	tb.Cleanup(func() { closeNode(tb, node) })
	return node
}

func closeNode(tb testing.TB, node *journal.Node) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	defer cancel()
	if err := node.Close(ctx); err != nil {
		tb.Errorf("close the journal: %v", err)
	}
}

// eager takes checkpoints often and trims at once.
func eager(tb testing.TB, node *journal.Node, f snapshot.Folds) *snapshot.Store {
	tb.Helper()
	return snapshot.NewStore(node, f, slog.New(slog.NewTextHandler(tb.Output(), nil)), snapshot.StoreConfig{
		EveryEvents: 150, TurnEvents: 40, Soonest: time.Millisecond, TrimPause: time.Millisecond,
	})
}

// owner is a session's owner: it does what a worker does with an event.
type owner struct {
	tb   testing.TB
	ctx  context.Context
	node *journal.Node
	log  journal.Log
	run  protocol.Run

	mu     sync.Mutex
	state  *protocol.State
	ledger *snapshot.Ledger
	w      *journal.Writer
	keeper *snapshot.Keeper
	table  snapshot.Folds
	bodies map[protocol.Seq]string
	hashes map[protocol.Seq]string // of the state at each seq
}

func newOwner(tb testing.TB, node *journal.Node, id string) *owner {
	tb.Helper()
	k := protocol.Key{Workspace: "default", Session: id}
	return &owner{
		tb: tb, ctx: harness.Context(tb), node: node, log: journal.Log{Key: k, Shard: node.ShardOf(k)}, table: folds,
		bodies: make(map[protocol.Seq]string), hashes: map[protocol.Seq]string{0: hash(snapshot.New(id))},
	}
}

func hash(s *protocol.State) string { return snapshot.Hash(snapshot.Encode(s)) }

const (
	startBody   = `{"type":"session_start","agent":"a","adapter":"chained","pid":1,"run":1}`
	resumedBody = `{"type":"session_resumed","run":2}`
	endBody     = `{"type":"session_end","reason":"exited","exitCode":0,"signal":null}`
)

// open begins the next run, from what the log says.
func (o *owner) open(st *snapshot.Store, r snapshot.Retention) {
	o.tb.Helper()
	o.run++
	h := snapshot.NewHistory(o.log.Key.Session)
	first, epoch := startBody, protocol.NewEpoch(time.Now())
	if o.run > 1 {
		var err error
		if h, err = snapshot.NewReader(o.node, o.table, 0).Load(o.ctx, o.log, 0); err != nil {
			o.tb.Fatalf("load: %v", err)
		}
		if got := hash(h.State); h.From == nil && got != o.hash(h.State.Seq) {
			o.tb.Fatalf("the state at %d that a run continues is not the one that was", h.State.Seq)
		}
		first, epoch = resumedBody, ""
	}
	var e *protocol.Event
	w, err := o.node.OpenWriter(o.ctx, journal.WriterConfig{
		Log: o.log, Run: o.run, Epoch: epoch,
		First: func(_ context.Context, _ journal.Tail, base protocol.Seq) ([]*protocol.Event, error) {
			e = &protocol.Event{Seq: base, TS: time.Now().UnixMilli(), Run: o.run, Source: protocol.SourceBroker, Body: []byte(first)}
			o.mu.Lock()
			defer o.mu.Unlock()
			o.bodies[base] = first // readers see it before open returns
			return []*protocol.Event{e}, nil
		},
		Deleted: func(context.Context) (bool, error) { return false, nil },
	})
	if err != nil {
		o.tb.Fatalf("open writer: %v", err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.state, o.ledger, o.w = h.State, h.Ledger, w
	o.keeper = st.Keep(o.log, w, o.table["chained"], r, h.Bytes)
	o.apply(e)
}

// apply folds an event. Mu is held.
func (o *owner) apply(e *protocol.Event) {
	snapshot.Apply(o.table["chained"], o.state, o.w.Epoch(), e)
	o.ledger.Apply(e)
	o.bodies[e.Seq], o.hashes[e.Seq] = string(e.Body), hash(o.state)
	o.keeper.Applied(o.state, o.ledger, e)
}

func (o *owner) add(source protocol.Source, body string) {
	o.tb.Helper()
	if err := o.w.WaitRoom(o.ctx); err != nil {
		o.tb.Errorf("wait for room: %v", err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	e := &protocol.Event{Seq: o.w.Head() + 1, TS: time.Now().UnixMilli(), Run: o.run, Source: source, Body: []byte(body)}
	o.apply(e)
	if _, err := o.w.Append(e, nil); err != nil {
		o.tb.Errorf("append: %v", err)
	}
}

// end ends the run in order.
func (o *owner) end() {
	o.tb.Helper()
	o.add(protocol.SourceBroker, endBody)
	o.stop()
}

// stop leaves the run as a crash would: no end event.
func (o *owner) stop() {
	o.tb.Helper()
	if err := o.keeper.Close(o.ctx); err != nil {
		o.tb.Errorf("close keeper: %v", err)
	}
	if err := o.w.Close(o.ctx); err != nil {
		o.tb.Errorf("close writer: %v", err)
	}
}

func (o *owner) hash(seq protocol.Seq) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.hashes[seq]
}

func (o *owner) body(seq protocol.Seq) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.bodies[seq]
}

func (o *owner) floor() protocol.Seq {
	o.tb.Helper()
	floor, err := o.node.Floor(o.ctx, o.log)
	if err != nil {
		o.tb.Errorf("floor: %v", err)
	}
	return floor
}

func command(id string) string {
	return fmt.Sprintf(`{"type":"command","commandId":%q,"client":{"name":"n","connection":1},"command":{"say":%q}}`, id, id)
}

func outcome(id string) string {
	return fmt.Sprintf(`{"type":"command_outcome","commandId":%q,"outcome":"done","result":{"of":%q}}`, id, id)
}
