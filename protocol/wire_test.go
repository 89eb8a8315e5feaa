package protocol_test

import (
	"bytes"
	"encoding/json"
	"math"
	"testing"

	"rejoin/protocol"
)

var eventLines = []struct {
	name  string
	event protocol.Event
	line  string
}{
	{
		"child",
		protocol.Event{Seq: 12, TS: 1796034481989, Run: 3, Body: []byte(`{"n":3}`)},
		`"seq":12,"ts":1796034481989,"run":3,"source":"child","event":{"n":3}}}`,
	},
	{
		"broker with command",
		protocol.Event{Seq: 1, TS: -5, Run: 1, Source: protocol.SourceBroker, CommandID: `a"\b`, Body: []byte(`[]`)},
		`"seq":1,"ts":-5,"run":1,"source":"broker","commandId":"a\"\\b","event":[]}}`,
	},
	{
		"white space and a body like an envelope",
		protocol.Event{Seq: math.MaxUint64, TS: math.MinInt64, Run: math.MaxUint64, CommandID: "x", Body: []byte(` {"event":{"a":"}}"}} `)},
		`"seq":18446744073709551615,"ts":-9223372036854775808,"run":18446744073709551615,"source":"child","commandId":"x","event": {"event":{"a":"}}"}} }}`,
	},
	{
		"scalar",
		protocol.Event{Seq: 2, TS: math.MaxInt64, Run: 1, Body: []byte(`9007199254740993.10`)},
		`"seq":2,"ts":9223372036854775807,"run":1,"source":"child","event":9007199254740993.10}}`,
	},
}

// Proves I-P1 for the envelope: decode∘encode is identity and a body is untouched.
func TestEventLine(t *testing.T) {
	for _, c := range eventLines {
		t.Run(c.name, func(t *testing.T) {
			line := protocol.AppendEventLine(nil, &c.event)
			if string(line) != c.line {
				t.Errorf("AppendEventLine\n got %s\nwant %s", line, c.line)
			}
			e, err := protocol.ParseEventLine([]byte(c.line))
			if err != nil || !sameEvent(e, c.event) {
				t.Errorf("ParseEventLine = %+v, %v; want %+v", e, err, c.event)
			}
			if s := protocol.LineSource(line); s != c.event.Source {
				t.Errorf("LineSource = %v, want %v", s, c.event.Source)
			}
		})
	}
}

func sameEvent(a, b protocol.Event) bool {
	return a.Seq == b.Seq && a.TS == b.TS && a.Run == b.Run && a.Source == b.Source && a.CommandID == b.CommandID && bytes.Equal(a.Body, b.Body)
}

func TestParseEventLineRefuses(t *testing.T) {
	for _, line := range []string{
		``, `{}`, `"seq":1`, `"seq":,"ts":1,"run":1,"source":"child","event":{}}}`,
		`"seq":-1,"ts":1,"run":1,"source":"child","event":{}}}`,
		`"seq":18446744073709551616,"ts":1,"run":1,"source":"child","event":{}}}`,
		`"seq":1,"ts":9223372036854775808,"run":1,"source":"child","event":{}}}`,
		`"seq":1,"ts":-9223372036854775809,"run":1,"source":"child","event":{}}}`,
		`"seq":1,"ts":1,"run":1,"source":"nobody","event":{}}}`,
		`"seq":1,"ts":1,"run":1,"source":"child","commandId":7,"event":{}}}`,
		`"seq":1,"ts":1,"run":1,"source":"child","commandId":"x`,
		`"seq":1,"ts":1,"run":1,"source":"child","commandId":"\x","event":{}}}`,
		`"seq":1,"ts":1,"run":1,"source":"child","event":}}`,
		`"seq":1,"ts":1,"run":1,"source":"child"`,
		`"ts":1,"seq":1,"run":1,"source":"child","event":{}}}`,
	} {
		if e, err := protocol.ParseEventLine([]byte(line)); err == nil {
			t.Errorf("ParseEventLine(%s) = %+v", line, e)
		}
		protocol.LineSource([]byte(line)) // must not panic
	}
}

func TestNotificationAndObject(t *testing.T) {
	line := protocol.AppendEventLine(nil, &eventLines[0].event)
	for _, c := range []struct{ name, got, want string }{
		{
			"notification", string(append(protocol.AppendEventPrefix(nil, 7, "S", ""), line...)),
			`{"jsonrpc":"2.0","method":"event","params":{"subscriptionId":7,"sessionId":"S","seq":12,"ts":1796034481989,"run":3,"source":"child","event":{"n":3}}}`,
		},
		{
			"notification with epoch", string(append(protocol.AppendEventPrefix(nil, 1, "S", "01K0"), line...)),
			`{"jsonrpc":"2.0","method":"event","params":{"subscriptionId":1,"sessionId":"S","epoch":"01K0","seq":12,"ts":1796034481989,"run":3,"source":"child","event":{"n":3}}}`,
		},
		{
			"object", string(protocol.AppendEventObject(nil, "S", line)),
			`{"sessionId":"S","seq":12,"ts":1796034481989,"run":3,"source":"child","event":{"n":3}}`,
		},
	} {
		if c.got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, c.got, c.want)
		}
		if !json.Valid([]byte(c.got)) {
			t.Errorf("%s is not JSON", c.name)
		}
	}
	if got := protocol.AppendEventObject(nil, "S", nil); len(got) == 0 {
		t.Error("an empty line lost the object's head")
	}
}

// FuzzEventLine checks the round trip of any event and of any line that parses.
func FuzzEventLine(f *testing.F) {
	for _, c := range eventLines {
		f.Add(uint64(c.event.Seq), c.event.TS, uint64(c.event.Run), c.event.Source == protocol.SourceBroker, c.event.CommandID, c.event.Body, []byte(c.line))
	}
	f.Fuzz(func(t *testing.T, seq uint64, ts int64, run uint64, broker bool, id string, body, raw []byte) {
		e := protocol.Event{Seq: protocol.Seq(seq), TS: ts, Run: protocol.Run(run), Body: body}
		if broker {
			e.Source = protocol.SourceBroker
		}
		if protocol.ValidCommandID(id) {
			e.CommandID = id
		}
		if len(body) > 0 {
			checkRoundTrip(t, e)
		}
		if got, err := protocol.ParseEventLine(raw); err == nil {
			checkRoundTrip(t, got)
		}
		protocol.LineSource(raw)
	})
}

func checkRoundTrip(t *testing.T, e protocol.Event) {
	t.Helper()
	line := protocol.AppendEventLine(nil, &e)
	got, err := protocol.ParseEventLine(line)
	if err != nil || !sameEvent(got, e) {
		t.Fatalf("%q parsed to %+v, %v; want %+v", line, got, err, e)
	}
	if s := protocol.LineSource(line); s != e.Source {
		t.Fatalf("LineSource(%q) = %v", line, s)
	}
	if protocol.ValidateJSON(e.Body) != nil {
		return
	}
	whole := append(protocol.AppendEventPrefix(nil, 1, "s", "e"), line...)
	if err := protocol.ValidateJSON(whole); err != nil {
		t.Fatalf("%q: %v", whole, err)
	}
}
