package blackbox

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"rejoin/tests/harness"
)

// TestDedupe: one command id takes effect once, for the session's life, across
// SIGKILL and SIGTERM of the server, with and without an owner. Proves I-B1.
func TestDedupe(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	cl := harness.Dial(t, s)
	path := t.TempDir() + "/in"
	session := start(t, cl, "hold", path)
	pay := map[string]any{"type": "prompt", "text": "pay"}
	first := send(t, cl, session, "c1", pay)
	if first.Duplicate {
		t.Fatal("the first is no duplicate")
	}
	line := `{"text":"pay","type":"prompt"}` + "\n"
	inFile(t, path, line)
	check := func(when string) {
		t.Helper()
		again := send(t, cl, session, "c1", pay)
		if !again.Duplicate || again.Seq != first.Seq {
			t.Fatalf("%s: the retry answered %+v, first %+v", when, again, first)
		}
		spaced := json.RawMessage(`{ "text" : "pay" , "type" : "prompt" }`)
		if r := send(t, cl, session, "c1", spaced); !r.Duplicate {
			t.Fatalf("%s: white space made another command", when)
		}
		refuse(t, cl, -32006, "send", map[string]any{"sessionId": session, "commandId": "c1", "command": map[string]any{"type": "prompt", "text": "other"}})
		r := harness.Do[struct {
			Results []struct {
				CommandID, Outcome string
				Seq                uint64
			}
		}](t, cl, "command_status", map[string]any{"sessionId": session, "commandIds": []string{"never", "c1"}})
		if len(r.Results) != 2 || r.Results[0].Outcome != "unknown" || r.Results[1].Outcome != "done" || r.Results[1].Seq != first.Seq {
			t.Fatalf("%s: command_status answered %+v", when, r)
		}
	}
	harness.Eventually(t, "the outcome of c1", func() bool {
		raw, err := cl.Call(harness.Context(t), "command_status", map[string]any{"sessionId": session, "commandIds": []string{"c1"}})
		return err == nil && strings.Contains(string(raw), `"done"`)
	})
	check("same run")
	for _, end := range []func(){s.Kill9, func() { s.Term() }} {
		end()
		s.Run()
		cl = harness.Dial(t, s)
		check("without an owner")
		must(t, cl, "resume_session", map[string]any{"sessionId": session})
		check("next run")
	}
	marker := send(t, cl, session, "c2", "marker")
	if marker.Duplicate {
		t.Fatal("c2 is new")
	}
	inFile(t, path, line+"\"marker\"\n")
}

// TestConcurrentRetries: the same id from eight connections at once. Proves I-B1.
func TestConcurrentRetries(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	cl := harness.Dial(t, s)
	path := t.TempDir() + "/in"
	session := start(t, cl, "hold", path)
	results := make(chan string, 8)
	for range 8 {
		c := harness.Dial(t, s)
		go func() {
			raw, err := c.Call(harness.Context(t), "send", map[string]any{"sessionId": session, "commandId": "same", "command": 1})
			results <- fmt.Sprint(string(raw), err)
		}()
	}
	fresh := 0
	for range 8 {
		r := <-results
		if !strings.Contains(r, `"status":"sent"`) {
			t.Fatalf("answered %s", r)
		}
		if !strings.Contains(r, `"duplicate":true`) {
			fresh++
		}
	}
	if fresh != 1 {
		t.Fatalf("%d of eight were told to be first", fresh)
	}
	send(t, cl, session, "end", 2)
	inFile(t, path, "1\n2\n")
}

