package snapshot_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	"rejoin/protocol"
	"rejoin/snapshot"
)

const epoch = protocol.Epoch("01JZZZZZZZZZZZZZZZZZZZZZZZ")

func broker(tb testing.TB, seq protocol.Seq, run protocol.Run, body any) *protocol.Event {
	tb.Helper()
	b, ok := body.(string)
	if !ok {
		enc, err := json.Marshal(body)
		if err != nil {
			tb.Fatal(err)
		}
		b = string(enc)
	}
	return &protocol.Event{Seq: seq, Run: run, Source: protocol.SourceBroker, Body: []byte(b)}
}

func child(seq protocol.Seq, run protocol.Run, body string) *protocol.Event {
	return &protocol.Event{Seq: seq, Run: run, Source: protocol.SourceChild, Body: []byte(body)}
}

func ptr[T any](v T) *T { return &v }

func TestApply(t *testing.T) {
	start := protocol.SessionStart{Type: protocol.TypeSessionStart, Agent: "a", Adapter: "jsonl", PID: 7, Run: 1, Title: "one"}
	end := protocol.SessionEnd{Type: protocol.TypeSessionEnd, Reason: protocol.EndExited, ExitCode: ptr(3)}
	tests := []struct {
		name   string
		bodies []any
		want   func(*protocol.State)
	}{
		{"nothing", nil, func(s *protocol.State) { s.Epoch, s.Run = "", 0 }},
		{"start", []any{start}, func(s *protocol.State) {
			s.Status, s.Title, s.Agent = protocol.StatusIdle, "one", protocol.StateAgent{Name: "a", Adapter: "jsonl"}
		}},
		{"end", []any{start, end}, func(s *protocol.State) {
			s.Status, s.Title, s.Agent = protocol.StatusEnded, "one", protocol.StateAgent{Name: "a", Adapter: "jsonl"}
			s.Exit = &protocol.StateExit{Code: ptr(3), Reason: protocol.EndExited}
		}},
		{"resumed clears the exit", []any{end, protocol.SessionResumed{Type: protocol.TypeSessionResumed, Run: 1}}, func(s *protocol.State) {
			s.Status = protocol.StatusIdle
		}},
		{"interrupted", []any{protocol.SessionInterrupted{Type: protocol.TypeSessionInterrupted, Reason: "server_restart"}}, func(s *protocol.State) {
			s.Status = protocol.StatusInterrupted
		}},
		{"title", []any{protocol.SessionTitle{Type: protocol.TypeSessionTitle, Title: "<two>\u2028"}}, func(s *protocol.State) {
			s.Title = "<two>\u2028"
		}},
		{"deleted", []any{`{"type":"session_deleted"}`}, func(s *protocol.State) { s.Status = protocol.StatusEnded }},
		{"malformed bodies count by seq only", []any{
			``, `null`, `[]`, `{"type":"session_end`, `{"type":"session_end","reason":5}`, `{"type":"session_start","agent":[]}`,
			`{"type":"session_title","title":"x"} trailing`, `{"type":"unknown"}`, `{"reason":"exited","type":"session_end"}`,
		}, func(*protocol.State) {}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, want := snapshot.New("s"), snapshot.New("s")
			want.Epoch, want.Run, want.Seq = epoch, 1, protocol.Seq(len(tt.bodies))
			tt.want(want)
			for i, b := range tt.bodies {
				snapshot.Apply(nil, got, epoch, broker(t, protocol.Seq(i+1), 1, b))
			}
			if g, w := string(snapshot.Encode(got)), string(snapshot.Encode(want)); g != w {
				t.Errorf("state\n got %s\nwant %s", g, w)
			}
		})
	}
}

func TestApplyChildMovesSeqOnly(t *testing.T) {
	s := snapshot.New("s")
	snapshot.Apply(nil, s, epoch, child(9, 4, `{"type":"session_end","reason":"exited"}`))
	if s.Seq != 9 || s.Run != 4 || s.Epoch != epoch || s.Status != protocol.StatusStarting {
		t.Errorf("state after a child's event: %s", snapshot.Encode(s))
	}
}

// TestGolden fails when the same events give another state: then Version must change with the hash.
func TestGolden(t *testing.T) {
	s := snapshot.New("golden")
	for i, b := range []any{
		protocol.SessionStart{Type: protocol.TypeSessionStart, Agent: "demo", Adapter: "demo", PID: 1, Run: 1, Title: "a <b> & c"},
		protocol.SessionTitle{Type: protocol.TypeSessionTitle, Title: "größer\u2028"},
		protocol.SessionInterrupted{Type: protocol.TypeSessionInterrupted, Reason: protocol.InterruptedRestart},
		protocol.SessionResumed{Type: protocol.TypeSessionResumed, Run: 2},
		protocol.EpochStart{Type: protocol.TypeEpochStart, PreviousEpoch: epoch, PreviousHead: 4, Reason: "unclean_boot"},
		protocol.SessionEnd{Type: protocol.TypeSessionEnd, Reason: protocol.EndExited, Signal: ptr("SIGSEGV")},
	} {
		snapshot.Apply(nil, s, epoch, broker(t, protocol.Seq(i+1), 2, b))
	}
	const (
		version = 1
		state   = `{"sessionId":"golden","epoch":"01JZZZZZZZZZZZZZZZZZZZZZZZ","seq":6,"run":2,"status":"ended","turn":null,` +
			`"agent":{"name":"demo","adapter":"demo"},"title":"größer` + "\u2028" + `","items":[],"itemsDropped":0,"pending":[],` +
			`"queue":{"steering":[],"followUp":[]},"exit":{"code":null,"signal":"SIGSEGV","reason":"exited"}}`
		hash = "9828729ac44896812009b4000dfb5335ccf5e2c36e97d72bc926eb7f81ee98d0"
	)
	got := snapshot.Encode(s)
	if string(got) != state {
		t.Errorf("state\n got %s\nwant %s", got, state)
	}
	if h := snapshot.Hash(got); h != hash || snapshot.Version != version {
		t.Errorf("hash %s of version %d, want %s of version %d", h, snapshot.Version, hash, version)
	}
}

