package agent_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"rejoin/agent"
	"rejoin/agent/demo"
	"rejoin/agent/jsonl"
	"rejoin/agent/lines"
	"rejoin/agent/pi"
	"rejoin/agent/rpi"
	"rejoin/protocol"
)

var folders = []agent.Adapter{pi.Adapter{}, rpi.Adapter{}, demo.Adapter{}, lines.Adapter{}, jsonl.Adapter{}}

// A move is one event of a made-up history: a line of the child, an event of
// rejoin's own, or the run's end.
type move struct {
	source protocol.Source
	body   []byte
	end    bool
}

// moves reads a history of at most atMost moves: lines, of which the first byte
// says what the rest is. "*" repeats the line before many times; "^" fills it with
// a long text.
func moves(data []byte, atMost int) (all []move) {
	for line := range bytes.Lines(data) {
		line = bytes.TrimSuffix(line, []byte{'\n'})
		if len(line) == 0 || len(all) > atMost {
			continue
		}
		switch rest := line[1:]; line[0] {
		case '!':
			all = append(all, move{source: protocol.SourceBroker, end: true})
		case '@':
			all = append(all, move{source: protocol.SourceBroker, body: rest})
		case '*':
			for n := 0; len(all) > 0 && len(all) < atMost && n < 40*len(line); n++ {
				all = append(all, all[len(all)-1])
			}
		case '^':
			text := strings.Repeat(string(protocol.AppendString(nil, string(rest))[1:]), 3000)
			text = strings.ReplaceAll(text, `"`, ``)
			if len(all) > 0 {
				last := all[len(all)-1]
				last.body = bytes.ReplaceAll(last.body, []byte("LONG"), []byte(text[:min(len(text), 300_000)]))
				all[len(all)-1] = last
			}
		default:
			all = append(all, move{body: line})
		}
	}
	return all
}

// play folds a move as the whole fold does.
func play(a agent.Adapter, s *protocol.State, m move) {
	s.Seq++
	e := &protocol.Event{Seq: s.Seq, TS: int64(s.Seq), Run: 1, Source: m.source, Body: m.body}
	if !m.end {
		a.Fold(s, e)
		return
	}
	a.Settle(s, e)
	s.Turn, s.Pending, s.Status = nil, []protocol.Interaction{}, protocol.StatusIdle
	s.Queue = protocol.Queue{Steering: []string{}, FollowUp: []string{}}
}

func newState(a agent.Adapter) *protocol.State {
	return &protocol.State{
		SessionID: "s", Run: 1, Status: protocol.StatusIdle, Agent: protocol.StateAgent{Name: "a", Adapter: a.Name()},
		Items: []protocol.Item{}, Pending: []protocol.Interaction{},
		Queue: protocol.Queue{Steering: []string{}, FollowUp: []string{}},
	}
}

