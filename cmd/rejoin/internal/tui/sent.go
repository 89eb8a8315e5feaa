package tui

import (
	"encoding/json"
	"errors"
	"slices"

	tea "charm.land/bubbletea/v2"

	"rejoin/client"
	"rejoin/cmd/rejoin/internal/printable"
	"rejoin/protocol"
)

// sentMax bounds the texts that are shown as on their way; of more the oldest are
// shown no longer.
const sentMax = 32

// sent is a text for the agent of which no event has said yet what became of it.
type sent struct {
	command  string // its id
	text     string
	recorded bool // the server has said so
}

// sentMsg is the server's answer to one.
type sentMsg struct {
	command string
	err     error
}

// tell gives the agent a text, which is shown as on its way until its outcome is
// known.
func (m *model) tell(text string, later bool) tea.Cmd {
	s := m.view.State()
	adapter, busy, id := s.Agent.Adapter, s.Turn != nil, client.NewCommandID()
	if len(m.sent) == sentMax {
		m.sent = m.sent[1:]
	}
	m.sent = append(m.sent, sent{command: id, text: text})
	m.asked++
	return func() tea.Msg {
		ctx, cancel := m.within()
		defer cancel()
		return sentMsg{id, m.speak(ctx, client.SendOptions{CommandID: id}, adapter, text, later, busy)}
	}
}

// answered takes the server's answer: a text that was refused goes back into the
// line, if nothing else was typed there meanwhile.
func (m *model) answered(msg sentMsg) {
	m.asked--
	i := m.onItsWay(msg.command)
	if msg.err != nil {
		m.fail(msg.err)
	}
	switch {
	case i < 0:
	case msg.err == nil:
		m.sent[i].recorded = true
	default:
		if m.input.empty() {
			m.input.insert(m.sent[i].text)
		}
		m.sent = slices.Delete(m.sent, i, i+1)
	}
}

func (m *model) onItsWay(command string) int {
	return slices.IndexFunc(m.sent, func(s sent) bool { return s.command == command })
}

// settle looks whether an event is the outcome of a text that is on its way.
func (m *model) settle(e *protocol.Event) {
	var b protocol.CommandOutcome
	if len(m.sent) == 0 || e.Source != protocol.SourceBroker || json.Unmarshal(e.Body, &b) != nil || b.Type != protocol.TypeCommandOutcome {
		return
	}
	i := m.onItsWay(b.CommandID)
	if i < 0 {
		return
	}
	m.sent = slices.Delete(m.sent, i, i+1)
	switch b.Outcome {
	case protocol.OutcomeFailed:
		var why struct{ Error string }
		if json.Unmarshal(b.Result, &why) != nil || why.Error == "" {
			why.Error = "it failed"
		}
		m.fail(errors.New("the agent does not take it: " + why.Error))
	case protocol.OutcomeDiscarded:
		m.fail(errors.New("the agent was not told: it ended before"))
	case protocol.OutcomeDone, protocol.OutcomeInterrupted, protocol.OutcomeAdmitted, protocol.OutcomeUnknown:
	}
}

// drawSent shows what is on its way.
func (m *model) drawSent() []string {
	var out []string
	for _, s := range m.sent {
		lead := "⇡ "
		if !s.recorded {
			lead = "… "
		}
		out = append(out, styleDim.Render(oneLine(lead+printable.Line(s.text), m.width)))
	}
	return out
}