// bodies are what FuzzFold draws broker events from, beside its own bytes.
var bodies = []string{
	`{"type":"session_start","agent":"a","adapter":"lines","pid":1,"run":1,"title":"t"}`,
	`{"type":"session_end","reason":"exited","exitCode":1,"signal":null}`,
	`{"type":"session_end","reason":"stopped","exitCode":null,"signal":"SIGKILL"}`,
	`{"type":"session_interrupted","reason":"server_restart"}`,
	`{"type":"session_resumed","run":2}`,
	`{"type":"session_title","title":"\ud800\u0000<&>"}`,
	`{"type":"session_deleted"}`,
	`{"type":"epoch_start","previousEpoch":"e","previousHead":3,"reason":"unclean_boot"}`,
	`{"type":"command","commandId":"c1","client":{"name":"n","connection":1},"command":{"a":1}}`,
	`{"type":"command","commandId":"c2","client":{"name":"n","connection":1},"verb":"prompt","params":{"text":"x"}}`,
	`{"type":"command_outcome","commandId":"c1","outcome":"done"}`,
	`{"type":"command_outcome","commandId":"c2","outcome":"failed","result":{"code":1}}`,
	`{"type":"output","text":"x"}`,
}

// script turns fuzz bytes into events: one byte picks the body, two the run and
// the step of seq; a zero takes the rest as a body.
func script(data []byte) []*protocol.Event {
	var out []*protocol.Event
	seq := protocol.Seq(0)
	for len(data) >= 2 {
		pick, step := data[0], data[1]
		data = data[2:]
		e := &protocol.Event{Source: protocol.SourceBroker, Run: protocol.Run(step >> 4)}
		seq += protocol.Seq(step & 3)
		e.Seq = seq
		if pick == 0 {
			n := min(len(data), int(step))
			e.Body, data = data[:n], data[n:]
		} else {
			e.Body = []byte(bodies[int(pick)%len(bodies)])
		}
		if pick&0x80 != 0 {
			e.Source = protocol.SourceChild
		}
		out = append(out, e)
	}
	return out
}

// FuzzFold: any order of events is taken, and folding in two pieces with an
// Encode and a Decode between them equals folding at once.
// Proves I-S1. Proves I-S2.
func FuzzFold(f *testing.F) {
	f.Add([]byte{1, 0x11, 2, 0x12, 5, 0x11, 4, 0x21, 0, 0x06, '{', '"', 't', 'y', 'p', 'e'}, uint8(2))
	f.Add([]byte{0, 0xff, 0xff, 0xfe, '{', '}'}, uint8(0))
	for i, b := range bodies {
		f.Add(append([]byte{0, byte(len(b))}, b...), uint8(i))
		f.Add(append([]byte{0, byte(len(b) - 1)}, b[:len(b)-1]...), uint8(i)) // cut off
		f.Add([]byte{byte(len(bodies)), 0x11, byte(i), 0x11, 12, 0x11}, uint8(2))
	}
	f.Fuzz(func(t *testing.T, data []byte, cut uint8) {
		events := script(data)
		k := int(cut) % (len(events) + 1)
		whole, pieces := snapshot.New("s"), snapshot.New("s")
		for i, e := range events {
			if i == k {
				pieces = through(t, pieces)
			}
			body := bytes.Clone(e.Body)
			snapshot.Apply(nil, whole, epoch, e)
			snapshot.Apply(nil, pieces, epoch, e)
			if !bytes.Equal(body, e.Body) {
				t.Fatal("Apply changed the event")
			}
		}
		if k == len(events) {
			pieces = through(t, pieces)
		}
		if w, p := snapshot.Encode(whole), snapshot.Encode(pieces); !bytes.Equal(w, p) {
			t.Errorf("folded at once\n%s\nin pieces\n%s", w, p)
		}
	})
}

// through takes a state through its bytes.
func through(t *testing.T, s *protocol.State) *protocol.State {
	t.Helper()
	decoded, err := snapshot.Decode(snapshot.Encode(s))
	if err != nil {
		t.Fatalf("decode what Encode made: %v", err)
	}
	return decoded
}

func BenchmarkApplyChild(b *testing.B) {
	s := snapshot.New("s")
	e := child(1, 1, fmt.Sprintf(`{"type":"message_update","text":%q}`, bytes.Repeat([]byte("x"), 250)))
	b.ReportAllocs()
	for b.Loop() {
		e.Seq++
		snapshot.Apply(nil, s, epoch, e)
	}
}

func BenchmarkEncode(b *testing.B) {
	s := snapshot.New("s")
	snapshot.Apply(nil, s, epoch, broker(b, 1, 1, bodies[0]))
	b.ReportAllocs()
	for b.Loop() {
		snapshot.Encode(s)
	}
}
