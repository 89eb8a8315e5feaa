package pi_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rejoin/agent/pi"
	"rejoin/protocol"
)

// A step is one event of a recorded conversation: a line that pi printed, the
// answer to a question, or the end of pi's process.
type step struct {
	line     []byte
	resolved string
	exit     bool
}

// steps reads a trace of testdata.
func steps(tb testing.TB, name string) []step {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "traces", name+".jsonl"))
	if err != nil {
		tb.Fatal(err)
	}
	var all []step
	for line := range bytes.Lines(text) {
		line = bytes.TrimSuffix(line, []byte{'\n'})
		if !bytes.HasPrefix(line, []byte(`{"dir":`)) {
			all = append(all, step{line: line})
			continue
		}
		var mark struct{ Dir, ID string }
		if err := json.Unmarshal(line, &mark); err != nil {
			tb.Fatal(err)
		}
		all = append(all, step{resolved: mark.ID, exit: mark.Dir == "exit"})
	}
	return all
}

func traces(tb testing.TB) []string {
	tb.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "traces", "*.jsonl"))
	if err != nil || len(files) == 0 {
		tb.Fatalf("no traces: %v", err)
	}
	for i, f := range files {
		files[i] = strings.TrimSuffix(filepath.Base(f), ".jsonl")
	}
	return files
}

// newState is the state of a session whose child has just been started.
func newState() *protocol.State {
	return &protocol.State{
		SessionID: "s", Run: 1, Status: protocol.StatusIdle, Agent: protocol.StateAgent{Name: "pi", Adapter: "pi"},
		Items: []protocol.Item{}, Pending: []protocol.Interaction{},
		Queue: protocol.Queue{Steering: []string{}, FollowUp: []string{}},
	}
}

// apply folds a step: the adapter's part, and what the whole fold does around it.
func apply(s *protocol.State, st step) {
	s.Seq++
	e := &protocol.Event{Seq: s.Seq, TS: 1000 * int64(s.Seq), Run: s.Run, Body: st.line}
	switch {
	case st.exit:
		pi.Adapter{}.Settle(s, e)
		s.Turn, s.Pending = nil, s.Pending[:0]
		s.Queue = protocol.Queue{Steering: []string{}, FollowUp: []string{}}
		s.Status = protocol.StatusEnded
	case st.resolved != "":
		s.Pending = slices.DeleteFunc(s.Pending, func(i protocol.Interaction) bool {
			return strings.HasSuffix(i.InteractionID, st.resolved)
		})
		s.Status = protocol.StatusIdle
		if s.Turn != nil {
			s.Status = protocol.StatusBusy
		}
	default:
		if s.Status == protocol.StatusEnded {
			s.Status, s.Run = protocol.StatusIdle, s.Run+1
			e.Run = s.Run
		}
		pi.Adapter{}.Fold(s, e)
	}
}

