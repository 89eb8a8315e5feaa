package pi_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"rejoin/agent/pi"
	"rejoin/protocol"
)

// FuzzDrive: a conversation in any order. A line that begins with "<" is printed
// by pi, one with ">" is a raw command, one with "?" an answer to the oldest open
// question, one with "!" ends the run. No question of pi's is left without
// either a place in the state or a dismissal, what is resolved was open, and pi
// gets only JSON objects (desk.write looks).
func FuzzDrive(f *testing.F) {
	ask := `<{"type":"extension_ui_request","id":"q","method":"select","title":"t","options":["a","b"]}`
	for _, seed := range [][]string{
		{ask, `?{"outcome":"answer","value":"a"}`, ask, ask, `>{"type":"extension_ui_response","id":"q","value":"b"}`, ask, `>{"type":"abort"}`},
		{`<{"type":"extension_ui_request","id":7,"method":"confirm"}`, `<{"type":"extension_ui_request","method":"input"}`, `< {"type":"extension_ui_request","id":"a#1","method":"editor"}`, `!`},
		{`>{"id":1,"type":"prompt","message":"x"}`, `>{"id":1,"type":"prompt","message":"y"}`, `<{"type":"response","id":"rj:3:1","command":"prompt","success":true}`},
		{`<{"type":"agent_start"}`, strings.Replace(ask, `"t"`, `"t","timeout":1`, 1), strings.Replace(ask, `"t"`, `"t","timeout":1`, 1), `?{"outcome":"cancel"}`, `?{"outcome":"allow"}`, `!`},
	} {
		f.Add([]byte(strings.Join(seed, "\n")))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 8<<10 {
			t.Skip("longer, not better")
		}
		k := newDesk(t)
		n := 0
		for line := range bytes.Lines(data) {
			n++
			line = bytes.TrimSuffix(line, []byte{'\n'})
			if len(line) == 0 {
				continue
			}
			rest := line[1:]
			if line[0] != '!' && protocol.ValidateJSON(rest) != nil {
				continue
			}
			open := pendingIDs(k.s)
			resolved := len(k.resolved)
			switch line[0] {
			case '<':
				k.stdin = nil
				k.hear(string(rest))
				checkAsked(t, k, rest)
			case '>':
				// Some are refused.
				_ = k.send("a", fmt.Sprint("c", n), "", string(rest))
			case '?':
				if rest[0] != '{' || len(open) == 0 {
					continue
				}
				id := protocol.AppendString(nil, open[0])
				_ = k.send("a", fmt.Sprint("c", n), "respond", `{"interactionId":`+string(id)+`,`+string(rest[1:]))
			case '!':
				k.take(k.d.Stop(k.s))
				if len(k.s.Pending) > 0 {
					t.Fatalf("open after the last words: %+v", k.s.Pending)
				}
				pi.Adapter{}.Settle(k.s, &protocol.Event{Seq: k.s.Seq})
				return
			}
			for _, r := range k.resolved[resolved:] {
				if !slices.Contains(open, r.InteractionID) && !slices.Contains(pendingIDs(k.s), r.InteractionID) && line[0] != '<' {
					t.Fatalf("%s resolved what was not open: %+v", line, r)
				}
			}
			if ids := pendingIDs(k.s); len(slices.Compact(slices.Sorted(slices.Values(ids)))) != len(ids) {
				t.Fatalf("two questions of one id: %v", ids)
			}
		}
	})
}

func pendingIDs(s *protocol.State) (ids []string) {
	for i := range s.Pending {
		ids = append(ids, s.Pending[i].InteractionID)
	}
	return ids
}

// checkAsked reports a question that is neither in the state nor dismissed.
func checkAsked(t *testing.T, k *desk, line []byte) {
	t.Helper()
	var members map[string]json.RawMessage
	if json.Unmarshal(line, &members) != nil {
		return
	}
	text := func(name string) (s string) {
		_ = json.Unmarshal(members[name], &s) // another type is no text
		return s
	}
	if text("type") != "extension_ui_request" || !slices.Contains([]string{"select", "confirm", "input", "editor"}, text("method")) {
		return
	}
	for _, got := range k.stdin {
		if strings.Contains(got, `"cancelled":true`) {
			return
		}
	}
	id := "3." + text("id")
	for _, open := range pendingIDs(k.s) {
		if open == id || strings.HasPrefix(open, id+"#") {
			return
		}
	}
	t.Fatalf("%s is neither shown nor dismissed; open: %v, stdin %q", line, pendingIDs(k.s), k.stdin)
}
