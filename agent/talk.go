package agent

import (
	"bytes"
	"slices"

	"rejoin/protocol"
)

// Bounds of a Talk.
const (
	// callsDoneMax is how many answered commands are remembered, newest first, for
	// lines that name one after its answer. Of older ones the id is only removed.
	callsDoneMax = 256
	// resultBytesMax is the most of an answer that becomes the outcome's result.
	resultBytesMax = 512
	// errorBytesMax is the most of an answer's error that does.
	errorBytesMax = 1024
	// turnedAwayMax is how many dismissals of questions that the state cannot hold
	// may wait to be read by the agent; above it such a question stays unanswered.
	turnedAwayMax = protocol.InteractionsMax
	// turnedAwayBytes is the longest line of one.
	turnedAwayBytes = 64 << 10
)

// A Speech is what a Talk knows about one kind of agent that takes JSON objects
// with an id and a type and answers each with a line of the same id.
type Speech struct {
	Name string // of the adapter
	// Phrase makes the line of a command; never called with respond.
	Phrase func(s *protocol.State, r *Request) (Phrase, error)
	// Answer makes the line that answers dialog, the agent's id of interaction i.
	// Nil: the agent asks nothing.
	Answer func(i *protocol.Interaction, dialog, outcome string, value protocol.RawJSON) ([]byte, error)
	// Dialog reads the question that a line asks. Nil as above.
	Dialog func(line []byte) (q Question, ok bool)
	// Reply reads a line that answers a command; ok is false for any other.
	Reply func(line []byte) (r Reply, ok bool)
	// Probe asks for what the agent changes without saying so (model, session). Nil: nothing does.
	Probe []byte
	// Abort interrupts what the agent does.
	Abort []byte
	// AbortFirst: open questions are cancelled after the abort, because the agent
	// would take a cancellation for an answer and go on before it sees the abort.
	AbortFirst bool
	// OnePrompt: a prompt is written only when no other one is unanswered.
	OnePrompt bool
}

// A Question is what an agent asks.
type Question struct {
	ID     string // the agent's id of it; empty: one that no State holds, so that it cannot be answered
	Cancel []byte // the line that dismisses it
}

// A Phrase is a command in the agent's words.
type Phrase struct {
	Line    []byte
	Type    string // the agent's name of the command
	Prompt  bool
	Aborts  bool
	Probes  bool   // when it has succeeded, Probe is asked again
	Dialog  string // the agent's id of the question that it answers; empty: none
	Outcome string // of that, as respond would have it
	Value   protocol.RawJSON
}

// A Reply is the answer to a command.
type Reply struct {
	OK      bool
	Result  protocol.RawJSON // aliases the line
	Error   string
	Type    string // the command's, where it is told
	Unknown bool   // the agent does not know such a command
}

// A Talk is the Driver of agents that a Speech describes.
type Talk struct {
	speech Speech
	run    protocol.Run
	prefix []byte // of the values of ids towards the child

	last   uint64            // number of the newest command
	calls  map[uint64]*call  // open ones and the newest answered
	byID   map[string]uint64 // open ones by command id
	open   []uint64          // rising; at most protocol.CallsOpenMax and rejoin's own
	done   []uint64          // in the order of their answers; at most callsDoneMax
	prompt uint64            // the one that is unanswered; zero: none
	held   []uint64          // prompts that wait for it
	broken bool
	probe  uint64 // the one that is unanswered; zero: none
	again  bool   // another one is due after it
	buf    []byte // of Hear

	turnedAway int // dismissals that the agent has not been given; at most turnedAwayMax
}

// call is one command.
type call struct {
	id     string           // command id
	own    protocol.RawJSON // the client's id value; nil: none
	kind   string
	wrote  bool
	silent bool // has no answer
	probes bool
	done   bool

	turnsAway bool // dismisses a question that is in no state
}

var _ Driver = (*Talk)(nil)

// NewTalk returns the driver of a run.
func NewTalk(speech Speech, run protocol.Run) *Talk {
	id := callID(run, 1)
	return &Talk{
		speech: speech, run: run, prefix: []byte(`"` + id[:len(id)-1]),
		calls: make(map[uint64]*call), byID: make(map[string]uint64),
	}
}