func encode(tb testing.TB, v any) []byte {
	tb.Helper()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		tb.Fatalf("encode: %v", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'})
}

func decode(tb testing.TB, b []byte) *protocol.State {
	tb.Helper()
	s := &protocol.State{}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(s); err != nil {
		tb.Fatalf("decode: %v", err)
	}
	return s
}

// checkState reports what is wrong with a state, whatever was folded.
func checkState(tb testing.TB, s *protocol.State) {
	tb.Helper()
	if n := len(encode(tb, s.Items)); len(s.Items) > protocol.StateItemsMax || n > protocol.StateItemsBytes {
		tb.Errorf("%d items of %d bytes", len(s.Items), n)
	}
	named := map[string]bool{}
	if s.Extra != nil {
		if len(s.Extra.Open) > protocol.OpenItemsMax || len(s.Extra.Notes) > protocol.NotesMax {
			tb.Errorf("%d open, %d notes", len(s.Extra.Open), len(s.Extra.Notes))
		}
		for _, o := range s.Extra.Open {
			named[o.Item] = true
		}
		if !slices.IsSortedFunc(s.Extra.Notes, func(a, b protocol.Note) int { return strings.Compare(a.Key, b.Key) }) {
			tb.Errorf("notes out of order: %v", s.Extra.Notes)
		}
	}
	ids := map[string]bool{}
	for i, it := range s.Items {
		if ids[it.ID] || i > 0 && it.FirstSeq < s.Items[i-1].FirstSeq || it.LastSeq < it.FirstSeq || it.LastSeq > s.Seq {
			tb.Errorf("item %d: id %s, %d to %d", i, it.ID, it.FirstSeq, it.LastSeq)
		}
		ids[it.ID] = true
		if it.Status == protocol.ItemStreaming && !named[it.ID] {
			tb.Errorf("item %s streams for ever: %v", it.ID, s.Extra)
		}
		if len(it.Text) > protocol.ItemTextBytes || it.Tool != nil && max(len(it.Tool.Args), len(it.Tool.Output)) > protocol.ItemTextBytes {
			tb.Errorf("item %s is too long", it.ID)
		}
	}
	for id := range named {
		if !ids[id] {
			tb.Errorf("%s is open and no item", id)
		}
	}
	if len(s.Pending) > protocol.InteractionsMax || max(len(s.Queue.Steering), len(s.Queue.FollowUp)) > protocol.QueueLinesMax {
		tb.Errorf("%d pending, %d and %d queued", len(s.Pending), len(s.Queue.Steering), len(s.Queue.FollowUp))
	}
	if s.Status == protocol.StatusBusy && s.Turn == nil || s.Status == protocol.StatusWaiting && len(s.Pending) == 0 {
		tb.Errorf("status %s, turn %v, %d pending", s.Status, s.Turn, len(s.Pending))
	}
}

// checkFold folds a history at once and, from bytes, in pieces.
func checkFold(tb testing.TB, a agent.Adapter, all []move, every int) {
	tb.Helper()
	whole, pieces := newState(a), newState(a)
	every = max(every, len(all)/15) // a state at its bounds takes long to encode
	for i, m := range all {
		body := bytes.Clone(m.body)
		play(a, whole, m)
		if i%every == 0 {
			pieces = decode(tb, encode(tb, pieces))
		}
		play(a, pieces, m)
		if !bytes.Equal(body, m.body) {
			tb.Fatal("the fold changed the event")
		}
		if i%every == 0 {
			checkState(tb, whole)
		}
	}
	checkState(tb, whole)
	w, p := encode(tb, whole), encode(tb, pieces)
	if !bytes.Equal(w, p) {
		tb.Fatalf("%s: folded at once\n%.2000s\nin pieces\n%.2000s", a.Name(), w, p)
	}
	if again := encode(tb, decode(tb, w)); !bytes.Equal(w, again) {
		tb.Fatalf("%s: the state\n%.2000s\nis another after its bytes\n%.2000s", a.Name(), w, again)
	}
	if !utf8.Valid(w) || protocol.ValidateJSON(w) != nil {
		tb.Fatalf("%s: the state is not JSON: %.2000s", a.Name(), w)
	}
	play(a, whole, move{end: true})
	for _, it := range whole.Items {
		if it.Status == protocol.ItemStreaming {
			tb.Errorf("%s: item %s streams after the end", a.Name(), it.ID)
		}
	}
	checkState(tb, whole)
}

const (
	delta  = `{"type":"message_update","assistantMessageEvent":{"type":"text_delta","contentIndex":0,"delta":"LONG"}}`
	replyS = `{"type":"message_start","message":{"role":"assistant"}}`
)

// histories push each bound.
var histories = []string{
	"{\"type\":\"agent_start\"}\n" + replyS + "\n" + delta + "\n^word \n****\n!",
	replyS + "\n" + delta + "\n^\x01\u2028\"\\\n********\n" + delta + "\n^é\u20ac\U0001f600x\n***",
	`{"type":"message_end","message":{"role":"user","content":"LONG"}}` + "\n^\x02\n****",
	`{"type":"message_end","message":{"role":"user","content":"x"}}` + "\n****************",
	`{"type":"tool_execution_update","toolCallId":"LONG","toolName":"LONG","args":"LONG","partialResult":"LONG"}` + "\n^abc\n*",
	`{"type":"toolcall_start"}` + "\n" + `{"type":"message_update","assistantMessageEvent":{"type":"toolcall_delta","contentIndex":9,"delta":"LONG"}}` + "\n^{\"\n****",
	`{"type":"extension_ui_request","id":"a","method":"select","title":"LONG","options":["LONG","b"],"timeout":5}` + "\n^t\n**!\n",
	`{"type":"extension_ui_request","method":"setStatus","statusKey":"k","statusText":"LONG"}` + "\n^s",
	`{"type":"queue_update","steering":["LONG","LONG"],"followUp":["LONG"]}` + "\n^q",
	"@{\"type\":\"output\",\"text\":\"LONG\"}\n^line\n********\n@{\"type\":\"error\",\"error\":\"LONG\",\"text\":\"LONG\"}\n^e\n**",
	"@{\"type\":\"command\",\"commandId\":\"k\",\"command\":{\"id\":1,\"type\":\"bash\",\"command\":\"LONG\"}}\n^c\n***",
	`{"type":"response","command":"get_state","success":true,"data":{"sessionFile":"LONG","thinkingLevel":"LONG","model":{"id":"LONG"}}}` + "\n^m",
	`{"type":"message_end","message":{"role":"assistant","usage":{"input":18446744073709551615,"output":1e3,"cost":{"total":1.7e308}}}}` + "\n***",
	"{\"type\":\"extension_ui_request\",\"id\":\"\xff\",\"method\":\"select\",\"title\":\"\xff\",\"options\":[\"\x94\",\"\xe2\x82\"]}",
	"{\"type\":\"message_start\"\n[1,\n\"\\ud800\n{\"type\":\"message_end\",\"message\":{\"role\":\"user\",\"content\":\"\\ud800\\udc00 \\udc00\xff\"}}",
}

// historyMax is more than fills any bound.
const historyMax = 2500

func TestBounds(t *testing.T) {
	for _, a := range folders {
		if a.Name() == demo.Name {
			continue // it has pi's fold
		}
		for i, h := range histories {
			t.Run(fmt.Sprintf("%s/%d", a.Name(), i), func(t *testing.T) { checkFold(t, a, moves([]byte(h), historyMax), 97) })
		}
		// Many names, keys, questions and calls.
		var many strings.Builder
		for i := range 200 {
			fmt.Fprintf(&many, "{\"type\":\"extension_ui_request\",\"id\":\"%d\",\"method\":\"input\",\"title\":\"t\"}\n", i)
			fmt.Fprintf(&many, "{\"type\":\"extension_ui_request\",\"method\":\"setWidget\",\"widgetKey\":\"%d\",\"widgetLines\":[\"x\"]}\n", i)
			fmt.Fprintf(&many, "{\"type\":\"tool_execution_start\",\"toolCallId\":\"%d\"}\n", i)
			fmt.Fprintf(&many, "{\"type\":\"message_update\",\"assistantMessageEvent\":{\"type\":\"toolcall_start\",\"contentIndex\":%d,\"id\":\"c%d\"}}\n", i, i)
		}
		t.Run(a.Name()+"/many", func(t *testing.T) { checkFold(t, a, moves([]byte(many.String()), historyMax), 89) })
	}
}

// FuzzFold: any bytes in any order. The bounds hold, the state is JSON, and it
// does not matter where it went through its bytes.
// Proves I-S1 and I-S2 (the adapters' part).
func FuzzFold(f *testing.F) {
	for i, h := range histories {
		f.Add([]byte(h), uint8(i))
	}
	files, err := filepath.Glob(filepath.Join("pi", "testdata", "traces", "*.jsonl"))
	if err != nil || len(files) == 0 {
		f.Fatalf("no traces: %v", err)
	}
	for i, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		if len(text) < 20_000 {
			f.Add(text, uint8(5*i))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, choice uint8) {
		if len(data) > 32<<10 {
			t.Skip("longer, not better")
		}
		a := folders[int(choice)%len(folders)]
		checkFold(t, a, moves(data, 60), 1+int(choice)/16) // many short ones find more than few long ones
	})
}
