package model

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"rejoin/protocol"
	"rejoin/snapshot"
)

const (
	epoch1 = "01JAAAAAAAAAAAAAAAAAAAAAAA"
	epoch2 = "01JBBBBBBBBBBBBBBBBBBBBBBB"
)

// good is a history without a fault: a child that answers two commands, dies with
// its server, and goes on in a second run; readers that replay, resume, begin with
// a snapshot and stop at until.
func good() *History {
	h := &History{Session: "s", Limit: 64, Booked: true, Commands: map[string]*Command{}, Secrets: []string{"hunter2"}}
	h.Logs = []Log{{Epoch: epoch1, Floor: 1}}
	h.broker(1, `{"type":"session_start","agent":"a","adapter":"jsonl","pid":7,"run":1}`)
	h.print(1, `"type":"hello"`)
	h.admit(1, "c1")
	h.print(1, `"type":"echo","k":"c1"`)
	h.outcome(1, "c1", "done")
	h.admit(1, "c2")
	h.Books[0].Printed = append(h.Books[0].Printed, []byte(`{"run":1,"n":3,"type":"lost with its server"}`))
	h.outcome(2, "c2", "interrupted")
	h.broker(2, `{"type":"session_interrupted","reason":"server_restart"}`)
	h.broker(3, `{"type":"session_resumed","run":3}`)
	h.print(3, `"type":"hello"`)
	long := line(3, 2, `"pad":"`+strings.Repeat("x", 100)+`"`)
	b := h.book(3)
	b.Printed = append(b.Printed, long)
	h.broker(3, fmt.Sprintf(`{"type":"error","error":"line exceeds limit","bytes":%d,"preview":"x"}`, len(long)))
	h.admit(3, "c3")
	h.print(3, `"type":"echo","k":"c3"`)
	h.outcome(3, "c3", "done")
	h.broker(3, `{"type":"session_end","reason":"exited","exitCode":0,"signal":null}`)
	b.Whole = true
	head := h.Logs[0].Head()
	h.Commands["c1"].Answers = []Answer{{Code: -32004, Reason: "journal_unavailable", Retryable: true}, {Seq: 3}, {Seq: 3, Duplicate: true}}
	h.Views = []*View{
		{Client: "first", Transport: "tcp", Asked: Asked{Session: "s", Replay: true}, Frames: h.frames(1, 0, 5, head)},
		{Client: "again", Transport: "unix", Asked: Asked{Session: "s", Replay: true, After: 5, Epoch: epoch1}, Frames: h.frames(2, 5, head, head)},
		{Client: "until", Transport: "proxy", Asked: Asked{Session: "s", Replay: true, Epoch: epoch1, Until: 4}, Frames: slices.Concat(
			h.frames(3, 0, 4, head)[:5], []Frame{{Kind: End, Sub: 3, Session: "s", Seq: 4, Reason: "until"}})},
		{Client: "snapshot", Transport: "tcp", Asked: Asked{Session: "s"}, Frames: slices.Concat(
			[]Frame{
				{Kind: Attached, Sub: 4, Session: "s", Epoch: epoch1, Seq: 9, Head: 9, Mode: "snapshot", Reason: "requested"},
				{Kind: Snapshot, Sub: 4, Session: "s", Epoch: epoch1, Seq: 9, State: h.stateAt(9), Reason: "requested"},
				{Kind: Synced, Sub: 4, Session: "s", Seq: 9},
			},
			h.frames(4, 9, head, 9)[1:head-9+1],
			[]Frame{{Kind: Unsubscribed, Sub: 4}})},
	}
	h.States = []StateAt{{Epoch: epoch1, Seq: 5, Hash: h.stateAt(5)}}
	return h
}

// twoEpochs is good after a boot that lost nothing known: a further epoch.
func twoEpochs() *History {
	h := good()
	head := h.Logs[0].Head()
	h.Logs = append(h.Logs, Log{Epoch: epoch2, Floor: head + 1})
	h.broker(4, fmt.Sprintf(`{"type":"epoch_start","previousEpoch":%q,"previousHead":%d,"reason":"unclean_boot"}`, epoch1, head))
	h.Views = append(h.Views, &View{Client: "over", Transport: "tcp", Asked: Asked{Session: "s", Replay: true, After: head, Epoch: epoch1}, Frames: []Frame{
		{Kind: Attached, Sub: 9, Session: "s", Epoch: epoch2, Seq: head + 1, Head: head + 1, Mode: "snapshot", Reason: "epoch"},
		{Kind: Snapshot, Sub: 9, Session: "s", Epoch: epoch2, Seq: head + 1, State: h.stateAt(head + 1), Reason: "epoch"},
		{Kind: Synced, Sub: 9, Session: "s", Seq: head + 1},
	}})
	return h
}

func (h *History) newest() *Log { return &h.Logs[len(h.Logs)-1] }

func (h *History) add(run uint64, source, commandID, body string) {
	l := h.newest()
	l.Events = append(l.Events, Event{Seq: l.Head() + 1, TS: 1, Run: run, Source: source, CommandID: commandID, Body: json.RawMessage(body)})
}

func (h *History) broker(run uint64, body string) { h.add(run, "broker", "", body) }

func (h *History) book(run uint64) *Book {
	for _, b := range h.Books {
		if b.Run == run {
			return b
		}
	}
	b := &Book{Run: run}
	h.Books = append(h.Books, b)
	return b
}

func line(run uint64, n int, members string) []byte {
	return fmt.Appendf(nil, `{"run":%d,"n":%d,%s}`, run, n, members)
}

// print books a line and puts it into the log.
func (h *History) print(run uint64, members string) {
	b := h.book(run)
	l := line(run, len(b.Printed)+1, members)
	b.Printed = append(b.Printed, l)
	h.add(run, "child", "", string(l))
}

// admit puts a command into the log and the child's book, acknowledged.
func (h *History) admit(run uint64, id string) {
	payload := fmt.Sprintf(`{"type":"echo","k":%q}`, id)
	h.add(run, "broker", id, fmt.Sprintf(`{"type":"command","commandId":%q,"command":%s}`, id, payload))
	h.book(run).Read = append(h.book(run).Read, []byte(payload))
	h.Commands[id] = &Command{ID: id, Payload: json.RawMessage(payload), Answers: []Answer{{Seq: h.newest().Head()}}}
}

func (h *History) outcome(run uint64, id, outcome string) {
	h.add(run, "broker", id, fmt.Sprintf(`{"type":"command_outcome","commandId":%q,"outcome":%q}`, id, outcome))
}

// frames are what a replay after a seq brings up to another, when the head was
// head at its response.
func (h *History) frames(sub, after, to, head uint64) []Frame {
	all := []Frame{{Kind: Attached, Sub: sub, Session: "s", Epoch: epoch1, Seq: after, Head: head, Mode: "replay"}}
	for seq := after + 1; seq <= to; seq++ {
		e := h.Logs[0].At(seq)
		all = append(all, Frame{Kind: Item, Sub: sub, Session: "s", Seq: seq, Run: e.Run, Hash: e.Hash()})
		if seq == head {
			all = append(all, Frame{Kind: Synced, Sub: sub, Session: "s", Seq: seq})
		}
	}
	return all
}

func (h *History) stateAt(seq uint64) string {
	s := snapshot.New("s")
	for i := range h.Logs {
		for j := range h.Logs[i].Events {
			if e := &h.Logs[i].Events[j]; e.Seq <= seq {
				folds.Apply(s, protocol.Epoch(h.Logs[i].Epoch), event(e))
			}
		}
	}
	return snapshot.Hash(snapshot.Encode(s))
}
