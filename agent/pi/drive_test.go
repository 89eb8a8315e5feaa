package pi_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"rejoin/agent"
	"rejoin/agent/pi"
	"rejoin/protocol"
)

// A desk is a session's owner without journal and child: it carries out effects at
// once and writes down what is recorded and what reaches stdin.
type desk struct {
	tb       testing.TB
	d        agent.Driver
	s        *protocol.State
	log      []string // what is recorded
	stdin    []string
	held     map[string]string
	deaf     bool // the pipe takes nothing
	resolved []protocol.InteractionResolved
}

func newDesk(tb testing.TB) *desk {
	tb.Helper()
	return &desk{
		tb: tb, d: pi.Adapter{}.Drive(3), held: map[string]string{},
		s: &protocol.State{SessionID: "s", Run: 3, Status: protocol.StatusIdle, Agent: protocol.StateAgent{Name: "pi", Adapter: "pi"}},
	}
}

func (k *desk) take(effects []agent.Effect) {
	k.tb.Helper()
	for _, e := range effects {
		switch {
		case e.Input != nil:
			k.input(e.Input)
		case e.Release != "":
			k.log = append(k.log, "released "+e.Release)
			k.write(e.Release, k.held[e.Release])
			delete(k.held, e.Release)
		case e.Outcome != nil:
			k.log = append(k.log, strings.TrimSpace(fmt.Sprintf("%s %s %s", e.Outcome.CommandID, e.Outcome.Outcome, e.Outcome.Result)))
		}
	}
}

func (k *desk) input(in *agent.Input) {
	what := "command " + in.ID
	if in.Held {
		what += " held"
	}
	if in.Value != nil {
		what += " " + string(in.Value)
	}
	k.log = append(k.log, what)
	if r := in.Resolves; r != nil {
		k.log = append(k.log, fmt.Sprintf("resolved %s %s by %s", r.InteractionID, r.Outcome, r.ResolvedBy))
		k.resolved = append(k.resolved, *r)
		k.s.Pending = slices.DeleteFunc(k.s.Pending, func(p protocol.Interaction) bool { return p.InteractionID == r.InteractionID })
	}
	if in.Held {
		k.held[in.ID] = string(in.Line)
		return
	}
	k.write(in.ID, string(in.Line))
}

func (k *desk) write(id, line string) {
	if k.deaf {
		return
	}
	if err := protocol.ValidateJSON([]byte(line)); err != nil || line[0] != '{' {
		k.tb.Fatalf("pi would get %q: %v", line, err)
	}
	k.stdin = append(k.stdin, line)
	k.take(k.d.Wrote(id))
}

// send admits a command and returns the reason it was refused with.
func (k *desk) send(client, id, verb, value string) *protocol.Error {
	k.tb.Helper()
	effects, err := k.d.Admit(k.s, &agent.Request{
		ID: id, Verb: verb, Value: protocol.RawJSON(value), Client: client,
		Resolved: k.was,
	})
	if err != nil {
		e, ok := protocol.AsError(err)
		if !ok {
			k.tb.Fatalf("error %v", err)
		}
		return e
	}
	k.take(effects)
	return nil
}

// was is how a question was resolved, the newest first.
func (k *desk) was(is func(string) bool) (r protocol.InteractionResolved, ok bool) {
	for i := len(k.resolved) - 1; i >= 0; i-- {
		if is(k.resolved[i].InteractionID) {
			return k.resolved[i], true
		}
	}
	return r, false
}

func (k *desk) must(client, id, verb, value string) {
	k.tb.Helper()
	if err := k.send(client, id, verb, value); err != nil {
		k.tb.Fatalf("%s %s %s: %v", id, verb, value, err)
	}
}

// hear lets pi print a line.
func (k *desk) hear(line string) {
	k.tb.Helper()
	record, command, effects := k.d.Hear(k.s, []byte(line))
	if err := protocol.ValidateJSON(record); err != nil {
		k.tb.Fatalf("line %s became %s: %v", line, record, err)
	}
	k.s.Seq++
	e := &protocol.Event{Seq: k.s.Seq, TS: 1000, Run: 3, Source: protocol.SourceChild, CommandID: command, Body: record}
	pi.Adapter{}.Fold(k.s, e)
	if command != "" {
		k.log = append(k.log, "line of "+command+": "+string(record))
	}
	k.take(effects)
}

