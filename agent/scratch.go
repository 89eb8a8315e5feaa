package agent

import (
	"strings"

	"rejoin/protocol"
)

// growingMax is how many texts may grow at a time without being copied for each
// piece.
const growingMax = 8

// A scratch is what a Transcript keeps in State.Scratch. All of it follows from
// the state: a state without one folds to the same state, slower once.
type scratch struct {
	owner *protocol.State // a copy of the state has none
	items int             // how many bytes was counted for
	bytes int             // of all items as encoded, or a little more

	growing [growingMax]*strings.Builder
	next    int // the slot that the next text takes
}

func scratchOf(s *protocol.State) *scratch {
	if k, ok := s.Scratch.(*scratch); ok && k.owner == s && k.items == len(s.Items) {
		return k
	}
	k := &scratch{owner: s, items: len(s.Items)}
	for i := range s.Items {
		k.bytes += itemBytes(&s.Items[i])
	}
	s.Scratch = k
	return k
}

// join returns text and more as one string. A text that it has returned before
// is not copied: the bytes behind it are free, and no string has seen them.
func (k *scratch) join(text, more string) string {
	if text == "" {
		return strings.Clone(more)
	}
	i := k.slot(text)
	if i < 0 {
		i = k.next
		k.next = (k.next + 1) % growingMax
		k.growing[i] = new(strings.Builder)
		k.growing[i].Grow(min(2*(len(text)+len(more)), protocol.ItemTextBytes))
		k.growing[i].WriteString(text)
	}
	k.growing[i].WriteString(more)
	return k.growing[i].String()
}

// release gives up the room behind a text that grows no more.
func (k *scratch) release(text string) {
	if i := k.slot(text); i >= 0 {
		k.growing[i] = nil
	}
}

// slot finds the builder of a text. Equal strings of one builder share their
// bytes, which makes the comparison cheap.
func (k *scratch) slot(text string) int {
	for i, b := range k.growing {
		if b != nil && b.Len() == len(text) && b.String() == text {
			return i
		}
	}
	return -1
}

// itemFrame is no less than what an item has besides its texts: names of
// members, numbers, statuses and a comma.
const itemFrame = 384

// itemBytes returns at least the length of an item as encoded.
func itemBytes(it *protocol.Item) int {
	n := itemFrame + encodedBytes(it.Text)
	if it.Tool != nil {
		n += encodedBytes(it.Tool.Name) + encodedBytes(it.Tool.CallID) +
			encodedBytes(it.Tool.Args) + encodedBytes(it.Tool.Output)
	}
	return n
}

// escaped is how many bytes a byte grows by as part of a JSON string.
var escaped = func() (more [256]uint8) {
	for c := range 0x20 {
		more[c] = 5
	}
	for _, c := range `"\` + "\b\f\n\r\t" {
		more[c] = 1
	}
	return more
}()

// encodedBytes returns the length of s, valid UTF-8, inside a JSON string as
// encoding/json writes it without the escapes for HTML.
func encodedBytes(s string) int {
	n := len(s)
	for i := range len(s) {
		n += int(escaped[s[i]])
	}
	return n + 3*(strings.Count(s, "\u2028")+strings.Count(s, "\u2029"))
}
