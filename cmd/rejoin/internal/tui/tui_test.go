package tui

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"rejoin/agent/pi"
	"rejoin/client"
	"rejoin/cmd/rejoin/internal/view"
	"rejoin/protocol"
	"rejoin/snapshot"
)

func TestInput(t *testing.T) {
	var in input
	for _, c := range []struct{ key, text, want string }{
		{"", "hello world", "hello world|"},
		{"ctrl+w", "", "hello |"},
		{"left", "", "hello| "},
		{"backspace", "", "hell| "},
		{"ctrl+a", "", "|hell "},
		{"backspace", "", "|hell "},
		{"delete", "", "|ell "},
		{"", "b\r\nc", "b\nc|ell "},
		{"right", "", "b\nce|ll "},
		{"ctrl+k", "", "b\nce|"},
		{"ctrl+b", "", "b\nc|e"},
		{"ctrl+e", "", "b\nce|"},
		{"ctrl+u", "", "|"},
		{"left", "", "|"},
		{"right", "", "|"},
	} {
		if c.text != "" {
			in.insert(c.text)
		} else if !in.edit(c.key) {
			t.Errorf("%s is no key", c.key)
		}
		if got := string(in.text[:in.at]) + "|" + string(in.text[in.at:]); got != c.want {
			t.Errorf("after %s%s: %q, want %q", c.key, c.text, got, c.want)
		}
	}
	in.insert(strings.Repeat("x", inputRunesMax+5))
	if len(in.text) != inputRunesMax {
		t.Errorf("%d runes", len(in.text))
	}
}

func TestInputIsDrawnAroundTheCursor(t *testing.T) {
	for _, text := range []string{"", "short", strings.Repeat("long ", 50), strings.Repeat("漢字", 40), "a\nb\tc"} {
		for width := 1; width < 20; width++ {
			in := input{}
			in.insert(text)
			for {
				line, column := in.draw(width)
				if w := lipgloss.Width(line); w > width || column > width || strings.ContainsAny(line, "\n\t") {
					t.Fatalf("%q at %d in %d columns: %q, cursor in %d", text, in.at, width, line, column)
				}
				if in.at == 0 {
					break
				}
				in.edit("left")
			}
		}
	}
}

func TestWindow(t *testing.T) {
	all := [][]string{{"1", "2"}, {"3"}, {"4", "5", "6"}}
	for _, c := range []struct {
		first, room int
		want        string
	}{{0, 6, "1 2 3 4 5 6"}, {1, 3, "2 3 4"}, {3, 9, "4 5 6"}, {-2, 4, "  1 2"}, {5, 1, "6"}, {6, 2, ""}, {0, 0, ""}} {
		if got := strings.Join(window(all, c.first, c.room), " "); got != c.want {
			t.Errorf("window(%d, %d) = %q, want %q", c.first, c.room, got, c.want)
		}
	}
}

// No item of any kind makes a line that is too wide, or steers the terminal.
func TestItemsFitTheScreen(t *testing.T) {
	nasty := "\x1b]0;title\x07\u202e " + strings.Repeat("漢字 wide ", 30) + strings.Repeat("x", 300) + "\n\ttab\r\n"
	for _, width := range []int{1, 2, 5, 40, 200} {
		var tr transcript
		tr.set(width, width == 200)
		for _, kind := range []protocol.ItemKind{"user", "assistant", "thinking", "tool", "notice", "output", "of a later version"} {
			for _, status := range []string{"streaming", "done", "error", "interrupted", "?"} {
				it := &protocol.Item{ID: string(kind) + status, Kind: kind, Status: status, Text: nasty}
				if kind == "tool" {
					it.Tool = &protocol.ItemTool{Name: nasty, Args: nasty, Output: nasty, IsError: status == "error"}
				}
				for _, line := range tr.lines(it) {
					if strings.Contains(line, "\x1b]") || strings.ContainsAny(line, "\a\r\n") || (width > 4 && lipgloss.Width(line) > width) {
						t.Fatalf("%s %s in %d columns: %q is %d wide", kind, status, width, line, lipgloss.Width(line))
					}
				}
			}
		}
		tr.lines(&protocol.Item{ID: "no tool", Kind: "tool"})
	}
}

// screenOf is a model of a session with that state, as if it had just attached.
func screenOf(t *testing.T, change func(*protocol.State)) *model {
	t.Helper()
	s := snapshot.New("sid")
	s.Agent = protocol.StateAgent{Name: "pi", Adapter: "pi"}
	s.Status, s.Epoch, s.Seq = protocol.StatusIdle, "e", 1000
	change(s)
	m := &model{ctx: t.Context(), session: "sid", view: view.New(snapshot.Folds{"pi": pi.Adapter{}})}
	m.Update(tea.WindowSizeMsg{Width: 60, Height: 12})
	m.Update(batchMsg{{Kind: client.KindSnapshot, Snapshot: &client.Snapshot{Epoch: "e", Reason: "requested", State: json.RawMessage(snapshot.Encode(s))}}, {Kind: client.KindSynced}})
	return m
}