// expect compares and forgets what was recorded.
func (k *desk) expect(want ...string) {
	k.tb.Helper()
	if !slices.Equal(k.log, want) {
		k.tb.Errorf("recorded\n  %s\nwant\n  %s", strings.Join(k.log, "\n  "), strings.Join(want, "\n  "))
	}
	k.log = nil
}

func (k *desk) wrote(want ...string) {
	k.tb.Helper()
	if !slices.Equal(k.stdin, want) {
		k.tb.Errorf("stdin got\n  %s\nwant\n  %s", strings.Join(k.stdin, "\n  "), strings.Join(want, "\n  "))
	}
	k.stdin = nil
}

func (k *desk) refused(err *protocol.Error, want protocol.Reason) {
	k.tb.Helper()
	if err == nil || err.Reason != want {
		k.tb.Errorf("got %+v, want %s", err, want)
	}
	k.expect()
	k.wrote()
}

func ok(id, kind string) string {
	return fmt.Sprintf(`{"id":"rj:3:%s","type":"response","command":"%s","success":true}`, id, kind)
}

// Two clients may use one id: each answer gets its own back, and goes with its
// own command.
func TestSameIDOfTwoClients(t *testing.T) {
	k := newDesk(t)
	k.must("a", "c1", "", `{"id":7,"type":"get_messages"}`)
	k.must("b", "c2", "", `{"type":"get_tree","id":7}`)
	k.must("b", "c3", "", `{"type":"get_tree"}`)
	k.wrote(`{"id":"rj:3:1","type":"get_messages"}`, `{"type":"get_tree","id":"rj:3:2"}`, `{"id":"rj:3:3","type":"get_tree"}`)
	k.expect("command c1", "command c2", "command c3")
	k.hear(`{"id":"rj:3:2","type":"response","command":"get_tree","success":true,"data":{"id":"rj:3:1"}}`)
	k.hear(`{"id":"rj:3:3","type":"response","command":"get_tree","success":true}`)
	k.hear(`{"id":"rj:3:1","type":"response","command":"get_messages","success":false,"error":"no \u0001"}`)
	k.expect(
		`line of c2: {"id":7,"type":"response","command":"get_tree","success":true,"data":{"id":"rj:3:1"}}`, `c2 done {"id":"rj:3:1"}`,
		`line of c3: {"type":"response","command":"get_tree","success":true}`, `c3 done`,
		`line of c1: {"id":7,"type":"response","command":"get_messages","success":false,"error":"no \u0001"}`, `c1 failed {"error":"no \u0001"}`,
	)
}

// pi loses one of two prompts that are written back to back.
func TestPromptsOneAtATime(t *testing.T) {
	k := newDesk(t)
	k.must("a", "c1", "prompt", `{"text":"one","images":[{"type":"image","data":"x"}]}`)
	k.must("b", "c2", "", `{"type":"prompt","message":"two","streamingBehavior":"followUp"}`)
	k.must("b", "c3", "prompt", `{"text":"three"}`)
	k.must("b", "c4", "follow_up", `{"text":"four"}`)
	k.expect("command c1", "command c2 held", "command c3 held", "command c4")
	k.wrote(`{"id":"rj:3:1","type":"prompt","message":"one","images":[{"type":"image","data":"x"}],"streamingBehavior":"followUp"}`, `{"id":"rj:3:4","type":"follow_up","message":"four"}`)
	k.hear(ok("4", "follow_up")) // answers another one
	k.wrote()
	k.hear(ok("1", "prompt"))
	k.wrote(`{"id":"rj:3:2","type":"prompt","message":"two","streamingBehavior":"followUp"}`)
	k.hear(`{"id":"rj:3:2","type":"response","command":"prompt","success":false,"error":"busy"}`)
	k.wrote(`{"id":"rj:3:3","type":"prompt","message":"three","streamingBehavior":"followUp"}`)
	k.hear(ok("3", "prompt"))
	k.must("a", "c5", "prompt", `{"text":"five"}`)
	k.wrote(`{"id":"rj:3:5","type":"prompt","message":"five","streamingBehavior":"followUp"}`)
	k.expect(
		`line of c4: {"type":"response","command":"follow_up","success":true}`, "c4 done",
		`line of c1: {"type":"response","command":"prompt","success":true}`, "c1 done", "released c2",
		`line of c2: {"type":"response","command":"prompt","success":false,"error":"busy"}`, `c2 failed {"error":"busy"}`, "released c3",
		`line of c3: {"type":"response","command":"prompt","success":true}`, "c3 done",
		"command c5",
	)
}

