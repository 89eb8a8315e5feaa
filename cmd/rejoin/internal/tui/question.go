package tui

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	tea "charm.land/bubbletea/v2"

	"rejoin/client"
	"rejoin/protocol"
)

const (
	questionLines = 8 // of its message
	keyOptions    = 9 // so many are chosen by one key; of more the number is typed and sent by Enter
	optionLines   = 24
)

// question is the oldest open one, or nil.
func (m *model) question() *protocol.Interaction {
	s := m.view.State()
	if s == nil || len(s.Pending) == 0 {
		return nil
	}
	return &s.Pending[0]
}

func yesNo(q *protocol.Interaction) bool { return q.Kind == "confirm" || q.Kind == "approval" }

// answerKey answers a question by one key; nil when the key is no answer.
func (m *model) answerKey(q *protocol.Interaction, key string) tea.Cmd {
	switch {
	case key == "esc":
		return m.respond(q, protocol.RespondCancel, nil)
	case !m.input.empty():
		return nil
	case yesNo(q) && key == "y":
		return m.respond(q, protocol.RespondAllow, nil)
	case yesNo(q) && key == "n":
		return m.respond(q, protocol.RespondDeny, nil)
	case len(q.Options) > 0 && len(q.Options) <= keyOptions && len(key) == 1:
		return m.choose(q, key)
	}
	return nil
}

// answerText answers a question by what was typed.
func (m *model) answerText(q *protocol.Interaction, text string) tea.Cmd {
	switch {
	case yesNo(q):
		switch strings.ToLower(strings.TrimSpace(text)) {
		case "y", "yes":
			return m.respond(q, protocol.RespondAllow, nil)
		case "n", "no":
			return m.respond(q, protocol.RespondDeny, nil)
		}
		m.say("y or n, please")
		return nil
	case len(q.Options) > 0:
		if cmd := m.choose(q, strings.TrimSpace(text)); cmd != nil {
			return cmd
		}
		m.say(fmt.Sprintf("a number from 1 to %d, please", len(q.Options)))
		return nil
	}
	return m.respond(q, protocol.RespondAnswer, text)
}

// choose answers by the number of an option; nil when there is none of it.
func (m *model) choose(q *protocol.Interaction, number string) tea.Cmd {
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 || n > len(q.Options) {
		return nil
	}
	return m.respond(q, protocol.RespondAnswer, q.Options[n-1].ID)
}

func (m *model) respond(q *protocol.Interaction, outcome string, value any) tea.Cmd {
	var raw json.RawMessage
	if value != nil {
		b, err := json.Marshal(value)
		if err != nil {
			m.fail(err)
			return nil
		}
		raw = b
	}
	id := q.InteractionID
	if m.answering == id {
		m.say("the answer is on its way")
		return nil
	}
	m.answering = id
	return m.request(func() error {
		ctx, cancel := m.within()
		defer cancel()
		_, err := m.client.Respond(ctx, m.session, id, outcome, raw, client.SendOptions{})
		return err
	})
}

// drawQuestion draws the open question and how it is answered.
func (m *model) drawQuestion(width int) []string {
	q := m.question()
	if q == nil {
		return nil
	}
	title := q.Title
	if title == "" {
		title = q.Kind
	}
	if n := len(m.view.State().Pending); n > 1 {
		title += fmt.Sprintf(" (1 of %d)", n)
	}
	out := []string{styleAsk.Render(oneLine("? "+title, width))}
	if q.Message != "" {
		lines := wrap(q.Message, max(1, width-2))
		if len(lines) > questionLines {
			lines = append(lines[:questionLines:questionLines], fmt.Sprintf("… %d lines more", len(lines)-questionLines))
		}
		for _, l := range lines {
			out = append(out, "  "+l)
		}
	}
	for i, o := range q.Options {
		if i == optionLines && len(q.Options) > optionLines {
			out = append(out, fmt.Sprintf("  … %d in all", len(q.Options)))
			break
		}
		out = append(out, oneLine(fmt.Sprintf("  %d  %s", i+1, o.Label), width))
	}
	how := "type the answer, Enter sends it"
	switch {
	case yesNo(q):
		how = "y yes · n no"
	case len(q.Options) > keyOptions:
		how = "type a number, Enter sends it"
	case len(q.Options) > 0:
		how = "a number chooses"
	}
	return append(out, styleDim.Render(oneLine("  "+how+" · Esc cancels", width)))
}
