package pi_test

import (
	"math"
	"strings"
	"testing"

	"rejoin/agent/pi"
	"rejoin/protocol"
)

const (
	start = `{"type":"agent_start"}`
	reply = `{"type":"message_start","message":{"role":"assistant","content":[]}}`
)

// update is a message_update.
func update(members string) string {
	return `{"type":"message_update","assistantMessageEvent":{` + members + `}}`
}

// TestFold: what the traces do not show. Each event is a line of pi; one that
// starts with "broker " is rejoin's own, with "answer ID " it answers a command.
func TestFold(t *testing.T) {
	for _, c := range []struct {
		name   string
		events []string
		want   string
	}{
		{"a text begins", []string{start, reply, update(`"type":"text_start","contentIndex":0`)}, `
assistant streaming ""
status busy t1`},
		{"a text is whole before its message is", []string{
			reply, update(`"type":"text_delta","contentIndex":0,"delta":"on"`), update(`"type":"text_end","contentIndex":0,"content":"one"`),
		}, `
assistant done "one"
status busy t1`},
		{"a text's end says nothing", []string{
			reply, update(`"type":"text_delta","contentIndex":0,"delta":"on"`), update(`"type":"text_end","contentIndex":0`),
		}, `
assistant done "on"
status busy t1`},
		{"a thought begins", []string{reply, update(`"type":"thinking_start","contentIndex":0`)}, `
thinking streaming ""
status busy t1`},
		{"a thought without a beginning", []string{reply, update(`"type":"thinking_delta","contentIndex":3,"delta":"hm"`)}, `
thinking streaming "hm"
status busy t1`},
		{"a thought goes on", []string{
			reply, update(`"type":"thinking_start","contentIndex":0`), update(`"type":"thinking_delta","contentIndex":0,"delta":"h"`),
			update(`"type":"thinking_delta","contentIndex":0,"delta":"m"`),
		}, `
thinking streaming "hm"
status busy t1`},
		{"a thought is whole", []string{reply, update(`"type":"thinking_end","contentIndex":0,"content":"hmm"`)}, `
thinking done "hmm"
status busy t1`},
		{"a text where a thought was", []string{
			reply, update(`"type":"thinking_start","contentIndex":0`), update(`"type":"text_delta","contentIndex":0,"delta":"a"`),
		}, `
thinking interrupted ""
assistant streaming "a"
status busy t1`},
		{"an index beyond the common ones", []string{
			reply, update(`"type":"text_delta","contentIndex":31,"delta":"a"`), update(`"type":"text_delta","contentIndex":31,"delta":"b"`),
		}, `
assistant streaming "ab"
status busy t1`},
		{"a call begins without its id", []string{
			reply, update(`"type":"toolcall_start","contentIndex":0`), update(`"type":"toolcall_delta","contentIndex":0,"delta":"{\"a\":"`),
			update(`"type":"toolcall_delta","contentIndex":0,"delta":"1"`),
		}, `
tool streaming  - {"a":1 ""
status busy t1`},
		{"and gets it", []string{
			reply, update(`"type":"toolcall_start","contentIndex":0`), update(`"type":"toolcall_delta","contentIndex":0,"delta":"{\"a\":"`),
			update(`"type":"toolcall_end","contentIndex":0,"toolCall":{"id":"c","name":"bash","arguments":{"a": 1}}`),
			`{"type":"tool_execution_end","toolCallId":"c","result":"text only"}`,
		}, `
tool done bash c {"a":1} "text only"
status busy t1`},
		{"updates that repeat the message only", []string{
			reply,
			`{"type":"message_update","message":{"content":[{"type":"text","text":"a"}]},"assistantMessageEvent":{"type":"text_delta","contentIndex":0}}`,
			`{"type":"message_update","message":{"content":[{"type":"text","text":"ab"},{"type":"thinking","thinking":"t"}]},"assistantMessageEvent":{"type":"text_delta","contentIndex":0}}`,
			`{"type":"message_update","message":{"content":[{"type":"text","text":"ab"},{"type":"thinking","thinking":"t"}]},"assistantMessageEvent":{"type":"thinking_delta","contentIndex":1}}`,
			`{"type":"message_update","message":{"content":[{},{},{"type":"toolCall","arguments":{"x":1}}]},"assistantMessageEvent":{"type":"toolcall_delta","contentIndex":2}}`,
		}, `
assistant streaming "ab"
thinking streaming "t"
tool streaming  - {"x":1} ""
status busy t1`},
		{"updates whose members stand in the event", []string{
			reply, `{"type":"message_update","eventType":"text_delta","contentIndex":0,"delta":"a"}`,
			`{"type":"message_update","eventType":"text_delta","contentIndex":0,"delta":"b"}`,
		}, `
assistant streaming "ab"
status busy t1`},
		{"a message that was not streamed", []string{
			`{"type":"message_end","message":{"role":"assistant","content":[{"type":"thinking","thinking":"hm"},{"type":"text","text":"a"},
			{"type":"text","text":""},{"type":"toolCall","id":"c","name":"ls","arguments":{}}],"stopReason":"toolUse"}}`,
		}, `
thinking done "hm"
assistant done "a"
tool streaming ls c {} ""
status idle
usage 0 0`},
		{"a message of one string", []string{`{"type":"message_end","message":{"role":"assistant","content":"a"}}`}, `
assistant done "a"
status idle
usage 0 0`},
		{"a call that will not be run", []string{
			`{"type":"message_end","message":{"role":"assistant","content":[{"type":"toolCall","id":"c","name":"ls","arguments":{}}],"stopReason":"aborted"}}`,
		}, `
tool interrupted ls c {} ""
notice interrupted "aborted"
status idle
usage 0 0`},
		{"a call without an id is nobody's", []string{
			`{"type":"message_end","message":{"role":"assistant","content":[{"type":"toolCall","name":"ls"}]}}`,
		}, `
tool done ls - - ""
status idle
usage 0 0`},
		{"the next message closes what is open", []string{reply, update(`"type":"text_delta","contentIndex":0,"delta":"a"`), reply}, `
assistant interrupted "a"
status busy t1`},
		{"a user's message begins", []string{`{"type":"message_start","message":{"role":"user","content":"hi"}}`}, `
user streaming "hi"
status idle`},
		{"a user's message with an image", []string{
			`{"type":"message_end","message":{"role":"user","content":[{"type":"text","text":"see"},{"type":"image","mimeType":"image/png","data":"AAAA"}]}}`,
		}, `
user done "see\n[image image/png]"
status idle`},
		{"a system message", []string{
			`{"type":"message_start","message":{"role":"system","content":"be good"}}`,
			`{"type":"message_end","message":{"role":"system","content":"be good"}}`,
			start, `{"type":"agent_end","willRetry":false}`,
		}, `
status busy t3`},
		{"messages of extensions and summaries", []string{
			`{"type":"message_end","message":{"role":"custom","content":"hello"}}`,
			`{"type":"message_end","message":{"role":"compactionSummary","summary":"in short"}}`,
			`{"type":"message_end","message":{"role":"custom","content":[]}}`,
		}, `
notice done "hello"
notice done "in short"
status idle`},
		{"a result whose call is unknown", []string{
			`{"type":"message_end","message":{"role":"toolResult","toolCallId":"c","toolName":"ls","content":[{"type":"text","text":"x"}],"isError":true}}`,
		}, `
tool error ls c - "x"
status idle`},
		{"a call runs", []string{`{"type":"tool_execution_start","toolCallId":"c","toolName":"ls","args":{"a":1}}`}, `
tool streaming ls c {"a":1} ""
status idle`},
		{"results are not added up", []string{
			`{"type":"tool_execution_update","toolCallId":"c","partialResult":{"content":[{"type":"text","text":"one"}]}}`,
			`{"type":"tool_execution_update","toolCallId":"c","partialResult":{"content":[{"type":"text","text":"one two"}]}}`,
		}, `
tool streaming  c - "one two"
status idle`},
		{"an agent that never says it has settled", []string{
			start, `{"type":"agent_end","willRetry":true}`, `{"type":"auto_retry_start","attempt":1}`, start, `{"type":"agent_end","willRetry":false}`,
		}, `
notice streaming "retry 1 of 0 in 0 ms: "
status idle`},
		{"one that does is busy until then", []string{
			start, `{"type":"agent_settled"}`, start, `{"type":"agent_end","willRetry":false}`,
		}, `
status busy t3`},
		{"one whose answers are of that age, too", []string{
			`{"type":"response","command":"prompt","success":true,"data":{"disposition":"started"}}`, start, `{"type":"agent_end"}`,
		}, `
status busy t2`},
		{"turn_start begins a turn", []string{`{"type":"turn_start"}`}, `
status busy t1`},
		{"retries end", []string{`{"type":"auto_retry_start"}`, `{"type":"auto_retry_end","success":true}`, `{"type":"auto_retry_start"}`, `{"type":"auto_retry_end"}`}, `
notice done "retry 0 of 0 in 0 ms: "
notice error "retry 0 of 0 in 0 ms: "
status idle`},
		{"compaction", []string{
			`{"type":"compaction_start","reason":"threshold"}`, `{"type":"agent_settled"}`,
			`{"type":"compaction_end","result":{"tokensBefore":150000,"summary":"in short"}}`,
			`{"type":"auto_compaction_start"}`, `{"type":"auto_compaction_end","aborted":true}`,
			`{"type":"compaction_end","errorMessage":"no"}`,
		}, `
notice done "session compacted, 150000 tokens before:\nin short"
notice interrupted "compaction aborted"
notice error "no"
status idle`},
		{"compaction under way", []string{`{"type":"compaction_start","reason":"manual"}`}, `
notice streaming "compacting the session (manual)"
status idle`},
		{"compaction under way, in the older words", []string{`{"type":"auto_compaction_start","reason":"overflow"}`}, `
notice streaming "compacting the session (overflow)"
status idle`},
		{"an extension fails", []string{`{"type":"extension_error","extensionPath":"/x","event":"e","error":"broken"}`}, `
notice error "broken"
status idle`},
		{"names and levels", []string{
			`{"type":"session_info_changed","name":"n"}`, `{"type":"thinking_level_changed","level":"high"}`,
		}, `
status idle
thinking high
note name "n"`},
		{"a name is gone", []string{`{"type":"session_info_changed","name":"n"}`, `{"type":"session_info_changed"}`}, `
status idle`},
		{"state is read", []string{
			`{"type":"response","command":"get_state","success":true,"data":{"model":{"id":"m"},"thinkingLevel":"low","sessionId":"id","sessionName":"n","isStreaming":true}}`,
		}, `
status idle
model m
thinking low
session id
note name "n"`},
		{"models and levels change", []string{
			`{"type":"response","command":"set_model","success":true,"data":{"id":"a","provider":"p"}}`,
			`{"type":"response","command":"set_model","success":false,"data":{"id":"b","provider":"p"}}`,
			`{"type":"response","command":"cycle_thinking_level","success":true,"data":{"level":"max"}}`,
		}, `
status idle
model p/a
thinking max`},
		{"the next model", []string{`{"type":"response","command":"cycle_model","success":true,"data":{"model":{"id":"c","provider":"p"},"thinkingLevel":"off"}}`}, `
status idle
model p/c
thinking off`},
		{"sums", []string{
			`{"type":"message_end","message":{"role":"assistant","content":[],"usage":{"input":5,"output":7,"cacheRead":10,"cacheWrite":1,"cost":{"total":0.5}}}}`,
			`{"type":"response","command":"get_session_stats","success":true,"data":{"tokens":{"input":3,"output":9},"cost":0.25}}`,
		}, `
status idle
usage 16 9`},
		{"other sessions", []string{
			`{"type":"response","command":"get_state","success":true,"data":{"sessionFile":"/f"}}`,
			`{"type":"queue_update","steering":["a"],"followUp":["b"]}`,
			`{"type":"response","command":"new_session","success":true,"data":{"cancelled":true}}`,
			`{"type":"response","command":"switch_session","success":true,"data":{"cancelled":false}}`,
		}, `
notice done "another session"
status idle`},
		{"copies", []string{
			`{"type":"response","command":"fork","success":true,"data":{"text":"x"}}`, `{"type":"response","command":"clone","success":true}`,
		}, `
notice done "a copy of the session"
notice done "a copy of the session"
status idle`},
		{"a client's shell command", []string{
			`broker {"type":"command","commandId":"k1","command":{"id":7,"type":"bash","command":"echo \"hi\""}}`,
			`broker {"type":"command","commandId":"k2","command":{"id":7,"type":"bash","command":"sleep 9"}}`,
			`answer k1 {"type":"bash_execution_update","id":7,"delta":"h"}`,
			`answer k1 {"type":"bash_execution_update","id":7,"delta":"i"}`,
			start, `{"type":"agent_settled"}`,
			`answer k1 {"type":"response","command":"bash","success":true,"data":{"output":"hi\n","exitCode":0}}`,
			`{"type":"bash_execution_update","id":7,"delta":"late"}`,
		}, `
tool done bash k1 {"command":"echo \"hi\""} "hi\n"
tool streaming bash k2 {"command":"sleep 9"} "late"
status idle`},
		{"one that is cancelled, one that fails", []string{
			`{"type":"bash_execution_update","id":"a","delta":"x"}`,
			`{"type":"response","id":"a","command":"bash","success":true,"data":{"output":"xy","cancelled":true}}`,
			`{"type":"response","id":"b","command":"bash","success":false,"error":"no"}`,
		}, `
tool interrupted bash - - "xy"
tool error bash - - ""
status idle`},
		{"other commands leave no trace", []string{`broker {"type":"command","commandId":"k","command":{"type":"get_state"}}`}, `
status idle`},
		{"what rejoin could not take", []string{
			`broker {"type":"error","error":"invalid json: x","text":"rubbish"}`, `broker {"type":"error","error":"line exceeds limit","bytes":9,"preview":"{"}`,
			`broker {"type":"error"}`,
		}, `
notice error "invalid json: x: rubbish"
notice error "line exceeds limit: {"
status idle`},
		{"rejoin's events are not pi's", []string{`broker {"type":"agent_start"}`, `broker {"type":"message_update","assistantMessageEvent":{"type":"text_delta","contentIndex":0,"delta":"x"}}`}, `
status idle`},
		{"and pi's are not rejoin's", []string{`{"type":"error","error":"x"}`, `{"type":"command","commandId":"k","command":{"type":"bash"}}`}, `
status idle`},
		{"an extension is alarmed", []string{`{"type":"extension_ui_request","id":"n","method":"notify","message":"fire","notifyType":"error"}`}, `
notice error "fire"
status idle
note notify "fire"`},
		{"what the shell is not given", []string{
			`broker {"type":"command","commandId":"k1","command":{"id":7,"type":"bash","command":"a"}}`,
			`broker {"type":"command","commandId":"k2","command":{"type":"bash","command":"b"}}`,
			`broker {"type":"command_outcome","commandId":"k1","outcome":"failed","result":{"error":"not written"}}`,
			`broker {"type":"command_outcome","commandId":"k2","outcome":"interrupted"}`,
			`broker {"type":"command_outcome","commandId":"k3","outcome":"done"}`,
			`{"type":"bash_execution_update","id":7,"delta":"of another one"}`,
		}, `
tool error bash k1 {"command":"a"} ""
tool interrupted bash k2 {"command":"b"} ""
tool streaming bash - - "of another one"
status idle`},
		{"a question without an id, and one asked twice", []string{
			`{"type":"extension_ui_request","method":"confirm","title":"t"}`,
			`{"type":"extension_ui_request","id":"q","method":"confirm","title":"t","timeout":99999999999999}`,
			`{"type":"extension_ui_request","id":"q","method":"input","title":"again"}`,
		}, `
status waiting
pending 1.q confirm "t" "" until 2`},
		{"things that are no events", []string{`[]`, `null`, `7`, `"agent_start"`, `{}`, `{"type":5}`, `{"type":"nonsense"}`, ``, `{`}, `
status idle`},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newState()
			for _, line := range c.events {
				s.Seq++
				fold(s, line)
			}
			compare(t, "at the end", show(s), strings.TrimPrefix(c.want, "\n")+"\n")
		})
	}
}

