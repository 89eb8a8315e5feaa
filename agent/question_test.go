package agent_test

import (
	"testing"

	"rejoin/agent"
	"rejoin/agent/demo"
	"rejoin/agent/jsonl"
	"rejoin/agent/lines"
	"rejoin/agent/pi"
	"rejoin/agent/rpi"
	"rejoin/protocol"
)

// TestWhatIsAskedCanBeAnswered: a question that a fold shows is one that the
// driver of the same adapter can answer, and that an interrupt ends. Otherwise
// the session would be waiting until its child ends.
func TestWhatIsAskedCanBeAnswered(t *testing.T) {
	asked := 0
	for _, a := range []agent.Adapter{pi.Adapter{}, demo.Adapter{}, rpi.Adapter{}, jsonl.Adapter{}, lines.Adapter{}} {
		for _, method := range []string{"select", "confirm", "input", "editor"} {
			line := `{"type":"extension_ui_request","id":"q","method":"` + method + `","title":"t","options":["a"]}`
			s := newState(a)
			s.Status = protocol.StatusIdle
			a.Fold(s, &protocol.Event{Seq: 1, Run: 1, Body: []byte(line)})
			if len(s.Pending) == 0 {
				if s.Status == protocol.StatusWaiting {
					t.Errorf("%s: waiting for nothing after %s", a.Name(), line)
				}
				continue
			}
			asked++
			for verb, value := range map[string]string{
				"respond": `{"interactionId":"` + s.Pending[0].InteractionID + `","outcome":"cancel"}`, "interrupt": `{}`,
			} {
				effects, err := a.Drive(1).Admit(s, &agent.Request{ID: "c", Verb: verb, Value: protocol.RawJSON(value), Client: "t"})
				resolved := false
				for _, e := range effects {
					resolved = resolved || e.Input != nil && e.Input.Resolves != nil
				}
				if err != nil || !resolved {
					t.Errorf("%s: %s leaves a question of kind %s open: %v", a.Name(), verb, method, err)
				}
			}
		}
	}
	if asked < 8 {
		t.Errorf("only %d questions were asked", asked)
	}
}
