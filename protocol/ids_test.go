package protocol_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"rejoin/protocol"
)

func TestIDs(t *testing.T) {
	now := time.UnixMilli(1796034481989)
	if e := protocol.NewEpoch(now); !protocol.ValidEpoch(string(e)) || len(e) != 26 {
		t.Errorf("NewEpoch = %q", e)
	}
	if id := protocol.NewSessionID(now); !protocol.ValidSessionID(id) || id == protocol.NewSessionID(now) {
		t.Errorf("NewSessionID = %q", id)
	}
	if id := protocol.NewCommandID(now); !protocol.ValidCommandID(id) || !strings.HasPrefix(id, protocol.ServerCommandPrefix) {
		t.Errorf("NewCommandID = %q", id)
	}
	for id, want := range map[string]bool{
		"a": true, "A_z-09": true, strings.Repeat("a", 64): true,
		"": false, strings.Repeat("a", 65): false, "a.b": false, "a*": false, "a b": false, "é": false, "a/b": false, "a\n": false,
	} {
		if got := protocol.ValidSessionID(id); got != want {
			t.Errorf("ValidSessionID(%q) = %t", id, got)
		}
	}
	for id, want := range map[string]bool{
		"a b~!": true, strings.Repeat("x", 128): true, "": false, strings.Repeat("x", 129): false, "a\n": false, "\x7f": false, "é": false,
	} {
		if got := protocol.ValidCommandID(id); got != want {
			t.Errorf("ValidCommandID(%q) = %t", id, got)
		}
	}
	for e, want := range map[string]bool{"": false, "01K0": false, strings.Repeat("!", 26): false, "01ARZ3NDEKTSV4RRFFQ69G5FAV": true} {
		if got := protocol.ValidEpoch(e); got != want {
			t.Errorf("ValidEpoch(%q) = %t", e, got)
		}
	}
}

func TestRecordInfo(t *testing.T) {
	r := protocol.SessionRecord{Workspace: "w", ID: "s", Status: protocol.StatusIdle, PID: 7, Head: 3, Floor: 1, Owner: "worker", Argv: []string{"secret"}}
	info := r.Info()
	if info.State != "running" || info.PID == nil || *info.PID != 7 || info.EventCount != 3 || r.Key().String() != "w/s" {
		t.Errorf("Info = %+v of %s", info, r.Key())
	}
	b, err := json.Marshal(info)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(b), "secret") || !strings.Contains(string(b), `"event_count":3`) {
		t.Errorf("Info is %s", b)
	}
	for status, want := range map[protocol.Status]string{
		protocol.StatusEnded: "exited", protocol.StatusInterrupted: "interrupted", protocol.StatusStarting: "running", protocol.StatusWaiting: "running",
	} {
		r.Status = status
		if info = r.Info(); info.State != want || (info.PID != nil) != (want == "running") {
			t.Errorf("%s: state %s, pid %v", status, info.State, info.PID)
		}
	}
}

func TestRawJSON(t *testing.T) {
	c := protocol.CommandEvent{Type: protocol.TypeCommand, CommandID: "x", Command: protocol.RawJSON(`{"big":9007199254740993.10}`)}
	b, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"type":"command","commandId":"x","client":{"name":"","connection":0},"command":{"big":9007199254740993.10}}`
	if string(b) != want {
		t.Errorf("got %s, want %s", b, want)
	}
	var back protocol.CommandEvent
	if err := json.Unmarshal(b, &back); err != nil || string(back.Command) != string(c.Command) {
		t.Errorf("back: %s, %v", back.Command, err)
	}
}
