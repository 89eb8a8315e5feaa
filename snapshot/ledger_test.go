package snapshot_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"rejoin/protocol"
	"rejoin/snapshot"
)

func admit(tb testing.TB, seq protocol.Seq, id, verb, value string) *protocol.Event {
	tb.Helper()
	c := protocol.CommandEvent{Type: protocol.TypeCommand, CommandID: id, Client: protocol.CommandClient{Name: "c"}, Verb: verb}
	if verb == "" {
		c.Command = protocol.RawJSON(value)
	} else {
		c.Params = protocol.RawJSON(value)
	}
	return broker(tb, seq, 1, c)
}

func outcome(tb testing.TB, seq protocol.Seq, id string, o protocol.Outcome, result string) *protocol.Event {
	tb.Helper()
	return broker(tb, seq, 1, protocol.CommandOutcome{
		Type: protocol.TypeCommandOutcome, CommandID: id, Outcome: o, Result: protocol.RawJSON(result),
	})
}

func TestLedger(t *testing.T) {
	l := snapshot.NewLedger()
	for _, e := range []*protocol.Event{
		admit(t, 1, "a", "", `{"x":1}`),
		admit(t, 2, "b", "prompt", `{"text":"hi"}`),
		admit(t, 3, "c", "", `null`),
		admit(t, 4, "a", "", `{"x":2}`), // the first one stands
		outcome(t, 5, "b", protocol.OutcomeDone, ""),
		outcome(t, 6, "b", protocol.OutcomeFailed, ""), // the first terminal one wins
		outcome(t, 7, "a", protocol.OutcomeAdmitted, ""),
		outcome(t, 8, "nobody", protocol.OutcomeDone, ""),
		child(9, 1, `{"type":"command_outcome","commandId":"a","outcome":"done"}`),
		broker(t, 10, 1, `{"type":"command","commandId":5}`),
		broker(t, 11, 1, `{"type":"command"}`),
		outcome(t, 12, "c", protocol.OutcomeFailed, `{"why":1}`),
	} {
		l.Apply(e)
	}
	if got, want := l.Open(), []string{"a"}; !reflect.DeepEqual(got, want) {
		t.Errorf("open: got %v, want %v", got, want)
	}
	a, ok := l.Lookup("a")
	if !ok || a.Seq != 1 || a.Outcome != protocol.OutcomeAdmitted || a.Hash != snapshot.PayloadHash("", protocol.RawJSON(` { "x" : 1 } `)) {
		t.Errorf("a: %+v, %v", a, ok)
	}
	if _, ok := l.Lookup("nobody"); ok || l.Len() != 3 {
		t.Errorf("an outcome without its command entered the ledger: %d entries", l.Len())
	}
	for _, want := range []protocol.CommandStatus{
		{CommandID: "a", Outcome: protocol.OutcomeAdmitted, Seq: 1},
		{CommandID: "b", Outcome: protocol.OutcomeDone, Seq: 2},
		{CommandID: "c", Outcome: protocol.OutcomeFailed, Seq: 3, Result: protocol.RawJSON(`{"why":1}`)},
		{CommandID: "d", Outcome: protocol.OutcomeUnknown},
	} {
		if got := l.Status(want.CommandID); !reflect.DeepEqual(got, want) {
			t.Errorf("status: got %+v, want %+v", got, want)
		}
	}
}

func TestPayloadHash(t *testing.T) {
	tests := []struct {
		name         string
		verb1, json1 string
		verb2, json2 string
		equal        bool
	}{
		{"white space", "", `{"a": [1, 2]}`, "", "{\n\"a\":[1,2]}", true},
		{"white space inside strings", "", `"a b"`, "", `"ab"`, false},
		{"another value", "", `1`, "", `2`, false},
		{"a verb is not a raw send", "prompt", `{"text":"x"}`, "", `{"text":"x"}`, false},
		{"another verb", "prompt", `{"text":"x"}`, "steer", `{"text":"x"}`, false},
		{"order of members counts", "", `{"a":1,"b":2}`, "", `{"b":2,"a":1}`, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			x := snapshot.PayloadHash(tt.verb1, protocol.RawJSON(tt.json1))
			y := snapshot.PayloadHash(tt.verb2, protocol.RawJSON(tt.json2))
			if (x == y) != tt.equal {
				t.Errorf("equal: got %v, want %v", x == y, tt.equal)
			}
		})
	}
}

// TestLedgerRebuild: through stored lines and back, a rebuilt ledger equals the live one.
// Proves I-B1 (the ledger's part).
func TestLedgerRebuild(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	outcomes := []protocol.Outcome{
		protocol.OutcomeDone, protocol.OutcomeFailed, protocol.OutcomeDiscarded, protocol.OutcomeInterrupted, protocol.OutcomeAdmitted,
	}
	for range 50 {
		live := snapshot.NewLedger()
		var lines [][]byte
		for seq := protocol.Seq(1); seq < 80; seq++ {
			id := fmt.Sprintf("id %q %d", "<é>", rnd.IntN(25))
			var e *protocol.Event
			switch rnd.IntN(4) {
			case 0:
				e = admit(t, seq, id, "", fmt.Sprintf(`{"n":%d,"s":"<\u2028é>"}`, rnd.IntN(9)))
			case 1:
				e = admit(t, seq, id, "prompt", fmt.Sprintf(`{"text":"%d"}`, rnd.IntN(9)))
			case 2:
				e = outcome(t, seq, id, outcomes[rnd.IntN(len(outcomes))], `{"code":1}`)
			default:
				e = child(seq, 1, `{"type":"command","commandId":"id"}`)
			}
			live.Apply(e)
			lines = append(lines, protocol.AppendEventLine(nil, e))
		}
		rebuilt := snapshot.NewLedger()
		for _, line := range lines {
			e, err := protocol.ParseEventLine(line)
			if err != nil {
				t.Fatal(err)
			}
			rebuilt.Apply(&e)
		}
		if !reflect.DeepEqual(live, rebuilt) {
			t.Fatalf("rebuilt %+v\nlive %+v", rebuilt, live)
		}
	}
}
