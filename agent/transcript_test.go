package agent_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"rejoin/agent"
	"rejoin/protocol"
)

// TestAppend: what is kept of a text that grows are its head and its end, and
// nothing is unaccounted for.
func TestAppend(t *testing.T) {
	for _, c := range []struct{ name, piece string }{
		{"words", "word "},
		{"characters of two bytes", "é"},
		{"of three", "x€"},
		{"of four", "\U0001f600"},
		{"large", strings.Repeat("0123456789", 4000)},
		{"larger than all", strings.Repeat("€abc", 40_000)},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &protocol.State{}
			tr := agent.Edit(s, &protocol.Event{Seq: 1})
			it := tr.Open("x", protocol.ItemAssistant)
			var all strings.Builder
			for n := 0; all.Len() < 300_000; n++ {
				piece := fmt.Sprintf("%d%s", all.Len(), c.piece)
				all.WriteString(piece)
				tr.Append(it, agent.Text, piece)
				if n%67 == 0 || len(piece) > 1000 {
					checkText(t, it, all.String(), protocol.ItemTextBytes/4-3)
				}
			}
			checkText(t, it, all.String(), protocol.ItemTextBytes/4-3)
			tr.Replace(it, agent.Text, all.String())
			checkText(t, it, all.String(), protocol.ItemTextBytes/2-3)
			tr.Replace(it, agent.Text, "short")
			checkText(t, it, "short", 0)
		})
	}
}

// checkText compares an item's text with the whole of it.
func checkText(t *testing.T, it *protocol.Item, whole string, tail int) {
	t.Helper()
	if it.Truncated == 0 {
		if it.Text != whole {
			t.Fatalf("%d bytes of %d, nothing said to be left out", len(it.Text), len(whole))
		}
		return
	}
	head := protocol.ItemTextBytes / 2
	for !utf8.RuneStart(whole[head]) {
		head--
	}
	pad := protocol.ItemTextBytes/2 - head
	switch end := it.Text[head+pad:]; {
	case !utf8.ValidString(it.Text) || len(it.Text) > protocol.ItemTextBytes:
		t.Fatalf("%d bytes, UTF-8 %v", len(it.Text), utf8.ValidString(it.Text))
	case it.Text[:head+pad] != whole[:head]+strings.Repeat(" ", pad):
		t.Fatal("the head is not that of the text")
	case len(end) < tail || !strings.HasSuffix(whole, end):
		t.Fatalf("%d bytes behind the head, the end of the text: %v", len(end), strings.HasSuffix(whole, end))
	case head+len(end)+int(it.Truncated) != len(whole):
		t.Fatalf("%d + %d bytes kept, %d left out, of %d", head, len(end), it.Truncated, len(whole))
	}
}

// TestTruncatedCall: what is left out of arguments and output is told apart.
func TestTruncatedCall(t *testing.T) {
	s := &protocol.State{}
	tr := agent.Edit(s, &protocol.Event{Seq: 1})
	it := tr.Open("x", protocol.ItemToolCall)
	long := strings.Repeat("x", protocol.ItemTextBytes+100)
	tr.Replace(it, agent.Args, long)
	tr.Replace(it, agent.Output, long+"0123456789")
	if it.Truncated != 210 || it.Tool.ArgsTruncated != 100 {
		t.Errorf("left out: %d, of arguments %d", it.Truncated, it.Tool.ArgsTruncated)
	}
	tr.Replace(it, agent.Args, "{}")
	if it.Truncated != 110 || it.Tool.ArgsTruncated != 0 {
		t.Errorf("left out: %d, of arguments %d", it.Truncated, it.Tool.ArgsTruncated)
	}
	tr.Replace(it, agent.Output, "ok")
	if it.Truncated != 0 {
		t.Errorf("left out: %d", it.Truncated)
	}
}

// TestSharedState: a state that was copied does not write into the other's text.
func TestSharedState(t *testing.T) {
	a := &protocol.State{}
	agent.Edit(a, &protocol.Event{Seq: 1}).Open("x", protocol.ItemAssistant)
	add := func(s *protocol.State, text string) {
		tr := agent.Edit(s, &protocol.Event{Seq: 2})
		tr.Append(tr.Item("x"), agent.Text, text)
	}
	add(a, "one ")
	add(a, "two ")
	b := *a
	b.Items = append([]protocol.Item(nil), a.Items...)
	add(a, "left")
	add(&b, "right")
	if a.Items[0].Text != "one two left" || b.Items[0].Text != "one two right" {
		t.Errorf("%q and %q", a.Items[0].Text, b.Items[0].Text)
	}
}

func TestItemIDs(t *testing.T) {
	s := &protocol.State{}
	for seq := range protocol.Seq(2) {
		tr := agent.Edit(s, &protocol.Event{Seq: seq + 7})
		for range 3 {
			tr.Notice("x", protocol.ItemDone)
		}
	}
	for i, want := range []string{"i7", "i7.2", "i7.3", "i8", "i8.2", "i8.3"} {
		if s.Items[i].ID != want {
			t.Errorf("item %d: %s, want %s", i, s.Items[i].ID, want)
		}
	}
}

func TestOldestItemsGo(t *testing.T) {
	s := &protocol.State{}
	agent.Edit(s, &protocol.Event{Seq: 1}).Open("old", protocol.ItemAssistant)
	for seq := protocol.Seq(2); seq <= protocol.StateItemsMax+10; seq++ {
		agent.Edit(s, &protocol.Event{Seq: seq}).Notice("x", protocol.ItemDone)
	}
	if len(s.Items) != protocol.StateItemsMax || s.ItemsDropped != 10 || s.Items[0].ID != "i11" || s.Extra != nil {
		t.Errorf("%d items from %s, %d dropped, %+v", len(s.Items), s.Items[0].ID, s.ItemsDropped, s.Extra)
	}
}

func TestClip(t *testing.T) {
	for _, c := range []struct {
		text string
		n    int
		want string
	}{
		{"abc", 3, "abc"},
		{"abc", 2, "ab"},
		{"aé", 2, "a"},
		{"a\U0001f600", 4, "a"},
		{"a\xff", 5, "a\uFFFD"},
		{"\xffa\xffa", 4, "\uFFFDa"},
	} {
		if got := agent.Clip(c.text, c.n); got != c.want {
			t.Errorf("Clip(%q, %d) = %q, want %q", c.text, c.n, got, c.want)
		}
	}
}
