package protocol_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"rejoin/protocol"
)

// show renders a Message: calls as id method params, faults as their reason.
func show(m protocol.Message) string {
	var parts []string
	if m.Batch {
		parts = append(parts, "batch")
	}
	if m.Heartbeat != nil {
		parts = append(parts, "heartbeat "+string(m.Heartbeat))
	}
	for _, c := range m.Calls {
		id := string(c.ID)
		if c.ID == nil {
			id = "-"
		}
		if c.Err != nil {
			parts = append(parts, id+" !"+string(c.Err.Reason))
			continue
		}
		parts = append(parts, strings.TrimSpace(id+" "+c.Method+" "+string(c.Params)))
	}
	return strings.Join(parts, "; ")
}

func TestParseMessage(t *testing.T) {
	nested := func(n int) string {
		return `{"id":1,"method":"m","params":` + strings.Repeat("[", n-1) + strings.Repeat("]", n-1) + `}`
	}
	members := func(n int, last string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `"k%d":%d,`, i, i)
		}
		return `{"id":1,"method":"m",` + b.String() + last + `}`
	}
	for _, c := range []struct{ name, line, want string }{
		{"request", `{"jsonrpc":"2.0","id":1,"method":"ping","params":{}}`, `1 ping {}`},
		{"without jsonrpc", `{"id":1,"method":"ping"}`, `1 ping`},
		{"escaped version and method", `{"jsonrpc":"\u0032.0","id":1,"method":"p\u0069ng"}`, `1 ping`},
		{"white space", " \t{ \"id\" : 1 , \"method\" : \"ping\" , \"params\" : { \"a\" : 1 } } \r", `1 ping { "a" : 1 }`},
		{"notification", `{"jsonrpc":"2.0","method":"send"}`, `- send`},
		{"id null", `{"id":null,"method":"ping"}`, `null ping`},
		{"id string", `{"id":"\u0041 \"","method":"ping"}`, `"\u0041 \"" ping`},
		{"id float", `{"id":1.50e+3,"method":"ping"}`, `1.50e+3 ping`},
		{"id big", `{"id":123456789012345678901234567890,"method":"ping"}`, `123456789012345678901234567890 ping`},
		{"params array", `{"id":1,"method":"m","params":[1]}`, `1 m [1]`},
		{"params null", `{"id":1,"method":"m","params":null}`, `1 m null`},
		{"unknown members", `{"id":1,"method":"m","extra":{"a":[{"a":1},{"a":2}]}}`, `1 m`},
		{"case-sensitive", `{"ID":1,"Method":"x","method":"m"}`, `- m`},
		{"empty method", `{"id":1,"method":""}`, `1`},
		{"blank", " \t\r", ``},
		{"nothing", "", ``},

		{"no JSON", `hello`, `null !parse`},
		{"cut", `{"id":1,"method":"ping"`, `null !parse`},
		{"two values", `{"id":1,"method":"ping"} {}`, `null !parse`},
		{"invalid UTF-8", "{\"id\":1,\"method\":\"\xff\"}", `null !parse`},
		{"surrogate in UTF-8", "{\"id\":1,\"method\":\"\xed\xa0\x80\"}", `null !parse`},
		{"nested at the limit", nested(protocol.NestingMax), `1 m ` + strings.Repeat("[", 127) + strings.Repeat("]", 127)},
		{"nested over the limit", nested(protocol.NestingMax + 1), `null !parse`},
		{"unclosed", strings.Repeat("[", 100000), `null !parse`},
		{"unclosed objects", strings.Repeat(`{"a":`, 100000), `null !parse`},

		{"string", `"x"`, `null !invalid_request`},
		{"number", `1`, `null !invalid_request`},
		{"no method", `{"jsonrpc":"2.0","id":1}`, `null !invalid_request`},
		{"no method, no id", `{}`, `null !invalid_request`},
		{"method number", `{"id":1,"method":7}`, `null !invalid_request`},
		{"method null", `{"id":1,"method":null}`, `null !invalid_request`},
		{"wrong version", `{"jsonrpc":"1.0","id":1,"method":"m"}`, `null !invalid_request`},
		{"version number", `{"jsonrpc":2.0,"id":1,"method":"m"}`, `null !invalid_request`},
		{"version null", `{"jsonrpc":null,"id":1,"method":"m"}`, `null !invalid_request`},
		{"id object", `{"id":{},"method":"m"}`, `null !invalid_request`},
		{"id array", `{"id":[1],"method":"m"}`, `null !invalid_request`},
		{"id true", `{"id":true,"method":"m"}`, `null !invalid_request`},
		{"id false", `{"id":false,"method":"m"}`, `null !invalid_request`},
		{"repeated", `{"id":1,"method":"m","method":"m"}`, `null !invalid_request`},
		{"repeated id", `{"id":1,"id":2,"method":"m"}`, `null !invalid_request`},
		{"repeated escaped", `{"id":1,"method":"m","params":{"a":1,"\u0061":2}}`, `null !invalid_request`},
		{"repeated deep", `{"id":1,"method":"m","params":{"x":[1,[{"a":{"b":1,"c":"}","b":2}}]]}}`, `null !invalid_request`},
		{"repeated after a nested object", `{"id":1,"method":"m","params":{"a":{"x":1},"b":2,"a":3}}`, `null !invalid_request`},
		{"same name at other depths", `{"id":1,"method":"m","params":{"id":1,"a":{"id":1,"a":[{"id":1},{"id":1}]}}}`, `1 m {"id":1,"a":{"id":1,"a":[{"id":1},{"id":1}]}}`},
		{"other half pairs differ", `{"id":1,"method":"m","\ud800":1,"\ud801":2,"\ufffd":3}`, `1 m`},
		{"many names", members(1000, `"k":0`), `1 m`},
		{"repeated of many", members(1000, `"k500":0`), `null !invalid_request`},
		{"repeated of many, early", members(15, `"k0":0`), `null !invalid_request`},

		{"batch", `[{"id":1,"method":"a"},{"method":"b"}, {"id":2,"method":"c","params":{}}]`, `batch; 1 a; - b; 2 c {}`},
		{"batch with faults", `[1,{"id":{},"method":"m"},{"id":3,"method":"a","x":1,"x":2},{"id":4,"method":"b"}]`, `batch; null !invalid_request; null !invalid_request; null !invalid_request; 4 b`},
		{"batch in a batch", `[[{"id":1,"method":"a"}]]`, `batch; null !invalid_request`},
		{"empty batch", ` [ ] `, `null !invalid_request`},
		{"full batch", `[` + strings.Repeat(`1,`, 99) + `1]`, `batch` + strings.Repeat(`; null !invalid_request`, 100)},
		{"over-full batch", `[` + strings.Repeat(`{"id":1,"method":"a"},`, 100) + `1]`, `null !invalid_request`},
		{"cut batch", `[{"id":1,"method":"a"},{"id"]`, `null !parse`},
		{"heartbeat in a batch", `[{"type":"ping","timestamp":1}]`, `batch; null !invalid_request`},

		{"heartbeat", `{"type":"ping","timestamp":1796034481989}`, `heartbeat 1796034481989`},
		{"heartbeat without time", `{"type":"ping"}`, `heartbeat null`},
		{"heartbeat with more", `{"timestamp":"t","type":"p\u0069ng","x":1}`, `heartbeat "t"`},
		{"heartbeat with id", `{"id":1,"type":"ping"}`, `null !invalid_request`},
		{"heartbeat twice", `{"type":"ping","type":"ping"}`, `null !invalid_request`},
		{"other type", `{"type":"pong","timestamp":1}`, `null !invalid_request`},
		{"request with type", `{"type":"ping","id":1,"method":"m"}`, `1 m`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := show(protocol.ParseMessage([]byte(c.line))); got != c.want {
				t.Errorf("ParseMessage(%.200s)\n got %.300s\nwant %.300s", c.line, got, c.want)
			}
		})
	}
}

