package protocol_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"rejoin/protocol"
)

func TestValidateJSON(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       string // the error; empty: valid
	}{
		{"object", `{"a":[1,2.5e-3,-0,true,false,null,"x"],"b":{}}`, ""},
		{"white space around", " \t\r\n[ ]\n", ""},
		{"white space between", "{ \"a\" : [ 1 , 2 ] , \"b\" : { } }", ""},
		{"scalar", `42`, ""},
		{"escapes", `"\"\\\/\b\f\n\r\t\u00e9\uD83D\ude00"`, ""},
		{"half a pair", `"\ud800"`, ""},
		{"separators raw", "\"\u2028\u2029\"", ""},
		{"del", "\"\x7f\"", ""},
		{"nothing", ``, "unexpected end at offset 0"},
		{"space", `  `, "unexpected end at offset 2"},
		{"word", `hello`, "unexpected 'h' at offset 0"},
		{"cut object", `{"a":1`, "unexpected end at offset 6"},
		{"cut string", `"abc`, "unexpected end at offset 4"},
		{"cut escape", `"abc\`, "unexpected end at offset 5"},
		{"cut unicode escape", `"\u12`, "unexpected end at offset 5"},
		{"cut literal", `tru`, "unexpected end at offset 3"},
		{"cut number", `-`, "unexpected end at offset 1"},
		{"cut fraction", `1.`, "unexpected end at offset 2"},
		{"cut exponent", `1e+`, "unexpected end at offset 3"},
		{"leading zero", `01`, "data after the value at offset 1"},
		{"plus", `+1`, "unexpected '+' at offset 0"},
		{"bare fraction", `.5`, "unexpected '.' at offset 0"},
		{"NaN", `NaN`, "unexpected 'N' at offset 0"},
		{"misspelt literal", `nul!`, "unexpected '!' at offset 3"},
		{"trailing comma", `[1,]`, "unexpected ']' at offset 3"},
		{"trailing comma in object", `{"a":1,}`, "unexpected '}' at offset 7"},
		{"no comma", `[1 2]`, "unexpected '2' at offset 3"},
		{"no colon", `{"a" 1}`, "unexpected '1' at offset 5"},
		{"name is a number", `{1:2}`, "unexpected '1' at offset 1"},
		{"wrong bracket", `[}`, "unexpected '}' at offset 1"},
		{"wrong bracket later", `{"a":1]`, "unexpected ']' at offset 6"},
		{"unopened", `]`, "unexpected ']' at offset 0"},
		{"second value", `{} {}`, "data after the value at offset 3"},
		{"control in string", "\"a\tb\"", "control character 0x09 in a string at offset 2"},
		{"NUL", "{}\x00", "data after the value at offset 2"},
		{"NUL first", "\x00", "unexpected byte 0x00 at offset 0"},
		{"bad escape", `"a\x41"`, "bad escape in a string at offset 2"},
		{"bad unicode escape", `"\u12g4"`, "bad escape in a string at offset 1"},
		{"byte order mark", "\ufeff{}", "unexpected byte 0xef at offset 0"},
		{"latin 1", "\"caf\xe9\"", "invalid UTF-8 at offset 4"},
		{"overlong", "\"\xc0\xaf\"", "invalid UTF-8 at offset 1"},
		{"surrogate in UTF-8", "\"\xed\xa0\x80\"", "invalid UTF-8 at offset 1"},
		{"beyond Unicode", "\"\xf4\x90\x80\x80\"", "invalid UTF-8 at offset 1"},
		{"cut UTF-8", "\"long enough for words \xe2\x82\"", "invalid UTF-8 at offset 23"},
		{"UTF-8 outside a string", "é", "unexpected byte 0xc3 at offset 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := protocol.ValidateJSON([]byte(c.text))
			got := ""
			if err != nil {
				got = err.Error()
				var syntax *protocol.SyntaxError
				if !errors.As(err, &syntax) {
					t.Errorf("%T is no *SyntaxError", err)
				}
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestValidateJSONPositions moves every kind of byte over all places of a word.
func TestValidateJSONPositions(t *testing.T) {
	for at := range 20 {
		for c := range 256 {
			b := []byte(`"` + strings.Repeat("a", 20) + `"`)
			b[1+at] = byte(c)
			if got, want := protocol.ValidateJSON(b) == nil, json.Valid(b) && utf8.Valid(b); got != want {
				t.Errorf("byte 0x%02x at %d: valid %t, want %t", c, at, got, want)
			}
		}
	}
}

func TestValidateJSONDeep(t *testing.T) {
	for _, n := range []int{63, 64, 65, 127, 128, 129, 20000, 1 << 20} {
		for _, pair := range [][2]string{{"[", "]"}, {`{"a":`, `}`}, {`[{"a":`, `}]`}} {
			good := strings.Repeat(pair[0], n) + "1" + strings.Repeat(pair[1], n)
			if err := protocol.ValidateJSON([]byte(good)); err != nil {
				t.Errorf("%d of %s: %v", n, pair[0], err)
			}
			// The last opener is closed by the wrong bracket.
			bad := strings.Repeat(pair[0], n) + "1" + strings.Map(func(r rune) rune { return '}' + ']' - r }, pair[1][:1])
			if err := protocol.ValidateJSON([]byte(bad)); err == nil {
				t.Errorf("%d of %s: the wrong bracket passed", n, pair[0])
			}
		}
	}
}

func TestAllocations(t *testing.T) {
	stored := protocol.AppendEventLine(nil, &protocol.Event{Seq: 1, TS: 2, Run: 3, Body: line250})
	dst := make([]byte, 0, 4096)
	for _, c := range []struct {
		name string
		f    func()
	}{
		{"ValidateJSON", func() { _ = protocol.ValidateJSON(line250) }},
		{"ChildLine", func() { _, _, _ = protocol.ChildLine(nil, line250, false, true) }},
		{"AppendEventLine", func() { dst = protocol.AppendEventLine(dst[:0], &event250) }},
		{"ParseEventLine", func() { _, _ = protocol.ParseEventLine(stored) }},
		{"LineSource", func() { _ = protocol.LineSource(stored) }},
		{"AppendEventPrefix", func() { dst = protocol.AppendEventPrefix(dst[:0], 7, "s", "e") }},
	} {
		if n := testing.AllocsPerRun(100, c.f); n != 0 {
			t.Errorf("%s allocates %v times, want 0", c.name, n)
		}
	}
}

func TestCompact(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{` { "a b" : [ 1 , 2 ] , "c\" " : "x  y" } `, `{"a b":[1,2],"c\" ":"x  y"}`},
		{"\t1.50\r\n", `1.50`},
		{`"\\" `, `"\\"`},
		{`true`, `true`},
	} {
		if got := string(protocol.Compact([]byte(">"), []byte(c.in))); got != ">"+c.want {
			t.Errorf("Compact(%s) = %s, want >%s", c.in, got, c.want)
		}
	}
}

func TestAppendString(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{``, `""`},
		{`a"b\c/`, `"a\"b\\c/"`},
		{"\b\f\n\r\t\x00\x1f\x7f", `"\b\f\n\r\t\u0000\u001f` + "\x7f\""},
		{"é日本😀\u2028<&>", "\"é日本😀\u2028<&>\""},
		{"a\xffb\xc3", "\"a\ufffdb\ufffd\""},
		{"\ufffd", "\"\ufffd\""},
		{"\xed\xa0\x80", "\"\ufffd\ufffd\ufffd\""},
	} {
		if got := string(protocol.AppendString(nil, c.in)); got != c.want {
			t.Errorf("AppendString(%q) = %s, want %s", c.in, got, c.want)
		}
	}
}

func TestDecodeString(t *testing.T) {
	for _, c := range []struct {
		in, want string
		ok       bool
	}{
		{`"a\n\u0041\ud83d\ude00"`, "a\nA😀", true},
		{`"\ud800x\udc00"`, "\ufffdx\ufffd", true},
		{`"\ud800\ud83d\ude00"`, "\ufffd😀", true},
		{`"\u0000\/"`, "\x00/", true},
		{"\"a\x94\xe2\x82b\xff\"", "a\ufffdb\ufffd", true},
		{`1`, "", false},
		{`null`, "", false},
		{`[""]`, "", false},
		{``, "", false},
	} {
		if got, ok := protocol.DecodeString([]byte(c.in)); got != c.want || ok != c.ok {
			t.Errorf("DecodeString(%s) = %q, %t; want %q, %t", c.in, got, ok, c.want, c.ok)
		}
	}
}

var jsonSeeds = []string{
	`{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":[1,2.5e-3,null]}}`, `[{"method":"a"},1]`, `{"a":1,"\u0061":2}`,
	`"\ud83d\ude00\ud800"`, "\"caf\xe9\"", `[[[{"a":[{}]}]]]`, `{"type":"ping","timestamp":12}`, ` [ 1 , "x y" ] `, "\x00", `-0.0E+1`, `[1,]`,
}

// FuzzValidateJSON compares with encoding/json, which accepts invalid UTF-8 and
// nesting up to 10,000 only.
func FuzzValidateJSON(f *testing.F) {
	for _, s := range jsonSeeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 10000 {
			t.Skip("may be nested deeper than the model goes")
		}
		err := protocol.ValidateJSON(b)
		if got, want := err == nil, json.Valid(b) && utf8.Valid(b); got != want {
			t.Fatalf("ValidateJSON(%q) = %v, want valid %t", b, err, want)
		}
		if err == nil {
			checkCompact(t, b)
		} else if !utf8.ValidString(err.Error()) {
			t.Errorf("error text %q", err.Error())
		}
	})
}

