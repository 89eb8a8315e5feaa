package model

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
)

// TestGoodHistories: what keeps every promise is accepted.
func TestGoodHistories(t *testing.T) {
	for name, h := range map[string]*History{"one epoch": good(), "two epochs": twoEpochs()} {
		if err := h.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if n := h.Folded(); n < 2 {
			t.Errorf("%s: %d states were compared", name, n)
		}
	}
	alive := good()
	l := alive.newest()
	l.Events = l.Events[:len(l.Events)-2] // neither outcome nor end of the third run
	alive.Alive, alive.Books[1].Whole = true, false
	alive.Views = alive.Views[2:3]
	if err := alive.Validate(); err != nil {
		t.Errorf("a session that lives: %v", err)
	}
}

// TestAnnouncedLoss: an announced loss, and nothing else, is forgiven.
func TestAnnouncedLoss(t *testing.T) {
	h := good()
	head := h.Logs[0].Head()
	h.Views = append(h.Views, &View{Client: "across", Asked: Asked{Session: "s", Replay: true, After: 2}, Frames: []Frame{
		{Kind: Attached, Sub: 7, Session: "s", Epoch: epoch1, Seq: 9, Head: head, Mode: "snapshot", Reason: "damaged"},
		{Kind: Snapshot, Sub: 7, Session: "s", Epoch: epoch1, Seq: 9, State: "any", Reason: "damaged"},
	}})
	if err := CheckExactlyOnce(h); err == nil {
		t.Error("a damaged snapshot is accepted though nothing is lost")
	}
	h.Losses = []Loss{{Epoch: epoch1, From: 3, To: 4}}
	if err := h.Validate(); err != nil {
		t.Errorf("an announced loss: %v", err)
	}
	h.States = append(h.States, StateAt{Epoch: epoch1, Asked: 4, Seq: 2, Hash: h.stateAt(2)})
	if err := h.Validate(); err != nil {
		t.Errorf("the state before an announced loss: %v", err)
	}
}

// bad is a change that breaks a promise; every check of that name must see it.
type bad struct {
	check string
	name  string
	spoil func(h *History)
}

func (h *History) remove(seq uint64) {
	h.Logs[0].Events = slices.Delete(h.Logs[0].Events, int(seq-1), int(seq))
}

// renumber makes the log dense again after a change.
func (h *History) renumber() {
	for i := range h.Logs[0].Events {
		h.Logs[0].Events[i].Seq = uint64(i + 1)
	}
}

func (h *History) eventOf(body string) *Event {
	for i := range h.Logs[0].Events {
		if strings.Contains(string(h.Logs[0].Events[i].Body), body) {
			return &h.Logs[0].Events[i]
		}
	}
	return nil
}

