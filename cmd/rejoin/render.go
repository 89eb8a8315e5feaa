package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"rejoin/client"
	"rejoin/cmd/rejoin/internal/printable"
	"rejoin/protocol"
)

// plain is text that cannot steer a terminal.
func plain(s string) string { return printable.Text(s) }

// plainLine is plain on one line.
func plainLine(s string) string { return printable.Line(s) }

// describeExit says how a run ended, in words that follow "the program".
func describeExit(reason string, code *int, signal *string) string {
	switch {
	case reason == protocol.EndStopped:
		return "was stopped"
	case reason == protocol.EndLost:
		return "was lost"
	case signal != nil:
		return "ended by " + plainLine(*signal)
	case code != nil:
		return fmt.Sprintf("exited with code %d", *code)
	}
	return "ended"
}

// eventType is the "type" of a broker's event, else empty.
func eventType(e client.Event) string {
	if e.Source != protocol.SourceBroker {
		return ""
	}
	var head struct {
		Type string `json:"type"`
	}
	if json.Unmarshal(e.Body, &head) != nil {
		return ""
	}
	return head.Type
}

// sessionEnd returns the event as the end of a run, if it is one.
func sessionEnd(e client.Event) (end protocol.SessionEnd, ok bool) {
	if eventType(e) != protocol.TypeSessionEnd || json.Unmarshal(e.Body, &end) != nil {
		return end, false
	}
	return end, true
}

const bodyShown = 160 // characters of an event's body in the short form

// printEvent prints an event on one line.
func printEvent(w *bufio.Writer, _ string, e client.Event) error {
	body := []rune(plainLine(string(e.Body[:min(len(e.Body), 4*bodyShown)])))
	more := ""
	if len(body) > bodyShown || len(e.Body) > 4*bodyShown {
		body = body[:min(len(body), bodyShown)]
		more = fmt.Sprintf("… (%d bytes)", len(e.Body))
	}
	_, err := fmt.Fprintf(w, "%7d  %s  %-6s  %s%s\n", e.Seq,
		time.UnixMilli(e.TS).Format("15:04:05.000"), e.Source, string(body), more)
	return err
}

// view shows a session to people: text as it streams, tools and what the broker
// did in a line each, everything it does not know as the line itself.
type view struct {
	notes   io.Writer
	synced  bool
	midLine bool // streamed text has not ended its line
}

// agentEvent is what view knows of the events of agents that speak like pi.
type agentEvent struct {
	Type      string `json:"type"`
	Assistant *struct {
		Type  string `json:"type"`
		Delta string `json:"delta"`
	} `json:"assistantMessageEvent"`
	ToolName string          `json:"toolName"`
	Args     json.RawMessage `json:"args"`
	IsError  bool            `json:"isError"`
	Title    string          `json:"title"`
	Message  json.RawMessage `json:"message"`
	Method   string          `json:"method"`
	Success  *bool           `json:"success"`
	Error    string          `json:"error"`
}

func (v *view) event(w *bufio.Writer, e client.Event) error {
	if e.Source == protocol.SourceBroker {
		return v.broker(w, e)
	}
	var a agentEvent
	if err := json.Unmarshal(e.Body, &a); err != nil {
		return v.line(w, string(e.Body)) // a scalar, or other members of that name
	}
	switch a.Type {
	case "message_update":
		if a.Assistant == nil {
			return v.line(w, string(e.Body))
		}
		return v.delta(w, a.Assistant.Type, a.Assistant.Delta)
	case "agent_start", "turn_start", "message_start", "turn_end", "agent_settled", "tool_execution_update", "queue_update":
		return nil // what they say is shown otherwise
	case "message_end", "agent_end":
		return v.endLine(w)
	case "tool_execution_start":
		return v.line(w, fmt.Sprintf("[%s %s]", a.ToolName, a.Args))
	case "tool_execution_end":
		how := "done"
		if a.IsError {
			how = "failed"
		}
		return v.line(w, fmt.Sprintf("[%s %s]", a.ToolName, how))
	case "extension_ui_request":
		var message string
		_ = json.Unmarshal(a.Message, &message) // shown when it is a text
		return v.line(w, strings.TrimSpace(fmt.Sprintf("? %s %s", a.Title, message)))
	case "response":
		if a.Success != nil && *a.Success {
			return nil
		}
		return v.line(w, "! "+a.Error)
	}
	return v.line(w, string(e.Body))
}

