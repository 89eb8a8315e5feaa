package tui

import (
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"rejoin/client"
	"rejoin/cmd/rejoin/internal/printable"
	"rejoin/protocol"
)

const (
	queueLines = 3 // of what waits for the agent
	heightMin  = 5 // below it only the end of the transcript and the input are shown
)

// View draws the screen: header, transcript, what waits, the question, the input,
// the state of the link.
func (m *model) View() tea.View {
	v := tea.View{AltScreen: true, WindowTitle: "rejoin " + m.session}
	if m.width <= 0 || m.height <= 0 {
		return v
	}
	var below []string
	top := append([]string{m.drawHeader()}, m.drawFold()...)
	if m.height >= heightMin {
		below = append(below, m.drawQueue()...)
		below = append(below, few(m.drawSent(), "⇡")...)
		below = append(below, m.drawQuestion(m.width)...)
		if limit := max(0, m.height-heightMin-len(top)+1); len(below) > limit {
			below = below[len(below)-limit:]
		}
	}
	lead := m.lead()
	text, column := m.input.draw(max(1, m.width-lipgloss.Width(lead)-1))
	bottom := append(below, lead+text, m.drawFooter())
	if m.height < heightMin {
		top, bottom = nil, bottom[len(bottom)-min(len(bottom), m.height):]
	}
	m.room = max(0, m.height-len(top)-len(bottom))
	lines := append(top, m.drawTranscript(m.room)...)
	lines = append(lines, bottom...)
	v.SetContent(strings.Join(lines, "\n"))
	if row := len(lines) - 2; row >= 0 {
		v.Cursor = tea.NewCursor(lipgloss.Width(lead)+column, row)
	}
	return v
}

// lead stands before the input and says what Enter does.
func (m *model) lead() string {
	s := m.view.State()
	switch {
	case m.question() != nil:
		return "answer> "
	case s != nil && s.Turn != nil:
		return "steer> "
	}
	return "> "
}

func (m *model) drawHeader() string {
	parts := []string{m.session}
	if s := m.view.State(); s != nil {
		if s.Title != "" {
			parts = append(parts, s.Title)
		}
		agent := s.Agent.Name
		if s.Agent.Model != "" {
			agent += " " + s.Agent.Model
		}
		parts = append(parts, agent, string(s.Status))
		if u := s.Usage; u != nil && u.InputTokens+u.OutputTokens > 0 {
			parts = append(parts, fmt.Sprintf("%d in %d out", u.InputTokens, u.OutputTokens))
		}
	}
	line := oneLine(" "+strings.Join(parts, " · "), m.width)
	return styleHeader.Render(line + strings.Repeat(" ", max(0, m.width-lipgloss.Width(line))))
}

// drawTranscript fills room lines with the part of the transcript that the user
// looks at.
func (m *model) drawTranscript(room int) []string {
	m.text.set(m.width, m.all)
	var all [][]string
	total := 0
	add := func(lines []string) {
		if len(lines) > 0 {
			all, total = append(all, lines), total+len(lines)
		}
	}
	shown := len(m.older.items)
	s := m.view.State()
	switch {
	case s == nil:
	case m.older.fetching:
		add([]string{styleDim.Render("… fetching what was before")})
	case m.older.end, m.older.known && m.older.dropped == 0, !m.older.known && s.ItemsDropped == 0:
	default:
		add([]string{styleDim.Render("… PgUp shows what was before")})
	}
	for i := range m.older.items {
		add(m.text.lines(&m.older.items[i]))
	}
	if m.gap {
		add([]string{styleDim.Render("… End leads back to the present")})
	}
	if s != nil {
		shown += len(s.Items)
		for i := range s.Items {
			add(m.text.lines(&s.Items[i]))
		}
		add(m.drawState(s))
	}
	m.text.forget(shown)
	if m.up > 0 {
		m.up += total - m.total // stay where the user reads
	}
	m.total = total
	m.up = min(max(m.up, 0), max(0, total-room))
	return window(all, total-m.up-room, room)
}

