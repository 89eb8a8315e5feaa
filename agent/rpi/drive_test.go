package rpi_test

import (
	"testing"

	"rejoin/agent"
	"rejoin/agent/rpi"
	"rejoin/protocol"
)

// TestCommands: the first command of a run, as rpi is told it.
func TestCommands(t *testing.T) {
	for _, c := range []struct {
		name, verb, value string
		line              string
		reason            protocol.Reason
	}{
		{"prompt", "prompt", `{"text":"say \"hi\""}`, `{"id":"rj:1:1","type":"prompt","content":"say \"hi\""}`, ""},
		{"prompt without text", "prompt", `{}`, "", protocol.ReasonInvalidParams},
		{"prompt with images", "prompt", `{"text":"a","images":[]}`, "", protocol.ReasonUnsupported},
		{"interrupt", "interrupt", `{}`, `{"id":"rj:1:1","type":"abort"}`, ""},
		{"set_model", "set_model", `{"model":"p/m"}`, `{"id":"rj:1:1","type":"set_model","model":"p/m"}`, ""},
		{"set_model without one", "set_model", `{}`, "", protocol.ReasonInvalidParams},
		{"set_model of the wrong type", "set_model", `{"model":1}`, "", protocol.ReasonInvalidParams},
		{"steer", "steer", `{"text":"x"}`, "", protocol.ReasonUnsupported},
		{"follow_up", "follow_up", `{"text":"x"}`, "", protocol.ReasonUnsupported},
		{"respond", "respond", `{"interactionId":"1.a","outcome":"allow"}`, "", protocol.ReasonUnsupported},
		{"raw", "", `{"id":7,"type":"ping"}`, `{"id":"rj:1:1","type":"ping"}`, ""},
		{"raw without a type", "", `{"id":7}`, "", protocol.ReasonInvalidParams},
		{"raw null", "", `null`, "", protocol.ReasonInvalidParams},
		{"nothing", "", ``, "", protocol.ReasonInvalidParams},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := rpi.Adapter{}.Drive(1)
			effects, err := d.Admit(&protocol.State{}, &agent.Request{ID: "k", Verb: c.verb, Value: protocol.RawJSON(c.value)})
			if c.reason != "" {
				if e, ok := protocol.AsError(err); !ok || e.Reason != c.reason {
					t.Fatalf("got %v, want %s", err, c.reason)
				}
				return
			}
			if err != nil || len(effects) != 1 || effects[0].Input == nil || string(effects[0].Input.Line) != c.line {
				t.Fatalf("got %+v, %v; want %s", effects, err, c.line)
			}
		})
	}
}

// TestAnswers: an answer gets the client's id back and tells the outcome; the
// next prompt waits for it.
func TestAnswers(t *testing.T) {
	for _, c := range []struct {
		name, answer, record string
		outcome              protocol.Outcome
	}{
		{"ok", `{"type":"response","id":"rj:1:1","status":"ok","result":{}}`, `{"type":"response","id":7,"status":"ok","result":{}}`, protocol.OutcomeDone},
		{"error", `{"type":"response","id":"rj:1:1","status":"error","error":"no"}`, `{"type":"response","id":7,"status":"error","error":"no"}`, protocol.OutcomeFailed},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, s := rpi.Adapter{}.Drive(1), &protocol.State{}
			for _, id := range []string{"k1", "k2"} {
				value := protocol.RawJSON(`{"id":7,"type":"prompt","content":"x"}`)
				if _, err := d.Admit(s, &agent.Request{ID: id, Value: value}); err != nil {
					t.Fatal(err)
				}
			}
			d.Wrote("k1")
			record, command, effects := d.Hear(s, []byte(c.answer))
			if string(record) != c.record || command != "k1" {
				t.Errorf("recorded %s for %q", record, command)
			}
			var outcome protocol.Outcome
			released := ""
			for _, e := range effects {
				if e.Outcome != nil && e.Outcome.CommandID == "k1" {
					outcome = e.Outcome.Outcome
				}
				if e.Release != "" {
					released = e.Release
				}
			}
			if outcome != c.outcome || released != "k2" {
				t.Errorf("outcome %s, released %q", outcome, released)
			}
		})
	}
}