// Turns is true.
func (t *Talk) Turns() bool { return true }

// Start asks for the agent's state.
func (t *Talk) Start(*protocol.State) []Effect { return t.ask(nil) }

// Admit numbers a command, and closes what would make it hang: with an abort comes
// the cancellation of every open question.
func (t *Talk) Admit(s *protocol.State, r *Request) ([]Effect, error) {
	p, resolves, err := t.phrase(s, r)
	switch {
	case err != nil:
		return nil, err
	case len(t.open) >= protocol.CallsOpenMax:
		return nil, protocol.Errorf(protocol.ReasonOverloaded, "%d commands wait for the agent's answer", len(t.open)).Met("CallsOpenMax")
	}
	if p.Dialog != "" {
		if max(len(p.Line), len(r.Value)) > protocol.AnswerBytesMax {
			return nil, protocol.Errorf(protocol.ReasonTooLarge, "an answer is at most %d bytes", protocol.AnswerBytesMax).Met("AnswerBytesMax")
		}
		t.enter(&call{id: r.ID, kind: p.Type, silent: true})
		return []Effect{{Input: &Input{ID: r.ID, Line: p.Line, Resolves: resolves}}}, nil
	}
	if len(clientID(p.Line).Value) > ClientIDBytesMax {
		return nil, protocol.Errorf(protocol.ReasonInvalidParams, "id of the command is over %d bytes", ClientIDBytesMax)
	}
	var effects []Effect
	if p.Aborts && !t.speech.AbortFirst {
		effects = t.cancel(effects, s)
	}
	c := &call{id: r.ID, kind: p.Type, probes: p.Probes}
	line, own := putID(p.Line, callID(t.run, t.last+1))
	if r.Verb == "" {
		c.own = own
	}
	n := t.enter(c)
	in := &Input{ID: r.ID, Line: line}
	if p.Prompt && t.speech.OnePrompt {
		if in.Held = t.prompt != 0; in.Held {
			t.held = append(t.held, n)
		} else {
			t.prompt = n
		}
	}
	effects = append(effects, Effect{Input: in})
	if p.Aborts && t.speech.AbortFirst {
		effects = t.cancel(effects, s)
	}
	return effects, nil
}

// enter numbers a command.
func (t *Talk) enter(c *call) uint64 {
	t.last++
	if c.id == "" {
		c.id = callID(t.run, t.last)
	}
	t.calls[t.last] = c
	t.byID[c.id] = t.last
	t.open = append(t.open, t.last)
	return t.last
}

// finish makes a command an answered one.
func (t *Talk) finish(n uint64, c *call) {
	c.done = true
	delete(t.byID, c.id)
	if c.turnsAway {
		t.turnedAway--
	}
	if i, ok := slices.BinarySearch(t.open, n); ok {
		t.open = slices.Delete(t.open, i, i+1)
	}
	if c.silent {
		delete(t.calls, n)
		return
	}
	if len(t.done) == callsDoneMax {
		delete(t.calls, t.done[0])
		t.done = slices.Delete(t.done, 0, 1)
	}
	t.done = append(t.done, n)
}

// ask appends the probe, or notes that another one is due.
func (t *Talk) ask(effects []Effect) []Effect {
	switch {
	case t.speech.Probe == nil:
		return effects
	case t.probe != 0:
		t.again = true
		return effects
	}
	c := &call{kind: "probe"}
	t.probe = t.enter(c)
	line, _ := putID(t.speech.Probe, c.id)
	return append(effects, Effect{Input: &Input{ID: c.id, Value: t.speech.Probe, Line: line}})
}