// Once the child reads no more nothing that is held is released.
func TestNoReleaseForADeadChild(t *testing.T) {
	k := newDesk(t)
	k.must("a", "c1", "prompt", `{"text":"one"}`)
	k.must("a", "c2", "prompt", `{"text":"two"}`)
	if !k.d.Told("c1") || k.d.Told("c2") || k.d.Told("c9") {
		t.Error("told is wrong")
	}
	k.d.Broke("cx")
	k.log = nil
	k.hear(ok("1", "prompt"))
	k.expect(`line of c1: {"type":"response","command":"prompt","success":true}`, "c1 done")
}

// Older versions answer a prompt twice when it fails later: the first answer is
// the outcome, the second stays an event of the same command.
func TestSecondAnswer(t *testing.T) {
	k := newDesk(t)
	k.must("a", "c1", "prompt", `{"text":"one"}`)
	k.hear(ok("1", "prompt"))
	k.must("a", "c2", "prompt", `{"text":"two"}`)
	k.log = nil
	k.hear(`{"id":"rj:3:1","type":"response","command":"prompt","success":false,"error":"no key"}`)
	k.expect(`line of c1: {"type":"response","command":"prompt","success":false,"error":"no key"}`)
}

func TestUnknownCommandWithoutID(t *testing.T) {
	k := newDesk(t)
	k.must("a", "c1", "", `{"id":1,"type":"dance"}`)
	k.must("a", "c2", "", `{"id":1,"type":"sing"}`)
	k.log = nil
	k.hear(`{"type":"response","command":"parse","success":false,"error":"Failed to parse command: x"}`)
	k.hear(`{"type":"response","command":"sing","success":false,"error":"Unknown command: sing"}`)
	k.expect(
		`line of c2: {"type":"response","command":"sing","success":false,"error":"Unknown command: sing"}`,
		`c2 failed {"error":"Unknown command: sing"}`,
	)
}

// Other lines that carry a command's id are its own, before and after its answer.
func TestUpdatesOfACommand(t *testing.T) {
	k := newDesk(t)
	k.must("a", "c1", "", `{"id":"b1","type":"bash","command":"ls"}`)
	k.log = nil
	k.hear(`{"type":"bash_execution_update","id":"rj:3:1","delta":"hi\n"}`)
	k.hear(ok("1", "bash"))
	k.hear(`{"type":"bash_execution_update","id":"rj:3:1","delta":"late"}`)
	k.hear(`{"type":"note","id":"rj:3:2"}`) // a number that was never given
	k.hear(`{"type":"note","id":"rj:2:1"}`) // of another run
	k.expect(
		`line of c1: {"type":"bash_execution_update","id":"b1","delta":"hi\n"}`,
		`line of c1: {"id":"b1","type":"response","command":"bash","success":true}`, "c1 done",
		`line of c1: {"type":"bash_execution_update","id":"b1","delta":"late"}`,
	)
}

const question = `{"type":"extension_ui_request","id":"r1","method":"confirm","title":"Run it?","message":"rm"}`

// Proves that the first answer wins, by verb or by raw send, and that the others
// are told who was first.
func TestFirstAnswerWins(t *testing.T) {
	k := newDesk(t)
	k.hear(question)
	k.must("b", "c1", "respond", `{"interactionId":"3.r1","outcome":"allow"}`)
	k.expect("command c1", "resolved 3.r1 allow by b", "c1 done")
	k.wrote(`{"type":"extension_ui_response","id":"r1","confirmed":true}`)
	for _, late := range [][2]string{
		{"respond", `{"interactionId":"3.r1","outcome":"deny"}`},
		{"", `{"type":"extension_ui_response","id":"r1","confirmed":false}`},
	} {
		err := k.send("a", "c2", late[0], late[1])
		k.refused(err, protocol.ReasonAlreadyResolved)
		if err.ResolvedBy != "b" || err.Outcome != "allow" {
			t.Errorf("%+v", err)
		}
	}
	k.refused(k.send("a", "c2", "respond", `{"interactionId":"3.r9","outcome":"deny"}`), protocol.ReasonInvalidParams)
	k.refused(k.send("a", "c2", "", `{"type":"extension_ui_response","id":"r9","confirmed":true}`), protocol.ReasonInvalidParams)
	k.refused(k.send("a", "c2", "", `{"type":"extension_ui_response","confirmed":true}`), protocol.ReasonInvalidParams)
	k.refused(k.send("a", "c2", "", `{"type":"extension_ui_response","id":"r1"}`), protocol.ReasonInvalidParams)

	k.hear(strings.Replace(question, "r1", "r2", 1))
	k.must("a", "c3", "", `{"type":"extension_ui_response","id":"r2","confirmed":false}`)
	k.expect("command c3", "resolved 3.r2 deny by a", "c3 done")
	k.wrote(`{"type":"extension_ui_response","id":"r2","confirmed":false}`)
}

