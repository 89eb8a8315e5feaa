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

// ask opens an interaction. pi says nothing when it is answered.
func (f fold) ask(kind string) {
	id := agent.String(f.p, "id")
	if id == "" || len(id) > dialogIDBytes {
		return // nobody could answer it
	}
	i := protocol.Interaction{
		InteractionID: strconv.FormatUint(uint64(f.e.Run), 10) + "." + agent.Clip(id, dialogIDBytes),
		Kind:          kind,
		Title:         agent.Clip(agent.String(f.p, "title"), optionBytes),
		Seq:           f.e.Seq, TS: f.e.TS,
	}
	for _, member := range []string{"message", "placeholder", "prefill"} { // each kind has one
		if text := agent.String(f.p, member); text != "" {
			i.Message = agent.Clip(text, questionBytes)
		}
	}
	room := optionsBytes
	for _, option := range agent.Strings(f.p, "options") {
		if room -= len(option); room < 0 || len(option) > optionBytes || len(i.Options) == optionsMax {
			break // a shortened option would be answered with what the agent never offered
		}
		i.Options = append(i.Options, protocol.Option{ID: option, Label: option})
	}
	if ms := agent.Uint(f.p, "timeout"); ms > 0 && ms < math.MaxInt32 {
		i.Deadline = f.e.TS + int64(ms)
	}
	agent.Ask(f.s, i)
}
