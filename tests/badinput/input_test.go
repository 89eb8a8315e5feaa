package badinput

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
)

// input is one thing to send on a fresh connection.
type input struct {
	text   string
	before bool  // sent without authentication
	codes  []int // one of these is the error that must come; none: any
	last   bool  // it ends the connection's input: nothing follows it
}

const (
	parseError     = -32700
	invalidRequest = -32600
	invalidParams  = -32602
)

// class makes distinct inputs from a seed; session is one that lives.
type class struct {
	name string
	make func(r *rand.Rand, session string) []input
}

var classes = []class{
	{"framing", framing}, {"json", badJSON}, {"envelope", envelopes}, {"params", badParams}, {"order", orders}, {"size", sizes},
}

// request writes a request with raw params.
func request(id, method, params string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, id, method, params)
}

const plain = `{"jsonrpc":"2.0","id":7,"method":"ping","params":{}}`

// framing: bytes that are no line of JSON: control characters, separators that are
// none, halves of characters, a line that the end of input cuts.
func framing(r *rand.Rand, _ string) (all []input) {
	add := func(s string) { all = append(all, input{text: s, codes: []int{parseError, invalidRequest}}) }
	for c := range 0x20 {
		if c == '\n' || c == '\t' || c == '\r' {
			continue
		}
		add(plain[:20] + string(rune(c)) + plain[20:])
		add(string(rune(c)))
	}
	for _, b := range []string{"\x80", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xff\xfe", "\xe2\x82", "\xf0\x9f\x98"} {
		add(fmt.Sprintf(`{"jsonrpc":"2.0","id":"%s","method":"ping"}`, b))
		add(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"pi%sng"}`, b))
		add(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"%s"}}`, b))
		add(b)
	}
	for _, sep := range []string{"\u2028", "\u2029", "\u0085", "\v", "\f", "\r\r", "\x00"} {
		add(plain + sep + plain)
	}
	add(plain + "\r" + plain)
	add("\xef\xbb\xbf\xef\xbb\xbf" + plain)
	for i := 1; i < len(plain); i += 2 {
		all = append(all, input{text: plain[:i], codes: []int{parseError, invalidRequest}, last: true})
	}
	for range 40 {
		b := make([]byte, 1+r.IntN(200))
		for i := range b {
			if b[i] = byte(r.Uint32()); b[i] == '\n' {
				b[i] = 0
			}
		}
		add("\x01" + string(b))
	}
	return all
}

