package agent_test

import (
	"bytes"
	"testing"

	"rejoin/agent"
	"rejoin/agent/demo"
	"rejoin/agent/jsonl"
	"rejoin/agent/lines"
	"rejoin/protocol"
)

// encodeCase is the first command of a run: the line it becomes, or the reason it is refused with.
type encodeCase struct {
	name, verb, value string
	line              string
	reason            protocol.Reason
	text              string // of the error, where it matters
}

var adapters = []struct {
	adapter   agent.Adapter
	name      string
	jsonLines bool
	cases     []encodeCase
}{
	{jsonl.Adapter{}, "jsonl", true, []encodeCase{
		{name: "object", value: `{"id":7,"a":[1]}`, line: `{"id":7,"a":[1]}`},
		{name: "number", value: `9007199254740993`, line: `9007199254740993`},
		{name: "null", value: `null`, line: `null`},
		{name: "string with an escaped line feed", value: `"a\nb"`, line: `"a\nb"`},
		{name: "prompt", verb: "prompt", value: `{"text":"x"}`, reason: protocol.ReasonUnsupported, text: "prompt is not supported by adapter jsonl"},
		{name: "respond", verb: "respond", value: `{"interactionId":"1.a","outcome":"allow"}`, reason: protocol.ReasonUnsupported},
		{name: "interrupt", verb: "interrupt", value: `{}`, reason: protocol.ReasonUnsupported},
	}},
	{lines.Adapter{}, "lines", false, []encodeCase{
		{name: "string", value: `"ls -l \u00e9\ud83d\ude00 \"q\" \u2028"`, line: "ls -l é😀 \"q\" \u2028"},
		{name: "empty string", value: `""`, line: ""},
		{name: "line feed", value: `"a\nb"`, reason: protocol.ReasonInvalidParams},
		{name: "carriage return", value: `"a\u000d"`, reason: protocol.ReasonInvalidParams},
		{name: "object", value: `{}`, reason: protocol.ReasonInvalidParams, text: "command must be a string for adapter lines"},
		{name: "null", value: `null`, reason: protocol.ReasonInvalidParams},
		{name: "prompt", verb: "prompt", value: `{"text":"hi \u0041"}`, line: "hi A"},
		{name: "prompt of two lines", verb: "prompt", value: `{"text":"a\nb"}`, reason: protocol.ReasonInvalidParams},
		{name: "prompt without text", verb: "prompt", value: `{"Text":"a"}`, reason: protocol.ReasonInvalidParams, text: "text is required"},
		{name: "prompt with images", verb: "prompt", value: `{"text":"a","images":[]}`, reason: protocol.ReasonUnsupported},
		{name: "steer", verb: "steer", value: `{"text":"x"}`, reason: protocol.ReasonUnsupported, text: "steer is not supported by adapter lines"},
		{name: "respond", verb: "respond", value: `{"interactionId":"1.a","outcome":"allow"}`, reason: protocol.ReasonUnsupported},
	}},
	{demo.Adapter{}, "demo", true, []encodeCase{
		{name: "object", value: `{"id":"x","type":"prompt"}`, line: `{"id":"rj:1:1","type":"prompt"}`},
		{name: "array", value: `[1]`, reason: protocol.ReasonInvalidParams, text: "command must be an object with a type for adapter demo: it is no object"},
		{name: "null", value: `null`, reason: protocol.ReasonInvalidParams},
		{name: "prompt", verb: "prompt", value: `{"text":"say \"hi\"\n"}`, line: `{"id":"rj:1:1","type":"prompt","message":"say \"hi\"\n"}`},
		{name: "prompt of the wrong type", verb: "prompt", value: `{"text":1}`, reason: protocol.ReasonInvalidParams, text: "text must be a string"},
		{name: "steer", verb: "steer", value: `{"text":"left"}`, line: `{"id":"rj:1:1","type":"steer","message":"left"}`},
		{name: "follow_up", verb: "follow_up", value: `{"text":"then"}`, line: `{"id":"rj:1:1","type":"follow_up","message":"then"}`},
		{name: "interrupt", verb: "interrupt", value: `{}`, line: `{"id":"rj:1:1","type":"abort"}`},
		{name: "no type", value: `{"id":1}`, reason: protocol.ReasonInvalidParams},
		{name: "an answer to nothing", value: `{"type":"extension_ui_response","id":"a","confirmed":true}`, reason: protocol.ReasonInvalidParams},
		{name: "respond to nothing", verb: "respond", value: `{"interactionId":"1.a","outcome":"allow"}`, reason: protocol.ReasonInvalidParams},
		{name: "interrupt without params", verb: "interrupt", line: `{"id":"rj:1:1","type":"abort"}`},
	}},
}

// everywhere is what holds for every adapter.
var everywhere = []encodeCase{
	{name: "no command", reason: protocol.ReasonInvalidParams, text: "command is required"},
	{name: "set_model", verb: "set_model", value: `{"model":"m"}`, reason: protocol.ReasonUnsupported},
	{name: "unknown verb", verb: "dance", value: `{}`, reason: protocol.ReasonUnsupported},
}

func TestConformance(t *testing.T) {
	for _, a := range adapters {
		t.Run(a.name, func(t *testing.T) {
			if got := a.adapter.Name(); got != a.name {
				t.Errorf("Name() = %q, want %q", got, a.name)
			}
			if got := a.adapter.JSONLines(); got != a.jsonLines {
				t.Errorf("JSONLines() = %t, want %t", got, a.jsonLines)
			}
			for _, c := range append(everywhere, a.cases...) {
				t.Run(c.name, func(t *testing.T) { checkEncode(t, a.adapter, c) })
			}
		})
	}
}

func checkEncode(t *testing.T, a agent.Adapter, c encodeCase) {
	t.Helper()
	var value protocol.RawJSON
	if c.value != "" {
		value = protocol.RawJSON(c.value)
	}
	line, err := firstLine(a, c.verb, value)
	if c.reason == "" {
		if err != nil || string(line) != c.line {
			t.Fatalf("command %q %s gives %q, %v; want %q", c.verb, c.value, line, err, c.line)
		}
		if bytes.ContainsAny(line, "\n") {
			t.Errorf("the line %q has an LF", line)
		}
		if a.JSONLines() && protocol.ValidateJSON(line) != nil {
			t.Errorf("the line %q is not JSON", line)
		}
		return
	}
	e, ok := protocol.AsError(err)
	if !ok || e.Reason != c.reason || line != nil {
		t.Fatalf("command %q %s gives %q, %v; want reason %s", c.verb, c.value, line, err, c.reason)
	}
	if c.text != "" && e.Message != c.text {
		t.Errorf("message %q, want %q", e.Message, c.text)
	}
}

// firstLine is what the first command of a run becomes.
func firstLine(a agent.Adapter, verb string, value protocol.RawJSON) ([]byte, error) {
	effects, err := a.Drive(1).Admit(&protocol.State{}, &agent.Request{ID: "c", Verb: verb, Value: value, Client: "t"})
	if err != nil {
		return nil, err
	}
	return effects[0].Input.Line, nil
}