func TestAppendResponses(t *testing.T) {
	head, floor := protocol.Seq(9), protocol.Seq(2)
	outside := protocol.Errorf(protocol.ReasonTrimmed, "trimmed")
	outside.Head, outside.Floor, outside.Epoch = &head, &floor, "01K0"
	damaged := protocol.Errorf(protocol.ReasonDamaged, "damaged")
	damaged.Next = &head
	internal := protocol.Errorf(protocol.ReasonInternal, "internal error \"x\"\n\xff")
	internal.ID = "c1"
	for _, c := range []struct{ name, got, want string }{
		{"result", string(protocol.AppendResult(nil, protocol.RawJSON(`1.0`), []byte(`{"a":1}`))), `{"jsonrpc":"2.0","id":1.0,"result":{"a":1}}`},
		{"nil id", string(protocol.AppendResult([]byte(">"), nil, []byte(`[]`))), `>{"jsonrpc":"2.0","id":null,"result":[]}`},
		{
			"error", string(protocol.AppendError(nil, protocol.RawJSON(`"a"`), protocol.Errorf(protocol.ReasonOverloaded, "busy"))),
			`{"jsonrpc":"2.0","id":"a","error":{"code":-32005,"message":"busy","data":{"reason":"overloaded","retryable":true}}}`,
		},
		{
			"error with facts", string(protocol.AppendError(nil, nil, outside)),
			`{"jsonrpc":"2.0","id":null,"error":{"code":-32010,"message":"trimmed","data":{"reason":"trimmed","retryable":false,"head":9,"floor":2,"epoch":"01K0"}}}`,
		},
		{
			"error with a way on", string(protocol.AppendError(nil, nil, damaged)),
			`{"jsonrpc":"2.0","id":null,"error":{"code":-32010,"message":"damaged","data":{"reason":"damaged","retryable":false,"next":9}}}`,
		},
		{
			"internal error", string(protocol.AppendError(nil, nil, internal)),
			`{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"internal error \"x\"\n` + "\ufffd" + `","data":{"reason":"internal","retryable":false,"id":"c1"}}}`,
		},
		{"notification", string(protocol.AppendNotification(nil, "synced", []byte(`{"seq":1}`))), `{"jsonrpc":"2.0","method":"synced","params":{"seq":1}}`},
		{"pong", string(protocol.AppendPong(nil, protocol.RawJSON(`12`))), `{"type":"pong","timestamp":12}`},
	} {
		if c.got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, c.got, c.want)
		}
		if err := protocol.ValidateJSON([]byte(strings.TrimPrefix(c.got, ">"))); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// repeats reports by encoding/json whether an object at any depth has a name twice.