func TestAnswers(t *testing.T) {
	ask := func(method, more string) string {
		return fmt.Sprintf(`{"type":"extension_ui_request","id":"d","method":"%s","title":"T"%s}`, method, more)
	}
	confirm, choose, input := ask("confirm", ""), ask("select", `,"options":["Yes","No"]`), ask("input", "")
	tests := []struct {
		name, question, params string
		line                   string // empty: invalid_params
	}{
		{"allow", confirm, `"outcome":"allow"`, `"confirmed":true`},
		{"deny", confirm, `"outcome":"deny"`, `"confirmed":false`},
		{"cancel", confirm, `"outcome":"cancel"`, `"cancelled":true`},
		{"answer true", confirm, `"outcome":"answer","value":true`, `"confirmed":true`},
		{"answer text to a confirm", confirm, `"outcome":"answer","value":"yes"`, ""},
		{"choose", choose, `"outcome":"answer","value":"No"`, `"value":"No"`},
		{"choose what is not offered", choose, `"outcome":"answer","value":"Maybe"`, ""},
		{"allow a select", choose, `"outcome":"allow"`, ""},
		{"cancel a select", choose, `"outcome":"cancel"`, `"cancelled":true`},
		{"input", input, `"outcome":"answer","value":"a\n\"b\" \u2028"`, "\"value\":\"a\\n\\\"b\\\" \u2028\""},
		{"input without value", input, `"outcome":"answer"`, ""},
		{"input of a number", input, `"outcome":"answer","value":1`, ""},
		{"editor", ask("editor", ""), `"outcome":"answer","value":""`, `"value":""`},
		{"no outcome", confirm, `"value":true`, ""},
		{"another outcome", confirm, `"outcome":"maybe"`, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			k := newDesk(t)
			k.hear(tt.question)
			err := k.send("a", "c", "respond", `{"interactionId":"3.d",`+tt.params+`}`)
			if tt.line == "" {
				k.refused(err, protocol.ReasonInvalidParams)
				if len(k.s.Pending) != 1 {
					t.Error("a refused answer closed the question")
				}
				return
			}
			k.wrote(`{"type":"extension_ui_response","id":"d",` + tt.line + `}`)
		})
	}
}

// pi does not answer an abort while a question is open. It sees the abort first:
// whoever sees its question end before that asks the model once more.
func TestInterruptClosesQuestions(t *testing.T) {
	for _, abort := range [][2]string{{"interrupt", `{}`}, {"", `{"type":"abort"}`}} {
		k := newDesk(t)
		k.hear(question)
		k.hear(strings.Replace(question, "r1", "r2", 1))
		k.must("a", "c1", abort[0], abort[1])
		k.expect(
			"command c1",
			`command rj:3:2 {"type":"extension_ui_response","id":"r1","cancelled":true}`, "resolved 3.r1 cancelled by rejoin", "rj:3:2 done",
			`command rj:3:3 {"type":"extension_ui_response","id":"r2","cancelled":true}`, "resolved 3.r2 cancelled by rejoin", "rj:3:3 done",
		)
		k.wrote(
			`{"id":"rj:3:1","type":"abort"}`,
			`{"type":"extension_ui_response","id":"r1","cancelled":true}`, `{"type":"extension_ui_response","id":"r2","cancelled":true}`,
		)
		err := k.send("b", "c2", "respond", `{"interactionId":"3.r1","outcome":"allow"}`)
		k.refused(err, protocol.ReasonAlreadyResolved)
		if err.ResolvedBy != "rejoin" || err.Outcome != "cancelled" {
			t.Errorf("%+v", err)
		}
	}
}