// TestTimeout: how long a question is open is what setTimeout makes of its
// timeout, which is no timer at 0.
func TestTimeout(t *testing.T) {
	for timeout, want := range map[string]int64{
		"0": 0, "-0": 0, "0.0": 0, "null": 0, `"5"`: 0, "true": 0, "{}": 0, "": 0,
		"1": 1, "5.7": 5, "1e3": 1000, "2147483647": math.MaxInt32,
		"0.3": 1, "5e-324": 1, "-5": 1, "2147483647.5": 1, "2147483648": 1, "1e400": 1,
	} {
		s := newState()
		line := `{"type":"extension_ui_request","id":"q","method":"confirm","title":"t"}`
		if timeout != "" {
			line = strings.Replace(line, `"t"`, `"t","timeout":`+timeout, 1)
		}
		s.Seq++
		fold(s, line)
		if want > 0 {
			want++ // the question is asked at 1
		}
		if len(s.Pending) != 1 || s.Pending[0].Deadline != want {
			t.Errorf("timeout %s: %+v, want the deadline %d", timeout, s.Pending, want)
		}
	}
}

// fold folds a line as TestFold writes it.
func fold(s *protocol.State, line string) {
	e := &protocol.Event{Seq: s.Seq, TS: 1, Run: 1}
	if body, ok := strings.CutPrefix(line, "broker "); ok {
		e.Source, line = protocol.SourceBroker, body
	}
	if answer, ok := strings.CutPrefix(line, "answer "); ok {
		e.CommandID, line, _ = strings.Cut(answer, " ")
	}
	e.Body = []byte(line)
	pi.Fold(s, e)
}

// TestSettle: what an open answer becomes when pi dies.
func TestSettle(t *testing.T) {
	s := newState()
	for _, line := range []string{
		start, reply, update(`"type":"text_delta","contentIndex":0,"delta":"a"`),
		`{"type":"tool_execution_start","toolCallId":"c","toolName":"ls"}`,
		`{"type":"extension_ui_request","id":"n","method":"setTitle","title":"x"}`,
		`{"type":"bash_execution_update","id":"a","delta":"x"}`,
		`{"type":"response","command":"get_state","success":true,"data":{"sessionFile":"/f"}}`,
	} {
		s.Seq++
		fold(s, line)
	}
	s.Seq++
	pi.Adapter{}.Settle(s, &protocol.Event{Seq: s.Seq})
	compare(t, "settled", show(s), `assistant interrupted "a"
tool interrupted ls c - ""
tool interrupted bash - - "x"
status busy t1
session /f
`)
	if s.Extra == nil || len(s.Extra.Open) != 0 || s.Extra.Settles {
		t.Errorf("extra: %+v", s.Extra)
	}
	if s.Items[0].LastSeq != s.Seq {
		t.Errorf("the last event of the item is %d, want %d", s.Items[0].LastSeq, s.Seq)
	}
}
