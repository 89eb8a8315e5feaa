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
	case oneKey(q) && len(key) == 1:
		return m.choose(q, key)
	}
	return nil
}

// oneKey reports whether the number of an option is an answer as soon as it is
// typed: all options are there, and few.
func oneKey(q *protocol.Interaction) bool {
	return len(q.Options) > 0 && len(q.Options) <= keyOptions && q.OptionsOmitted == 0
}

// acceptText answers an editor's question by the text that it begins with, or by
// nothing where the user has taken that away.
func (m *model) acceptText(q *protocol.Interaction) tea.Cmd {
	switch {
	case q.Kind != "editor":
	case m.editing == q.InteractionID:
		return m.respond(q, protocol.RespondAnswer, "")
	case q.Truncated > 0:
		m.say(tooLong)
	case q.Message != "":
		return m.respond(q, protocol.RespondAnswer, q.Message)
	}
	return nil
}

// editText puts the text that an editor's question begins with into the line.
func (m *model) editText(q *protocol.Interaction) {
	if q.Truncated > 0 {
		m.say(tooLong)
		return
	}
	if m.editing != q.InteractionID {
		m.editing = q.InteractionID
		m.input.insert(q.Message)
	}
}

const tooLong = "the text is too long to be at hand: only a new one can be given"

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
		if q.OptionsOmitted > 0 {
			return m.respond(q, protocol.RespondAnswer, text)
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
	if q.OptionsOmitted > 0 {
		out = append(out, oneLine(fmt.Sprintf("  … %d more are not at hand: type the text of one", q.OptionsOmitted), width))
	}
	how := "type the answer, Enter sends it"
	switch {
	case q.OptionsOmitted > 0:
		how = "type a number or a text, Enter sends it"
	case q.Kind == "editor" && q.Message != "" && q.Truncated == 0 && m.editing != q.InteractionID:
		how = "Enter takes the text as it is · Tab puts it into the line"
	case yesNo(q):
		how = "y yes · n no"
	case len(q.Options) > keyOptions:
		how = "type a number, Enter sends it"
	case len(q.Options) > 0:
		how = "a number chooses"
	}
	return append(out, styleDim.Render(oneLine("  "+how+" · Esc cancels", width)))
}