func TestLastWords(t *testing.T) {
	k := newDesk(t)
	k.take(k.d.Stop(k.s))
	k.wrote() // an idle agent needs none
	k.hear(`{"type":"agent_start"}`)
	k.hear(question)
	k.take(k.d.Stop(k.s))
	k.wrote(`{"id":"rj:3:1","type":"abort"}`, `{"type":"extension_ui_response","id":"r1","cancelled":true}`)
}

// The one question more than a state holds is dismissed: it could never be answered.
func TestTooManyQuestions(t *testing.T) {
	k := newDesk(t)
	for i := range protocol.InteractionsMax + 1 {
		k.hear(strings.Replace(question, "r1", fmt.Sprint("q", i), 1))
	}
	k.wrote(fmt.Sprintf(`{"type":"extension_ui_response","id":"q%d","cancelled":true}`, protocol.InteractionsMax))
	k.log = nil
	k.hear(strings.Replace(strings.Replace(question, "r1", "n", 1), "confirm", "notify", 1))
	k.wrote()
	// One of the open ones, asked again while there is no room: the end of the first is the end of both.
	k.s.Pending[3].Deadline = 1
	k.hear(strings.Replace(question, "r1", "q3", 1))
	k.wrote(`{"type":"extension_ui_response","id":"q3","cancelled":true}`)
	if len(k.s.Pending) != protocol.InteractionsMax-1 || k.resolved[0].InteractionID != "3.q3" {
		t.Errorf("%d open, resolved %+v", len(k.s.Pending), k.resolved)
	}
}

// A question that has no name to answer it by is dismissed under whatever it has
// for one, so that the agent does not wait for ever.
func TestQuestionsWithoutAName(t *testing.T) {
	for _, id := range []string{
		`""`, `7`, `null`, `true`, `{"a":[1]}`, `"` + strings.Repeat("x", 5000) + `"`, `"\ud800"`, `none`,
	} {
		k := newDesk(t)
		ask, answer := strings.Replace(question, `"r1"`, id, 1), `{"type":"extension_ui_response","id":`+id+`,"cancelled":true}`
		if id == "none" {
			ask = strings.Replace(question, `"id":"r1",`, "", 1)
			answer = `{"type":"extension_ui_response","cancelled":true}`
		}
		for _, method := range []string{"confirm", "select", "input", "editor"} {
			k.hear(strings.Replace(ask, "confirm", method, 1))
			k.wrote(answer)
		}
		k.hear(strings.Replace(ask, "confirm", "notify", 1))
		k.wrote()
		if len(k.s.Pending) != 0 {
			t.Errorf("id %s is shown: %+v", id, k.s.Pending)
		}
	}
}

// An agent that does not read what it is told is given no more than the bound.
func TestDismissalsAreBounded(t *testing.T) {
	k := newDesk(t)
	k.deaf = true
	for range 2 * protocol.InteractionsMax {
		k.hear(strings.Replace(question, `"r1"`, "7", 1))
	}
	if n := len(k.log); n != protocol.InteractionsMax {
		t.Errorf("%d dismissals wait", n)
	}
	k.take(k.d.Wrote("rj:3:1"))
	k.hear(strings.Replace(question, `"r1"`, "7", 1))
	k.hear(strings.Replace(question, `"r1"`, "7", 1))
	if n := len(k.log); n != protocol.InteractionsMax+2 {
		t.Errorf("%d records after one was read", n)
	}
	k = newDesk(t)
	k.hear(strings.Replace(question, `"r1"`, `"`+strings.Repeat("x", 100_000)+`"`, 1))
	k.wrote()
}

