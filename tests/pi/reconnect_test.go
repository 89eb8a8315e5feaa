package pi_test

import (
	"testing"

	"rejoin/agent/pi"
	"rejoin/protocol"
	folding "rejoin/snapshot"
	"rejoin/tests/harness"
	"rejoin/tests/mockmodel"
)

// folded is a client that folds what it receives, as a client of any kind may.
type folded struct{ s *protocol.State }

func (f *folded) apply(events ...harness.Event) {
	for _, e := range events {
		source := protocol.SourceChild
		if e.Source == protocol.SourceBroker.String() {
			source = protocol.SourceBroker
		}
		folding.Apply(pi.Adapter{}, f.s, protocol.Epoch(e.Epoch), &protocol.Event{
			Seq: protocol.Seq(e.Seq), TS: e.TS, Run: protocol.Run(e.Run), Source: source, CommandID: e.CommandID, Body: e.Body,
		})
	}
}

func (f *folded) hash() string { return folding.Hash(folding.Encode(f.s)) }

// A client whose link drops in the middle of a sentence comes back with its
// cursor, one that knows nothing comes with a snapshot: both end where the
// server is, hash for hash.
func TestReconnectInTheMiddle(t *testing.T) {
	w := newWorld(t, options{})
	middle, end := mockmodel.NewGate(), mockmodel.NewGate()
	w.model.On("talk", mockmodel.Steps(mockmodel.Text("one two "), mockmodel.Hold(middle), mockmodel.Text("three "), mockmodel.Hold(end), mockmodel.Text("four")))
	c := w.start()
	stays := &folded{folding.New(c.session)}
	phone := w.join(c.session, map[string]any{"after": 0})
	roams := &folded{folding.New(c.session)}
	c.prompt("talk")
	phone.await("half of it", said("two "))
	roams.apply(phone.seen...)
	epoch, seq := phone.stream.Cursor()
	if err := phone.Close(); err != nil {
		t.Fatal(err)
	}
	middle.Open() // what comes now the phone does not hear
	at, _ := c.await("the third word", said("three "))
	phone = w.join(c.session, map[string]any{"after": seq, "epoch": epoch})
	if a := phone.stream.Attached(); a.Mode != "replay" {
		t.Errorf("the phone came back by %s", a.Mode)
	}
	late := w.join(c.session, map[string]any{"from": "snapshot"})
	snap, err := late.stream.Snapshot(harness.Context(t), 0)
	if err != nil {
		t.Fatal(err)
	}
	s, err := folding.Decode(snap.State)
	if err != nil {
		t.Fatal(err)
	}
	joins := &folded{s}
	if joins.hash() != snap.StateHash || snap.Seq < at.Seq {
		t.Errorf("the snapshot at %d has hash %s", snap.Seq, snap.StateHash)
	}
	end.Open()
	last, _ := c.await("the end", settled)
	stays.apply(c.seen...)
	for name, k := range map[string]*client{"the phone": phone, "the late one": late} {
		e, _ := k.await("the end", settled)
		f := map[string]*folded{"the phone": roams, "the late one": joins}[name]
		f.apply(k.seen...)
		got := k.snapshot(e.Seq)
		if e.Seq != last.Seq || got.StateHash != f.hash() || got.StateHash != stays.hash() || folding.Hash(got.State) != got.StateHash {
			t.Errorf("%s is at %d with %s, the server at %d with %s", name, e.Seq, f.hash(), last.Seq, got.StateHash)
		}
		k.transcript(e.Seq, `user done: "talk"`, `assistant done: "one two three four"`, "idle")
	}
}
