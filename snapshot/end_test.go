package snapshot_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"rejoin/agent/demo"
	"rejoin/agent/jsonl"
	"rejoin/agent/lines"
	"rejoin/agent/pi"
	"rejoin/agent/rpi"
	"rejoin/protocol"
	"rejoin/snapshot"
)

// endFolds are all folds there are.
var endFolds = snapshot.Folds{"pi": pi.Adapter{}, "rpi": rpi.Adapter{}, "demo": demo.Adapter{}, "lines": lines.Adapter{}, "jsonl": jsonl.Adapter{}}

// ends are the events that end a run, and the status that each leaves.
var ends = []struct {
	body   string
	status protocol.Status
}{
	{`{"type":"session_end","reason":"exited","exitCode":9,"signal":null}`, protocol.StatusEnded},
	{`{"type":"session_interrupted","reason":"server_restart"}`, protocol.StatusInterrupted},
	{`{"type":"session_deleted"}`, protocol.StatusEnded},
}

// checkEnds ends a run in each way, after whatever has made s, and reports what
// is left open; then the session is resumed, and must be idle.
func checkEnds(t *testing.T, s *protocol.State) {
	t.Helper()
	before := snapshot.Encode(s)
	for _, end := range ends {
		s, err := snapshot.Decode(before)
		if err != nil {
			t.Fatalf("decode %.300s: %v", before, err)
		}
		next := func(body string) {
			e := &protocol.Event{Seq: s.Seq + 1, TS: 1, Run: s.Run, Source: protocol.SourceBroker, Body: []byte(body)}
			endFolds.Apply(s, epoch, e)
		}
		next(end.body)
		if s.Status != end.status || s.Turn != nil || len(s.Pending) > 0 || len(s.Queue.Steering)+len(s.Queue.FollowUp) > 0 {
			t.Fatalf("after %s: status %s, turn %v, %d questions, queue %v\nbefore it: %.2000s", end.body, s.Status, s.Turn, len(s.Pending), s.Queue, before)
		}
		if i := slices.IndexFunc(s.Items, func(it protocol.Item) bool { return it.Status == protocol.ItemStreaming }); i >= 0 {
			t.Fatalf("after %s item %+v streams\nbefore it: %.2000s", end.body, s.Items[i], before)
		}
		if x := s.Extra; x != nil && (len(x.Open) > 0 || x.Settles || x.Asked != "") {
			t.Fatalf("after %s: extra %+v", end.body, x)
		}
		next(`{"type":"session_resumed","run":2}`)
		if s.Status != protocol.StatusIdle {
			t.Fatalf("resumed after %s: status %s", end.body, s.Status)
		}
	}
}

func started(adapter string) *protocol.State {
	s := snapshot.New("s")
	endFolds.Apply(s, epoch, &protocol.Event{
		Seq: 1, Run: 1, Source: protocol.SourceBroker,
		Body: fmt.Appendf(nil, `{"type":"session_start","agent":"a","adapter":%q,"pid":1,"run":1}`, adapter),
	})
	return s
}

// TestEndAnywhere: wherever in a recorded conversation pi dies, or goes silent for
// ever and is stopped, nothing of the session stays open.
func TestEndAnywhere(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "agent", "pi", "testdata", "traces", "*.jsonl"))
	if err != nil || len(files) < 10 {
		t.Fatalf("traces: %v, %v", files, err)
	}
	busy, waiting := 0, 0
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			s := started("pi")
			for line := range bytes.Lines(text) {
				if !bytes.HasPrefix(line, []byte(`{"dir":`)) {
					endFolds.Apply(s, epoch, &protocol.Event{Seq: s.Seq + 1, TS: 1, Run: 1, Body: bytes.TrimSpace(line)})
					if !testing.Short() || s.Seq%7 == 0 {
						checkEnds(t, s)
					}
				}
				if s.Turn != nil {
					busy++
				}
				if s.Status == protocol.StatusWaiting {
					waiting++
				}
			}
		})
	}
	if busy == 0 || waiting == 0 {
		t.Errorf("%d ends in a turn, %d in a question: nothing is proved", busy, waiting)
	}
}

// FuzzEnd: whatever the child said and the broker noted, in whatever order, the
// run's end leaves nothing open. A line that begins with "@" is the broker's.
func FuzzEnd(f *testing.F) {
	for i, seed := range [][]string{
		{`{"type":"agent_start"}`, `{"type":"message_start","message":{"role":"assistant"}}`, `{"type":"message_update","assistantMessageEvent":{"type":"text_delta","contentIndex":0,"delta":"x"}}`},
		{`{"type":"turn_start"}`, `{"type":"tool_execution_start","toolCallId":"c","toolName":"ls"}`, `{"type":"agent_end","willRetry":true}`, `{"type":"auto_retry_start","attempt":1}`},
		{`{"type":"extension_ui_request","id":"q","method":"confirm"}`, `@{"type":"interaction_resolved","interactionId":"1.q"}`, `{"type":"extension_ui_request","id":"q","method":"select","options":["a",1]}`},
		{`@{"type":"command","commandId":"k","command":{"type":"bash","command":"x","id":1}}`, `{"type":"bash_execution_update","id":1,"delta":"x"}`, `@{"type":"command_outcome","commandId":"k","outcome":"failed"}`},
		{`{"type":"queue_update","steering":["a"],"followUp":["b"]}`, `{"type":"compaction_start"}`, `{"type":"message_start","message":{"role":"system"}}`, `{"type":"agent_settled"}`},
		{`@{"type":"output","text":"x"}`, `@{"type":"error","error":"e"}`, `@{"type":"session_end"}`, `@{"type":"session_resumed","run":2}`, `{"type":"ready"}`, `{"type":"agent_start"}`},
		{`@{"type":"session_interrupted"}`, `{"type":"agent_start"}`, `@{"type":"session_start","agent":"b","adapter":"rpi"}`, `{"type":"agent_start"}`, `{"type":"response","status":"ok","result":{"model":"m"}}`},
	} {
		text := []byte(nil)
		for _, line := range seed {
			text = append(append(text, line...), '\n')
		}
		f.Add(text, uint8(i))
	}
	names := []string{"pi", "rpi", "demo", "lines", "jsonl"}
	f.Fuzz(func(t *testing.T, data []byte, choice uint8) {
		if len(data) > 8<<10 {
			t.Skip("longer, not better")
		}
		s := started(names[int(choice)%len(names)])
		for line := range bytes.Lines(data) {
			e := &protocol.Event{Seq: s.Seq + 1, TS: 1, Run: s.Run, Body: bytes.TrimSpace(line)}
			if rest, ok := bytes.CutPrefix(e.Body, []byte{'@'}); ok {
				e.Source, e.Body = protocol.SourceBroker, rest
				if !json.Valid(rest) {
					continue
				}
			}
			endFolds.Apply(s, epoch, e)
		}
		checkEnds(t, s)
	})
}