// A name that comes again after its question is over is another question: an
// answer to the first one does not answer it, and it is answered by its own id.
func TestNameThatComesAgain(t *testing.T) {
	k := newDesk(t)
	k.hear(question)
	k.hear(strings.Replace(question, "Run it?", "Really?", 1)) // while it is open: the same
	if len(k.s.Pending) != 1 || k.s.Pending[0].Title != "Run it?" {
		t.Fatalf("%+v", k.s.Pending)
	}
	k.must("b", "c1", "respond", `{"interactionId":"3.r1","outcome":"allow"}`)
	k.hear(strings.Replace(question, "Run it?", "Run that?", 1))
	second := "3.r1#3"
	if len(k.s.Pending) != 1 || k.s.Pending[0].InteractionID != second || k.s.Pending[0].Title != "Run that?" {
		t.Fatalf("%+v", k.s.Pending)
	}
	k.log, k.stdin = nil, nil
	err := k.send("a", "c2", "respond", `{"interactionId":"3.r1","outcome":"deny"}`)
	k.refused(err, protocol.ReasonAlreadyResolved)
	if err.ResolvedBy != "b" || err.Outcome != "allow" {
		t.Errorf("%+v", err)
	}
	k.must("a", "c2", "respond", `{"interactionId":"`+second+`","outcome":"deny"}`)
	k.expect("command c2", "resolved "+second+" deny by a", "c2 done")
	k.wrote(`{"type":"extension_ui_response","id":"r1","confirmed":false}`)
	raw := `{"type":"extension_ui_response","id":"r1","confirmed":true}`
	err = k.send("b", "c3", "", raw)
	k.refused(err, protocol.ReasonAlreadyResolved)
	if err.ResolvedBy != "a" || err.Outcome != "deny" { // of the newest
		t.Errorf("%+v", err)
	}
	k.hear(question)
	k.must("b", "c3", "", raw)
	k.expect("command c3", "resolved 3.r1#4 allow by b", "c3 done")
	k.wrote(raw)

	// One whose time is up is over, too, whether that is recorded yet or not.
	k.hear(strings.Replace(strings.Replace(question, "r1", "r2", 1), `"confirm"`, `"confirm","timeout":5`, 1))
	k.s.Pending[0].Deadline = 1000
	k.hear(strings.Replace(question, "r1", "r2", 1))
	if len(k.s.Pending) != 2 || k.s.Pending[1].InteractionID != "3.r2#6" {
		t.Errorf("%+v", k.s.Pending)
	}
	k.take(k.d.Stop(k.s))
	k.wrote(`{"id":"rj:3:4","type":"abort"}`,
		`{"type":"extension_ui_response","id":"r2","cancelled":true}`, `{"type":"extension_ui_response","id":"r2","cancelled":true}`)

	// A name that looks like such an id is no other question's.
	for _, name := range []string{"r1#9", "#", "r3#7"} {
		k = newDesk(t)
		k.hear(strings.Replace(question, "r1", name, 1))
		k.must("a", "c", "respond", `{"interactionId":"3.`+name+`#1","outcome":"allow"}`)
		k.wrote(`{"type":"extension_ui_response","id":"` + name + `","confirmed":true}`)
	}

	// What is remembered is bounded.
	k = newDesk(t)
	for i := range 1000 {
		k.hear(strings.Replace(question, "r1", fmt.Sprint("q", i), 1))
		k.s.Pending = k.s.Pending[:0]
	}
	if n := len(k.s.Extra.Asked); n != 256*8 {
		t.Errorf("%d bytes are remembered", n)
	}
	k.hear(strings.Replace(question, "r1", "q999", 1))
	if id := k.s.Pending[0].InteractionID; id != "3.q999#1001" {
		t.Errorf("asked again: %s", id)
	}
	pi.Adapter{}.Settle(k.s, &protocol.Event{})
	if k.s.Extra != nil {
		t.Errorf("after the run: %+v", k.s.Extra)
	}
}

// A raw answer must be one that respond would give.
func TestRawAnswersPassTheGate(t *testing.T) {
	ask := func(method, more string) string {
		return fmt.Sprintf(`{"type":"extension_ui_request","id":"d","method":"%s","title":"T"%s}`, method, more)
	}
	confirm, choose, input := ask("confirm", ""), ask("select", `,"options":["Yes","No"]`), ask("input", "")
	long := strings.Repeat("o", 5000)
	tests := []struct {
		name, question, members string
		outcome                 string // empty: invalid_params
	}{
		{"yes", confirm, `"confirmed":true`, "allow"},
		{"no", confirm, `"cancelled":false,"confirmed":false`, "deny"},
		{"cancel", confirm, `"cancelled":true`, "cancel"},
		{"cancel and more", confirm, `"cancelled":true,"confirmed":false`, "cancel"},
		{"a text to a confirm", confirm, `"value":"yes"`, ""},
		{"truthy", confirm, `"confirmed":"yes"`, ""},
		{"truthy cancel", confirm, `"cancelled":1,"confirmed":true`, ""},
		{"both", confirm, `"confirmed":true,"value":"x"`, ""},
		{"offered", choose, `"value":"No"`, "answer"},
		{"not offered", choose, `"value":"Maybe"`, ""},
		{"a number", choose, `"value":1`, ""},
		{"confirm a select", choose, `"confirmed":true`, ""},
		{"cancel a select", choose, `"cancelled":true`, "cancel"},
		{"text", input, `"value":"x"`, "answer"},
		{"confirm an input", input, `"confirmed":true`, ""},
		{"what may be among the options that are not at hand", ask("select", `,"options":["Yes","`+long+`"]`), `"value":"` + long + `"`, "answer"},
		{"editor", ask("editor", `,"prefill":"x"`), `"value":""`, "answer"},
		{"confirm an editor", ask("editor", ""), `"confirmed":false`, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			k := newDesk(t)
			k.hear(tt.question)
			line := `{"type":"extension_ui_response","id":"d",` + tt.members + `}`
			err := k.send("a", "c", "", line)
			if tt.outcome == "" {
				k.refused(err, protocol.ReasonInvalidParams)
				if len(k.s.Pending) != 1 {
					t.Error("a refused answer closed the question")
				}
				return
			}
			k.expect("command c", "resolved 3.d "+tt.outcome+" by a", "c done")
			k.wrote(line)
		})
	}
}

