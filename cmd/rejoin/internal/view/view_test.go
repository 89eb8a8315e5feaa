package view_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"rejoin/agent/pi"
	"rejoin/client"
	"rejoin/cmd/rejoin/internal/view"
	"rejoin/protocol"
	"rejoin/snapshot"
)

var folds = snapshot.Folds{"pi": pi.Adapter{}}

// events are a session's: a prompt, a streamed answer, a tool, a question, its end.
func events() []protocol.Event {
	var out []protocol.Event
	add := func(source protocol.Source, body string) {
		out = append(out, protocol.Event{Seq: protocol.Seq(len(out) + 1), TS: 1700000000000, Run: 1, Source: source, Body: []byte(body)})
	}
	add(protocol.SourceBroker, `{"type":"session_start","agent":"pi","adapter":"pi","pid":7,"run":1}`)
	for _, line := range []string{
		`{"type":"agent_start"}`, `{"type":"turn_start"}`,
		`{"type":"message_start","message":{"role":"user","content":[{"type":"text","text":"go"}]}}`,
		`{"type":"message_end","message":{"role":"user","content":[{"type":"text","text":"go"}]}}`,
		`{"type":"message_start","message":{"role":"assistant","content":[]}}`,
		`{"type":"message_update","assistantMessageEvent":{"type":"text_start","contentIndex":0}}`,
		`{"type":"message_update","assistantMessageEvent":{"type":"text_delta","contentIndex":0,"delta":"on "}}`,
		`{"type":"message_update","assistantMessageEvent":{"type":"text_delta","contentIndex":0,"delta":"it"}}`,
		`{"type":"tool_execution_start","toolCallId":"c1","toolName":"bash","args":{"command":"ls"}}`,
		`{"type":"extension_ui_request","id":"q","method":"confirm","title":"May I?"}`,
		`{"type":"queue_update","steering":["hurry"],"followUp":[]}`,
		`{"type":"tool_execution_update","toolCallId":"c1","partialResult":{"content":[{"type":"text","text":"a\n"}]}}`,
	} {
		add(protocol.SourceChild, line)
	}
	add(protocol.SourceBroker, `{"type":"interaction_resolved","interactionId":"1.q","resolvedBy":"me","outcome":"allow"}`)
	add(protocol.SourceBroker, `{"type":"session_end","reason":"exited","exitCode":0,"signal":null}`)
	return out
}

// Proves I-S2 on the client's side: wherever a view begins, it says what a
// snapshot of the server would say.
func TestViewIsWhatTheServerSays(t *testing.T) {
	const epoch = protocol.Epoch("01ARZ3NDEKTSV4RRFFQ69G5FAV")
	all := events()
	var snaps []snapshot.Snapshot
	s := snapshot.New("s")
	for i := range all {
		folds.Apply(s, epoch, &all[i])
		snaps = append(snaps, folds.Take(s))
	}
	for begin, snap := range snaps {
		v := view.New(folds)
		at := &client.Snapshot{Epoch: epoch, Seq: snap.Seq, StateHash: snap.Hash, Fold: snap.Fold, State: json.RawMessage(snap.State)}
		if err := v.Take(client.Message{Kind: client.KindSnapshot, Seq: snap.Seq, Snapshot: at}); err != nil {
			t.Fatal(err)
		}
		if v.Hash() != snap.Hash || !v.Own() {
			t.Errorf("begun at %d: hash %s, want %s", begin+1, v.Hash(), snap.Hash)
		}
		for i := begin + 1; i < len(all); i++ {
			if err := v.Take(client.Message{Kind: client.KindEvent, Seq: all[i].Seq, Event: client.Event{Event: all[i], Epoch: epoch}}); err != nil {
				t.Fatal(err)
			}
			if v.Hash() != snaps[i].Hash {
				t.Fatalf("begun at %d, differs at %d:\n%s\n%s", begin+1, i+1, snapshot.Encode(v.State()), snaps[i].State)
			}
		}
	}
	if last := snaps[len(snaps)-1]; len(last.State) < 100 {
		t.Fatal("the events add up to nothing")
	}
}

func TestViewOfAnotherFold(t *testing.T) {
	v := view.New(nil)
	if err := v.Take(client.Message{Kind: client.KindEvent}); err == nil || v.State() != nil {
		t.Error("an event before the first snapshot is taken")
	}
	for _, state := range []string{`{"sessionId":"s","agent":{"name":"x","adapter":"new"},"shiny":[1]}`, `{}`} {
		at := &client.Snapshot{Fold: protocol.FoldVersion{Adapter: "new", Version: 99}, State: json.RawMessage(state)}
		if err := v.Take(client.Message{Kind: client.KindSnapshot, Snapshot: at}); err != nil || v.Own() || v.State().Items == nil {
			t.Errorf("%s: %v", state, err)
		}
	}
	at := &client.Snapshot{State: json.RawMessage(`7`)}
	var wrong *json.UnmarshalTypeError
	if err := v.Take(client.Message{Kind: client.KindSnapshot, Snapshot: at}); !errors.As(err, &wrong) {
		t.Error(fmt.Sprint(err))
	}
}
