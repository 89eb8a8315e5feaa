package pi

import (
	"math"
	"strconv"

	"rejoin/agent"
	"rejoin/protocol"
)

// Bounds of a question's parts.
const (
	questionBytes = 16 << 10
	optionBytes   = 4 << 10
	optionsMax    = 256
	optionsBytes  = 16 << 10 // of all options: 64 open questions stay below 4 MiB
	dialogIDBytes = 1 << 10
)

// request takes what an extension asks of the user, or shows.
func (f fold) request() {
	switch method := agent.String(f.p, "method"); method {
	case "select", "confirm", "input", "editor":
		f.ask(method)
	case "notify":
		status := protocol.ItemDone
		if agent.String(f.p, "notifyType") == "error" {
			status = protocol.ItemError
		}
		f.Notice(agent.String(f.p, "message"), status)
		agent.SetNote(f.s, "notify", agent.String(f.p, "message"))
	case "setStatus":
		agent.SetNote(f.s, "status:"+agent.String(f.p, "statusKey"), agent.String(f.p, "statusText"))
	case "setWidget":
		agent.SetNote(f.s, "widget:"+agent.String(f.p, "widgetKey"), textLines(f.p, "widgetLines"))
	case "setTitle":
		agent.SetNote(f.s, "title", agent.String(f.p, "title"))
	case "set_editor_text":
		agent.SetNote(f.s, "editor", agent.String(f.p, "text"))
	}
}

// ask opens an interaction. pi says nothing when it is answered. A question that
// has no name to answer it by is dismissed by the driver.
func (f fold) ask(kind string) {
	id := dialogID(f.p)
	if id == "" {
		return
	}
	i := protocol.Interaction{Kind: kind, Title: agent.Clip(agent.String(f.p, "title"), optionBytes)}
	for _, member := range []string{"message", "placeholder", "prefill"} { // each kind has one
		if text := agent.String(f.p, member); text != "" {
			i.Message = agent.Clip(text, questionBytes)
			i.Truncated = uint64(len(text) - len(i.Message))
		}
	}
	i.Options, i.OptionsOmitted = f.options()
	if ms := timeout(f.p); ms > 0 {
		i.Deadline = f.e.TS + ms
	}
	agent.Ask(f.s, f.e, id, i)
}

// timeout is how long pi waits for the answer, in ms; 0: for ever. pi hands any
// number but 0 to setTimeout, which drops a fraction and makes 1 of what is below
// 1 or above 2³¹−1. A value that is no number is none of pi's.
func timeout(p protocol.Params) int64 {
	raw, _ := p.Raw("timeout")
	ms, _ := strconv.ParseFloat(string(raw), 64) // 0 of what is no number, ±Inf of what is too large
	switch {
	case ms == 0:
		return 0
	case ms >= 1 && ms <= math.MaxInt32:
		return int64(ms)
	}
	return 1
}

// options are the choices of a question that have room, and how many have not: a
// shortened one would be answered with what the agent never offered.
func (f fold) options() (options []protocol.Option, omitted uint64) {
	raw, _ := f.p.Raw("options")
	room := optionsBytes
	for value := range protocol.Elements(raw) {
		option, ok := protocol.DecodeString(value)
		if !ok || len(option) > min(room, optionBytes) || len(options) == optionsMax {
			omitted++
			continue
		}
		room -= len(option)
		options = append(options, protocol.Option{ID: option, Label: option})
	}
	return options, omitted
}