func checkCompact(t *testing.T, b []byte) {
	t.Helper()
	var want bytes.Buffer
	if err := json.Compact(&want, b); err != nil {
		t.Fatal(err)
	}
	got := protocol.Compact(nil, b)
	if !bytes.Equal(got, want.Bytes()) {
		t.Fatalf("Compact(%q) = %q, want %q", b, got, want.Bytes())
	}
	if got[0] != '"' {
		return
	}
	var text string
	if err := json.Unmarshal(got, &text); err != nil {
		t.Fatal(err)
	}
	if s, ok := protocol.DecodeString(got); !ok || s != text {
		t.Fatalf("DecodeString(%q) = %q, %t; want %q", got, s, ok, text)
	}
}

// FuzzAppendString compares with encoding/json.
func FuzzAppendString(f *testing.F) {
	f.Add("a\"\\\n\x00é\xff\u2028")
	f.Fuzz(func(t *testing.T, s string) {
		b := protocol.AppendString(nil, s)
		if err := protocol.ValidateJSON(b); err != nil {
			t.Fatalf("AppendString(%q) = %q: %v", s, b, err)
		}
		model, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		want, _ := protocol.DecodeString(model)
		if got, ok := protocol.DecodeString(b); !ok || got != want {
			t.Fatalf("AppendString(%q) = %q, which is %q, want %q", s, b, got, want)
		}
	})
}
