package mockmodel

import (
	"strings"
	"sync"
)

// A Step is one piece of an answer.
type Step struct {
	text, think string
	command     string
	call        bool
	hold        *Gate
	cut         bool
	status      int
}

// Text streams a text, one delta per word.
func Text(text string) Step { return Step{text: text} }

// Think streams a thought, one delta per word.
func Think(text string) Step { return Step{think: text} }

// Bash calls the agent's shell. Several in a row are calls of one message.
func Bash(command string) Step { return Step{call: true, command: command} }

// Hold waits until the gate is open, or the agent hangs up.
func Hold(g *Gate) Step { return Step{hold: g} }

// Cut breaks the connection in the middle of the answer.
func Cut() Step { return Step{cut: true} }

// Fail answers with an HTTP error; it is the only step of its answer.
func Fail(status int) Step { return Step{status: status} }

// A Gate is closed until Open; it never closes again.
type Gate struct {
	once sync.Once
	open chan struct{}
}

// NewGate returns a closed gate.
func NewGate() *Gate { return &Gate{open: make(chan struct{})} }

// Open lets every answer pass that waits or will come.
func (g *Gate) Open() { g.once.Do(func() { close(g.open) }) }

// Steps puts steps together into an answer.
func Steps(steps ...Step) []Step { return steps }

// words splits a text into deltas whose concatenation it is.
func words(text string) []string {
	var out []string
	for len(text) > 0 {
		n := strings.IndexByte(text, ' ') + 1
		if n == 0 {
			n = len(text)
		}
		out = append(out, text[:n])
		text = text[n:]
	}
	return out
}

// script is the answer to a prompt about which the test has said nothing; results
// is how many tool results have come since.
func script(prompt string, results int) []Step {
	word, rest, _ := strings.Cut(prompt, " ")
	switch {
	case word == "run" && results == 0:
		return Steps(Text("I run it. "), Bash(rest))
	case word == "run":
		return Steps(Text("It ran. "))
	case word == "think":
		return Steps(Think(rest), Text("I have thought. "))
	}
	return Steps(Text("You said: " + prompt))
}