func repeats(t *testing.T, b []byte) bool {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(string(b)))
	d.UseNumber()
	type level struct {
		names map[string]bool // nil: an array
		value bool            // a value comes next
	}
	var open []level
	for {
		token, err := d.Token()
		if err != nil {
			return false
		}
		last := len(open) - 1
		if delim, ok := token.(json.Delim); ok && (delim == '}' || delim == ']') {
			open = open[:last]
			continue
		}
		if last >= 0 && open[last].names != nil {
			if open[last].value = !open[last].value; open[last].value {
				name := token.(string)
				if open[last].names[name] {
					return true
				}
				open[last].names[name] = true
				continue
			}
		}
		switch token {
		case json.Delim('{'):
			open = append(open, level{names: map[string]bool{}})
		case json.Delim('['):
			open = append(open, level{})
		}
	}
}

// FuzzDecodeMessage checks a client's line against encoding/json.
func FuzzDecodeMessage(f *testing.F) {
	for _, s := range jsonSeeds {
		f.Add([]byte(s))
	}
	f.Add([]byte(`{"id":1,"method":"m","params":{"a":[{"b":1,"b":2}]}}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		m := protocol.ParseMessage(line)
		valid := json.Valid(line) && utf8.Valid(line)
		if !valid && len(m.Calls) > 0 && (len(m.Calls) != 1 || m.Batch || m.Calls[0].Err == nil || m.Calls[0].Err.Reason != protocol.ReasonParse) {
			t.Fatalf("invalid JSON %q gave %s", line, show(m))
		}
		for _, c := range m.Calls {
			checkCall(t, line, c)
		}
		if !valid || m.Batch || len(m.Calls) != 1 || strings.Contains(strings.ToLower(string(line)), `\ud`) {
			return
		}
		if m.Calls[0].Err == nil && repeats(t, line) {
			t.Fatalf("a repeated name passed: %q", line)
		}
		if e := m.Calls[0].Err; e != nil && strings.HasSuffix(e.Message, "is repeated") && !repeats(t, line) {
			t.Fatalf("%s: %q", e.Message, line)
		}
	})
}

func checkCall(t *testing.T, line []byte, c protocol.Call) {
	t.Helper()
	if c.Err != nil {
		if string(c.ID) != "null" {
			t.Fatalf("a fault with id %s: %q", c.ID, line)
		}
		if b := protocol.AppendError(nil, c.ID, c.Err); protocol.ValidateJSON(b) != nil {
			t.Fatalf("%q gave %q", line, b)
		}
		return
	}
	if b := protocol.AppendResult(nil, c.ID, []byte("1")); protocol.ValidateJSON(b) != nil {
		t.Fatalf("%q gave %q", line, b)
	}
	if c.Params != nil && protocol.ValidateJSON(c.Params) != nil {
		t.Fatalf("params %q of %q", c.Params, line)
	}
	if p, err := protocol.ParseParams(c.Params); err == nil {
		checkParams(t, c.Params, p)
	}
}

// checkParams compares the members of an object without repeated names.
func checkParams(t *testing.T, raw []byte, p protocol.Params) {
	t.Helper()
	var model map[string]json.RawMessage
	if raw == nil || strings.Contains(strings.ToLower(string(raw)), `\ud`) {
		return
	}
	if err := json.Unmarshal(raw, &model); err != nil {
		t.Fatal(err)
	}
	for name, want := range model {
		if got, ok := p.Raw(name); !ok || string(got) != string(want) {
			t.Fatalf("member %q of %q is %q, %t; want %q", name, raw, got, ok, want)
		}
	}
}
