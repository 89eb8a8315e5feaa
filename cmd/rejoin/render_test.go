package main

import (
	"bufio"
	"bytes"
	"strings"
	"testing"
	"time"

	"rejoin/client"
	"rejoin/protocol"
)

func child(body string) client.Event {
	return client.Event{Event: protocol.Event{Source: protocol.SourceChild, Body: []byte(body)}}
}

func fromBroker(body string) client.Event {
	return client.Event{Event: protocol.Event{Source: protocol.SourceBroker, Body: []byte(body)}}
}

func TestView(t *testing.T) {
	events := []client.Event{
		fromBroker(`{"type":"session_start","agent":"demo","adapter":"demo","pid":7,"run":1}`),
		fromBroker(`{"type":"command","commandId":"c","verb":"prompt","params":{"text":"say\n\u001b[2Jhi"},"line":"{}"}`),
		fromBroker(`{"type":"command_outcome","commandId":"c","outcome":"done"}`),
		child(`{"type":"response","command":"prompt","success":true}`),
		child(`{"type":"agent_start"}`),
		child(`{"type":"message_update","assistantMessageEvent":{"type":"thinking_delta","delta":"hm"}}`),
		child(`{"type":"message_update","assistantMessageEvent":{"type":"text_delta","delta":"Hel"}}`),
		child(`{"type":"message_update","assistantMessageEvent":{"type":"text_delta","delta":"lo\n\u001b[31mred"}}`),
		child(`{"type":"tool_execution_start","toolName":"bash","args":{"command":"ls"}}`),
		child(`{"type":"tool_execution_end","toolName":"bash","isError":true}`),
		child(`{"type":"extension_ui_request","method":"confirm","title":"Run it?","message":"ls"}`),
		child(`{"type":"message_end"}`),
		child(`{"type":"response","success":false,"error":"no"}`),
		child(`42`),
		child(`{"n":1}`),
		fromBroker(`{"type":"error","error":"invalid json: x","text":"rubbish"}`),
		fromBroker(`{"type":"output","text":"plain \u009b text"}`),
		fromBroker(`{"type":"command","commandId":"d","command":{"type":"get_state"}}`),
		fromBroker(`{"type":"command_outcome","commandId":"d","outcome":"interrupted"}`),
		fromBroker(`{"type":"session_interrupted","reason":"server_restart"}`),
		fromBroker(`{"type":"session_resumed","run":3}`),
		fromBroker(`{"type":"session_end","reason":"exited","exitCode":3,"signal":null}`),
		fromBroker(`{"type":"epoch_start"}`),
	}
	want := strings.Join([]string{
		"-- demo started (pid 7)",
		"> say \ufffd[2Jhi",
		"Hello", "\ufffd[31mred",
		`[bash {"command":"ls"}]`,
		"[bash failed]",
		"? Run it? ls",
		"! no",
		"42",
		`{"n":1}`,
		"! invalid json: x rubbish",
		"plain \ufffd text",
		`> {"type":"get_state"}`,
		"-- command interrupted",
		"-- interrupted (server restart)",
		"-- resumed (run 3)",
		"-- exited with code 3",
		"-- epoch start",
	}, "\n") + "\n"
	var out bytes.Buffer
	w := bufio.NewWriter(&out)
	var v view
	for _, e := range events {
		if err := v.event(w, e); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if out.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", out.String(), want)
	}
}

func TestPrintEvent(t *testing.T) {
	var out bytes.Buffer
	w := bufio.NewWriter(&out)
	e := child(`{"a":"` + strings.Repeat("\u00e4", 1000) + `"}`)
	e.Seq, e.TS, e.Run = 12, time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.Local).UnixMilli(), 2
	for _, show := range []func(*bufio.Writer, string, client.Event) error{printEvent, printEventJSON} {
		if err := show(w, "s", e); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	if len(lines) != 3 || !strings.HasPrefix(lines[0], `     12  03:04:05.678  child   {"a":"ä`) || !strings.HasSuffix(lines[0], "… (2008 bytes)") {
		t.Errorf("short form: %s", lines[0])
	}
	if !strings.HasPrefix(lines[1], `{"sessionId":"s","seq":12,"ts":`) || !strings.HasSuffix(lines[1], `"event":`+string(e.Body)+"}") {
		t.Errorf("JSON: %s", lines[1])
	}
}

func TestDescribeExit(t *testing.T) {
	for _, c := range []struct {
		reason string
		code   *int
		signal *string
		want   string
	}{
		{protocol.EndExited, new(0), nil, "exited with code 0"},
		{protocol.EndExited, nil, new("SIGKILL"), "ended by SIGKILL"},
		{protocol.EndStopped, nil, new("SIGTERM"), "was stopped"},
		{protocol.EndLost, nil, nil, "was lost"},
		{protocol.EndExited, nil, nil, "ended"},
	} {
		if got := describeExit(c.reason, c.code, c.signal); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

func TestAgo(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Hour: "now", time.Second: "now", 61 * time.Second: "61 s ago", 5 * time.Minute: "5 min ago",
		3 * time.Hour: "3 h ago", 72 * time.Hour: "3 days ago",
	} {
		if got := ago(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}