func (m *model) press(keys ...string) (cmds int) {
	for _, k := range keys {
		msg := tea.KeyPressMsg{Text: k, Code: []rune(k)[0]}
		switch k {
		case "enter":
			msg = tea.KeyPressMsg{Code: tea.KeyEnter}
		case "esc":
			msg = tea.KeyPressMsg{Code: tea.KeyEscape}
		case "pgup":
			msg = tea.KeyPressMsg{Code: tea.KeyPgUp}
		case "end":
			msg = tea.KeyPressMsg{Code: tea.KeyEnd}
		}
		if _, cmd := m.Update(msg); cmd != nil {
			cmds++
		}
	}
	return cmds
}

func items(from, to int) (out []protocol.Item) {
	for i := from; i <= to; i++ {
		seq := protocol.Seq(i)
		out = append(out, protocol.Item{ID: fmt.Sprint("i", i), Kind: "assistant", Status: "done", FirstSeq: seq, LastSeq: seq, Text: fmt.Sprint("item ", i)})
	}
	return out
}

func TestQuestionsAndKeys(t *testing.T) {
	ask := func(kind string, options ...string) func(*protocol.State) {
		return func(s *protocol.State) {
			q := protocol.Interaction{InteractionID: "1.a", Kind: kind, Title: "May I?"}
			for _, o := range options {
				q.Options = append(q.Options, protocol.Option{ID: o, Label: o})
			}
			s.Pending = append(s.Pending, q, protocol.Interaction{InteractionID: "1.b", Kind: "input"})
		}
	}
	for _, c := range []struct {
		name    string
		state   func(*protocol.State)
		keys    []string
		answers int
		left    string // in the input
	}{
		{"yes", ask("confirm"), []string{"y"}, 1, ""},
		{"no", ask("approval"), []string{"n"}, 1, ""},
		{"perhaps", ask("confirm"), []string{"x", "y", "enter"}, 0, "xy"},
		{"cancel", ask("input"), []string{"esc"}, 1, ""},
		{"choose", ask("select", "a", "b"), []string{"2"}, 1, ""},
		{"choose what is not there", ask("select", "a", "b"), []string{"3", "enter"}, 0, "3"},
		{"a digit of many is no answer", ask("select", strings.Split("abcdefghijklm", "")...), []string{"1"}, 0, "1"},
		{"choose of many", ask("select", strings.Split("abcdefghijklm", "")...), []string{"1", "3", "enter"}, 1, ""},
		{"one answer at a time", ask("confirm"), []string{"y", "y"}, 1, "y"},
		{"text", ask("input"), []string{"y", "n", "enter"}, 1, ""},
		{"esc at rest", func(*protocol.State) {}, []string{"x", "esc"}, 0, ""},
		{"interrupt", func(s *protocol.State) { s.Turn = &protocol.Turn{ID: "t1"} }, []string{"x", "esc"}, 1, "x"},
		{"blank", func(*protocol.State) {}, []string{" ", "enter"}, 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := screenOf(t, c.state)
			m.View()
			if got := m.press(c.keys...); got != c.answers || string(m.input.text) != c.left {
				t.Errorf("%d answers, %q in the input; want %d, %q", got, string(m.input.text), c.answers, c.left)
			}
		})
	}
	m := screenOf(t, ask("confirm"))
	for _, want := range []string{"? May I? (1 of 2)", "y yes · n no", "answer> ", "● live"} {
		if v := m.View(); !strings.Contains(v.Content, want) {
			t.Errorf("%q is not shown:\n%s", want, v.Content)
		}
	}
	m.Update(doneMsg{&client.RPCError{Code: protocol.CodeAlreadyResolved, Message: "x", Data: json.RawMessage(`{"resolvedBy":"bob","outcome":"deny"}`)}})
	if v := m.View(); !strings.Contains(v.Content, "bob has answered already: deny") {
		t.Error(v.Content)
	}
}

// Every size is drawn, and has as many lines as the screen.
func TestAnySize(t *testing.T) {
	m := screenOf(t, func(s *protocol.State) {
		s.Items = items(1, 30)
		s.Queue.Steering = []string{"a", "b", "c", "d", "e"}
		s.Pending = []protocol.Interaction{{InteractionID: "1.a", Kind: "select", Title: "which", Message: strings.Repeat("m ", 500), Options: make([]protocol.Option, 40)}}
	})
	for width := 0; width < 50; width += 7 {
		for height := range 40 {
			m.Update(tea.WindowSizeMsg{Width: width, Height: height})
			v := m.View()
			if n := strings.Count(v.Content, "\n") + 1; width > 0 && height > 0 && n > height {
				t.Fatalf("%dx%d: %d lines", width, height, n)
			}
		}
	}
}