// window is room lines of all from the line first on; before the first there are
// empty ones.
func window(all [][]string, first, room int) []string {
	out := make([]string, 0, room)
	for first < 0 && len(out) < room {
		out, first = append(out, ""), first+1
	}
	for _, lines := range all {
		if first >= len(lines) {
			first -= len(lines)
			continue
		}
		for _, l := range lines[first:] {
			if len(out) == room {
				return out
			}
			out = append(out, l)
		}
		first = 0
	}
	return out
}

// drawState says after the transcript why it does not go on.
func (m *model) drawState(s *protocol.State) []string {
	switch s.Status {
	case protocol.StatusEnded:
		how := "ended"
		if e := s.Exit; e != nil {
			how = "ended (" + e.Reason + ")"
			if e.Code != nil {
				how = fmt.Sprintf("exited with code %d", *e.Code)
			} else if e.Signal != nil {
				how = "ended by " + *e.Signal
			}
		}
		return []string{styleAsk.Render(oneLine("-- the program "+printable.Line(how)+"; Ctrl-R runs it again", m.width))}
	case protocol.StatusInterrupted:
		return []string{styleAsk.Render(oneLine("-- interrupted; Ctrl-R resumes", m.width))}
	case protocol.StatusStarting, protocol.StatusIdle, protocol.StatusBusy, protocol.StatusWaiting:
	}
	if m.waits != "" {
		return []string{styleAsk.Render(oneLine("-- waits: "+printable.Line(m.waits), m.width))}
	}
	return nil
}

// drawQueue shows what waits to be told to the agent.
func (m *model) drawQueue() []string {
	s := m.view.State()
	if s == nil {
		return nil
	}
	var out []string
	for _, q := range s.Queue.Steering {
		out = append(out, styleDim.Render(oneLine("↳ "+q, m.width)))
	}
	for _, q := range s.Queue.FollowUp {
		out = append(out, styleDim.Render(oneLine("↳ later: "+q, m.width)))
	}
	return few(out, "↳")
}

// few is the beginning of a list, and how much more there is of it.
func few(lines []string, lead string) []string {
	if more := len(lines) - queueLines; more > 0 {
		return append(lines[:queueLines:queueLines], styleDim.Render(fmt.Sprintf("%s %d more", lead, more)))
	}
	return lines
}

// drawFold says when server and client do not fold alike.
func (m *model) drawFold() []string {
	if m.view.State() == nil || m.view.Own() {
		return nil
	}
	server, here := m.view.Versions()
	text := fmt.Sprintf("-- this program folds %s by version %d, the server by %d: what is shown may not be all, another rejoin shows more",
		printable.Line(here.Adapter), here.Version, server.Version)
	return []string{styleAsk.Render(oneLine(text, m.width))}
}

// drawFooter shows a note, or the state of the link and what keys do.
func (m *model) drawFooter() string {
	if m.note != "" {
		style := styleDim
		if m.bad {
			style = styleBad
		}
		return style.Render(oneLine(printable.Line(m.note), m.width))
	}
	keys := "Enter sends · PgUp back · Ctrl-T details · Ctrl-C leaves"
	if s := m.view.State(); s != nil && s.Turn != nil && m.question() == nil {
		keys = "Enter steers · Alt-Enter later · Esc interrupts · Ctrl-C leaves"
	}
	if m.up > 0 {
		keys = fmt.Sprintf("%d lines below · End leads there", m.up)
	}
	return styleDim.Render(oneLine(m.drawLink()+" · "+keys, m.width))
}

func (m *model) drawLink() string {
	switch {
	case m.gone != "":
		return "○ the session is " + m.gone
	case m.link.State == client.LinkLost:
		return fmt.Sprintf("○ link lost, trying again in %s", m.link.Wait.Round(100*time.Millisecond))
	case m.link.State == client.LinkConnecting:
		return "○ connecting"
	case !m.synced:
		return "◐ catching up"
	case m.asked > 0:
		return "● sending"
	}
	return "● live"
}