// badJSON: a request with one byte changed, left out or put in, that is no JSON.
func badJSON(r *rand.Rand, session string) (all []input) {
	base := request("3", "subscribe", fmt.Sprintf(`{"sessionId":%q,"after":12,"list":[1,2.5e3,true,null,"\u00e9\n"]}`, session))
	odd := `{}[],:"\'/+-.0eEx` + "\x7f"
	for len(all) < 300 {
		b := []byte(base)
		at := r.IntN(len(b))
		c := odd[r.IntN(len(odd))]
		switch r.IntN(3) {
		case 0:
			b[at] = c
		case 1:
			b = append(b[:at], b[at+1:]...)
		default:
			b = append(b[:at], append([]byte{c}, b[at:]...)...)
		}
		if !json.Valid(b) {
			all = append(all, input{text: string(b), codes: []int{parseError}})
		}
	}
	for _, s := range []string{
		"nul", "tru", "NaN", "Infinity", "-", "01", "1.", ".5", "1e", "+1", "0x10", `"`, `"\`, `"\u12"`, `"\x41"`, "{", "[", "[1,]", `{"a"}`, `{"a":}`,
		`{"a":1,}`, `{a:1}`, `{'a':1}`, `[1 2]`, "{}{}", "[]]", "//x", "/**/{}", "\t\x0b", `{"a":1}}`, "undefined", "True",
	} {
		all = append(all, input{text: s, codes: []int{parseError}})
	}
	for _, n := range []int{129, 130, 200, 1000, 100_000} {
		all = append(all,
			input{text: strings.Repeat("[", n) + strings.Repeat("]", n), codes: []int{parseError}},
			input{text: strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n), codes: []int{parseError}},
			input{text: strings.Repeat("[", n), codes: []int{parseError}})
	}
	return all
}

// values of every JSON type, with their corners.
var values = []string{
	"null", "true", "false", "0", "-1", "1.5", "1e400", "18446744073709551616", "-0", `""`, `"x"`, `"\u0000"`, `"\ud800"`, "[]", "[1]", "{}", `{"a":1}`, `[[]]`,
	`" "`, `"../../etc/passwd"`, `"*"`, `">"`, `"a.b"`, `"$SYS"`, `"é"`, `"\n"`,
}

// envelopes: JSON that is no request.
func envelopes(_ *rand.Rand, session string) (all []input) {
	add := func(s string) { all = append(all, input{text: s, codes: []int{invalidRequest, parseError, -32601}}) }
	for _, v := range values {
		if v != "[]" && v != "{}" {
			add(v)
		}
		add(fmt.Sprintf(`{"jsonrpc":%s,"id":1,"method":"ping"}`, v))
		if v[0] != '"' {
			add(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%s}`, v))
		} else {
			add(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%s,"params":{}}`, v))
		}
	}
	for _, id := range []string{"true", "false", "[]", "{}", "[1]", `{"a":1}`} {
		add(request(id, "ping", "{}"))
		add(request(id, "subscribe", fmt.Sprintf(`{"sessionId":%q}`, session)))
	}
	for _, m := range []string{"jsonrpc", "id", "method", "params"} {
		add(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"ping","params":{},%q:1}`, m))
		add(fmt.Sprintf(`{%q:null,"jsonrpc":"2.0","id":1,"method":"ping","params":{}}`, m))
	}
	for _, m := range []string{"Ping", "PING", "ping ", " ping", "pin\\u0047", "rpc.discover", "system.listMethods", "__proto__", "send;ping", "subscribe\\u0000"} {
		add(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"%s"}`, m))
	}
	add(`[]`)
	add(`{}`)
	add("[" + strings.TrimSuffix(strings.Repeat(plain+",", 101), ",") + "]")
	for _, v := range values {
		if v != "[]" {
			add("[" + v + "]")
		}
	}
	return all
}

// member is a param and values that are right for it.
type member struct{ name, kind string }

// methods are those that take params, with the members that are checked.
var methods = map[string][]member{
	"authenticate":   {{"token", "token"}},
	"get_session":    {{"sessionId", "session"}},
	"get_snapshot":   {{"sessionId", "session"}, {"at", "seq"}},
	"read_events":    {{"sessionId", "session"}, {"after", "seq"}, {"before", "seq"}, {"limit", "count"}, {"maxBytes", "count"}},
	"command_status": {{"sessionId", "session"}, {"commandIds", "ids"}},
	"read_stderr":    {{"sessionId", "session"}, {"run", "seq"}},
	"subscribe":      {{"sessionId", "session"}, {"after", "seq"}, {"from", "word"}, {"until", "seq"}},
	"resync":         {{"subscriptionId", "seq"}, {"after", "seq"}},
	"unsubscribe":    {{"subscriptionId", "seq"}},
	"start_session":  {{"argv", "ids"}, {"cwd", "word"}, {"adapter", "word"}, {"agent", "word"}, {"restart", "word"}},
	"resume_session": {{"sessionId", "session"}},
	"stop_session":   {{"sessionId", "session"}, {"graceMs", "count"}},
	"delete_session": {{"sessionId", "session"}},
	"set_title":      {{"sessionId", "session"}, {"title", "title"}},
	"send":           {{"sessionId", "session"}, {"commandId", "word"}, {"expect", "object"}},
	"prompt":         {{"sessionId", "session"}, {"text", "word"}},
	"respond":        {{"sessionId", "session"}, {"interactionId", "word"}, {"outcome", "word"}},
	"set_model":      {{"sessionId", "session"}, {"model", "word"}},
}

// wrong reports whether a value is of a type that the kind does not take.
func wrong(kind, v string) bool {
	text, number := v[0] == '"', v[0] == '-' || v[0] >= '0' && v[0] <= '9'
	switch kind {
	case "session", "word", "token", "title":
		return !text && v != "null"
	case "seq":
		return v != "0" && v != "null" && v != "-0" && v != "18446744073709551616" // as large as can be
	case "count":
		return !number && v != "null" || v == "-1" || v == "1.5"
	case "ids":
		return v[0] != '[' && v != "null" || v == "[1]" || v == "[[]]"
	}
	return v[0] != '{' && v != "null" // object
}

// badParams: each member of each method with each value of a wrong type; and
// params that are no object.
func badParams(_ *rand.Rand, session string) (all []input) {
	for method, members := range methods {
		for _, v := range []string{"[]", "1", `"x"`, "true", "[1,2]"} {
			all = append(all, input{text: request("1", method, v)})
		}
		for _, m := range members {
			for _, v := range values {
				if !wrong(m.kind, v) {
					continue
				}
				params := fmt.Sprintf(`{"sessionId":%q,%q:%s}`, session, m.name, v)
				if m.name == "sessionId" {
					params = fmt.Sprintf(`{"sessionId":%s}`, v)
				}
				if method == "send" || method == "stop_session" && m.name == "graceMs" {
					params = strings.Replace(params, "{", `{"command":{"type":"echo","k":"bad"},`, 1)
				}
				all = append(all, input{text: request("1", method, params), before: method == "authenticate"})
			}
		}
	}
	return all
}

// orders: what is right at another time: without authentication, for sessions and
// subscriptions that do not exist.
func orders(r *rand.Rand, session string) (all []input) {
	for method := range methods {
		if method == "authenticate" {
			continue
		}
		for _, params := range []string{"{}", fmt.Sprintf(`{"sessionId":%q}`, session), `{"subscriptionId":1}`, `{"argv":["true"]}`} {
			all = append(all, input{text: request("1", method, params), before: true, codes: []int{-32001, invalidParams}})
		}
		for range 3 {
			gone := fmt.Sprintf("s%x", r.Uint64())
			params := fmt.Sprintf(`{"sessionId":%q,"subscriptionId":%d,"command":1,"title":"t","commandIds":["a"],"text":"t","interactionId":"1.a","outcome":"allow","model":"m"}`, gone, 1_000_000+r.Uint32())
			if method != "start_session" {
				all = append(all, input{text: request("1", method, params)})
			}
		}
	}
	for range 20 {
		all = append(all, input{text: request("1", "authenticate", fmt.Sprintf(`{"token":"%x"}`, r.Uint64())), before: true, codes: []int{-32001}})
	}
	return all
}

// sizes: what is longer, deeper or more than a limit.
func sizes(_ *rand.Rand, session string) (all []input) {
	add := func(s string, codes ...int) { all = append(all, input{text: s, codes: codes}) }
	const limit = 1 << 20
	for i := range 40 {
		n := limit + 1 + i*i*37
		add(request("1", "send", fmt.Sprintf(`{"sessionId":%q,"command":"%s"}`, session, strings.Repeat("x", n))), invalidRequest)
	}
	for i := range 20 {
		add(strings.Repeat(" ", limit+1+i*1000)+plain, invalidRequest)
		add(strings.Repeat("[", limit+1+i*1000), invalidRequest)
	}
	for i := range 30 {
		add(request("1", "send", fmt.Sprintf(`{"sessionId":%q,"commandId":"%s","command":1}`, session, strings.Repeat("c", 129+i*i*29))), invalidParams)
		add(request("1", "get_session", fmt.Sprintf(`{"sessionId":"%s"}`, strings.Repeat("s", 65+i*i*31))))
		add(request("1", "command_status", fmt.Sprintf(`{"sessionId":%q,"commandIds":["%s"]}`, session, strings.Repeat(`a","`, 64+i)+"a")), invalidParams)
		add(request("1", "read_events", fmt.Sprintf(`{"sessionId":%q,"limit":%d}`, session, 1001+i)), invalidParams)
	}
	return all
}
