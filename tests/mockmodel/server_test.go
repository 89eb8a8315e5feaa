package mockmodel_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"rejoin/tests/harness"
	"rejoin/tests/mockmodel"
)

func TestMain(m *testing.M) { harness.Main(m, nil) }

// ask sends messages and returns the answer as text, thoughts in parentheses and
// calls in brackets.
func ask(t *testing.T, s *mockmodel.Server, messages string) string {
	t.Helper()
	body := `{"model":"m","stream":true,"messages":` + messages + `,"tools":[{"type":"function","function":{"name":"bash"}}]}`
	req, err := http.NewRequestWithContext(harness.Context(t), http.MethodPost, s.URL()+"/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return res.Status
	}
	var b strings.Builder
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok || data == "[DONE]" {
			b.WriteString(strings.TrimPrefix(data, "[DONE]"))
			continue
		}
		var c struct {
			Choices []struct {
				Delta struct {
					Content          string
					ReasoningContent string `json:"reasoning_content"`
					ToolCalls        []struct {
						ID       string
						Function struct{ Arguments string }
					} `json:"tool_calls"`
				}
				Finish string `json:"finish_reason"`
			}
		}
		if err := json.Unmarshal([]byte(data), &c); err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		d := c.Choices[0].Delta
		b.WriteString(d.Content)
		if d.ReasoningContent != "" {
			b.WriteString("(" + d.ReasoningContent + ")")
		}
		for _, call := range d.ToolCalls {
			b.WriteString("[" + call.ID + " " + call.Function.Arguments + "]")
		}
		if f := c.Choices[0].Finish; f != "" {
			b.WriteString("." + f)
		}
	}
	if err := lines.Err(); err != nil {
		b.WriteString(" cut")
	}
	http.DefaultClient.CloseIdleConnections()
	return b.String()
}

func TestAnswers(t *testing.T) {
	s := mockmodel.Start(t)
	open := mockmodel.NewGate()
	open.Open()
	s.On("twice", mockmodel.Steps(mockmodel.Fail(429)), mockmodel.Steps(mockmodel.Text("a "), mockmodel.Hold(open), mockmodel.Text("b")))
	s.On("cut", mockmodel.Steps(mockmodel.Text("a "), mockmodel.Cut()))
	s.On("two calls", mockmodel.Steps(mockmodel.Bash("a"), mockmodel.Bash("b")))
	user := func(text string) string {
		return `[{"role":"system","content":"s"},{"role":"user","content":"` + text + `"}]`
	}
	for _, c := range []struct{ name, messages, want string }{
		{"text", user("hello"), "You said: hello.stop"},
		{"parts", `[{"role":"user","content":[{"type":"text","text":"think of x"}]}]`, "(of )(x)I have thought. .stop"},
		{"tool", user("run ls -l"), `I run it. [call_1 {"command":"ls -l"}].tool_calls`},
		{"its result", `[{"role":"user","content":"run ls"},{"role":"assistant","content":null,"tool_calls":[{"function":{"name":"bash","arguments":"{}"}}]},{"role":"tool","content":"x"}]`, "It ran. .stop"},
		{"first", user("twice"), "429 Too Many Requests"},
		{"second", user("twice"), "a b.stop"},
		{"the last again", user("twice"), "a b.stop"},
		{"calls", user("two calls"), `[call_2 {"command":"a"}][call_3 {"command":"b"}].tool_calls`},
		{"cut", user("cut"), "a  cut"},
	} {
		if got := ask(t, s, c.messages); got != c.want {
			t.Errorf("%s: answered %q, want %q", c.name, got, c.want)
		}
	}
	all := s.Requests()
	if r := all[3]; len(all) != 9 || r.Results != 1 || r.Model != "m" || !slices.Equal(r.Tools, []string{"bash"}) ||
		!slices.Equal(r.Dialog, []string{"user: run ls", "assistant:  [bash {}]", "tool: x"}) {
		t.Errorf("it was asked %+v", all)
	}
}