func (v *view) delta(w *bufio.Writer, kind, text string) error {
	if kind != "text_delta" || text == "" {
		return nil // thinking and calls in the making
	}
	v.midLine = !strings.HasSuffix(text, "\n")
	_, err := w.WriteString(plain(text))
	return err
}

// endLine ends a line of streamed text.
func (v *view) endLine(w *bufio.Writer) error {
	if !v.midLine {
		return nil
	}
	v.midLine = false
	return w.WriteByte('\n')
}

func (v *view) line(w *bufio.Writer, s string) error {
	if err := v.endLine(w); err != nil {
		return err
	}
	_, err := w.WriteString(plainLine(s) + "\n")
	return err
}

// brokerEvent is what view shows of the broker's events.
type brokerEvent struct {
	Type    string          `json:"type"`
	Agent   string          `json:"agent"`
	PID     int             `json:"pid"`
	Run     protocol.Run    `json:"run"`
	Reason  string          `json:"reason"`
	Verb    string          `json:"verb"`
	Command json.RawMessage `json:"command"`
	Params  struct {
		Text    string `json:"text"`
		Outcome string `json:"outcome"`
	} `json:"params"`
	Outcome  protocol.Outcome `json:"outcome"` // of a question: how it was answered
	By       string           `json:"resolvedBy"`
	ExitCode *int             `json:"exitCode"`
	Signal   *string          `json:"signal"`
	Text     string           `json:"text"`
	Title    string           `json:"title"`
	Error    string           `json:"error"`
}

func (v *view) broker(w *bufio.Writer, e client.Event) error {
	var b brokerEvent
	if err := json.Unmarshal(e.Body, &b); err != nil {
		return v.line(w, string(e.Body))
	}
	switch b.Type {
	case protocol.TypeOutput:
		return v.line(w, b.Text)
	case protocol.TypeStderr:
		return v.line(w, "stderr: "+b.Text)
	case protocol.TypeError:
		return v.line(w, "! "+strings.TrimSpace(b.Error+" "+b.Text))
	case protocol.TypeCommand:
		what := string(b.Command)
		if b.Verb != "" {
			what = strings.TrimSpace(b.Verb + " " + b.Params.Text + b.Params.Outcome)
		}
		if b.Verb == "prompt" {
			what = b.Params.Text
		}
		return v.line(w, "> "+what)
	case protocol.TypeCommandOutcome:
		if b.Outcome == protocol.OutcomeDone {
			return nil
		}
		return v.line(w, fmt.Sprintf("-- command %s", b.Outcome))
	case protocol.TypeInteraction:
		return v.line(w, fmt.Sprintf("-- %s, says %s", b.Outcome, b.By))
	case protocol.TypeCommandReleased:
		return nil // it was shown when it was sent
	case protocol.TypeSessionStart:
		return v.line(w, fmt.Sprintf("-- %s started (pid %d)", b.Agent, b.PID))
	case protocol.TypeSessionResumed:
		return v.line(w, fmt.Sprintf("-- resumed (run %d)", b.Run))
	case protocol.TypeSessionInterrupted:
		return v.line(w, fmt.Sprintf("-- interrupted (%s)", strings.ReplaceAll(b.Reason, "_", " ")))
	case protocol.TypeSessionEnd:
		return v.line(w, "-- "+describeExit(b.Reason, b.ExitCode, b.Signal))
	case protocol.TypeSessionTitle:
		return v.line(w, "-- title: "+b.Title)
	}
	return v.line(w, "-- "+strings.ReplaceAll(b.Type, "_", " "))
}
