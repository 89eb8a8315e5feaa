package snapshot_test

import (
	"fmt"
	"strings"
	"testing"

	"rejoin/protocol"
	"rejoin/snapshot"
)

// TestBrokerEvents: what each of rejoin's own events makes of a state. A line that
// begins with "<" is the child's.
func TestBrokerEvents(t *testing.T) {
	const ask, bash = `<{"type":"extension_ui_request","id":"q","method":"confirm"}`, `{"type":"command","commandId":"k","command":{"type":"bash","command":"x"}}`
	for _, c := range []struct {
		name, adapter string
		events        []string
		want          string // status, kinds and statuses of the items, title
	}{
		{"output", "lines", []string{`{"type":"output","text":"x"}`}, "idle output streaming"},
		{"error", "pi", []string{`{"type":"error","error":"e"}`}, "idle notice error"},
		{"command", "pi", []string{bash}, "idle tool streaming"},
		{"outcome", "pi", []string{bash, `{"type":"command_outcome","commandId":"k","outcome":"failed"}`}, "idle tool error"},
		{"question", "pi", []string{ask}, "waiting"},
		{"answer", "pi", []string{ask, `{"type":"interaction_resolved","interactionId":"1.q","resolvedBy":"a","outcome":"allow"}`}, "idle"},
		{"answer to another", "pi", []string{ask, `{"type":"interaction_resolved","interactionId":"1.p","resolvedBy":"a","outcome":"allow"}`}, "waiting"},
		{"title", "pi", []string{`{"type":"session_title","title":"T"}`}, "idle; T"},
		{"end", "pi", []string{`<{"type":"agent_start"}`, ask, `{"type":"session_end","reason":"exited","exitCode":0,"signal":null}`}, "ended"},
		{"interruption", "pi", []string{`<{"type":"agent_start"}`, `{"type":"session_interrupted","reason":"server_restart"}`}, "interrupted"},
		{"deletion", "pi", []string{`<{"type":"agent_start"}`, `{"type":"session_deleted"}`}, "ended"},
		{"resumption", "pi", []string{`<{"type":"agent_start"}`, `{"type":"session_resumed","run":2}`}, "idle"},
		{"another start", "pi", []string{bash, `{"type":"session_start","agent":"b","adapter":"lines","title":"U"}`}, "idle tool interrupted; U"},
		{"of a later version", "pi", []string{`<{"type":"agent_start"}`, `{"type":"session_dances"}`}, "busy"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := started(c.adapter)
			for _, body := range c.events {
				e := &protocol.Event{Seq: s.Seq + 1, TS: 1, Run: 1, Source: protocol.SourceBroker}
				if line, ok := strings.CutPrefix(body, "<"); ok {
					e.Source, body = protocol.SourceChild, line
				}
				e.Body = []byte(body)
				endFolds.Apply(s, epoch, e)
			}
			got := string(s.Status)
			for _, it := range s.Items {
				got += fmt.Sprint(" ", it.Kind, " ", it.Status)
			}
			if s.Title != "" {
				got += "; " + s.Title
			}
			if got != c.want {
				t.Errorf("got %s, want %s: %s", got, c.want, snapshot.Encode(s))
			}
		})
	}
}
