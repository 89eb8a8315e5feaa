// Package printable makes texts of others safe to print: they cannot steer a
// terminal.
package printable

import (
	"strings"
	"unicode"
)

// Text is s with U+FFFD in place of control characters but line feed and tab, and
// of those that change the direction of the text around them.
func Text(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' || directs(r) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}

// Line is Text on one line.
func Line(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return ' '
		}
		return r
	}, Text(s))
}

// directs reports the overrides, embeddings and isolates of the bidirectional
// algorithm (UAX #9, table 3).
func directs(r rune) bool { return r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 }
