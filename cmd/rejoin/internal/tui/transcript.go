package tui

import (
	"fmt"
	"strings"

	"charm.land/lipgloss/v2"

	"rejoin/cmd/rejoin/internal/printable"
	"rejoin/protocol"
)

var (
	styleUser   = lipgloss.NewStyle().Bold(true)
	styleDim    = lipgloss.NewStyle().Faint(true)
	styleTool   = lipgloss.NewStyle().Foreground(lipgloss.Cyan)
	styleBad    = lipgloss.NewStyle().Foreground(lipgloss.Red)
	styleAsk    = lipgloss.NewStyle().Foreground(lipgloss.Yellow).Bold(true)
	styleHeader = lipgloss.NewStyle().Reverse(true)
	stylePlain  = lipgloss.NewStyle()
)

// How many lines of a thought or a tool's output are shown unless all are wanted.
const (
	thinkingLines = 3
	toolLines     = 6
)

// transcript draws items as lines and remembers what it drew.
type transcript struct {
	width int
	all   bool // thoughts and outputs are shown whole
	drawn map[string]drawn
}

// drawn are the lines of an item as it was.
type drawn struct {
	seq    protocol.Seq // its LastSeq then
	status string
	lines  []string
}

// set tells the width and how much to show.
func (t *transcript) set(width int, all bool) {
	if t.width != width || t.all != all || t.drawn == nil {
		t.width, t.all, t.drawn = width, all, make(map[string]drawn)
	}
}

// lines returns the lines of an item.
func (t *transcript) lines(it *protocol.Item) []string {
	d, ok := t.drawn[it.ID]
	if !ok || d.seq != it.LastSeq || d.status != it.Status {
		d = drawn{seq: it.LastSeq, status: it.Status, lines: t.draw(it)}
		t.drawn[it.ID] = d
	}
	return d.lines
}

// forget drops what was drawn of items that are not shown any more.
func (t *transcript) forget(shown int) {
	if len(t.drawn) > 2*shown+protocol.StateItemsMax {
		t.drawn = make(map[string]drawn)
	}
}

func (t *transcript) draw(it *protocol.Item) []string {
	var out []string
	switch it.Kind {
	case protocol.ItemUser:
		out = t.block("› ", it.Text, styleUser, 0)
	case protocol.ItemThinking:
		out = t.block("  ", it.Text, styleDim, thinkingLines)
	case protocol.ItemToolCall:
		out = t.tool(it)
	case protocol.ItemNotice:
		style := styleDim
		if it.Status == protocol.ItemError {
			style = styleBad
		}
		out = t.block("-- ", it.Text, style, 0)
	case protocol.ItemOutput:
		out = t.block("", strings.TrimSuffix(it.Text, "\n"), stylePlain, 0)
	case protocol.ItemAssistant:
		out = t.block("", it.Text, stylePlain, 0)
	default: // of a later version
		out = t.block("", it.Text, stylePlain, 0)
	}
	if it.Truncated > 0 {
		out = append(out, styleDim.Render(oneLine(fmt.Sprintf("(%d bytes are left out)", it.Truncated), t.width)))
	}
	if it.Status == protocol.ItemInterrupted {
		out = append(out, styleDim.Render(oneLine("(interrupted)", t.width)))
	}
	if it.Status == protocol.ItemError && it.Kind == protocol.ItemAssistant {
		out = append(out, styleBad.Render(oneLine("(failed)", t.width)))
	}
	return append(out, "")
}

// tool draws a call: a line that says what, and the end of its output.
func (t *transcript) tool(it *protocol.Item) []string {
	call := it.Tool
	if call == nil {
		call = &protocol.ItemTool{}
	}
	mark, style := "…", styleTool
	switch {
	case call.IsError || it.Status == protocol.ItemError:
		mark, style = "✗", styleBad
	case it.Status == protocol.ItemDone:
		mark = "✓"
	}
	out := []string{style.Render(oneLine(strings.TrimSpace(mark+" "+call.Name+" "+call.Args), t.width))}
	text := call.Output
	if it.Text != "" {
		text = it.Text + "\n" + text
	}
	if text = strings.TrimRight(text, "\n"); text != "" {
		out = append(out, t.block("  ", text, styleDim, toolLines)...)
	}
	return out
}

// block wraps a text behind a lead; of more than limit lines (0: any number) the
// last are shown.
func (t *transcript) block(lead, text string, style lipgloss.Style, limit int) []string {
	if text == "" {
		return nil
	}
	room := max(1, t.width-lipgloss.Width(lead))
	lines := wrap(text, room)
	indent := strings.Repeat(" ", lipgloss.Width(lead))
	if limit > 0 && !t.all && len(lines) > limit {
		more := oneLine(fmt.Sprintf("… %d lines more", len(lines)-limit), room)
		lines = append([]string{more}, lines[len(lines)-limit:]...)
	}
	for i, l := range lines {
		lines[i] = style.Render(lead + l)
		lead = indent
	}
	return lines
}

// wrap makes lines of a text of somebody else, none wider than width.
func wrap(text string, width int) []string {
	text = strings.ReplaceAll(printable.Text(text), "\t", "    ")
	return strings.Split(lipgloss.Wrap(text, max(1, width), ""), "\n")
}

// oneLine is as much of a text as fits one line.
func oneLine(text string, width int) string {
	lines := wrap(printable.Line(text), max(1, width-1))
	if len(lines) > 1 {
		return strings.TrimRight(lines[0], " ") + "…"
	}
	return lines[0]
}
