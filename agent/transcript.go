package agent

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"rejoin/protocol"
)

// A Transcript edits the items of a state on behalf of one event and keeps them
// within the bounds of protocol: the oldest items go, long texts keep head and
// tail. It costs the length of what it is given, not that of the state.
//
// An item stays open under a name of the adapter's choice until it is closed or
// released; the names are in the state. Pointers to items are good until the
// next Open or Notice.
type Transcript struct {
	s *protocol.State
	e *protocol.Event
	k *scratch
}

// Edit returns the transcript of s, to be edited because of e.
func Edit(s *protocol.State, e *protocol.Event) Transcript {
	return Transcript{s: s, e: e, k: scratchOf(s)}
}

// nameBytes bounds the names of open items, call ids and tool names.
const nameBytes = 1 << 10

// Open appends an item of that kind and opens it under name. What was open
// under the name is closed as interrupted.
func (t Transcript) Open(name string, kind protocol.ItemKind) *protocol.Item {
	t.Close(name, protocol.ItemInterrupted)
	it := t.add(kind, protocol.ItemStreaming)
	t.bind(name, it.ID)
	return it
}

// Alias opens an item under one more name.
func (t Transcript) Alias(name string, it *protocol.Item) {
	t.unbind(name)
	t.bind(name, it.ID)
}

// Item returns the item open under name, or nil.
func (t Transcript) Item(name string) *protocol.Item {
	if t.s.Extra == nil {
		return nil
	}
	name = Clip(name, nameBytes)
	for i := range t.s.Extra.Open {
		if t.s.Extra.Open[i].Name == name {
			return t.byID(t.s.Extra.Open[i].Item)
		}
	}
	return nil
}

// Names returns the names of the open items, oldest first.
func (t Transcript) Names() []string {
	if t.s.Extra == nil {
		return nil
	}
	names := make([]string, len(t.s.Extra.Open))
	for i, o := range t.s.Extra.Open {
		names[i] = o.Name
	}
	return names
}

// Close gives the item open under name its last status and forgets the name.
// Only an item that is still streaming changes its status.
func (t Transcript) Close(name, status string) {
	if it := t.Item(name); it != nil && it.Status == protocol.ItemStreaming {
		t.SetStatus(it, status)
	}
	t.unbind(name)
}

// Release forgets a name and leaves the item as it is.
func (t Transcript) Release(name string) { t.unbind(name) }

// End closes the item open under name, and forgets its other names too.
func (t Transcript) End(name, status string) {
	if it := t.Item(name); it != nil {
		id := it.ID
		t.Close(name, status)
		t.forget(id)
	}
}

// SetStatus sets the status of an item.
func (t Transcript) SetStatus(it *protocol.Item, status string) {
	it.Status, it.LastSeq = status, t.e.Seq
}

// Notice appends a notice.
func (t Transcript) Notice(text, status string) {
	t.Replace(t.add(protocol.ItemNotice, status), Text, text)
}

// SetTool says of an item what it calls. Empty values leave what is known.
func (t Transcript) SetTool(it *protocol.Item, name, callID string) {
	if it.Tool == nil {
		it.Tool = &protocol.ItemTool{}
	}
	before := encodedBytes(it.Tool.Name) + encodedBytes(it.Tool.CallID)
	if name != "" {
		it.Tool.Name = Clip(name, nameBytes)
	}
	if callID != "" {
		it.Tool.CallID = Clip(callID, nameBytes)
	}
	it.LastSeq = t.e.Seq
	t.grown(encodedBytes(it.Tool.Name) + encodedBytes(it.Tool.CallID) - before)
}

// add appends an item.
func (t Transcript) add(kind protocol.ItemKind, status string) *protocol.Item {
	t.s.Items = append(t.s.Items, protocol.Item{
		ID: nextID(t.s.Items, t.e.Seq), Kind: kind, Status: status,
		FirstSeq: t.e.Seq, LastSeq: t.e.Seq, TS: t.e.TS,
	})
	t.k.items++
	t.grown(itemBytes(&t.s.Items[len(t.s.Items)-1]))
	return &t.s.Items[len(t.s.Items)-1]
}

// nextID names the next item of an event.
func nextID(items []protocol.Item, seq protocol.Seq) string {
	id := "i" + strconv.FormatUint(uint64(seq), 10)
	if len(items) == 0 || items[len(items)-1].FirstSeq != seq {
		return id
	}
	n := 1
	if _, last, ok := strings.Cut(items[len(items)-1].ID, "."); ok {
		n, _ = strconv.Atoi(last) // what is no number counts as the first
	}
	return id + "." + strconv.Itoa(max(n, 1)+1)
}

// grown notes that the items have become larger by n bytes, and drops the
// oldest while they are too many or too large.
func (t Transcript) grown(n int) {
	t.k.bytes += n
	for len(t.s.Items) > protocol.StateItemsMax || t.k.bytes > protocol.StateItemsBytes && len(t.s.Items) > 1 {
		old := &t.s.Items[0]
		t.k.bytes -= itemBytes(old)
		t.k.items--
		t.forget(old.ID)
		*old = protocol.Item{}
		t.s.Items = t.s.Items[1:]
		t.s.ItemsDropped++
	}
}

// byID finds an item, the newest first.
func (t Transcript) byID(id string) *protocol.Item {
	for i := len(t.s.Items) - 1; i >= 0; i-- {
		if t.s.Items[i].ID == id {
			return &t.s.Items[i]
		}
	}
	return nil
}

// bind opens an item under a name. Of too many names the oldest goes, and the
// item that had no other is interrupted.
func (t Transcript) bind(name, id string) {
	x := extra(t.s)
	if len(x.Open) >= protocol.OpenItemsMax {
		oldest := x.Open[0].Name
		if it := t.Item(oldest); it != nil && it.ID != id && t.bound(it.ID) == 1 {
			t.Close(oldest, protocol.ItemInterrupted)
		} else {
			t.unbind(oldest)
		}
		x = extra(t.s)
	}
	x.Open = append(x.Open, protocol.OpenItem{Name: Clip(name, nameBytes), Item: id})
}

// bound counts the names of an item.
func (t Transcript) bound(id string) (n int) {
	for _, o := range t.s.Extra.Open {
		if o.Item == id {
			n++
		}
	}
	return n
}

func (t Transcript) unbind(name string) {
	name = Clip(name, nameBytes)
	t.drop(func(o protocol.OpenItem) bool { return o.Name == name })
}

// forget drops all names of an item.
func (t Transcript) forget(id string) {
	t.drop(func(o protocol.OpenItem) bool { return o.Item == id })
}

func (t Transcript) drop(match func(protocol.OpenItem) bool) {
	if t.s.Extra == nil || len(t.s.Extra.Open) == 0 {
		return
	}
	kept := t.s.Extra.Open[:0]
	for _, o := range t.s.Extra.Open {
		if !match(o) {
			kept = append(kept, o)
		}
	}
	t.s.Extra.Open = kept
	tidy(t.s)
}

// Clip returns s as valid UTF-8 of at most n bytes, cut between characters.
func Clip(s string, n int) string {
	s = valid(s)
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return strings.Clone(s[:n])
}

// valid returns s with U+FFFD in place of what is not UTF-8.
func valid(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
