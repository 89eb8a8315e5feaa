package demoagent

import (
	"strconv"
	"strings"
)

// A reply is everything between agent_start and agent_settled.
type reply struct {
	*agent
	messages []message // of the whole reply
	content  []content // of the message under way
	results  []message // of the turn under way
	started  int64     // ms since 1970: the message under way
}

// reply answers a message and those that come meanwhile.
func (a *agent) reply(message string) {
	r := &reply{agent: a}
	a.busy, a.aborted = true, false
	a.emit(plain{"agent_start"})
	for ok := true; ok; message, ok = a.next() {
		r.turn(message)
	}
	if a.aborted && len(a.steering)+len(a.followUp) > 0 {
		a.steering, a.followUp = nil, nil
		a.queueUpdate()
	}
	a.emit(agentEnd{"agent_end", r.messages})
	a.emit(agentSettled{"agent_settled", a.aborted})
	for _, id := range a.aborts {
		a.respond(command{id: id, kind: "abort"}, nil)
	}
	a.busy, a.aborts = false, nil
}

// next returns the message that waits first, steering before the rest.
func (a *agent) next() (string, bool) {
	a.poll()
	queue := &a.steering
	if len(*queue) == 0 {
		queue = &a.followUp
	}
	if len(*queue) == 0 || a.stopped() || a.leaving {
		return "", false
	}
	message := (*queue)[0]
	*queue = (*queue)[1:]
	a.queueUpdate()
	return message, true
}

// turn answers one message.
func (r *reply) turn(prompt string) {
	r.emit(plain{"turn_start"})
	r.say(message{Role: "user", Content: []content{text(prompt)}, Timestamp: now()})
	r.open()
	for _, s := range parseScript(prompt) {
		if r.stopped() {
			break
		}
		r.step(s)
	}
	r.end("stop")
}

// say prints a message that is there at once.
func (r *reply) say(m message) {
	r.emit(messageEvent{"message_start", m})
	r.emit(messageEvent{"message_end", m})
	r.messages = append(r.messages, m)
}

// open begins a message of the assistant.
func (r *reply) open() {
	r.content, r.results, r.started = []content{}, []message{}, now()
	r.emit(messageEvent{"message_start", r.assistant("pending")})
}

func (r *reply) assistant(stopReason string) message {
	m := message{
		Role: "assistant", Content: r.content, Provider: provider, Model: modelID,
		StopReason: stopReason, Timestamp: r.started,
	}
	if stopReason == "aborted" {
		m.ErrorMessage = "Request was aborted"
	}
	return m
}

// close ends the assistant's message.
func (r *reply) close(stopReason string) message {
	if r.aborted {
		stopReason = "aborted"
	}
	m := r.assistant(stopReason)
	r.emit(messageEvent{"message_end", m})
	r.messages = append(r.messages, m)
	return m
}

// end closes the message and its turn.
func (r *reply) end(stopReason string) {
	m := r.close(stopReason)
	r.emit(turnEnd{"turn_end", m, r.results})
}

// stream prints a text or thinking block word by word, as far as it gets.
func (r *reply) stream(kind, whole string) {
	index := len(r.content)
	r.emit(messageUpdate{"message_update", update{Type: kind + "_start", ContentIndex: index}})
	done := 0
	for done < len(whole) && !r.stopped() {
		n := len(whole) - done
		if space := strings.IndexByte(whole[done:], ' '); space >= 0 {
			n = space + 1
		}
		r.emit(messageUpdate{"message_update", update{Type: kind + "_delta", ContentIndex: index, Delta: whole[done : done+n]}})
		done += n
		r.pause()
	}
	r.emit(messageUpdate{"message_update", update{Type: kind + "_end", ContentIndex: index, Content: whole[:done]}})
	block := content{Type: kind, Text: whole[:done]}
	if kind == "thinking" {
		block = content{Type: kind, Thinking: whole[:done]}
	}
	r.content = append(r.content, block)
}

func (r *reply) speak(s string) { r.stream("text", s) }

// step does one thing a script asks for.
func (r *reply) step(s step) {
	switch s.word {
	case "say":
		r.speak(greeting(s.text))
	case "help":
		r.speak(helpText())
	case "count":
		r.speak(countText(s.n))
	case "think":
		r.stream("thinking", "Let me think. Somebody wants to see me think, so I think where they can see it. ")
		r.speak("I have thought about it. ")
	case "tool":
		r.tool()
	case "flood":
		r.flood(s.n, s.size)
	case "big":
		r.big(s.n)
	case "rubbish":
		r.rubbish()
	case "stderr":
		r.stderr(s.n)
	case "hang":
		r.hang()
	case "crash":
		r.speak("I have a bad feeling about ")
		r.flush()
		r.gone, r.exit = true, 3
	case "exit":
		r.speak("Goodbye. ")
		r.leaving, r.exit = true, int(s.n)
	}
}

func countText(n int64) string {
	var b strings.Builder
	for i := int64(1); i <= n; i++ {
		b.WriteString(strconv.FormatInt(i, 10))
		b.WriteByte(' ')
	}
	return b.String()
}