// Of a question with more or longer options than a state holds, or with other
// things than texts, the state says how many are missing; any text answers it.
func TestOptionsThatAreNotAtHand(t *testing.T) {
	var many []string
	for i := range 300 {
		many = append(many, fmt.Sprintf("%q", fmt.Sprint("o", i)))
	}
	big := fmt.Sprintf("%q", strings.Repeat("b", 4000))
	for _, c := range []struct {
		name, options string
		shown         int
		omitted       uint64
	}{
		{"all", `"a","b"`, 2, 0},
		{"too many", strings.Join(many, ","), 256, 44},
		{"one too long", `"a","` + strings.Repeat("x", 5000) + `","c"`, 2, 1},
		{"too long together", strings.Join([]string{big, big, big, big, big, `"c"`}, ","), 5, 1},
		{"no texts", `"a",7,null,{"label":"x"}`, 1, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := newDesk(t)
			k.hear(`{"type":"extension_ui_request","id":"d","method":"select","title":"T","options":[` + c.options + `]}`)
			i := k.s.Pending[0]
			if len(i.Options) != c.shown || i.OptionsOmitted != c.omitted {
				t.Errorf("%d options, %d omitted", len(i.Options), i.OptionsOmitted)
			}
			err := k.send("a", "c", "respond", `{"interactionId":"3.d","outcome":"answer","value":"none of them"}`)
			if (err == nil) != (c.omitted > 0) {
				t.Errorf("another text: %v", err)
			}
		})
	}
	k := newDesk(t)
	k.hear(`{"type":"extension_ui_request","id":"d","method":"editor","title":"T","prefill":"` + strings.Repeat("x", 20_000) + `"}`)
	if i := k.s.Pending[0]; len(i.Message) != 16<<10 || i.Truncated != 20_000-16<<10 {
		t.Errorf("%d bytes, %d left out", len(i.Message), i.Truncated)
	}
}

const state = `{"id":"rj:3:%d","type":"response","command":"get_state","success":true,"data":{"model":{"id":"%s","provider":"mock"},"thinkingLevel":"off","sessionFile":"/f%d","sessionId":"s"}}`

// What pi changes without an event is read back, once at a time.
func TestStateIsReadBack(t *testing.T) {
	k := newDesk(t)
	k.take(k.d.Start(k.s))
	k.expect(`command rj:3:1 {"type":"get_state"}`)
	k.wrote(`{"id":"rj:3:1","type":"get_state"}`)
	k.must("a", "c1", "set_model", `{"model":"mock/m/2"}`)
	k.wrote(`{"id":"rj:3:2","type":"set_model","provider":"mock","modelId":"m/2"}`)
	k.must("a", "c2", "", `{"type":"new_session"}`)
	k.hear(ok("2", "set_model"))
	k.hear(`{"id":"rj:3:3","type":"response","command":"new_session","success":true,"data":{"cancelled":false}}`)
	k.wrote(`{"id":"rj:3:3","type":"new_session"}`) // the first get_state is still unanswered
	k.hear(fmt.Sprintf(state, 1, "old", 1))
	k.wrote(`{"id":"rj:3:4","type":"get_state"}`)
	k.hear(fmt.Sprintf(state, 4, "new", 2))
	k.wrote()
	if k.s.Agent.Model == "" || !strings.Contains(k.s.Agent.Model, "new") || k.s.Extra == nil || k.s.Extra.AgentSession == "" {
		t.Errorf("state %+v, extra %+v", k.s.Agent, k.s.Extra)
	}
	k.must("a", "c3", "set_model", `{"model":"m3"}`) // of the provider that is in use
	k.wrote(`{"id":"rj:3:5","type":"set_model","provider":"mock","modelId":"m3"}`)
	k.hear(`{"id":"rj:3:5","type":"response","command":"set_model","success":false,"error":"Model not found"}`)
	k.wrote() // nothing changed
}