// encode returns the bytes of a state, and decode reads them, strictly.
func encode(tb testing.TB, s *protocol.State) []byte {
	tb.Helper()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		tb.Fatalf("encode: %v", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'})
}

func decode(tb testing.TB, b []byte) *protocol.State {
	tb.Helper()
	s := newState()
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(s); err != nil {
		tb.Fatalf("decode: %v", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		tb.Fatal("something stands behind the state")
	}
	return s
}

// show writes a state as people read it, one line each.
func show(s *protocol.State) string {
	var b strings.Builder
	for _, it := range s.Items {
		if it.Kind == protocol.ItemToolCall {
			fmt.Fprintf(&b, "tool %s %s %s %s %s\n", it.Status, it.Tool.Name, dash(it.Tool.CallID), dash(it.Tool.Args), quote(it.Tool.Output))
			continue
		}
		fmt.Fprintf(&b, "%s %s %s\n", it.Kind, it.Status, quote(it.Text))
	}
	b.WriteString("status " + string(s.Status))
	if s.Turn != nil {
		b.WriteString(" " + s.Turn.ID)
	}
	b.WriteByte('\n')
	for _, p := range s.Pending {
		fmt.Fprintf(&b, "pending %s %s %q %q", p.InteractionID, p.Kind, p.Title, p.Message)
		for _, o := range p.Options {
			fmt.Fprintf(&b, " [%s]", o.Label)
		}
		if p.Deadline != 0 {
			fmt.Fprintf(&b, " until %d", p.Deadline)
		}
		b.WriteByte('\n')
	}
	for _, q := range s.Queue.Steering {
		fmt.Fprintf(&b, "queue steering %q\n", q)
	}
	for _, q := range s.Queue.FollowUp {
		fmt.Fprintf(&b, "queue followUp %q\n", q)
	}
	if s.Agent.Model != "" {
		b.WriteString("model " + s.Agent.Model + "\n")
	}
	if s.Extra != nil && s.Extra.Thinking != "" {
		b.WriteString("thinking " + s.Extra.Thinking + "\n")
	}
	if s.Extra != nil && s.Extra.AgentSession != "" {
		b.WriteString("session " + s.Extra.AgentSession + "\n")
	}
	if s.Usage != nil {
		fmt.Fprintf(&b, "usage %d %d\n", s.Usage.InputTokens, s.Usage.OutputTokens)
	}
	if s.Extra != nil {
		for _, n := range s.Extra.Notes {
			fmt.Fprintf(&b, "note %s %q\n", n.Key, n.Text)
		}
	}
	return b.String()
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// quote quotes a text, of a long one its two ends.
func quote(s string) string {
	if len(s) <= 120 {
		return fmt.Sprintf("%q", s)
	}
	return fmt.Sprintf("%q ... %q (%d)", s[:60], s[len(s)-40:], len(s))
}

// TestTranscripts: what was written by hand from reading the traces is what the
// fold makes of them. A section "# after N: …" is the whole state after line N.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "expect", "*.txt"))
	if err != nil || len(files) < 9 {
		t.Fatalf("expectations: %v, %v", files, err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			s, all := newState(), steps(t, name)
			for _, section := range strings.Split(strings.TrimSpace(string(text)), "\n\n") {
				head, want, _ := strings.Cut(section+"\n", "\n")
				var after protocol.Seq
				if _, err := fmt.Sscanf(head, "# after %d", &after); err != nil {
					t.Fatalf("%q: %v", head, err)
				}
				for s.Seq < after {
					apply(s, all[s.Seq])
				}
				compare(t, head, show(s), want)
			}
		})
	}
}

// compare compares line by line.
func compare(t *testing.T, head, got, want string) {
	t.Helper()
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range max(len(g), len(w)) {
		var have, need string
		if i < len(g) {
			have = g[i]
		}
		if i < len(w) {
			need = w[i]
		}
		if have != need {
			t.Errorf("%s, line %d:\n got %s\nwant %s", head, i+1, have, need)
		}
	}
}

// TestSplit: at every event of every trace, a state that goes through its bytes
// folds on to the same bytes.
// Proves I-S2 (the adapter's part).
func TestSplit(t *testing.T) {
	for _, name := range traces(t) {
		t.Run(name, func(t *testing.T) {
			all := steps(t, name)
			whole, pieces := newState(), newState()
			for i, st := range all {
				apply(whole, st)
				pieces = decode(t, encode(t, pieces))
				apply(pieces, st)
				if w, p := encode(t, whole), encode(t, pieces); !bytes.Equal(w, p) {
					t.Fatalf("event %d: folded at once\n%s\nin pieces\n%s", i+1, w, p)
				}
			}
			if w, p := encode(t, whole), encode(t, pieces); !bytes.Equal(w, p) {
				t.Fatalf("folded at once\n%s\nin pieces\n%s", w, p)
			}
		})
	}
}

// TestNothingLost: every text in what pi calls ended (a message, a content, a tool's
// execution, a turn, a run, a retry, a compaction) is in an item from then on.
func TestNothingLost(t *testing.T) {
	kinds := map[string]int{}
	for _, name := range traces(t) {
		t.Run(name, func(t *testing.T) {
			s := newState()
			for i, st := range steps(t, name) {
				apply(s, st)
				for kind, texts := range endedTexts(t, st.line) {
					kinds[kind] += len(texts)
					for _, text := range texts {
						if !slices.ContainsFunc(s.Items, func(it protocol.Item) bool { return says(&it, kind, text) }) {
							t.Errorf("event %d, %s: no item says %.80q", i+1, kind, text)
						}
					}
				}
			}
		})
	}
	for _, kind := range []string{
		"message_end", "text_end", "thinking_end", "toolcall_end", "tool_execution_end", "turn_end", "agent_end", "auto_retry_end", "compaction_end",
	} {
		if kinds[kind] == 0 {
			t.Errorf("no trace has a text in a %s", kind)
		}
	}
}

// says reports whether an item has a text, whole: of a message as its own, of the
// others maybe among more.
func says(it *protocol.Item, kind, text string) bool {
	if kind == "message_end" {
		return it.Text == text || it.Tool != nil && (it.Tool.Output == text || it.Tool.Args == text)
	}
	return strings.Contains(it.Text, text) || it.Tool != nil && (strings.Contains(it.Tool.Output, text) || it.Tool.Args == text)
}

// ended is a message, a content or a result that is whole.
type ended struct {
	Role         string
	Content      json.RawMessage // a text, or a list of ended
	Text         string
	Thinking     string
	Arguments    json.RawMessage
	ErrorMessage string
	Summary      string
}

// texts are all texts of it.
func (e *ended) texts(t *testing.T) (all []string) {
	t.Helper()
	if e == nil || e.Role == "system" {
		return nil
	}
	var text string
	var list []ended
	if len(e.Content) > 0 && json.Unmarshal(e.Content, &text) != nil {
		if err := json.Unmarshal(e.Content, &list); err != nil {
			t.Fatalf("content %s: %v", e.Content, err)
		}
	}
	for _, text := range []string{text, e.Text, e.Thinking, string(e.Arguments), e.ErrorMessage, e.Summary} {
		if text != "" {
			all = append(all, text)
		}
	}
	for i := range list {
		all = append(all, list[i].texts(t)...)
	}
	return all
}

// endedTexts are the texts of what ends with a line, by the kind of its event.
func endedTexts(t *testing.T, line []byte) map[string][]string {
	t.Helper()
	var e struct {
		Type                  string
		Message               *ended
		Messages, ToolResults []ended
		Result                *ended
		FinalError            string
		ErrorMessage          string
		AssistantMessageEvent struct {
			Type     string
			Content  string
			ToolCall *ended
		}
	}
	if json.Unmarshal(line, &e) != nil {
		return nil
	}
	if u := &e.AssistantMessageEvent; e.Type == "message_update" && strings.HasSuffix(u.Type, "_end") {
		return map[string][]string{u.Type: append((&ended{Text: u.Content}).texts(t), u.ToolCall.texts(t)...)}
	}
	if !strings.HasSuffix(e.Type, "_end") {
		return nil
	}
	texts := (&ended{Text: e.FinalError, ErrorMessage: e.ErrorMessage}).texts(t)
	texts = append(append(texts, e.Message.texts(t)...), e.Result.texts(t)...)
	for i := range e.Messages {
		texts = append(texts, e.Messages[i].texts(t)...)
	}
	for i := range e.ToolResults {
		texts = append(texts, e.ToolResults[i].texts(t)...)
	}
	return map[string][]string{e.Type: texts}
}

// TestLongAnswer: of an answer of 3 MB, which pi says four times over, head and
// end stay, at every moment.
func TestLongAnswer(t *testing.T) {
	text := strings.Repeat("0123456789abcdef\u20ac\n", 150_000)
	quoted, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	s := newState()
	for _, line := range []string{
		start, reply, update(`"type":"text_start","contentIndex":0`),
		update(`"type":"text_delta","contentIndex":0,"delta":` + string(quoted)),
		update(`"type":"text_end","contentIndex":0,"content":` + string(quoted)),
		`{"type":"message_end","message":{"role":"assistant","content":[{"type":"text","text":` + string(quoted) + `}],"stopReason":"stop"}}`,
		`{"type":"turn_end","message":{"content":[{"type":"text","text":` + string(quoted) + `}]}}`,
		`{"type":"agent_end","messages":[{"content":[{"type":"text","text":` + string(quoted) + `}]}],"willRetry":false}`,
	} {
		s.Seq++
		fold(s, line)
		if s.Seq < 4 {
			continue
		}
		it := s.Items[0]
		head, end := it.Text[:protocol.ItemTextBytes/2-2], it.Text[protocol.ItemTextBytes/2:]
		if len(s.Items) != 1 || !strings.HasPrefix(text, head) || !strings.HasSuffix(text, end) ||
			len(it.Text)+int(it.Truncated) < len(text) || len(it.Text)+int(it.Truncated) > len(text)+3 {
			t.Fatalf("event %d: %d items, %d bytes, %d left out of %d", s.Seq, len(s.Items), len(it.Text), it.Truncated, len(text))
		}
	}
	if it := s.Items[0]; it.Status != protocol.ItemDone || s.Turn != nil {
		t.Errorf("%s, turn %v", it.Status, s.Turn)
	}
}
