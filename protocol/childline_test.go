package protocol_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"rejoin/protocol"
)

func TestChildLine(t *testing.T) {
	deep := strings.Repeat("[", 20000) + strings.Repeat("]", 20000)
	for _, c := range []struct {
		name, line  string
		first, text bool   // text: a lines adapter
		source      string // empty: blank
		body        string
	}{
		{name: "object", line: `{"n":3,"big":9007199254740993.10}`, source: "child", body: `{"n":3,"big":9007199254740993.10}`},
		{name: "scalar", line: `null`, source: "child", body: `null`},
		{name: "white space is verbatim", line: "  {\"n\":3}\t", source: "child", body: "  {\"n\":3}\t"},
		{name: "CRLF", line: "{\"n\":3}\r", source: "child", body: `{"n":3}`},
		{name: "CR in the middle", line: "{\"n\":\r3}", source: "child", body: "{\"n\":\r3}"},
		{name: "byte order mark", line: "\ufeff{}\r", first: true, source: "child", body: `{}`},
		{name: "byte order mark later", line: "\ufeff{}", source: "broker", body: `{"type":"error","error":"invalid json: unexpected byte 0xef at offset 0","text":"` + "\ufeff" + `{}"}`},
		{name: "U+2028", line: "\"a\u2028b\"", source: "child", body: "\"a\u2028b\""},
		{name: "repeated names", line: `{"a":1,"a":2}`, source: "child", body: `{"a":1,"a":2}`},
		{name: "deep", line: deep, source: "child", body: deep},
		{name: "blank", line: ``},
		{name: "blank CR", line: "\r"},
		{name: "blank spaces", line: " \t "},
		{name: "blank byte order mark", line: "\ufeff", first: true},
		{name: "text", line: `Welcome "you"`, source: "broker", body: `{"type":"error","error":"invalid json: unexpected 'W' at offset 0","text":"Welcome \"you\""}`},
		{name: "quote in the reason", line: `'`, source: "broker", body: `{"type":"error","error":"invalid json: unexpected '\\'' at offset 0","text":"'"}`},
		{name: "NUL", line: "\x00", source: "broker", body: `{"type":"error","error":"invalid json: unexpected byte 0x00 at offset 0","text":"\u0000"}`},
		{name: "cut", line: `{"a":`, source: "broker", body: `{"type":"error","error":"invalid json: unexpected end at offset 5","text":"{\"a\":"}`},
		{name: "invalid UTF-8", line: "\"\xff\"", source: "broker", body: `{"type":"error","error":"invalid utf-8","base64":"Iv8i"}`},
		{name: "invalid UTF-8 and JSON", line: "\xff", source: "broker", body: `{"type":"error","error":"invalid utf-8","base64":"/w=="}`},
		{name: "encoded surrogate", line: "\"\xed\xa0\x80\"", source: "broker", body: `{"type":"error","error":"invalid utf-8","base64":"Iu2ggCI="}`},
		{name: "lines", line: "$ ls\t\"x\"\r", text: true, source: "broker", body: `{"type":"output","text":"$ ls\t\"x\""}`},
		{name: "lines JSON", line: `{"n":3}`, text: true, source: "broker", body: `{"type":"output","text":"{\"n\":3}"}`},
		{name: "lines spaces", line: "  ", text: true, source: "broker", body: `{"type":"output","text":"  "}`},
		{name: "lines blank", line: "\r", text: true},
		{name: "lines invalid UTF-8", line: "\xff", text: true, source: "broker", body: `{"type":"error","error":"invalid utf-8","base64":"/w=="}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			source, body, ok := protocol.ChildLine([]byte("kept"), []byte(c.line), c.first, !c.text)
			if !ok {
				if c.source != "" {
					t.Errorf("blank, want %s %s", c.source, c.body)
				}
				return
			}
			if source.String() != c.source || string(body) != c.body {
				t.Errorf("got %s %.200s\nwant %s %.200s", source, body, c.source, c.body)
			}
		})
	}
}

func TestLineTooLong(t *testing.T) {
	long := strings.Repeat("x", protocol.EventPreviewBytes-1)
	for _, c := range []struct{ name, preview, want string }{
		{"short", `a"b`, `a\"b`},
		{"empty", ``, ``},
		{"cut", long + "yz", long + "y"},
		{"cut in a character", long + "é", long},
		{"cut in a long character", long[:len(long)-2] + "😀", long[:len(long)-2]},
		{"ends inside a character", "a\xf0\x9f\x98", "a"},
		{"whole character at the end", "aé", "aé"},
		{"rubbish", "a\xffb\xff", "a\ufffdb\ufffd"},
		{"continuation bytes only", "\x80\x80\x80\x80\x80", strings.Repeat("\ufffd", 5)},
	} {
		want := `{"type":"error","error":"line exceeds limit","bytes":8388609,"preview":"` + c.want + `"}`
		if got := string(protocol.LineTooLong(8388609, []byte(c.preview))); got != want {
			t.Errorf("%s: got %s, want %s", c.name, got, want)
		}
	}
}

// FuzzChildLine checks that whatever a child prints, the client wire stays
// valid, and that nothing of the line is lost.
func FuzzChildLine(f *testing.F) {
	for _, s := range jsonSeeds {
		f.Add([]byte(s), true, true)
		f.Add([]byte(s), false, false)
	}
	f.Fuzz(func(t *testing.T, line []byte, first, jsonLines bool) {
		source, body, ok := protocol.ChildLine(nil, line, first, jsonLines)
		trimmed := protocol.TrimLine(line, first)
		if !ok {
			if strings.Trim(string(trimmed), " \t\r\n") != "" {
				t.Fatalf("%q was lost", line)
			}
			return
		}
		if err := protocol.ValidateJSON(body); err != nil {
			t.Fatalf("%q became %q: %v", line, body, err)
		}
		if source == protocol.SourceChild {
			if string(body) != string(trimmed) {
				t.Fatalf("%q became %q", line, body)
			}
			return
		}
		var made struct {
			Text   string
			Base64 []byte
		}
		if err := json.Unmarshal(body, &made); err != nil {
			t.Fatal(err)
		}
		kept := made.Text
		if !utf8.Valid(trimmed) {
			kept = string(made.Base64)
		}
		if kept != string(trimmed) {
			t.Fatalf("%q became %q", line, body)
		}
	})
}