// TestExpect: checked at admission; a refused command is not remembered.
func TestExpect(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	cl := harness.Dial(t, s)
	path := t.TempDir() + "/in"
	session := start(t, cl, "count", "1", "1", "0", "hold", path)
	numbered(t, subscribe(t, cl, session, fromStart), 1, 1)
	i := get(t, cl, session)
	try := func(id string, expect map[string]any) error {
		_, err := cl.Call(harness.Context(t), "send", map[string]any{"sessionId": session, "commandId": id, "command": id, "expect": expect})
		return err
	}
	for name, expect := range map[string]map[string]any{
		"head": {"head": i.Head - 1}, "status": {"status": "busy"}, "run": {"run": i.Run + 1}, "epoch": {"epoch": otherEpoch}, "one of two": {"run": i.Run, "head": 1000},
	} {
		if err := try("x", expect); err == nil || !strings.Contains(err.Error(), "-32006") {
			t.Fatalf("%s: %v", name, err)
		}
	}
	if err := try("x", map[string]any{"turn": "t1"}); err == nil || !strings.Contains(err.Error(), "-32009") {
		t.Fatalf("turn: %v", err)
	}
	if err := try("x", map[string]any{"head": "one"}); err == nil || !strings.Contains(err.Error(), "-32602") {
		t.Fatalf("wrong type: %v", err)
	}
	if err := try("x", map[string]any{"head": i.Head, "status": "idle", "run": i.Run, "epoch": i.Epoch}); err != nil {
		t.Fatalf("all true: %v", err)
	}
	inFile(t, path, "\"x\"\n")
	// Dedupe comes before expect.
	if err := try("x", map[string]any{"head": i.Head}); err != nil {
		t.Fatalf("the retry with an expect that no longer holds: %v", err)
	}
}

// TestCommandIDs: what an id may be.
func TestCommandIDs(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	cl := harness.Dial(t, s)
	session := start(t, cl, "echo")
	for _, id := range []any{"", strings.Repeat("x", 129), "a b\n", "ü", "rj:1:1", 5, true} {
		refuse(t, cl, -32602, "send", map[string]any{"sessionId": session, "commandId": id, "command": 1})
	}
	for _, id := range []string{"x", strings.Repeat("x", 128), "~!@#", "a:b/c"} {
		send(t, cl, session, id, 1)
	}
	r := harness.Do[sendResult](t, cl, "send", map[string]any{"sessionId": session, "command": 1})
	if r.CommandID == "" {
		t.Fatal("no id was minted")
	}
	refuse(t, cl, -32602, "send", map[string]any{"sessionId": session})
	refuse(t, cl, -32602, "send", map[string]any{"command": 1})
	refuse(t, cl, -32000, "send", map[string]any{"sessionId": "none", "command": 1})
	var many []string
	for i := range 65 {
		many = append(many, fmt.Sprint("c", i))
	}
	refuse(t, cl, -32602, "command_status", map[string]any{"sessionId": session, "commandIds": many})
}

// TestOutcomes: every admitted command ends in one recorded outcome, also when its
// child or the server dies. Proves I-B3.
func TestOutcomes(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	cl := harness.Dial(t, s)
	read := start(t, cl, "echo")
	st := subscribe(t, cl, read, fromStart)
	send(t, cl, read, "c1", 1)
	e := ofType(t, st, "command_outcome")
	if b := body[struct{ CommandID, Outcome string }](t, e); b.CommandID != "c1" || b.Outcome != "done" {
		t.Fatalf("outcome %s", e.Body)
	}
	unread := start(t, cl, "linger")
	for i := range 20 { // more than a pipe takes
		send(t, cl, unread, fmt.Sprint("c", i), strings.Repeat("x", 50_000))
	}
	s.Kill9()
	s.Run()
	cl = harness.Dial(t, s)
	outcomes := map[string]string{}
	for _, e := range until(t, subscribe(t, cl, unread, fromStart), "session_interrupted", func(e harness.Event) bool { return e.Type() == "session_interrupted" }) {
		if e.Type() != "command_outcome" {
			continue
		}
		b := body[struct{ CommandID, Outcome string }](t, e)
		if was := outcomes[b.CommandID]; was != "" {
			t.Fatalf("%s ended as %s and as %s", b.CommandID, was, b.Outcome)
		}
		outcomes[b.CommandID] = b.Outcome
	}
	for i := range 20 {
		if o := outcomes[fmt.Sprint("c", i)]; o != "done" && o != "interrupted" {
			t.Fatalf("c%d ended as %q", i, o)
		}
	}
	if outcomes["c19"] != "interrupted" {
		t.Fatalf("a command that a full pipe never took ended as %s", outcomes["c19"])
	}
}
