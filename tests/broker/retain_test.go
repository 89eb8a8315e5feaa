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

// TestTrimComesBack: what the registry says is trimmed, or deleted, is in the logs
// again, as where the marks of a trim and of a purge were in the end of a block
// that was cut after a kill. The start removes it again, and nothing else.
func TestTrimComesBack(t *testing.T) {
	w := newWorld(t)
	w.start(true)
	ids := map[string]string{}
	for _, name := range []string{"trimmed", "whole", "deleted"} {
		id := w.startSession(broker.StartParams{}).ID
		for range 9 {
			w.worker.print(w.ctx, key(id), `{}`)
		}
		w.worker.exit(w.ctx, key(id), protocol.SessionEnd{Type: protocol.TypeSessionEnd, Reason: protocol.EndExited, ExitCode: ptr(0)})
		ids[name] = id
	}
	edit := func(id string, f func(*protocol.SessionRecord)) {
		if err := w.broker.Registry().Update(w.ctx, key(id), 1, f); err != nil {
			t.Fatal(err)
		}
	}
	edit(ids["trimmed"], func(r *protocol.SessionRecord) { r.Floor = 7 })
	edit(ids["deleted"], func(r *protocol.SessionRecord) { r.Deleted, r.Status = true, protocol.StatusEnded })
	w.kill()
	w.boot()
	if len(w.node.Damage()) > 0 {
		t.Fatalf("damage: %v", w.node.Damage())
	}
	if err := w.broker.Recover(w.ctx); err != nil {
		t.Fatal(err)
	}
	logs, err := w.node.Logs(w.ctx)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]uint64{"trimmed": 5, "whole": 11, "deleted": 1} {
		if got := logs[w.log(ids[name])]; got != want {
			t.Errorf("%s: %d records, want %d", name, got, want)
		}
	}
	for name, want := range map[string]protocol.Seq{"trimmed": 7, "whole": 1} {
		floor, err := w.node.Floor(w.ctx, w.log(ids[name]))
		if told := w.info(ids[name]); err != nil || floor != want || told.Floor != want || told.Head != 11 {
			t.Errorf("%s begins at %d, %v; clients are told %d to %d", name, floor, err, told.Floor, told.Head)
		}
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
