package demoagent

import (
	"encoding/json"
	"strconv"
	"time"

	"rejoin/protocol"
)

// The names the demo agent gives in place of a model's.
const (
	modelID  = "demo"
	provider = "rejoin"
)

// The shapes of what the agent prints.
type (
	response struct {
		ID      protocol.RawJSON `json:"id,omitempty"`
		Type    string           `json:"type"`
		Command string           `json:"command,omitempty"`
		Success bool             `json:"success"`
		Data    any              `json:"data,omitempty"`
		Error   string           `json:"error,omitempty"`
	}
	disposition struct {
		Disposition string `json:"disposition"`
	}
	state struct {
		Model               model `json:"model"`
		IsStreaming         bool  `json:"isStreaming"`
		PendingMessageCount int   `json:"pendingMessageCount"`
	}
	model struct {
		ID       string `json:"id"`
		Provider string `json:"provider"`
	}
	request struct {
		Type    string `json:"type"`
		ID      string `json:"id"`
		Method  string `json:"method"`
		Title   string `json:"title"`
		Message string `json:"message"`
	}
	queueUpdate struct {
		Type     string   `json:"type"`
		Steering []string `json:"steering"`
		FollowUp []string `json:"followUp"`
	}
	// plain is an event with nothing but a type: agent_start, turn_start.
	plain struct {
		Type string `json:"type"`
	}
	messageEvent struct {
		Type    string  `json:"type"` // message_start, message_end
		Message message `json:"message"`
	}
	messageUpdate struct {
		Type   string `json:"type"`
		Update update `json:"assistantMessageEvent"`
	}
	update struct {
		Type         string   `json:"type"` // text_start, text_delta, text_end, thinking_…, toolcall_…
		ContentIndex int      `json:"contentIndex"`
		ID           string   `json:"id,omitempty"`
		ToolName     string   `json:"toolName,omitempty"`
		Delta        string   `json:"delta,omitempty"`
		Content      string   `json:"content,omitempty"`
		ToolCall     *content `json:"toolCall,omitempty"`
	}
	turnEnd struct {
		Type        string    `json:"type"`
		Message     message   `json:"message"`
		ToolResults []message `json:"toolResults"`
	}
	agentEnd struct {
		Type     string    `json:"type"`
		Messages []message `json:"messages"`
	}
	agentSettled struct {
		Type    string `json:"type"`
		Aborted bool   `json:"aborted"`
	}
	toolEvent struct {
		Type          string      `json:"type"` // tool_execution_start, …_update, …_end
		ToolCallID    string      `json:"toolCallId"`
		ToolName      string      `json:"toolName"`
		Args          *arguments  `json:"args,omitempty"`
		PartialResult *toolResult `json:"partialResult,omitempty"`
		Result        *toolResult `json:"result,omitempty"`
		IsError       *bool       `json:"isError,omitempty"`
	}
	toolResult struct {
		Content []content `json:"content"`
	}
	arguments struct {
		Command string `json:"command"`
	}
	message struct {
		Role         string    `json:"role"` // user, assistant, toolResult
		ToolCallID   string    `json:"toolCallId,omitempty"`
		ToolName     string    `json:"toolName,omitempty"`
		Content      []content `json:"content"`
		Provider     string    `json:"provider,omitempty"`
		Model        string    `json:"model,omitempty"`
		StopReason   string    `json:"stopReason,omitempty"` // pending, stop, toolUse, aborted
		ErrorMessage string    `json:"errorMessage,omitempty"`
		IsError      *bool     `json:"isError,omitempty"`
		Timestamp    int64     `json:"timestamp"` // ms since 1970
	}
	content struct {
		Type      string     `json:"type"` // text, thinking, toolCall
		Text      string     `json:"text,omitempty"`
		Thinking  string     `json:"thinking,omitempty"`
		ID        string     `json:"id,omitempty"`
		Name      string     `json:"name,omitempty"`
		Arguments *arguments `json:"arguments,omitempty"`
	}
)

func text(s string) content { return content{Type: "text", Text: s} }

func now() int64 { return time.Now().UnixMilli() }

func questionID(n int) string { return "ask-" + strconv.Itoa(n) }

func callID(n int) string { return "call-" + strconv.Itoa(n) }

// emit prints an event as one line, at once.
func (a *agent) emit(event any) {
	if a.gone {
		return
	}
	enc := json.NewEncoder(a.out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(event); err != nil {
		a.broken()
		return
	}
	a.flush()
}

func (a *agent) flush() {
	if err := a.out.Flush(); err != nil {
		a.broken()
	}
}

// broken ends the program: nobody reads it any more.
func (a *agent) broken() {
	if !a.gone {
		a.gone, a.exit = true, 1
	}
}

// respond answers a command: with its fault, or with success and data.
func (a *agent) respond(c command, data any) {
	a.emit(response{ID: c.id, Type: "response", Command: c.kind, Success: c.wrong == "", Data: data, Error: c.wrong})
}

func (a *agent) queueUpdate() {
	a.emit(queueUpdate{
		Type:     "queue_update",
		Steering: append([]string{}, a.steering...),
		FollowUp: append([]string{}, a.followUp...),
	})
}
