package protocol

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"unicode/utf8"
)

// A SyntaxError says where and why a text is not JSON.
type SyntaxError struct {
	Offset int    // bytes before the fault
	Msg    string // what is wrong there
}

// Error returns the message with its place.
func (e *SyntaxError) Error() string { return fmt.Sprintf("%s at offset %d", e.Msg, e.Offset) }

// ValidateJSON checks that b is one JSON value (RFC 8259) in valid UTF-8, with
// white space around it allowed, nested to any depth. It is one pass without
// recursion and, up to 64 levels, without allocation. The error is a
// *SyntaxError.
func ValidateJSON(b []byte) error {
	at, f := scan(b, int(^uint(0)>>1))
	if f == faultNone {
		return nil
	}
	return syntaxError(b, at, f)
}

// A fault is what stops a scan.
type fault uint8

const (
	faultNone fault = iota
	faultEnd
	faultByte
	faultControl
	faultEscape
	faultUTF8
	faultNesting
	faultTrailing
)

func syntaxError(b []byte, at int, f fault) *SyntaxError {
	e := &SyntaxError{Offset: at}
	switch f {
	case faultEnd:
		e.Msg = "unexpected end"
	case faultControl:
		e.Msg = fmt.Sprintf("control character 0x%02x in a string", b[at])
	case faultEscape:
		e.Msg = "bad escape in a string"
	case faultUTF8:
		e.Msg = "invalid UTF-8"
	case faultNesting:
		e.Msg = "nested too deeply"
	case faultTrailing:
		e.Msg = "data after the value"
	case faultByte, faultNone:
		if c := b[at]; c > 0x20 && c < 0x7f {
			e.Msg = fmt.Sprintf("unexpected %q", c)
		} else {
			e.Msg = fmt.Sprintf("unexpected byte 0x%02x", c)
		}
	}
	return e
}

// A levels is the stack of open arrays (0) and objects (1): 64 of them in a
// word, deeper ones on the heap.
type levels struct {
	depth int
	top   uint64
	spill []uint64
}

func (l *levels) push(kind uint64) {
	if l.depth&63 == 0 && l.depth > 0 {
		l.spill = append(l.spill, l.top)
		l.top = 0
	}
	l.top = l.top<<1 | kind
	l.depth++
}

func (l *levels) pop() {
	l.depth--
	l.top >>= 1
	if l.depth&63 == 0 && l.depth > 0 {
		l.top = l.spill[len(l.spill)-1]
		l.spill = l.spill[:len(l.spill)-1]
	}
}

// scan validates b, at most depthMax arrays and objects inside each other.
func scan(b []byte, depthMax int) (at int, f fault) {
	var open levels
	i := skipSpace(b, 0)
	for {
		if i == len(b) {
			return i, faultEnd
		}
		switch c := b[i]; c {
		case '"':
			if i, f = scanString(b, i+1); f != faultNone {
				return i, f
			}
		case '{', '[':
			if open.depth == depthMax {
				return i, faultNesting
			}
			i = skipSpace(b, i+1)
			if i < len(b) && b[i] == c+2 { // } and ] stand two after their openers
				i++
				break
			}
			if c == '[' {
				open.push(0)
				continue
			}
			open.push(1)
			if i, f = scanName(b, i); f != faultNone {
				return i, f
			}
			continue
		case 't', 'f', 'n':
			if i, f = scanLiteral(b, i); f != faultNone {
				return i, f
			}
		default:
			if i, f = scanNumber(b, i); f != faultNone {
				return i, f
			}
		}
		var more bool
		if i, more, f = scanAfter(b, i, &open); f != faultNone || !more {
			return i, f
		}
	}
}

// scanAfter goes on behind a value: it closes what ends there and stops before
// the next value, or with more false at the end of b.
func scanAfter(b []byte, i int, open *levels) (at int, more bool, f fault) {
	for {
		i = skipSpace(b, i)
		if open.depth == 0 {
			if i < len(b) {
				return i, false, faultTrailing
			}
			return i, false, faultNone
		}
		if i == len(b) {
			return i, false, faultEnd
		}
		switch c := b[i]; {
		case c == ',' && open.top&1 == 1:
			i, f = scanName(b, skipSpace(b, i+1))
			return i, true, f
		case c == ',':
			return skipSpace(b, i+1), true, faultNone
		case c == '}' && open.top&1 == 1, c == ']' && open.top&1 == 0:
			i++
			open.pop()
		default:
			return i, false, faultByte
		}
	}
}