var bads = []bad{
	{"CheckDense", "a hole", func(h *History) { h.remove(4) }},
	{"CheckDense", "a repetition", func(h *History) { h.Logs[0].Events[4].Seq = 4 }},
	{"CheckDense", "no log", func(h *History) { h.Logs = nil }},
	{"CheckDense", "an epoch that does not say what it follows", func(h *History) {
		h.Logs = append(h.Logs, Log{Epoch: epoch2, Floor: h.Logs[0].Head() + 1})
		h.broker(9, `{"type":"epoch_start","previousEpoch":"another","previousHead":3,"reason":"unclean_boot"}`)
	}},
	{"CheckDense", "an epoch that uses numbers again", func(h *History) {
		h.Logs = append(h.Logs, Log{Epoch: epoch2, Floor: 5})
		h.broker(9, `{"type":"epoch_start","previousEpoch":"`+epoch1+`","previousHead":18,"reason":"unclean_boot"}`)
	}},
	{"CheckDense", "an epoch without an event", func(h *History) { h.Logs = append(h.Logs, Log{Epoch: epoch2, Floor: 99}) }},
	{"CheckRunsGrow", "a late owner", func(h *History) { h.Logs[0].Events[10].Run = 1 }},
	{"CheckRunsGrow", "an event of no run", func(h *History) { h.Logs[0].Events[0].Run = 0 }},
	{"CheckRunsGrow", "a client saw a run go down", func(h *History) { h.Views[1].Frames[5].Run = 1 }},
	{"CheckOrder", "an event before the response", func(h *History) {
		f := h.Views[0].Frames
		f[0], f[1] = f[1], f[0]
	}},
	{"CheckOrder", "two events swapped", func(h *History) {
		f := h.Views[0].Frames
		f[2], f[3] = f[3], f[2]
	}},
	{"CheckOrder", "synced twice", func(h *History) {
		v := h.Views[1]
		v.Frames = append(v.Frames, v.Frames[len(v.Frames)-1])
	}},
	{"CheckOrder", "synced too early", func(h *History) {
		h.Views[1].Frames = append(h.Views[1].Frames[:3], Frame{Kind: Synced, Sub: 2, Session: "s", Seq: 7})
	}},
	{"CheckOrder", "an event after the end", func(h *History) {
		h.Views[2].Frames = append(h.Views[2].Frames, Frame{Kind: Item, Sub: 3, Session: "s", Seq: 5, Run: 1})
	}},
	{"CheckOrder", "an event after unsubscribe", func(h *History) {
		h.Views[3].Frames = append(h.Views[3].Frames, Frame{Kind: Item, Sub: 4, Session: "s", Seq: 99, Run: 9})
	}},
	{"CheckIsolation", "another session's event", func(h *History) { h.Views[0].Frames[2].Session = "other" }},
	{"CheckIsolation", "another subscription's event", func(h *History) { h.Views[0].Frames[2].Sub = 77 }},
	{"CheckSecrets", "the token in an event", func(h *History) { h.Logs[0].Events[3].Body = json.RawMessage(`{"type":"hunter2"}`) }},
	{"CheckExactlyOnce", "a gap", func(h *History) { h.Views[0].Frames = slices.Delete(h.Views[0].Frames, 3, 4) }},
	{"CheckExactlyOnce", "a repetition", func(h *History) { h.Views[0].Frames[3] = h.Views[0].Frames[2] }},
	{"CheckExactlyOnce", "a replay that begins one late", func(h *History) {
		f := h.Views[1].Frames
		f[0].Seq++
		h.Views[1].Frames = slices.Delete(f, 1, 2)
	}},
	{"CheckExactlyOnce", "a snapshot instead of a replay", func(h *History) {
		h.Views[1].Frames[0].Mode, h.Views[1].Frames[0].Reason = "snapshot", "future"
	}},
	{"CheckExactlyOnce", "until ends too early", func(h *History) {
		f := h.Views[2].Frames
		f[len(f)-1].Seq = 3
		h.Views[2].Frames = slices.Delete(f, 4, 5)
	}},
	{"CheckExactlyOnce", "a snapshot behind what was delivered", func(h *History) {
		h.Views[0].Frames = append(h.Views[0].Frames, Frame{Kind: Snapshot, Sub: 1, Session: "s", Epoch: epoch1, Seq: 2, Reason: "trimmed"})
	}},
	{"CheckExactlyOnce", "a state that is not whole though nothing is lost", func(h *History) { h.Views[3].Frames[1].Reason = "damaged" }},
	{"CheckAttach", "an event before the snapshot", func(h *History) { h.Views[3].Frames = slices.Delete(h.Views[3].Frames, 1, 2) }},
	{"CheckAttach", "one skipped after the snapshot", func(h *History) { h.Views[3].Frames = slices.Delete(h.Views[3].Frames, 3, 4) }},
	{"CheckAttach", "synced past the snapshot", func(h *History) {
		f := h.Views[3].Frames
		h.Views[3].Frames = []Frame{f[0], f[1], {Kind: Synced, Sub: f[1].Sub, Session: "s", Seq: f[1].Seq + 1}}
	}},
	{"CheckAttach", "a snapshot unasked", func(h *History) {
		h.Views[0].Frames = append(h.Views[0].Frames, Frame{Kind: Snapshot, Sub: 1, Session: "s", Epoch: epoch1, Seq: 6, Reason: "requested"})
	}},
	{"CheckDurable", "what a client saw is gone", func(h *History) { h.Logs[0].Events = h.Logs[0].Events[:10] }},
	{"CheckDurable", "a client saw other bytes", func(h *History) { h.Views[0].Frames[3].Hash[0]++ }},
	{"CheckDurable", "an acknowledged command is gone", func(h *History) {
		h.Views = nil
		h.remove(3)
		h.renumber()
	}},
	{"CheckDurable", "an acknowledged command is elsewhere", func(h *History) { h.Commands["c1"].Answers = []Answer{{Seq: 5}} }},
	{"CheckDurable", "a client saw a state that the log does not reach", func(h *History) {
		h.Views = append(h.Views, &View{Client: "ahead", Asked: Asked{Session: "s"}, Frames: []Frame{
			{Kind: Attached, Sub: 8, Session: "s", Epoch: epoch1, Seq: 99, Head: 99, Mode: "snapshot", Reason: "requested"},
			{Kind: Snapshot, Sub: 8, Session: "s", Epoch: epoch1, Seq: 99, State: "any", Reason: "requested"},
		}})
	}},
	{"CheckDurable", "a state of an epoch that the log does not know", func(h *History) {
		h.States = append(h.States, StateAt{Epoch: epoch2, Seq: 5, Hash: "any"})
	}},
	{"CheckDurable", "an epoch that the log does not know", func(h *History) { h.Views[0].Frames[0].Epoch = epoch2 }},
	{"CheckSameBytes", "another transport, other bytes", func(h *History) { h.Views[2].Frames[3].Hash[0]++ }},
	{"CheckOnceCommand", "admitted twice", func(h *History) { h.admit(3, "c1") }},
	{"CheckOnceCommand", "read twice", func(h *History) { h.Books[1].Read = append(h.Books[1].Read, h.Books[0].Read[0]) }},
	{"CheckOnceCommand", "two answers", func(h *History) {
		h.Commands["c1"].Answers = append(h.Commands["c1"].Answers, Answer{Seq: 6, Duplicate: true})
	}},
	{"CheckOnceCommand", "a retry that is no duplicate", func(h *History) {
		h.Commands["c1"].Answers = append(h.Commands["c1"].Answers, Answer{Seq: 3})
	}},
	{"CheckOnceCommand", "a retry that is a conflict", func(h *History) {
		h.Commands["c1"].Answers = append(h.Commands["c1"].Answers, Answer{Code: -32006, Reason: "conflict"})
	}},
	{"CheckOneOwner", "two children of one run", func(h *History) { h.Books[1].Rivals = 1 }},
	{"CheckOneOwner", "two books of one run", func(h *History) { h.Books = append(h.Books, &Book{Run: 3}) }},
	{"CheckOutcome", "no outcome", func(h *History) { h.eventOf(`"commandId":"c2","outcome"`).Body = json.RawMessage(`{"type":"x"}`) }},
	{"CheckOutcome", "two outcomes", func(h *History) { h.outcome(3, "c1", "failed") }},
	{"CheckOutcome", "an outcome of nothing", func(h *History) { h.outcome(3, "c9", "done") }},
	{"CheckOutcome", "discarded, yet read", func(h *History) {
		h.eventOf(`"commandId":"c2","outcome"`).Body = json.RawMessage(`{"type":"command_outcome","commandId":"c2","outcome":"discarded"}`)
	}},
	{"CheckOutcome", "an outcome that is none", func(h *History) {
		h.eventOf(`"commandId":"c2","outcome"`).Body = json.RawMessage(`{"type":"command_outcome","commandId":"c2","outcome":"perhaps"}`)
	}},
	{"CheckOutcome", "an owner left a command of an earlier run open", func(h *History) {
		h.Alive = true
		h.eventOf(`"commandId":"c2","outcome"`).Body = json.RawMessage(`{"type":"x"}`)
	}},
	{"CheckInputFirst", "read and not in the log", func(h *History) {
		h.Books[1].Read = append(h.Books[1].Read, []byte(`{"type":"echo","k":"c9"}`))
	}},
	{"CheckInputFirst", "read with other bytes", func(h *History) { h.Books[0].Read[0] = []byte(`{"k":"c1","type":"echo"}`) }},
	{"CheckInputFirst", "read by another run", func(h *History) {
		h.Books[0].Read, h.Books[1].Read = h.Books[0].Read[1:], append(h.Books[1].Read, h.Books[0].Read[0])
	}},
	{"CheckInputFirst", "answered before it is in the log", func(h *History) {
		e := h.Logs[0].Events
		e[2], e[3] = e[3], e[2]
		h.renumber()
	}},
	{"CheckOutputComplete", "a line is lost", func(h *History) {
		h.remove(2)
		h.renumber()
	}},
	{"CheckOutputComplete", "the last line of an orderly run is lost", func(h *History) {
		h.Books[1].Printed = append(h.Books[1].Printed, line(3, 4, `"type":"bye"`))
	}},
	{"CheckOutputComplete", "a line twice", func(h *History) { h.Logs[0].Events[3].Body = h.Logs[0].Events[1].Body }},
	{"CheckOutputComplete", "a line that nobody printed", func(h *History) { h.add(2, "child", "", `{"run":2,"n":1}`) }},
	{"CheckOutputComplete", "more lines than were printed", func(h *History) { h.add(3, "child", "", `{"run":3,"n":4}`) }},
	{"CheckBytes", "white space taken away", func(h *History) { h.Books[0].Printed[0] = []byte(`{"run":1, "n":1,"type":"hello"}`) }},
	{"CheckLineLimit", "a long line in full", func(h *History) {
		e := h.eventOf("line exceeds limit")
		e.Source, e.Body = "child", h.Books[1].Printed[1]
	}},
	{"CheckLineLimit", "a short line called long", func(h *History) {
		*h.eventOf(`"n":2,"type":"echo"`) = Event{Seq: 4, TS: 1, Run: 1, Source: "broker", Body: json.RawMessage(`{"type":"error","error":"line exceeds limit","bytes":9}`)}
	}},
	{"CheckLineLimit", "a wrong length", func(h *History) {
		h.eventOf("line exceeds limit").Body = json.RawMessage(`{"type":"error","error":"line exceeds limit","bytes":101}`)
	}},
	{"CheckNoOrphans", "a tool of the child lives", func(h *History) { h.Orphans = []int{4711} }},
	{"CheckState", "a client's snapshot is another state", func(h *History) { h.Views[3].Frames[1].State = h.stateAt(8) }},
	{"CheckState", "get_snapshot is another state", func(h *History) { h.States[0].Hash = h.stateAt(4) }},
	{"CheckAsked", "get_snapshot is of another seq", func(h *History) { h.States[0].Asked = h.States[0].Seq + 1 }},
	{"CheckAsked", "get_snapshot is of a later seq", func(h *History) { h.States[0].Asked = h.States[0].Seq - 1 }},
	{"CheckAsked", "more than was lost is left out", func(h *History) {
		s := &h.States[0]
		s.Asked = s.Seq + 2
		h.Losses = []Loss{{Epoch: s.Epoch, From: s.Seq + 2, To: s.Seq + 2}}
	}},
}

// TestBadHistories: each check finds what is there to find, in a history that was
// good before.
func TestBadHistories(t *testing.T) {
	found := map[string]int{}
	for _, b := range bads {
		h := good()
		b.spoil(h)
		err := h.Validate()
		var names []string
		for _, err := range breaches(err) {
			names = append(names, err.Check)
		}
		if !slices.Contains(names, b.check) {
			t.Errorf("%s: %s did not see it; seen: %v", b.check, b.name, err)
		}
		found[b.check]++
	}
	for _, c := range Checks() {
		if found[c.Name] == 0 {
			t.Errorf("%s has no bad history", c.Name)
		}
	}
}

// breaches takes apart what Validate joined.
func breaches(err error) (all []*Breach) {
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) {
		return nil
	}
	for _, err := range joined.Unwrap() {
		var b *Breach
		if errors.As(err, &b) {
			all = append(all, b)
		}
	}
	return all
}

// TestChecksAreNamed: a breach says which promise of which session.
func TestChecksAreNamed(t *testing.T) {
	h := good()
	h.Orphans = []int{1}
	if err := h.Validate(); err == nil || !strings.HasPrefix(err.Error(), "broke I-W3: CheckNoOrphans of session s: ") {
		t.Errorf("said %v", err)
	}
}
