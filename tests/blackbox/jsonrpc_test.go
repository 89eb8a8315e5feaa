package blackbox

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"rejoin/tests/harness"
)

func ping(id string) string { return `{"jsonrpc":"2.0","id":` + id + `,"method":"ping"}` }

// answer is a response as tests of JSON-RPC look at it.
type answer struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  json.RawMessage `json:"result"`
	Error   *struct {
		Code int `json:"code"`
		Data struct {
			Reason    string `json:"reason"`
			Retryable *bool  `json:"retryable"`
		} `json:"data"`
	} `json:"error"`
}

func parse(t *testing.T, line string) answer {
	t.Helper()
	var a answer
	if err := json.Unmarshal([]byte(line), &a); err != nil {
		t.Fatalf("the server wrote %.300q: %v", line, err)
	}
	if a.JSONRPC != "2.0" || a.ID == nil && a.Error == nil {
		t.Fatalf("not a response: %.300s", line)
	}
	return a
}

// TestRequestLines sends lines on one connection each and looks at the answers;
// after all of them the connection must still answer.
func TestRequestLines(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	deepest := strings.Repeat("[", 126) + strings.Repeat("]", 126) // in params in a request: 128
	for _, c := range []struct {
		name string
		send string
		want []string // "id ok", or "id code"
	}{
		{"one", ping("1") + "\n", []string{"1 ok"}},
		{"two in one segment", ping("1") + "\n" + ping("2") + "\n", []string{"1 ok", "2 ok"}},
		{"CRLF", ping("1") + "\r\n", []string{"1 ok"}},
		{"blank lines", "\n\r\n  \n" + ping("1") + "\n", []string{"1 ok"}},
		{"white space around", "  " + ping("1") + " \t\n", []string{"1 ok"}},
		{"no jsonrpc member", `{"id":6,"method":"ping"}` + "\n", []string{"6 ok"}},
		{"jsonrpc 1.0", `{"jsonrpc":"1.0","id":6,"method":"ping"}` + "\n", []string{"? -32600"}},
		{"jsonrpc a number", `{"jsonrpc":2.0,"id":6,"method":"ping"}` + "\n", []string{"? -32600"}},
		{"broken", `{"jsonrpc":` + "\n", []string{"null -32700"}},
		{"text", "not json\n" + ping("5") + "\n", []string{"null -32700", "5 ok"}},
		{"not UTF-8", "\xff\xfe\n", []string{"null -32700"}},
		{"invalid UTF-8 inside", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xc3\x28\"}\n", []string{"null -32700"}},
		{"two values", ping("1") + ping("2") + "\n", []string{"null -32700"}},
		{"a number", "42\n", []string{"null -32600"}},
		{"null", "null\n", []string{"null -32600"}},
		{"no method", `{"jsonrpc":"2.0","id":1}` + "\n", []string{"? -32600"}},
		{"method a number", `{"jsonrpc":"2.0","id":1,"method":5}` + "\n", []string{"? -32600"}},
		{"method in capitals", `{"jsonrpc":"2.0","id":1,"Method":"ping"}` + "\n", []string{"? -32600"}},
		{"unknown method", `{"jsonrpc":"2.0","id":8,"method":"nope"}` + "\n", []string{"8 -32601"}},
		{"id null", ping("null") + "\n", []string{"null ok"}},
		{"id text", ping(`"a\u0062 c"`) + "\n", []string{`"a\u0062 c" ok`}},
		{"id with a line separator", ping("\"x\u2028y\"") + "\n", []string{"\"x\u2028y\" ok"}},
		{"id large", ping("123456789012345678901234567890") + "\n", []string{"123456789012345678901234567890 ok"}},
		{"id fraction", ping("1.50") + "\n", []string{"1.50 ok"}},
		{"id object", ping("{}") + "\n", []string{"null -32600"}},
		{"id array", ping("[1]") + "\n", []string{"null -32600"}},
		{"id boolean", ping("true") + "\n", []string{"null -32600"}},
		{"repeated member", `{"jsonrpc":"2.0","id":1,"method":"ping","method":"ping"}` + "\n", []string{"null -32600"}},
		{"repeated member by escape", `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":1,"\u0061":2}}` + "\n", []string{"null -32600"}},
		{"repeated member deep", `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":[{"a":1,"a":2}]}}` + "\n", []string{"null -32600"}},
		{"nesting at the limit", `{"jsonrpc":"2.0","id":2,"method":"ping","params":{"x":` + deepest + `}}` + "\n", []string{"2 ok"}},
		{"nesting over it", `{"jsonrpc":"2.0","id":2,"method":"ping","params":{"x":[` + deepest + `]}}` + "\n", []string{"null -32700"}},
		{"nesting far over it", `{"jsonrpc":"2.0","id":2,"method":"ping","params":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + `}` + "\n", []string{"null -32700"}},
		{"objects without end", strings.Repeat(`{"a":`, 100_000) + "\n", []string{"null -32700"}},
		{"params an array", `{"jsonrpc":"2.0","id":3,"method":"list_sessions","params":[1]}` + "\n", []string{"3 -32602"}},
		{"batch", `[` + ping("1") + `,{"jsonrpc":"2.0","method":"ping"},` + ping("2") + `]` + "\n", []string{"[1 ok, 2 ok]"}},
		{"batch with a broken member", `[` + ping("1") + `,5]` + "\n", []string{"[1 ok, null -32600]"}},
		{"batch of notifications", `[{"jsonrpc":"2.0","method":"ping"}]` + "\n", nil},
		{"batch empty", "[]\n", []string{"null -32600"}},
		{"batch of 100", "[" + strings.TrimSuffix(strings.Repeat(ping("1")+",", 100), ",") + "]\n", []string{"[" + strings.TrimSuffix(strings.Repeat("1 ok, ", 100), ", ") + "]"}},
		{"batch of 101", "[" + strings.TrimSuffix(strings.Repeat(ping("1")+",", 101), ",") + "]\n", []string{"null -32600"}},
		{"notifications", `{"jsonrpc":"2.0","method":"nope"}` + "\n" + `{"jsonrpc":"2.0","method":"ping"}` + "\n" + `{"jsonrpc":"2.0","method":"subscribe","params":{"sessionId":"none"}}` + "\n", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := harness.DialWire(t, s)
			w.Authenticate(s.Token())
			w.Send(c.send)
			for _, want := range c.want {
				if got := describe(t, w.Line(), strings.HasPrefix(want, "?")); got != want {
					t.Fatalf("got %s, want %s", got, want)
				}
			}
			w.Send(ping(`"last"`) + "\n")
			if got := describe(t, w.Line(), false); got != `"last" ok` {
				t.Fatalf("after it the connection answered %s", got)
			}
		})
	}
}

// describe is a response in the short form of the table.
func describe(t *testing.T, line string, anyID bool) string {
	t.Helper()
	if strings.HasPrefix(line, "[") {
		var members []json.RawMessage
		if err := json.Unmarshal([]byte(line), &members); err != nil {
			t.Fatal(err)
		}
		var parts []string
		for _, m := range members {
			parts = append(parts, describe(t, string(m), false))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	a := parse(t, line)
	id := string(a.ID)
	if anyID {
		id = "?"
	}
	if a.Error == nil {
		return id + " ok"
	}
	if a.Error.Data.Reason == "" || a.Error.Data.Retryable == nil {
		t.Fatalf("an error without reason and retryable: %.300s", line)
	}
	return fmt.Sprintf("%s %d", id, a.Error.Code)
}

// TestBytesInPieces sends a request byte by byte, a BOM before the first line, and
// a last line without LF.
func TestBytesInPieces(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	w := harness.DialWire(t, s)
	w.Send("\ufeff")
	auth := fmt.Sprintf(`{"jsonrpc":"2.0","id":"é","method":"authenticate","params":{"token":%q}}`+"\n", s.Token())
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for i := range len(auth) {
		w.Send(auth[i : i+1])
		<-tick.C
	}
	if got := w.Line(); got != `{"jsonrpc":"2.0","id":"é","result":{"authenticated":true}}` {
		t.Fatalf("authenticate answered %s", got)
	}
	w.Send(ping("1"))
	w.CloseWrite()
	if got := describe(t, w.Line(), false); got != "1 ok" {
		t.Fatalf("the last line without LF was answered %s", got)
	}
	if rest := w.Closed(); len(rest) != 0 {
		t.Fatalf("then came %q", rest)
	}
}

// TestOversizedRequest: one error, then the close; memory stays where it was while
// the line arrives. Proves I-P2 and I-G2.
func TestOversizedRequest(t *testing.T) {
	const limit = 1 << 20
	s := harness.Start(t, harness.Options{})
	fit := func(size int) string {
		head := `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"`
		return head + strings.Repeat("y", size-len(head)-3) + `"}}`
	}
	w := harness.DialWire(t, s)
	w.Authenticate(s.Token())
	w.Send(fit(limit) + "\n")
	if got := describe(t, w.Line(), false); got != "1 ok" {
		t.Fatalf("a line at the limit was answered %s", got)
	}
	if err := w.TrySend(fit(limit+1) + "\n" + ping("2") + "\n"); err != nil {
		t.Fatal(err)
	}
	lines := w.Closed()
	if len(lines) != 1 || describe(t, lines[0], false) != "null -32600" || !strings.Contains(lines[0], "request exceeds size limit") {
		t.Fatalf("a line over the limit gave %q", lines)
	}

	before, err := harness.RSS(s.PID())
	if err != nil {
		t.Fatal(err)
	}
	endless := harness.DialWire(t, s)
	chunk := strings.Repeat("z", 1<<20)
	for range 200 {
		if endless.TrySend(chunk) != nil {
			break // closed by now
		}
	}
	if lines := endless.Closed(); len(lines) > 1 {
		t.Fatalf("a line without end gave %q", lines)
	}
	after, err := harness.RSS(s.PID())
	if err != nil {
		t.Fatal(err)
	}
	if after-before > 60<<20 {
		t.Fatalf("the server grew by %d MiB", (after-before)>>20)
	}
}

// TestSilentNotifications: nothing comes back, even of those that fail.
func TestSilentNotifications(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	w := harness.DialWire(t, s)
	w.Authenticate(s.Token())
	cl := harness.Dial(t, s)
	path := t.TempDir() + "/in"
	session := start(t, cl, "hold", path)
	w.Send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"send","params":{"sessionId":%q,"command":{"n":1}}}`+"\n", session))
	inFile(t, path, `{"n":1}`+"\n")
	w.Quiet(200 * time.Millisecond)
}

// TestAuthentication: before it nothing but authenticate and ping. Proves I-A1.
func TestAuthentication(t *testing.T) {
	s := harness.Start(t, harness.Options{Args: []string{"--auth-timeout", "2s"}})
	w := harness.DialWire(t, s)
	for _, method := range []string{"list_sessions", "start_session", "server_status", "subscribe", "nope", "read_events"} {
		w.Send(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{"sessionId":"x","argv":["/bin/true"]}}`+"\n", method))
		line := w.Line()
		if a := parse(t, line); a.Error == nil || a.Error.Code != -32001 || a.Error.Data.Reason != "auth_required" {
			t.Fatalf("%s before authentication answered %s", method, line)
		}
	}
	w.Send(ping("1") + "\n" + `{"type":"ping","timestamp":1234}` + "\n")
	if got := describe(t, w.Line(), false); got != "1 ok" {
		t.Fatalf("ping before authentication answered %s", got)
	}
	if got := w.Line(); got != `{"type":"pong","timestamp":1234}` {
		t.Fatalf("the heartbeat line was answered %s", got)
	}
	w.Authenticate(s.Token())
	w.Authenticate(s.Token())

	for _, token := range []string{`"wrong"`, `""`} {
		bad := harness.DialWire(t, s)
		bad.Send(`{"jsonrpc":"2.0","id":1,"method":"authenticate","params":{"token":` + token + `}}` + "\n" + ping("2") + "\n")
		lines := bad.Closed()
		if len(lines) != 1 || !strings.Contains(lines[0], `"code":-32001,"message":"invalid token"`) {
			t.Fatalf("token %s gave %q", token, lines)
		}
	}

	idle := harness.DialWire(t, s)
	began := time.Now()
	if lines := idle.Closed(); len(lines) > 1 {
		t.Fatalf("the idle connection got %q", lines)
	}
	if took := time.Since(began); took < time.Second {
		t.Fatalf("an unauthenticated connection was closed after %v", took)
	}
	w.Send(ping("3") + "\n")
	if got := describe(t, w.Line(), false); got != "3 ok" {
		t.Fatalf("the authenticated connection answered %s", got)
	}
	if status, err := harness.Dial(t, s).Call(harness.Context(t), "server_status", nil); err != nil || strings.Contains(string(status), s.Token()) {
		t.Fatalf("server_status: %s, %v", status, err)
	}
	s.Hides(s.Token())
}
