package demoagent

import (
	"bufio"
	"io"
	"time"

	"rejoin/protocol"
)

// queuedMax bounds the messages, and the aborts, that wait for the reply's end;
// one more is refused.
const queuedMax = 256

// An agent is the program's state. It is for one goroutine.
type agent struct {
	out    *bufio.Writer
	errOut io.Writer
	lines  <-chan input
	pace   time.Duration
	wake   <-chan struct{} // ends a hang; nil outside tests

	eof      bool // stdin has ended
	busy     bool // a reply is under way
	prompt   *string
	aborted  bool
	aborts   []protocol.RawJSON // ids of the aborts to answer when the reply has ended
	steering []string
	followUp []string
	question string // id of the open question
	answer   *bool  // to the question

	leaving bool // exit once the reply has ended
	gone    bool // exit at once, say nothing more
	exit    int
	asked   int // questions so far, for their ids
	calls   int // tool calls so far, for their ids
}

// run takes commands until stdin ends or a script ends the program.
func (a *agent) run() int {
	for !a.gone && !a.leaving && !a.eof {
		in, ok := <-a.lines
		a.take(in, ok)
		if a.prompt != nil {
			text := *a.prompt
			a.prompt = nil
			a.reply(text)
		}
	}
	return a.exit
}

// take handles a line of stdin, or its end.
func (a *agent) take(in input, ok bool) {
	switch {
	case !ok:
		a.eof = true
		return
	case in.tooLong:
		a.respond(command{kind: "parse", wrong: "Failed to parse command: the line is too long"}, nil)
		return
	case len(in.line) == 0:
		return
	}
	c := parseCommand(in.line)
	if c.wrong != "" {
		a.respond(c, nil)
		return
	}
	switch c.kind {
	case "prompt", "follow_up", "steer":
		a.takeMessage(c)
	case "abort":
		a.takeAbort(c)
	case "get_state":
		a.respond(c, state{
			Model: model{ID: modelID, Provider: provider}, IsStreaming: a.busy,
			PendingMessageCount: len(a.steering) + len(a.followUp),
		})
	case "extension_ui_response":
		if id, ok := protocol.DecodeString(c.id); ok && id == a.question && a.answer == nil {
			a.answer = &c.answered
		}
	}
}

// takeMessage starts a reply to a message, or queues it behind the one under way.
func (a *agent) takeMessage(c command) {
	switch {
	case !a.busy && a.prompt == nil:
		a.prompt = &c.message
		a.respond(c, disposition{"started"})
		return
	case len(a.steering)+len(a.followUp) >= queuedMax:
		c.wrong = "Too many messages are queued"
		a.respond(c, nil)
		return
	case c.kind == "steer" || c.steers:
		a.steering = append(a.steering, c.message)
	default:
		a.followUp = append(a.followUp, c.message)
	}
	a.queueUpdate()
	a.respond(c, disposition{"queued"})
}

// takeAbort stops the reply under way; the answer comes when it has ended.
func (a *agent) takeAbort(c command) {
	if !a.busy {
		a.respond(c, nil)
		return
	}
	if len(a.aborts) >= queuedMax {
		c.wrong = "Too many aborts are waiting"
		a.respond(c, nil)
		return
	}
	a.aborted = true
	a.aborts = append(a.aborts, c.id)
}

// stopped reports that the reply under way is to end.
func (a *agent) stopped() bool { return a.aborted || a.gone }

// pause waits the pace between two words and takes the commands that come
// meanwhile. At the end of stdin, and with pace zero, it takes only what is there.
func (a *agent) pause() {
	if a.eof || a.pace == 0 {
		a.poll()
		return
	}
	timer := time.NewTimer(a.pace)
	defer timer.Stop()
	for !a.stopped() && !a.eof {
		select {
		case in, ok := <-a.lines:
			a.take(in, ok)
		case <-timer.C:
			return
		}
	}
}

// poll takes the commands that are there.
func (a *agent) poll() {
	for !a.stopped() && !a.eof {
		select {
		case in, ok := <-a.lines:
			a.take(in, ok)
		default:
			return
		}
	}
}

// confirm asks a question and waits for the answer; an abort and the end of
// stdin answer no.
func (a *agent) confirm(title, message string) bool {
	a.asked++
	a.question, a.answer = questionID(a.asked), nil
	a.emit(request{ID: a.question, Type: "extension_ui_request", Method: "confirm", Title: title, Message: message})
	for a.answer == nil && !a.stopped() && !a.eof {
		in, ok := <-a.lines
		a.take(in, ok)
	}
	yes := a.answer != nil && *a.answer
	a.question, a.answer = "", nil
	return yes
}

// hang stops reading and printing until a signal ends the process.
func (a *agent) hang() {
	a.flush()
	// The ticker keeps the runtime from calling a hang with closed stdin a deadlock.
	tick := time.NewTicker(time.Hour)
	defer tick.Stop()
	for {
		select {
		case <-a.wake:
			return
		case <-tick.C:
		}
	}
}
