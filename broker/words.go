package broker

import (
	"slices"
	"strings"

	"rejoin/protocol"
)

const (
	// wordsMax bounds the strings, lists of them and exits that records share; when there
	// are more they are forgotten, and later records share among themselves.
	wordsMax = 4096
	// wordBytesMax is the longest that is shared: a long one hardly comes again.
	wordBytesMax = 1024
)

// words gives what many records say alike one place in memory: of ten thousand
// sessions most have the same agent, program and working directory. The zero value is
// ready. Not safe for concurrent use.
type words struct {
	texts map[string]string
	lists map[string][]string // by their elements, each with a zero byte behind it
	exits map[exit]*protocol.Exit
}

// exit is a protocol.Exit without a tail of stderr, as a key.
type exit struct {
	code           int
	signal         string
	coded          bool
	signaled       bool
	reason, detail string
}

// share replaces what rec has in common with others by theirs. Nobody else may have
// rec yet.
func (w *words) share(rec *protocol.SessionRecord) {
	for _, s := range []*string{
		&rec.Workspace, &rec.Owner, &rec.Host, (*string)(&rec.Status), &rec.Agent, &rec.Adapter, &rec.Home, &rec.Tmp,
		&rec.Cwd, &rec.Title, &rec.Restart, &rec.Stderr, &rec.BootID, &rec.StartedBy,
	} {
		*s = w.text(*s)
	}
	for _, l := range []*[]string{&rec.Argv, &rec.ResumeArgv, &rec.Env, &rec.EnvAllow} {
		*l = w.list(*l)
	}
	rec.Exit = w.exit(rec.Exit)
}

func (w *words) exit(e *protocol.Exit) *protocol.Exit {
	if e == nil || e.StderrTail != "" {
		return e
	}
	key := exit{coded: e.Code != nil, signaled: e.Signal != nil, reason: e.Reason, detail: e.Detail}
	if key.coded {
		key.code = *e.Code
	}
	if key.signaled {
		key.signal = *e.Signal
	}
	if len(key.signal)+len(key.reason)+len(key.detail) > wordBytesMax {
		return e
	}
	if known, ok := w.exits[key]; ok {
		return known
	}
	if w.exits == nil || len(w.exits) >= wordsMax {
		w.exits = make(map[exit]*protocol.Exit)
	}
	w.exits[key] = e
	return e
}

func (w *words) text(s string) string {
	if s == "" || len(s) > wordBytesMax {
		return s
	}
	if known, ok := w.texts[s]; ok {
		return known
	}
	if w.texts == nil || len(w.texts) >= wordsMax {
		w.texts = make(map[string]string)
	}
	w.texts[s] = s
	return s
}

func (w *words) list(l []string) []string {
	if len(l) == 0 {
		return l
	}
	size := 0
	for _, s := range l {
		size += len(s) + 1
	}
	if size > wordBytesMax {
		return l
	}
	var key strings.Builder
	key.Grow(size)
	for _, s := range l {
		key.WriteString(s)
		key.WriteByte(0)
	}
	if known, ok := w.lists[key.String()]; ok && slices.Equal(known, l) {
		return known
	}
	if w.lists == nil || len(w.lists) >= wordsMax {
		w.lists = make(map[string][]string)
	}
	w.lists[key.String()] = l
	return l
}
