package broker_test

import (
	"fmt"
	"testing"
	"time"

	"rejoin/broker"
	"rejoin/protocol"
	"rejoin/snapshot"
	"rejoin/tests/harness"
)

// The log of a session that has ended is trimmed when its events are old
// enough, and what clients are told of its floor follows.
func TestRetainEndedSessions(t *testing.T) {
	w := newWorld(t)
	var store *snapshot.Store
	kept := snapshot.Retention{MaxAge: time.Hour}
	w.more = func(c *broker.Config) {
		later := func() time.Time { return time.Now().Add(3 * time.Hour) }
		store = snapshot.NewStore(w.node, testFolds, nil, snapshot.StoreConfig{EveryEvents: 50, Now: later})
		c.Checkpoints, c.Retention, c.RetainEvery = store, kept, 20*time.Millisecond
	}
	w.start(true)
	s := w.startSession(broker.StartParams{})
	w.keep(store, s.ID, 300)
	w.worker.exit(w.ctx, key(s.ID), protocol.SessionEnd{Type: protocol.TypeSessionEnd, Reason: protocol.EndExited, ExitCode: ptr(0)})
	harness.Eventually(t, "the log is trimmed", func() bool { return w.info(s.ID).Floor > 1 })
	floor, err := w.node.Floor(w.ctx, w.log(s.ID))
	if told := w.info(s.ID).Floor; err != nil || told != floor {
		t.Errorf("the log begins at %d (%v), clients are told %d", floor, err, told)
	}
	if _, err := w.folds.At(w.ctx, w.log(s.ID), floor-1); err != nil {
		t.Errorf("state before the floor: %v", err)
	}
}

// keep prints n lines of a session and checkpoints it as its owner does, under
// a retention that trims nothing.
func (w *world) keep(store *snapshot.Store, id string, n int) {
	w.tb.Helper()
	h, err := w.folds.Load(w.ctx, w.log(id), 0)
	if err != nil {
		w.tb.Fatal(err)
	}
	writer := w.worker.session(key(id)).w
	k := store.Keep(w.log(id), writer, nil, snapshot.Retention{MaxAge: 1000 * time.Hour}, h.Bytes)
	for i := range n {
		e := &protocol.Event{Run: 1, Source: protocol.SourceChild, Body: fmt.Appendf(nil, `{"n":%d}`, i)}
		if _, err := writer.Append(e, nil); err != nil {
			w.tb.Fatal(err)
		}
		snapshot.Apply(nil, h.State, writer.Epoch(), e)
		k.Applied(h.State, h.Ledger, e)
		if err := writer.Flush(w.ctx); err != nil {
			w.tb.Fatal(err)
		}
	}
	if err := k.Close(w.ctx); err != nil {
		w.tb.Fatal(err)
	}
}