func TestRefusals(t *testing.T) {
	tests := []struct {
		verb, value string
		want        protocol.Reason
	}{
		{"", `null`, protocol.ReasonInvalidParams},
		{"", `7`, protocol.ReasonInvalidParams},
		{"", `"abort"`, protocol.ReasonInvalidParams},
		{"", `[]`, protocol.ReasonInvalidParams},
		{"", `{}`, protocol.ReasonInvalidParams},
		{"", `{"Type":"abort"}`, protocol.ReasonInvalidParams},
		{"", `{"type":null}`, protocol.ReasonInvalidParams},
		{"", `{"type":7}`, protocol.ReasonInvalidParams},
		{"", `{"type":"x","id":"` + strings.Repeat("i", agent.ClientIDBytesMax) + `"}`, protocol.ReasonInvalidParams},
		{"prompt", `{}`, protocol.ReasonInvalidParams},
		{"prompt", `{"text":7}`, protocol.ReasonInvalidParams},
		{"prompt", `{"text":"x","images":{}}`, protocol.ReasonInvalidParams},
		{"steer", `{"text":"x","images":[]}`, protocol.ReasonUnsupported},
		{"set_model", `{"model":"m"}`, protocol.ReasonInvalidParams},
		{"set_model", `{"model":"/m"}`, protocol.ReasonInvalidParams},
		{"set_model", `{}`, protocol.ReasonInvalidParams},
		{"respond", `{}`, protocol.ReasonInvalidParams},
		{"dance", `{}`, protocol.ReasonUnsupported},
	}
	for _, tt := range tests {
		k := newDesk(t)
		k.refused(k.send("a", "c", tt.verb, tt.value), tt.want)
		k.must("a", "c", "interrupt", `{}`) // and nothing of it is left
		k.wrote(`{"id":"rj:3:1","type":"abort"}`)
	}
}

// A child that answers nothing is given no more than the bound.
func TestOpenCommandsAreBounded(t *testing.T) {
	k := newDesk(t)
	for i := range protocol.CallsOpenMax {
		k.must("a", fmt.Sprint("c", i), "", `{"type":"compact"}`)
	}
	k.log, k.stdin = nil, nil
	k.refused(k.send("a", "more", "", `{"type":"compact"}`), protocol.ReasonOverloaded)
	for i := range protocol.CallsOpenMax {
		k.hear(ok(fmt.Sprint(i+1), "compact"))
	}
	k.log = nil
	k.hear(ok("1", "compact")) // forgotten by now: the id goes all the same
	k.expect()
	record, command, _ := k.d.Hear(k.s, []byte(ok("1", "compact")))
	if string(record) != `{"type":"response","command":"compact","success":true}` || command != "" {
		t.Errorf("%s of %q", record, command)
	}
}

// An answer shares its record with what it resolves: it has a length of its own.
func TestAnswerBytesMax(t *testing.T) {
	k := newDesk(t)
	k.hear(question)
	answer := func(n int) string {
		head, tail := `{"type":"extension_ui_response","id":"r1","confirmed":true,"pad":"`, `"}`
		return head + strings.Repeat("x", n-len(head)-len(tail)) + tail
	}
	e := k.send("a", "over", "", answer(protocol.AnswerBytesMax+1))
	k.refused(e, protocol.ReasonTooLarge)
	if e.Limit != "AnswerBytesMax" || !strings.Contains(e.Message, "1048576") || len(k.s.Pending) != 1 {
		t.Errorf("refused with %+v, %d open", e, len(k.s.Pending))
	}
	k.must("a", "at", "", answer(protocol.AnswerBytesMax))
	if len(k.s.Pending) != 0 {
		t.Errorf("%d open", len(k.s.Pending))
	}
}
