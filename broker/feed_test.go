package broker

import (
	"fmt"
	"slices"
	"testing"

	"rejoin/protocol"
)

type countingWatcher struct{ changes, heads int }

func (w *countingWatcher) Wake()      { w.changes++ }
func (w *countingWatcher) WakeHeads() { w.heads++ }

func TestFeedTellsTheNewest(t *testing.T) {
	recs := map[string]*protocol.SessionRecord{}
	f := newFeed(func(s string) *protocol.SessionRecord { return recs[s] })
	var w countingWatcher
	c := f.Add(&w)
	set := func(id string, change func(*protocol.SessionRecord)) {
		rec := &protocol.SessionRecord{ID: id, Run: 1, Status: protocol.StatusStarting}
		if old := recs[id]; old != nil {
			*rec = *old
		}
		change(rec)
		recs[id] = rec
		f.look(id)
	}
	hear := func(id string, run protocol.Run, status protocol.Status, head protocol.Seq) {
		f.hear(protocol.SessionInfo{ID: id, Run: run, Status: status, State: status.State(), Head: head})
	}
	take := func() (out []string) {
		for more := true; more; {
			var list []Change
			list, more = f.Changes(&c, 1)
			for _, ch := range list {
				out = append(out, fmt.Sprintf("%s %s %d removed=%v", ch.ID, ch.Info.Status, ch.Info.Head, ch.Removed))
			}
		}
		return out
	}
	want := func(what string, want ...string) {
		t.Helper()
		if got := take(); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", what, got, want)
		}
	}
	set("a", func(*protocol.SessionRecord) {})
	want("an unborn session is not shown")
	set("a", func(r *protocol.SessionRecord) { r.Status, r.PID = protocol.StatusIdle, 7 })
	set("b", func(r *protocol.SessionRecord) { r.Status = protocol.StatusIdle })
	hear("a", 1, protocol.StatusBusy, 5)
	want("the newest of each, in the order of their last change", "b idle 0 removed=false", "a busy 5 removed=false")
	hear("a", 1, protocol.StatusIdle, 4)
	want("an overtaken word is not believed")
	before := w
	hear("a", 1, protocol.StatusBusy, 9)
	if want("a head alone is no change"); w.heads != before.heads+1 || w.changes != before.changes {
		t.Errorf("woken %+v, before %+v", w, before)
	}
	if heads, more := f.Heads(&c, 9); len(heads) != 1 || more || heads[0].Info.Head != 9 {
		t.Errorf("heads %+v", heads)
	}
	if heads, _ := f.Heads(&c, 9); len(heads) != 0 {
		t.Errorf("heads again %+v", heads)
	}
	set("a", func(r *protocol.SessionRecord) { r.Floor = 3 })
	want("a floor is told", "a busy 9 removed=false")
	set("a", func(r *protocol.SessionRecord) { r.Status, r.Head = protocol.StatusEnded, 12 })
	hear("a", 1, protocol.StatusBusy, 10)
	want("an ended run has no owner to believe", "a ended 12 removed=false")
	set("a", func(r *protocol.SessionRecord) { r.Status, r.Run = protocol.StatusStarting, 2 })
	hear("a", 1, protocol.StatusBusy, 10)
	want("an earlier run is not believed", "a starting 12 removed=false")
	set("a", func(r *protocol.SessionRecord) { r.Deleting = true })
	set("a", func(r *protocol.SessionRecord) { r.Deleting, r.Deleted = false, true })
	want("removed once", "a  0 removed=true")
	f.Remove(&w)
	before = w
	set("b", func(r *protocol.SessionRecord) { r.Title = "t" })
	if w != before || f.watched() {
		t.Error("a watcher that left is woken")
	}
}
