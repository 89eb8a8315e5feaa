package mockmodel

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// A Request is what an agent asked.
type Request struct {
	Model    string
	Tools    []string
	Dialog   []string // "user: text", "assistant: text [bash command]", "tool: text", without the system's part
	Prompt   string   // the newest user message
	Results  int      // tool results after it
	HungUp   bool     // the agent closed the connection before the end of the answer
	Answered bool     // to its end
}

// decode reads the body of a request.
func decode(body []byte) (*Request, error) {
	var in struct {
		Model    string
		Stream   bool
		Messages []message
		Tools    []struct{ Function struct{ Name string } }
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, fmt.Errorf("mockmodel: read a request: %w", err)
	}
	if !in.Stream {
		return nil, errors.New("mockmodel: a request for an answer in one piece")
	}
	r := &Request{Model: in.Model}
	for _, t := range in.Tools {
		r.Tools = append(r.Tools, t.Function.Name)
	}
	for i := range in.Messages {
		m := &in.Messages[i]
		text, err := m.text()
		if err != nil {
			return nil, err
		}
		switch m.Role {
		case "user":
			r.Prompt, r.Results = text, 0
		case "tool":
			r.Results++
		case "assistant":
			for _, c := range m.ToolCalls {
				text += " [" + c.Function.Name + " " + c.Function.Arguments + "]"
			}
		default: // system, developer
			continue
		}
		r.Dialog = append(r.Dialog, m.Role+": "+text)
	}
	return r, nil
}

type message struct {
	Role      string
	Content   json.RawMessage
	ToolCalls []struct {
		Function struct{ Name, Arguments string }
	} `json:"tool_calls"`
}

// text is the content, a string or parts of which some are text.
func (m *message) text() (string, error) {
	if len(m.Content) == 0 || string(m.Content) == "null" {
		return "", nil
	}
	var s string
	if json.Unmarshal(m.Content, &s) == nil {
		return s, nil
	}
	var parts []struct{ Text string }
	if err := json.Unmarshal(m.Content, &parts); err != nil {
		return "", fmt.Errorf("mockmodel: read a message: %w", err)
	}
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.Text)
	}
	return b.String(), nil
}
