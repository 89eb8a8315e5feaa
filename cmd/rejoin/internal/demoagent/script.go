package demoagent

import (
	"strconv"
	"strings"
)

// A step is one thing a prompt asks for.
type step struct {
	word string
	n    int64 // its number, or its default
	size int64 // the second number of flood
	text string
}

// A word is one that scripts are made of.
type word struct {
	name   string
	number bool  // takes a number
	n      int64 // where none is given
	max    int64
	help   string
}

// words is the vocabulary of scripts.
var words = []word{
	{"count", true, 10, 100_000, "count N: count to N, a word at a time"},
	{"think", false, 0, 0, "think: think first, then speak"},
	{"tool", false, 0, 0, "tool: ask whether a pretend tool may run, then run it"},
	{"flood", true, 1000, 1 << 40, "flood N [BYTES]: print N numbered lines as fast as possible"},
	{"big", true, 1 << 20, 1 << 30, "big N: print one line of N bytes"},
	{"rubbish", false, 0, 0, "rubbish: print lines that are not JSON and not UTF-8"},
	{"stderr", true, 10, 1 << 40, "stderr N: write N lines to stderr"},
	{"hang", false, 0, 0, "hang: stop reading and printing"},
	{"crash", false, 0, 0, "crash: exit with code 3 in the middle of a sentence"},
	{"exit", true, 0, 255, "exit [CODE]: finish the reply, then exit"},
	{"help", false, 0, 0, "help: say all this"},
}

// parseScript reads a prompt. One made of the words of scripts and their
// numbers alone is a script; any other is for a reply that repeats it.
func parseScript(prompt string) []step {
	fields := strings.Fields(strings.ToLower(prompt))
	var steps []step
	for i := 0; i < len(fields); {
		w, ok := lookup(fields[i])
		if !ok {
			return []step{{word: "say", text: prompt}}
		}
		i++
		s := step{word: w.name, n: w.n}
		for k := 0; w.number && k < 2 && i < len(fields); k++ {
			n, err := strconv.ParseInt(fields[i], 10, 64)
			if err != nil || n < 0 || n > w.max || k == 1 && w.name != "flood" {
				break
			}
			if k == 0 {
				s.n = n
			} else {
				s.size = min(n, 1<<20)
			}
			i++
		}
		steps = append(steps, s)
	}
	if len(steps) == 0 {
		return []step{{word: "say", text: prompt}}
	}
	return steps
}

func lookup(name string) (word, bool) {
	for _, w := range words {
		if w.name == name {
			return w, true
		}
	}
	return word{}, false
}

// echoBytesMax bounds what a reply repeats of its prompt.
const echoBytesMax = 200

// greeting is the reply to a prompt that is no script.
func greeting(prompt string) string {
	said := strings.Join(strings.Fields(prompt), " ")
	if len(said) > echoBytesMax {
		said = strings.ToValidUTF8(said[:echoBytesMax], "") + " …"
	}
	if said == "" {
		said = "nothing"
	}
	return "You said: " + said + ". I am the demo agent of rejoin: a script, not a model. " + helpText()
}

func helpText() string {
	var b strings.Builder
	b.WriteString("Ask me for any of these, alone or in a row:")
	for _, w := range words {
		b.WriteString("\n  ")
		b.WriteString(w.help)
	}
	return b.String()
}
