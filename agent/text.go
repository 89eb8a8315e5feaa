package agent

import (
	"strings"
	"unicode/utf8"

	"rejoin/protocol"
)

// A Field is one of the texts of an item.
type Field uint8

// The fields. Args and Output are those of a tool item.
const (
	Text Field = iota
	Args
	Output
)

// A long text keeps its first headBytes bytes, padded with spaces where a
// character would be cut, and as much of its end as fits. A text that grows
// piece by piece gives up the older part of its end in larger steps, so that a
// byte is moved a few times only.
const (
	headBytes = protocol.ItemTextBytes / 2
	rollBytes = protocol.ItemTextBytes / 4
)

// Append adds to the end of a text.
func (t Transcript) Append(it *protocol.Item, f Field, more string) {
	more = valid(more)
	text := t.text(it, f)
	it.LastSeq = t.e.Seq
	if len(*text)+len(more) <= protocol.ItemTextBytes {
		*text = t.k.join(*text, more)
		t.grown(encodedBytes(more))
		return
	}
	before := encodedBytes(*text)
	whole := *text + more
	t.k.release(*text)
	left := truncated(it, f)
	if left == 0 {
		*text = shorten(whole, rollBytes)
		left = uint64(len(whole) - len(*text) + padding(whole))
	} else {
		tail := lastBytes(whole[headBytes:], rollBytes)
		left += uint64(len(whole) - headBytes - len(tail))
		*text = whole[:headBytes] + tail
	}
	setTruncated(it, f, left)
	t.grown(encodedBytes(*text) - before)
}

// Replace sets a text.
func (t Transcript) Replace(it *protocol.Item, f Field, whole string) {
	whole = valid(whole)
	text := t.text(it, f)
	it.LastSeq = t.e.Seq
	before := encodedBytes(*text)
	t.k.release(*text)
	left := uint64(0)
	*text = whole
	if len(whole) > protocol.ItemTextBytes {
		*text = shorten(whole, protocol.ItemTextBytes-headBytes)
		left = uint64(len(whole) - len(*text) + padding(whole))
	}
	setTruncated(it, f, left)
	t.grown(encodedBytes(*text) - before)
}

// text returns where a field of an item is.
func (t Transcript) text(it *protocol.Item, f Field) *string {
	if f == Text {
		return &it.Text
	}
	if it.Tool == nil {
		it.Tool = &protocol.ItemTool{}
	}
	if f == Args {
		return &it.Tool.Args
	}
	return &it.Tool.Output
}

// truncated returns how many bytes are left out of a field.
func truncated(it *protocol.Item, f Field) uint64 {
	switch {
	case it.Tool == nil:
		return it.Truncated
	case f == Args:
		return it.Tool.ArgsTruncated
	}
	return it.Truncated - min(it.Truncated, it.Tool.ArgsTruncated)
}

func setTruncated(it *protocol.Item, f Field, n uint64) {
	it.Truncated += n - truncated(it, f)
	if it.Tool != nil && f == Args {
		it.Tool.ArgsTruncated = n
	}
}

// shorten returns head and tail of a text that is longer than both.
func shorten(whole string, tail int) string {
	n := padding(whole)
	end := lastBytes(whole[headBytes-n:], tail)
	return whole[:headBytes-n] + "   "[:n] + strings.Clone(end)
}

// padding returns how many bytes the head of a text lacks for not cutting a
// character.
func padding(whole string) (n int) {
	for n < utf8.UTFMax-1 && !utf8.RuneStart(whole[headBytes-n]) {
		n++
	}
	return n
}

// lastBytes returns the last n bytes of a text, or up to three less where they
// would begin inside a character.
func lastBytes(text string, n int) string {
	if len(text) <= n {
		return text
	}
	i := len(text) - n
	for i < len(text) && !utf8.RuneStart(text[i]) {
		i++
	}
	return text[i:]
}
