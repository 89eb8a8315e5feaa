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

var testFolds = snapshot.Folds{"pi": pi.Adapter{}}

// screenOf is a model of a session with that state, as if it had just attached.
func screenOf(t *testing.T, change func(*protocol.State)) *model {
	t.Helper()
	s := snapshot.New("sid")
	s.Agent = protocol.StateAgent{Name: "pi", Adapter: "pi"}
	s.Status, s.Epoch, s.Seq = protocol.StatusIdle, "e", 1000
	change(s)
	m := &model{ctx: t.Context(), session: "sid", view: view.New(testFolds)}
	m.Update(tea.WindowSizeMsg{Width: 60, Height: 12})
	m.Update(batchMsg{{Kind: client.KindSnapshot, Snapshot: &client.Snapshot{
		Epoch: "e", Reason: "requested", Fold: testFolds.VersionOf("pi"), State: json.RawMessage(snapshot.Encode(s)),
	}}, {Kind: client.KindSynced}})
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
		case "tab":
			msg = tea.KeyPressMsg{Code: tea.KeyTab}
		case "ctrl+u":
			msg = tea.KeyPressMsg{Code: 'u', Mod: tea.ModCtrl}
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

// editor makes a state with an editor's question.
func editor(message string, truncated uint64) func(*protocol.State) {
	return func(s *protocol.State) {
		s.Pending = []protocol.Interaction{{InteractionID: "1.e", Kind: "editor", Title: "Edit", Message: message, Truncated: truncated}}
	}
}

// The text that an editor's question begins with is taken by Enter, or edited.
func TestEditor(t *testing.T) {
	for _, c := range []struct {
		name    string
		state   func(*protocol.State)
		keys    []string
		answers int
		left    string
	}{
		{"as it is", editor("fix: x", 0), []string{"enter"}, 1, ""},
		{"nothing to take", editor("", 0), []string{"enter"}, 0, ""},
		{"not all is at hand", editor("fix: x", 3), []string{"enter", "tab"}, 0, ""},
		{"not all is at hand, another", editor("fix: x", 3), []string{"a", "enter"}, 1, ""},
		{"edited", editor("fix: x", 0), []string{"tab", "y"}, 0, "fix: xy"},
		{"edited once", editor("fix: x", 0), []string{"tab", "tab", "y", "enter"}, 1, ""},
		{"emptied", editor("fix: x", 0), []string{"tab", "ctrl+u", "enter"}, 1, ""},
		{"an input has none", func(s *protocol.State) {
			s.Pending = []protocol.Interaction{{InteractionID: "1.e", Kind: "input", Message: "placeholder"}}
		}, []string{"enter", "tab"}, 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := screenOf(t, c.state)
			m.View()
			if got := m.press(c.keys...); got != c.answers || string(m.input.text) != c.left {
				t.Errorf("%d answers, %q in the input; want %d, %q", got, string(m.input.text), c.answers, c.left)
			}
		})
	}
	if v := screenOf(t, editor("fix: x", 0)).View(); !strings.Contains(v.Content, "Enter takes the text as it is") {
		t.Error(v.Content)
	}
	if v := screenOf(t, editor("fix: x", 3)).View(); strings.Contains(v.Content, "Enter takes") {
		t.Error(v.Content)
	}
}

// What was typed is on the screen until an event says what became of it.
func TestTextsOnTheirWay(t *testing.T) {
	m := screenOf(t, func(*protocol.State) {})
	shows := func(want string, is bool) {
		t.Helper()
		if v := m.View(); strings.Contains(v.Content, want) != is {
			t.Errorf("%q shown: %t\n%s", want, !is, v.Content)
		}
	}
	outcome := func(of, result string) {
		e := protocol.Event{Seq: m.view.State().Seq + 1, Run: 1, Source: protocol.SourceBroker}
		e.Body = fmt.Appendf(nil, `{"type":"command_outcome","commandId":%q,%s}`, of, result)
		m.Update(batchMsg{{Kind: client.KindEvent, Event: client.Event{Event: e, Epoch: "e"}}})
	}
	m.press("h", "i", "enter")
	shows("… hi", true)
	id := m.sent[0].command
	m.Update(sentMsg{command: id})
	shows("⇡ hi", true)
	outcome("another", `"outcome":"done"`)
	shows("⇡ hi", true)
	outcome(id, `"outcome":"done"`)
	shows("hi", false)

	m.press("n", "o", "enter")
	m.Update(sentMsg{command: m.sent[0].command, err: errors.New("no such luck")})
	shows("no such luck", true)
	if len(m.sent) != 0 || string(m.input.text) != "no" {
		t.Errorf("%+v, %q in the line", m.sent, string(m.input.text))
	}
	m.press("enter")
	id = m.sent[0].command
	outcome(id, `"outcome":"failed","result":{"error":"no key"}`) // may come before the answer
	shows("the agent does not take it: no key", true)
	m.Update(sentMsg{command: id})
	if len(m.sent) != 0 || m.asked != 0 {
		t.Errorf("%+v, %d in work", m.sent, m.asked)
	}
	m.press("x", "enter")
	outcome(m.sent[0].command, `"outcome":"discarded"`)
	shows("the agent was not told", true)
	for range 2 * sentMax {
		m.press("x", "enter")
	}
	shows(fmt.Sprint("⇡ ", sentMax-queueLines, " more"), true)
	if len(m.sent) != sentMax {
		t.Errorf("%d are shown as on their way", len(m.sent))
	}
	m.Update(batchMsg{{Kind: client.KindSnapshot, Snapshot: &client.Snapshot{Epoch: "f", Reason: "epoch", State: json.RawMessage(`{"agent":{"adapter":"pi"}}`)}}})
	if len(m.sent) != 0 {
		t.Error("what the snapshot covers is still on its way")
	}
	shows("this program folds pi by version", true) // the server's fold has no version here
	if v := screenOf(t, func(*protocol.State) {}).View(); strings.Contains(v.Content, "folds") {
		t.Error(v.Content)
	}
}

func TestQuestionsAndKeys(t *testing.T) {
	ask := func(kind string, options ...string) func(*protocol.State) {
		return func(s *protocol.State) {
			q := protocol.Interaction{InteractionID: "1.a", Kind: kind, Title: "May I?"}
			for _, o := range options {
				q.Options = append(q.Options, protocol.Option{ID: o, Label: o})
			}
			if kind == "select of more" {
				q.Kind, q.OptionsOmitted = "select", 2
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
		{"of more than is at hand, by number", ask("select of more", "a", "b"), []string{"2", "enter"}, 1, ""},
		{"of more than is at hand, by text", ask("select of more", "a", "b"), []string{"z", "enter"}, 1, ""},
		{"of more than is at hand no digit is the answer", ask("select of more", "a", "b"), []string{"2"}, 0, "2"},
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