func TestPagingBack(t *testing.T) {
	m := screenOf(t, func(s *protocol.State) { s.Items, s.ItemsDropped = items(501, 520), 500 })
	m.View()
	for m.press("pgup") == 0 {
		m.View()
	}
	if !m.older.fetching || m.wantOlder() != nil {
		t.Fatal("nothing, or twice, is fetched at the top")
	}
	page := &protocol.State{Items: items(401, 500), ItemsDropped: 400}
	m.Update(olderMsg{epoch: "e", at: 500, state: page})
	v := m.View()
	if len(m.older.items) != 100 || m.first().FirstSeq != 401 || strings.Contains(v.Content, "item 520") {
		t.Errorf("%d older items\n%s", len(m.older.items), v.Content)
	}
	m.older.fetching = true
	m.Update(olderMsg{epoch: "e", at: 500, state: page}) // an answer to another question
	if len(m.older.items) != 100 {
		t.Error("a stale page is taken")
	}
	m.Update(olderMsg{epoch: "e", at: 400, err: &client.RPCError{Code: protocol.CodeOutsideLog}})
	if !m.older.end || !strings.Contains(m.View().Content, "not kept") {
		t.Error("the end of what is kept is not shown")
	}
	// What the state drops meanwhile is not lost from sight.
	before := slices.Clone(m.view.State().Items)
	m.view.State().Items = m.view.State().Items[5:]
	m.keepDropped(before)
	if n := len(m.older.items); n != 105 || m.older.items[104].FirstSeq != 505 {
		t.Errorf("%d older items", n)
	}
	if m.press("end"); m.up != 0 || len(m.older.items) != 0 {
		t.Error("the present is not led back to")
	}
}

func TestPagesAreBounded(t *testing.T) {
	m := screenOf(t, func(s *protocol.State) { s.Items, s.ItemsDropped = items(20001, 20010), 20000 })
	for at := 20000; at > 10000; at -= 500 {
		m.older.fetching = true
		m.Update(olderMsg{epoch: "e", at: protocol.Seq(at), state: &protocol.State{Items: items(at-499, at), ItemsDropped: uint64(at - 500)}})
		m.View()
	}
	if len(m.older.items) != olderMax || m.first().FirstSeq != 10001 || !m.gap || len(m.text.drawn) > 2*(olderMax+protocol.StateItemsMax) {
		t.Errorf("%d items from %d, %d drawn", len(m.older.items), m.first().FirstSeq, len(m.text.drawn))
	}
}

func TestLinkAndEnd(t *testing.T) {
	m := screenOf(t, func(s *protocol.State) { s.Status = protocol.StatusEnded })
	shows := func(want string) {
		t.Helper()
		if v := m.View(); !strings.Contains(v.Content, want) {
			t.Errorf("%q is not shown:\n%s", want, v.Content)
		}
	}
	shows("Ctrl-R runs it again")
	m.Update(linkMsg{State: client.LinkLost, Wait: 2e9})
	shows("○ link lost, trying again in 2s")
	m.Update(linkMsg{State: client.LinkConnecting})
	shows("○ connecting")
	m.Update(linkMsg{State: client.LinkConnected})
	shows("◐ catching up")
	m.Update(batchMsg{{Kind: client.KindSynced}})
	shows("● live")
	m.Update(batchMsg{{Kind: client.KindEnd, End: &client.End{Reason: "deleted"}}})
	if _, cmd := m.Update(endMsg{errors.New("EOF")}); cmd != nil {
		t.Error("the screen goes away with the session")
	}
	shows("○ the session is deleted")
	m.gone = ""
	if _, cmd := m.Update(endMsg{errors.New("x")}); cmd == nil {
		t.Error("the screen stays without a subscription")
	}
}

func BenchmarkStreaming(b *testing.B) {
	s := snapshot.New("sid")
	s.Agent = protocol.StateAgent{Name: "pi", Adapter: "pi"}
	s.Items = items(1, 500)
	s.Items[499].Status, s.Items[499].Text = "streaming", strings.Repeat("word ", 2000)
	m := &model{session: "sid", view: view.New(nil)}
	m.Update(tea.WindowSizeMsg{Width: 120, Height: 50})
	m.Update(batchMsg{{Kind: client.KindSnapshot, Snapshot: &client.Snapshot{Reason: "requested", State: json.RawMessage(snapshot.Encode(s))}}})
	b.ReportAllocs()
	for b.Loop() {
		it := &m.view.State().Items[499]
		it.LastSeq++
		m.View()
	}
}