// Hear gives the child's line the client's id back and draws the consequences of
// an answer: its outcome, the next probe, the release of the next prompt.
func (t *Talk) Hear(s *protocol.State, line []byte) (record []byte, command string, effects []Effect) {
	at, n := ownID(line, t.prefix, t.last)
	if n == 0 {
		command, effects = t.overhear(s, line)
		return line, command, effects
	}
	c := t.calls[n]
	if c == nil {
		t.buf = restoreID(t.buf[:0], line, at, nil)
		return t.buf, "", nil
	}
	if !c.done {
		if r, ok := t.speech.Reply(line); ok {
			effects = t.answered(n, c, &r)
		}
	}
	if cap(t.buf) > 2*protocol.RecordBytesMax {
		t.buf = nil
	}
	t.buf = restoreID(t.buf[:0], line, at, c.own)
	return t.buf, c.id, effects
}

// overhear looks at a line without a number.
func (t *Talk) overhear(s *protocol.State, line []byte) (command string, effects []Effect) {
	if t.speech.Dialog != nil {
		if q, ok := t.speech.Dialog(line); ok {
			return "", t.turnAway(s, &q)
		}
	}
	if len(line) > 4*errorBytesMax || len(t.open) == 0 || !bytes.Contains(line, []byte(`nknown command`)) {
		return "", nil
	}
	r, ok := t.speech.Reply(line)
	if !ok || !r.Unknown {
		return "", nil
	}
	// Some versions answer an unknown command without its id.
	for _, n := range t.open {
		if c := t.calls[n]; c.wrote && !c.silent && c.kind == r.Type {
			return c.id, t.answered(n, c, &r)
		}
	}
	return "", nil
}

// answered ends a command.
func (t *Talk) answered(n uint64, c *call, r *Reply) []Effect {
	t.finish(n, c)
	o := &protocol.CommandOutcome{Type: protocol.TypeCommandOutcome, CommandID: c.id, Outcome: protocol.OutcomeDone}
	switch {
	case !r.OK:
		o.Outcome = protocol.OutcomeFailed
		o.Result = append(protocol.AppendString([]byte(`{"error":`), cutText(r.Error, errorBytesMax)), '}')
	case len(r.Result) <= resultBytesMax:
		o.Result = r.Result
	}
	effects := []Effect{{Outcome: o}}
	if n == t.probe {
		t.probe = 0
		if t.again {
			t.again = false
			effects = t.ask(effects)
		}
	}
	if c.probes && r.OK {
		effects = t.ask(effects)
	}
	if n == t.prompt {
		t.prompt = 0
		if len(t.held) > 0 && !t.broken {
			t.prompt, t.held = t.held[0], t.held[1:]
			effects = append(effects, Effect{Release: t.calls[t.prompt].id})
		}
	}
	return effects
}

// cutText returns at most n bytes of s, whole characters.
func cutText(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xc0 == 0x80 {
		n--
	}
	return s[:n]
}

// Wrote is the end of a command that has no answer.
func (t *Talk) Wrote(command string) []Effect {
	n, ok := t.byID[command]
	if !ok {
		return nil
	}
	c := t.calls[n]
	c.wrote = true
	if !c.silent {
		return nil
	}
	t.finish(n, c)
	return []Effect{{Outcome: &protocol.CommandOutcome{Type: protocol.TypeCommandOutcome, CommandID: c.id, Outcome: protocol.OutcomeDone}}}
}

// Broke ends the command, and every release.
func (t *Talk) Broke(command string) {
	t.broken = true
	if n, ok := t.byID[command]; ok {
		t.finish(n, t.calls[n])
	}
}

// Told reports whether the command was written.
func (t *Talk) Told(command string) bool {
	n, ok := t.byID[command]
	return ok && t.calls[n].wrote
}

// Stop cancels every open question and interrupts what the agent does.
func (t *Talk) Stop(s *protocol.State) []Effect {
	if t.speech.Abort == nil || s.Turn == nil && len(s.Pending) == 0 {
		return t.cancel(nil, s)
	}
	if t.speech.AbortFirst {
		return t.cancel(t.abort(nil), s)
	}
	return t.abort(t.cancel(nil, s))
}

// abort appends rejoin's own abort.
func (t *Talk) abort(effects []Effect) []Effect {
	c := &call{kind: "abort"}
	t.enter(c)
	line, _ := putID(t.speech.Abort, c.id)
	return append(effects, Effect{Input: &Input{ID: c.id, Value: t.speech.Abort, Line: line}})
}
