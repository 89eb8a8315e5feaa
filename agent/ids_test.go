package agent

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"rejoin/protocol"
)

func TestRestoreID(t *testing.T) {
	tests := []struct{ name, line, own, want string }{
		{"replaced", `{"id":"rj:1:2","type":"x"}`, `"a\u0062"`, `{"id":"a\u0062","type":"x"}`},
		{"null of the client", `{"type":"x","id":"rj:1:2"}`, `null`, `{"type":"x","id":null}`},
		{"removed first", `{"id":"rj:1:2","type":"x"}`, "", `{"type":"x"}`},
		{"removed last", `{"type":"x","id":"rj:1:2"}`, "", `{"type":"x"}`},
		{"removed between", `{"a":1,"id":"rj:1:2","b":2}`, "", `{"a":1,"b":2}`},
		{"removed alone", `{"id":"rj:1:2"}`, "", `{}`},
		{"removed with spaces", "{ \"a\" : 1 , \"id\" : \"rj:1:2\" , \"b\" : 2 }\r", "", "{ \"a\" : 1 ,  \"b\" : 2 }\r"},
		{"removed last with spaces", `{ "a" : 1 , "id" : "rj:1:2" }`, "", `{ "a" : 1  }`},
		{"escaped name", `{"\u0069d":"rj:1:2","b":2}`, `7`, `{"\u0069d":7,"b":2}`},
		{"the last of two", `{"id":"rj:1:1","id":"rj:1:2"}`, `7`, `{"id":"rj:1:1","id":7}`},
		{"the last that is one", `{"id":"rj:1:2","id":7}`, `8`, `{"id":8,"id":7}`},
		{"not below", `{"a":{"id":"rj:1:2"},"b":["id","rj:1:2"]}`, `8`, `{"a":{"id":"rj:1:2"},"b":["id","rj:1:2"]}`},
		{"other run", `{"id":"rj:2:2"}`, `8`, `{"id":"rj:2:2"}`},
		{"never given", `{"id":"rj:1:3"}`, `8`, `{"id":"rj:1:3"}`},
		{"leading zero", `{"id":"rj:1:02"}`, `8`, `{"id":"rj:1:02"}`},
		{"zero", `{"id":"rj:1:0"}`, `8`, `{"id":"rj:1:0"}`},
		{"no number", `{"id":"rj:1:"}`, `8`, `{"id":"rj:1:"}`},
		{"more than a number", `{"id":"rj:1:2x"}`, `8`, `{"id":"rj:1:2x"}`},
		{"overflow", `{"id":"rj:1:18446744073709551618"}`, `8`, `{"id":"rj:1:18446744073709551618"}`},
		{"no object", `["id","rj:1:2"]`, `8`, `["id","rj:1:2"]`},
		{"a string", `"\"id\":\"rj:1:2\""`, `8`, `"\"id\":\"rj:1:2\""`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			line := []byte(tt.line)
			got := line
			if at, n := ownID(line, []byte(`"rj:1:`), 2); n > 0 {
				var own protocol.RawJSON
				if tt.own != "" {
					own = protocol.RawJSON(tt.own)
				}
				got = restoreID(nil, line, at, own)
			}
			if string(got) != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// refMember is a member of an object as encoding/json sees it.
type refMember struct{ name, value string }

// members reads an object by another parser than ours.
func members(tb testing.TB, b []byte) []refMember {
	tb.Helper()
	dec := json.NewDecoder(bytes.NewReader(b))
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
		tb.Fatalf("%q is no object: %v, %v", b, tok, err)
	}
	var out []refMember
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			tb.Fatal(err)
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			tb.Fatal(err)
		}
		out = append(out, refMember{name.(string), string(value)})
	}
	return out
}

// An id that was put into a command and comes back in a line of the same shape
// leaves the line as the client wrote it, byte for byte.
func FuzzIDsThereAndBack(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"type":"x"}`, `{"id":7,"type":"x"}`, `{"type":"x","id":null}`, `{ "a" : 1 , "id" : [1] }`, `{"\u0069d":"q"}`,
		`{"id":{"id":"rj:1:1"},"x":"\"id\":\"rj:1:1\","}`, `{"id":1,"id":2}`, `{"a":"rj:5:9"}`, "{\t}",
	} {
		f.Add([]byte(s))
	}
	const id = "rj:5:9"
	f.Fuzz(func(t *testing.T, line []byte) {
		if protocol.ValidateJSON(line) != nil || !strings.HasPrefix(strings.TrimLeft(string(line), " \t\r\n"), "{") {
			return
		}
		if _, n := ownID(line, []byte(`"rj:5:`), 9); n > 0 {
			return // the client has taken one of ours
		}
		there, own := putID(line, id)
		if protocol.ValidateJSON(there) != nil {
			t.Fatalf("%q became %q", line, there)
		}
		seen := false
		for _, m := range members(t, there) {
			seen = seen || m.name == "id" && m.value == `"`+id+`"`
		}
		if !seen {
			t.Fatalf("%q has no id", there)
		}
		at, n := ownID(there, []byte(`"rj:5:`), 9)
		if n != 9 {
			t.Fatalf("number %d in %q", n, there)
		}
		if back := restoreID(nil, there, at, own); !bytes.Equal(back, line) {
			t.Errorf("%q there %q and back %q", line, there, back)
		}
	})
}

// Removing an id from any line removes that member and nothing else.
func FuzzRestoreID(f *testing.F) {
	for _, s := range []string{
		`{"id":"rj:5:9"}`, `{"type":"x","id":"rj:5:9"}`, `{ "id" : "rj:5:9" , "x":1}`, `{"id":"rj:5:9","id":"rj:5:8"}`, `{"a":[{"id":"rj:5:9"}],"id":"rj:5:1","b":"\\"}`,
	} {
		f.Add([]byte(s), true)
		f.Add([]byte(s), false)
	}
	f.Fuzz(func(t *testing.T, line []byte, replace bool) {
		if protocol.ValidateJSON(line) != nil {
			return
		}
		at, n := ownID(line, []byte(`"rj:5:`), 9)
		if n == 0 {
			return
		}
		var own protocol.RawJSON
		if replace {
			own = protocol.RawJSON(`{"mine":[1]}`)
		}
		got := restoreID(nil, line, at, own)
		if protocol.ValidateJSON(got) != nil {
			t.Fatalf("%q became %q", line, got)
		}
		before, after := members(t, line), members(t, got)
		last := -1
		for i, m := range before {
			if m.name == "id" && len(m.value) == 8 && strings.HasPrefix(m.value, `"rj:5:`) && m.value[6] >= '1' && m.value[6] <= '9' {
				last = i
			}
		}
		if last < 0 {
			t.Fatalf("found %q in %q", at.Value, line)
		}
		if replace {
			before[last].value = string(own)
		} else {
			before = append(before[:last], before[last+1:]...)
		}
		if len(before) != len(after) {
			t.Fatalf("%q became %q", line, got)
		}
		for i := range before {
			if before[i] != after[i] {
				t.Errorf("member %d of %q became %+v in %q", i, line, after[i], got)
			}
		}
		if !replace && len(line)-len(got) < at.End-at.At {
			t.Errorf("%q became %q", line, got)
		}
	})
}

func BenchmarkHearDelta(b *testing.B) {
	talk := NewTalk(Speech{Name: "b"}, 1)
	line := []byte(`{"type":"message_update","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0}},"assistantMessageEvent":{"type":"text_delta","contentIndex":0,"delta":"w0 "}}`)
	s := &protocol.State{}
	b.ReportAllocs()
	for b.Loop() {
		talk.Hear(s, line)
	}
}
