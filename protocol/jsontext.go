package protocol

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// The functions of this file walk text that ValidateJSON has passed. On other
// text they return something useless, but they do not panic.

// Compact appends b, a valid JSON value, without insignificant white space.
func Compact(dst, b []byte) []byte {
	for i := 0; i < len(b); {
		switch b[i] {
		case ' ', '\t', '\n', '\r':
			i++
		case '"':
			end := stringEnd(b, i)
			dst = append(dst, b[i:end]...)
			i = end
		default:
			end := i + 1
			for end < len(b) && b[end] > ' ' && b[end] != '"' {
				end++
			}
			dst = append(dst, b[i:end]...)
			i = end
		}
	}
	return dst
}

// stringEnd returns the index behind the string whose opening quote is at i.
func stringEnd(b []byte, i int) int {
	i++
	for {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return len(b)
		}
		end := i + n
		k := end
		for k > i && b[k-1] == '\\' {
			k--
		}
		if (end-k)&1 == 0 {
			return end + 1
		}
		i = end + 1
	}
}

// valueEnd returns the index behind the value that starts at i.
func valueEnd(b []byte, i int) int {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			i = stringEnd(b, i)
		case '{', '[':
			depth++
			i++
			continue
		case '}', ']':
			depth--
			i++
		default:
			if depth > 0 {
				i++
				continue
			}
			for i < len(b) && !endsScalar(b[i]) {
				i++
			}
			return i
		}
		if depth <= 0 {
			return i
		}
	}
	return i
}

func endsScalar(c byte) bool {
	switch c {
	case ',', '}', ']', ' ', '\t', '\n', '\r':
		return true
	}
	return false
}

// unquote returns the text of a JSON string: a part of raw where it has no
// escapes. Half a surrogate pair becomes U+FFFD.
func unquote(raw []byte) []byte {
	if len(raw) < 2 {
		return nil
	}
	text := unescape(raw[1:len(raw)-1], utf8.RuneError)
	if utf8.Valid(text) {
		return text
	}
	return bytes.ToValidUTF8(text, []byte("\uFFFD"))
}

// unescape resolves the escapes of a string's inside. With lone zero, half a
// surrogate pair keeps a value of its own (three bytes that are not UTF-8), so
// that different names stay different; else it becomes the rune lone.
func unescape(s []byte, lone rune) []byte {
	if bytes.IndexByte(s, '\\') < 0 {
		return s
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); {
		if s[i] != '\\' || i+1 >= len(s) {
			out = append(out, s[i])
			i++
			continue
		}
		c := s[i+1]
		if c != 'u' {
			out = append(out, unescapeByte(c))
			i += 2
			continue
		}
		r, n := unescapeRune(s[i:])
		i += n
		if utf16.IsSurrogate(r) {
			if lone == 0 {
				out = append(out, 0xe0|byte(r>>12), 0x80|byte(r>>6)&0x3f, 0x80|byte(r)&0x3f)
				continue
			}
			r = lone
		}
		out = utf8.AppendRune(out, r)
	}
	return out
}

func unescapeByte(c byte) byte {
	switch c {
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	}
	return c
}

// unescapeRune reads the \u escape at the start of s, or the two of a surrogate
// pair, and returns how many bytes it took.
func unescapeRune(s []byte) (r rune, n int) {
	if len(s) < 6 {
		return utf8.RuneError, len(s)
	}
	r, _ = hex4(s[2:])
	if utf16.IsSurrogate(r) && len(s) >= 12 && s[6] == '\\' && s[7] == 'u' {
		low, _ := hex4(s[8:])
		if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
			return pair, 12
		}
	}
	return r, 6
}

// AppendString appends s as a JSON string. Valid UTF-8 stays as it is, U+2028
// too; bytes that are none become U+FFFD.
func AppendString(dst []byte, s string) []byte { return appendString(dst, s) }

const hexDigits = "0123456789abcdef"

func appendString[T string | []byte](dst []byte, s T) []byte {
	dst = append(dst, '"')
	done := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= 0x20 && c < utf8.RuneSelf && c != '"' && c != '\\' {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			n := min(utf8.UTFMax, len(s)-i)
			r, size := utf8.DecodeRuneInString(string(s[i : i+n]))
			if r != utf8.RuneError || size != 1 {
				i += size
				continue
			}
			dst = append(dst, s[done:i]...)
			dst = utf8.AppendRune(dst, utf8.RuneError)
			i++
			done = i
			continue
		}
		dst = append(dst, s[done:i]...)
		dst = appendEscape(dst, c)
		i++
		done = i
	}
	dst = append(dst, s[done:]...)
	return append(dst, '"')
}

func appendEscape(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\b':
		return append(dst, '\\', 'b')
	case '\f':
		return append(dst, '\\', 'f')
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	}
	return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
}

// DecodeString returns the text of raw, a valid JSON value, where it is a
// string. Half a surrogate pair becomes U+FFFD, and so does a run of bytes that
// are not UTF-8: what is decoded can be encoded and decoded again.
func DecodeString(raw RawJSON) (s string, ok bool) {
	if len(raw) < 2 || raw[0] != '"' {
		return "", false
	}
	return string(unquote(raw)), true
}