// scanName passes a member's name and colon and the white space behind them.
func scanName(b []byte, i int) (at int, f fault) {
	if i == len(b) {
		return i, faultEnd
	}
	if b[i] != '"' {
		return i, faultByte
	}
	if i, f = scanString(b, i+1); f != faultNone {
		return i, f
	}
	i = skipSpace(b, i)
	if i == len(b) {
		return i, faultEnd
	}
	if b[i] != ':' {
		return i, faultByte
	}
	return skipSpace(b, i+1), faultNone
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// special marks in the high bit of a byte of w that it is a quote, a backslash,
// a control character or not ASCII. Only the lowest mark is exact: a borrow may
// mark bytes above it.
func special(w uint64) uint64 {
	return (w | (w - ones*0x20) | ((w ^ ones*'"') - ones) | ((w ^ ones*'\\') - ones)) & highs
}

// scanString passes a string whose opening quote stands before i.
func scanString(b []byte, i int) (at int, f fault) {
	for {
		for len(b)-i >= 8 {
			m := special(binary.LittleEndian.Uint64(b[i:]))
			if m != 0 {
				i += bits.TrailingZeros64(m) >> 3
				break
			}
			i += 8
		}
		if i >= len(b) {
			return len(b), faultEnd
		}
		switch c := b[i]; {
		case c == '"':
			return i + 1, faultNone
		case c == '\\':
			if i, f = scanEscape(b, i); f != faultNone {
				return i, f
			}
		case c < 0x20:
			return i, faultControl
		case c < utf8.RuneSelf:
			i++
		default:
			for i < len(b) && b[i] >= utf8.RuneSelf {
				r, n := utf8.DecodeRune(b[i:])
				if r == utf8.RuneError && n == 1 {
					return i, faultUTF8
				}
				i += n
			}
		}
	}
}

// scanEscape passes the escape that starts with the backslash at i.
func scanEscape(b []byte, i int) (at int, f fault) {
	if i+1 >= len(b) {
		return len(b), faultEnd
	}
	switch b[i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 2, faultNone
	case 'u':
		if len(b)-i < 6 {
			return len(b), faultEnd
		}
		if _, ok := hex4(b[i+2:]); ok {
			return i + 6, faultNone
		}
	}
	return i, faultEscape
}

func scanLiteral(b []byte, i int) (at int, f fault) {
	word := "null"
	switch b[i] {
	case 't':
		word = "true"
	case 'f':
		word = "false"
	}
	for k := 1; k < len(word); k++ {
		if i+k == len(b) {
			return len(b), faultEnd
		}
		if b[i+k] != word[k] {
			return i + k, faultByte
		}
	}
	return i + len(word), faultNone
}

func scanNumber(b []byte, i int) (at int, f fault) {
	if b[i] == '-' {
		i++
	}
	if i < len(b) && b[i] == '0' {
		i++
	} else if i, f = scanDigits(b, i); f != faultNone {
		return i, f
	}
	if i < len(b) && b[i] == '.' {
		if i, f = scanDigits(b, i+1); f != faultNone {
			return i, f
		}
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		return scanDigits(b, i)
	}
	return i, faultNone
}

// scanDigits passes one or more digits.
func scanDigits(b []byte, i int) (at int, f fault) {
	first := i
	for i < len(b) && b[i]-'0' < 10 {
		i++
	}
	if i > first {
		return i, faultNone
	}
	if i == len(b) {
		return i, faultEnd
	}
	return i, faultByte
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && b[i] <= ' ' && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// hex4 reads four hexadecimal digits.
func hex4(b []byte) (v rune, ok bool) {
	for _, c := range b[:4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return 0, false
		}
		v = v<<4 | rune(c)
	}
	return v, true
}
