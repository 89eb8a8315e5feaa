package rpi_test

import (
	"encoding/json"
	"testing"

	"rejoin/agent/rpi"
	"rejoin/protocol"
)

func TestFold(t *testing.T) {
	for _, c := range []struct {
		name   string
		events []string
		want   string // the state, less what is always there
	}{
		{
			"ready, in the older manner",
			[]string{`{"type":"ready"}`},
			`"status":"","extra":{"notes":[{"key":"messageUpdates","text":"snapshot"}]}`,
		},
		{
			"ready",
			[]string{`{"type":"ready","semantics":{"messageUpdates":"compact-deltas"}}`},
			`"status":"","extra":{"notes":[{"key":"messageUpdates","text":"compact-deltas"}]}`,
		},
		{
			"a turn of deltas",
			[]string{
				`{"type":"agent_start"}`,
				`{"type":"message_start","message":{"role":"assistant","content":[]}}`,
				`{"type":"message_update","eventType":"text_delta","contentIndex":0,"delta":"hel"}`,
				`{"type":"message_update","assistantMessageEvent":{"type":"text_delta","contentIndex":0,"delta":"lo"},"contentIndex":0,"delta":"lo"}`,
			},
			`"status":"busy","turn":{"id":"t1","startedSeq":1},"items":[{"id":"i3","kind":"assistant","text":"hello","status":"streaming","firstSeq":3,"lastSeq":4,"ts":0}],"extra":{"open":[{"name":"c0","item":"i3"}]}`,
		},
		{
			"agent_end ends the turn, whatever pi would wait for",
			[]string{
				`{"type":"message_start","message":{"role":"system","content":"x"}}`,
				`{"type":"agent_start"}`, `{"type":"agent_end","messageCount":0,"messages":[]}`,
			},
			`"status":"idle","extra":{"settles":true}`,
		},
		{
			"a retry",
			[]string{`{"type":"retry_scheduled","attempt":1,"maxRetries":3,"delayMs":500,"error":"busy"}`},
			`"status":"","items":[{"id":"i1","kind":"notice","text":"retry 1 of 3 in 500 ms: busy","status":"done","firstSeq":1,"lastSeq":1,"ts":0}]`,
		},
		{
			"state is read",
			[]string{
				`{"type":"response","id":1,"status":"ok","result":{"model":"m","thinkingLevel":"low","activeTools":[],"sessionId":"s"}}`,
				`{"type":"response","id":2,"status":"ok","result":{"outcome":"done","finalText":"x"}}`,
				`{"type":"response","id":3,"status":"error","error":"no","result":{"model":"x"}}`,
			},
			`"status":"","model":"m","extra":{"agentSession":"s","thinking":"low"}`,
		},
		{
			"a question that nobody could answer",
			[]string{`{"type":"extension_ui_request","id":"q","method":"confirm","title":"t"}`},
			`"status":""`,
		},
		{
			"a model that is an object",
			[]string{`{"type":"response","id":1,"status":"ok","result":{"model":{"id":"m2"}}}`},
			`"status":"","model":"m2"`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &protocol.State{}
			for _, line := range c.events {
				s.Seq++
				rpi.Adapter{}.Fold(s, &protocol.Event{Seq: s.Seq, Run: 1, Body: []byte(line)})
			}
			got, err := json.Marshal(struct {
				Status protocol.Status      `json:"status"`
				Turn   *protocol.Turn       `json:"turn,omitempty"`
				Model  string               `json:"model,omitempty"`
				Items  []protocol.Item      `json:"items,omitempty"`
				Extra  *protocol.StateExtra `json:"extra,omitempty"`
			}{s.Status, s.Turn, s.Agent.Model, s.Items, s.Extra})
			if err != nil || string(got) != "{"+c.want+"}" {
				t.Errorf("got  %s, %v\nwant {%s}", got, err, c.want)
			}
		})
	}
	s := &protocol.State{Turn: &protocol.Turn{ID: "t1"}}
	rpi.Adapter{}.Fold(s, &protocol.Event{Seq: 2, Source: protocol.SourceBroker, Body: []byte(`{"type":"agent_end"}`)})
	if s.Turn == nil {
		t.Error("an event of rejoin's ended the turn")
	}
}
