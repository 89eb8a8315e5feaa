package tui

import (
	"slices"
	"strings"

	"charm.land/lipgloss/v2"
)

// inputRunesMax bounds what is typed; a longer paste is cut.
const inputRunesMax = 256 << 10

// input is the line that is being typed. A pasted text may have several lines.
type input struct {
	text []rune
	at   int // cursor, 0 to len(text)
}

func (in *input) empty() bool { return len(in.text) == 0 }

// take returns what was typed and empties the line.
func (in *input) take() string {
	s := string(in.text)
	*in = input{}
	return s
}

func (in *input) insert(s string) {
	add := []rune(strings.ReplaceAll(s, "\r\n", "\n"))
	add = add[:min(len(add), inputRunesMax-len(in.text))]
	in.text = slices.Insert(in.text, in.at, add...)
	in.at += len(add)
}

// cut removes the runes from a to b.
func (in *input) cut(a, b int) {
	a, b = max(a, 0), min(b, len(in.text))
	if a < b {
		in.text = slices.Delete(in.text, a, b)
		in.at = a
	}
}

// word is where the word before the cursor begins.
func (in *input) word() int {
	i := in.at
	for i > 0 && in.text[i-1] == ' ' {
		i--
	}
	for i > 0 && in.text[i-1] != ' ' {
		i--
	}
	return i
}

// edit does what a key does to the line; false when it does nothing to it.
func (in *input) edit(key string) bool {
	switch key {
	case "backspace":
		in.cut(in.at-1, in.at)
	case "delete":
		in.cut(in.at, in.at+1)
	case "ctrl+u":
		in.cut(0, in.at)
	case "ctrl+k":
		in.cut(in.at, len(in.text))
	case "ctrl+w", "alt+backspace":
		in.cut(in.word(), in.at)
	case "left", "ctrl+b":
		in.at = max(in.at-1, 0)
	case "right":
		in.at = min(in.at+1, len(in.text))
	case "ctrl+a":
		in.at = 0
	case "ctrl+e":
		in.at = len(in.text)
	default:
		return false
	}
	return true
}

// draw returns the part of the line around the cursor that fits width, and the
// cursor's column in it.
func (in *input) draw(width int) (string, int) {
	shown := func(from, to int) string {
		return strings.NewReplacer("\n", "⏎", "\t", " ").Replace(string(in.text[from:to]))
	}
	from := max(0, in.at-width)
	for from < in.at && lipgloss.Width(shown(from, in.at)) >= width {
		from++
	}
	column := lipgloss.Width(shown(from, in.at))
	to := in.at
	for to < len(in.text) && to-from < width && lipgloss.Width(shown(from, to+1)) <= width {
		to++
	}
	return shown(from, to), column
}
