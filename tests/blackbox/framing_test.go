package blackbox

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"rejoin/tests/harness"
)

// TestChildBytes hands the server what children print and looks at the bytes
// that arrive. Proves I-P1 and I-W2.
func TestChildBytes(t *testing.T) {
	s := harness.Start(t, harness.Options{Env: []string{"LC_ALL=C", "LANG=C"}})
	invalid := "{\"n\":1,\"t\":\"\xff\xfe\x80\xed\xa0\x80\xc0\xaf\"}"
	deep := `{"n":1,"v":` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + `}`
	numbers := `{"a":9007199254740993,"b":18446744073709551615,"c":1.0,"d":1E400,"e":-0.0,"f":0.1000,"g":123456789012345678901234567890}`
	type want struct{ source, body string }
	for _, c := range []struct {
		name  string
		print string
		want  []want
	}{
		{"line separators are no line ends", "{\"t\":\"a\u2028b\u2029c\u0085d\"}\n{}\n", []want{{"child", "{\"t\":\"a\u2028b\u2029c\u0085d\"}"}, {"child", "{}"}}},
		{"numbers stay as they are", numbers + "\n", []want{{"child", numbers}}},
		{"CR and BOM go, blank lines are skipped", "\ufeff{\"n\":1}\r\n\r\n\n{\"n\":2}\r\n", []want{{"child", `{"n":1}`}, {"child", `{"n":2}`}}},
		{"scalars and arrays", "null\n42\n\"str\"\n[1,2]\n", []want{{"child", "null"}, {"child", "42"}, {"child", `"str"`}, {"child", "[1,2]"}}},
		{"white space inside", "{ \"n\" : 1 }\n", []want{{"child", `{ "n" : 1 }`}}},
		{"deep nesting", deep + "\n{\"n\":2}\n", []want{{"child", deep}, {"child", `{"n":2}`}}},
		{"text", "Welcome {not json\n{\"n\":2}\n", []want{{"broker", `"error":"invalid json`}, {"child", `{"n":2}`}}},
		{"text before JSON", "log: {\"n\":1}\n{\"n\":2}\n", []want{{"broker", `"text":"log: {\"n\":1}"`}, {"child", `{"n":2}`}}},
		{"invalid UTF-8", invalid + "\n{\"n\":2}\n", []want{{"broker", `"base64":"` + base64.StdEncoding.EncodeToString([]byte(invalid)) + `"`}, {"child", `{"n":2}`}}},
		{"two values on a line", "{\"n\":1}{\"n\":2}\n", []want{{"broker", `"error":"invalid json`}}},
		{"last line without LF", "{\"n\":1}\n{\"n\":2}", []want{{"child", `{"n":1}`}, {"child", `{"n":2}`}}},
		{"repeated names", "{\"n\":1,\"n\":2}\n", []want{{"child", `{"n":1,"n":2}`}}},
		{"escapes", `{"t":"\u0000\ud800\/"}` + "\n", []want{{"child", `{"t":"\u0000\ud800\/"}`}}},
		{"other languages", "{\"t\":\"→ 日本 ñ 😀\"}\n", []want{{"child", "{\"t\":\"→ 日本 ñ 😀\"}"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cl := harness.Dial(t, s)
			st := subscribe(t, cl, start(t, cl, "hex", hex.EncodeToString([]byte(c.print))), fromStart)
			if e := next(t, st); e.Type() != "session_start" || e.Seq != 1 || e.Source != "broker" {
				t.Fatalf("the first event is %+v", e)
			}
			for i, w := range c.want {
				e := next(t, st)
				same := string(e.Body) == w.body
				if w.source == "broker" {
					same = e.Type() == "error" && strings.Contains(string(e.Body), w.body)
				}
				if e.Source != w.source || !same {
					t.Fatalf("event %d is %s %.300s, want %s %.300s", i, e.Source, e.Body, w.source, w.body)
				}
			}
			if e := next(t, st); e.Type() != "session_end" {
				t.Fatalf("then came %s %.300s, want session_end", e.Source, e.Body)
			}
		})
	}
}

// TestLongLines looks at lines around every size at which buffers tend to end.
// Proves I-P1 and I-P2.
func TestLongLines(t *testing.T) {
	s := harness.Start(t, harness.Options{Args: []string{"--max-event-bytes", "6MiB"}})
	cl := harness.Dial(t, s)
	sizes := []int{4095, 4096, 4097, 65535, 65536, 65537, 262144, 1 << 20, 4<<20 - 1, 4 << 20, 4<<20 + 1, 6 << 20}
	var steps []string
	for i, size := range sizes {
		steps = append(steps, "blob", fmt.Sprint(i+1), fmt.Sprint(size))
	}
	steps = append(steps, "blob", "100", fmt.Sprint(6<<20+1), "blob", "101", fmt.Sprint(20<<20), "count", "102", "102", "0", "echo")
	session := start(t, cl, steps...)
	st := subscribe(t, cl, session, fromStart)
	next(t, st)
	for i, size := range sizes {
		if e := next(t, st); n(e) != i+1 || len(e.Body) != size {
			t.Fatalf("line %d of %d bytes arrived as n=%d with %d bytes", i+1, size, n(e), len(e.Body))
		}
	}
	for _, size := range []int64{6<<20 + 1, 20 << 20} {
		e := next(t, st)
		b := body[struct {
			Error   string
			Bytes   int64
			Preview string
		}](t, e)
		if e.Source != "broker" || b.Error != "line exceeds limit" || b.Bytes != size || !strings.HasPrefix(b.Preview, `{"type":"blob"`) {
			t.Fatalf("the line of %d bytes gave %s %.300s", size, e.Source, e.Body)
		}
	}
	if e := next(t, st); n(e) != 102 {
		t.Fatalf("after the long lines came %.300s", e.Body)
	}
	send(t, cl, session, "c1", map[string]any{"still": "there"})
	ofType(t, st, "got")
	// The same bytes again, from the journal by pages and by a late subscriber.
	late := subscribe(t, harness.Dial(t, s), session, fromStart)
	next(t, late)
	for i, size := range sizes {
		if e := next(t, late); n(e) != i+1 || len(e.Body) != size {
			t.Fatalf("late: line %d of %d bytes arrived as n=%d with %d bytes", i+1, size, n(e), len(e.Body))
		}
	}
}

// TestLineThatNeverEnds lets a child print 256 MiB without LF; the server's memory
// must not follow. Proves I-P2 and I-W4.
func TestLineThatNeverEnds(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	cl := harness.Dial(t, s)
	session := start(t, cl, "put", "{\"n\":1}\n", "read", "fill", fmt.Sprint(256<<20), "put", "\n", "count", "3", "3", "0", "echo")
	st := subscribe(t, cl, session, fromStart)
	numbered(t, st, 1, 1)
	before, err := harness.RSS(s.PID())
	if err != nil {
		t.Fatal(err)
	}
	send(t, cl, session, "go", map[string]any{})
	e := ofType(t, st, "error")
	if !bytes.Contains(e.Body, []byte(`"error":"line exceeds limit"`)) {
		t.Fatalf("the endless line gave %.300s", e.Body)
	}
	numbered(t, st, 3, 3)
	after, err := harness.RSS(s.PID())
	if err != nil {
		t.Fatal(err)
	}
	if grown := after - before; grown > 100<<20 {
		t.Fatalf("the server grew by %d MiB while one line arrived", grown>>20)
	}
}

// TestLinesAdapter carries text both ways.
func TestLinesAdapter(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	cl := harness.Dial(t, s)
	session := startAs(t, cl, "lines", "put", "hello\nwörld \\ \"q\"\n", "echo")
	st := subscribe(t, cl, session, fromStart)
	next(t, st)
	for _, want := range []string{"hello", `wörld \ "q"`} {
		e := next(t, st)
		if b := body[struct{ Type, Text string }](t, e); e.Source != "broker" || b.Type != "output" || b.Text != want {
			t.Fatalf("got %s %s, want output %q", e.Source, e.Body, want)
		}
	}
	send(t, cl, session, "c1", "say \"hi\"\tü")
	harness.Do[sendResult](t, cl, "prompt", map[string]any{"sessionId": session, "text": "second", "commandId": "c2"})
	for _, want := range []string{`{"type":"got","line":"say \"hi\"\tü"}`, `{"type":"got","line":"second"}`} {
		e := ofType(t, st, "output")
		if b := body[struct{ Text string }](t, e); b.Text != want {
			t.Fatalf("the child printed %q, want %q", b.Text, want)
		}
	}
	for name, command := range map[string]any{"object": map[string]any{}, "line feed": "a\nb", "carriage return": "a\rb", "number": 5} {
		t.Run(name, func(t *testing.T) {
			refuse(t, cl, -32602, "send", map[string]any{"sessionId": session, "command": command})
		})
	}
	refuse(t, cl, -32009, "steer", map[string]any{"sessionId": session, "text": "x"})
	jsonl := start(t, cl, "echo")
	refuse(t, cl, -32009, "prompt", map[string]any{"sessionId": jsonl, "text": "x"})
}

// TestInputBytes looks at what reaches stdin: one line per command, unchanged but
// for insignificant white space. Proves I-P1.
func TestInputBytes(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	cl := harness.Dial(t, s)
	path := t.TempDir() + "/in"
	session := start(t, cl, "hold", path)
	w := harness.DialWire(t, s)
	w.Authenticate(s.Token())
	var want strings.Builder
	for i, c := range []struct{ sent, got string }{
		{`{"type":"p","seed":9007199254740993,"x":1.0,"y":1e2}`, ""},
		{"{\"t\":\"x\u2028y\u2029z\"}", ""},
		{`{ "a" : [ 1 , 2 ] ,	"b" : "c d" }`, `{"a":[1,2],"b":"c d"}`},
		{`{"t":"na\u00efve 日本語 \/ \ud83d\ude00"}`, ""},
		{`{"id":7}`, ""},
		{`null`, ""},
		{`"text"`, ""},
		{`[1,{"id":null}]`, ""},
		{`-0.0`, ""},
	} {
		if c.got == "" {
			c.got = c.sent
		}
		w.Send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"send","params":{"sessionId":%q,"commandId":"c%d","command":%s}}`+"\n", i, session, i, c.sent))
		if line := w.Line(); !strings.Contains(line, `"status":"sent"`) {
			t.Fatalf("send %s answered %s", c.sent, line)
		}
		want.WriteString(c.got + "\n")
	}
	inFile(t, path, want.String())
}

// TestClientsDoNotInterleave lets four connections send large commands at once.
func TestClientsDoNotInterleave(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	cl := harness.Dial(t, s)
	session := start(t, cl, "echo")
	st := subscribe(t, cl, session, fromStart)
	const each, clients = 40, 4
	errs := make(chan error, clients)
	for i := range clients {
		c := harness.Dial(t, s)
		go func() {
			var err error
			for k := 0; k < each && err == nil; k++ {
				p := strings.Repeat(string(rune('a'+i)), 20000)
				_, err = c.Call(harness.Context(t), "send", map[string]any{"sessionId": session, "command": map[string]any{"p": p}})
			}
			errs <- err
		}()
	}
	for range clients {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	whole := 0
	until(t, st, "160 whole commands", func(e harness.Event) bool {
		if e.Type() == "got" {
			line := body[struct{ Line string }](t, e).Line
			p := strings.TrimSuffix(strings.TrimPrefix(line, `{"p":"`), `"}`)
			if len(p) != 20000 || strings.Trim(p, p[:1]) != "" {
				t.Fatalf("a command reached the child torn: %.100s", line)
			}
			whole++
		}
		return whole == each*clients
	})
}
