package model

import (
	"fmt"

	"rejoin/agent/demo"
	"rejoin/agent/jsonl"
	"rejoin/agent/lines"
	"rejoin/agent/pi"
	"rejoin/agent/rpi"
	"rejoin/protocol"
	"rejoin/snapshot"
)

// folds of every adapter.
var folds = snapshot.Folds{
	"demo": demo.Adapter{}, "jsonl": jsonl.Adapter{}, "lines": lines.Adapter{}, "pi": pi.Adapter{}, "rpi": rpi.Adapter{},
}

// cursor is a place in a session's history.
type cursor struct {
	epoch string
	seq   uint64
}

// CheckState (I-S2): every state that was shown equals the fold of the whole log
// up to its seq, by hash. Where the log was not read from its first event to the
// place, or events were lost, there is nothing to fold from and nothing is said;
// Folded does not count states of such places.
func CheckState(h *History) error {
	h.folded = 0
	shown := h.shown()
	s := snapshot.New(h.Session)
	for i := range h.Logs {
		l := &h.Logs[i]
		for j := range l.Events {
			e := &l.Events[j]
			if e.Seq != uint64(s.Seq)+1 || h.lost(l.Epoch, e.Seq) {
				return nil
			}
			folds.Apply(s, protocol.Epoch(l.Epoch), event(e))
			hashes := shown[cursor{l.Epoch, e.Seq}]
			if len(hashes) == 0 {
				continue
			}
			want := snapshot.Hash(snapshot.Encode(s))
			for got, by := range hashes {
				if got != want {
					return fmt.Errorf("the state at %d of epoch %s that %s got has hash %s, the fold of the log %s", e.Seq, l.Epoch, by, got, want)
				}
				h.folded++
			}
		}
	}
	return nil
}

// CheckAsked (I-J6): a state of the past is the one of the seq that was asked for.
// Only where every event between the two is in an announced loss is it an earlier
// one.
func CheckAsked(h *History) error {
	for _, s := range h.States {
		if s.Asked == 0 || s.Asked == s.Seq {
			continue
		}
		if s.Seq > s.Asked {
			return fmt.Errorf("asked for the state at %d of epoch %s came that at %d", s.Asked, s.Epoch, s.Seq)
		}
		for seq := s.Seq + 1; seq <= s.Asked; seq++ {
			if !h.lost(s.Epoch, seq) {
				return fmt.Errorf("asked for the state at %d of epoch %s came that at %d, though event %d is not lost", s.Asked, s.Epoch, s.Seq, seq)
			}
		}
	}
	return nil
}

// Folded returns how many of the shown states CheckState has compared.
func (h *History) Folded() int { return h.folded }

// shown lists the hashes of states by place, each with who got it.
func (h *History) shown() map[cursor]map[string]string {
	all := map[cursor]map[string]string{}
	add := func(c cursor, hash, by string) {
		if all[c] == nil {
			all[c] = map[string]string{}
		}
		all[c][hash] = by
	}
	for _, v := range h.Views {
		for i := range v.Frames {
			if f := &v.Frames[i]; f.Kind == Snapshot {
				add(cursor{f.Epoch, f.Seq}, f.State, "client "+v.Client)
			}
		}
	}
	for _, s := range h.States {
		add(cursor{s.Epoch, s.Seq}, s.Hash, "get_snapshot")
	}
	return all
}

func event(e *Event) *protocol.Event {
	source := protocol.SourceChild
	if e.Source == protocol.SourceBroker.String() {
		source = protocol.SourceBroker
	}
	return &protocol.Event{
		Seq: protocol.Seq(e.Seq), TS: e.TS, Run: protocol.Run(e.Run), Source: source, CommandID: e.CommandID, Body: e.Body,
	}
}
