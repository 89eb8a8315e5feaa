package pi

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"rejoin/agent"
	"rejoin/protocol"
)

// Commands are what a kind of agent that speaks as pi does takes.
type Commands struct {
	Name     string // of the adapter
	SetModel bool   // it has models to choose from
	Images   bool   // prompts may carry images
	Probes   bool   // it changes model and session without saying so: get_state is asked then
	Queues   bool   // in the middle of a turn it takes only prompts that say how they wait
}

var commands = Commands{Name: Name, SetModel: true, Images: true, Probes: true, Queues: true}

// Drive returns the driver of a run of pi.
func (Adapter) Drive(run protocol.Run) agent.Driver { return commands.Drive(run) }

// Drive returns the driver of a run.
func (c Commands) Drive(run protocol.Run) agent.Driver {
	speech := agent.Speech{
		Name: c.Name, Phrase: c.phrase, Answer: answer, Dialog: dialog, Reply: reply,
		Abort: []byte(`{"type":"abort"}`),
		// Whoever sees the end of its question before the abort goes on, and asks the model once more.
		AbortFirst: true,
		// Of two prompts written back to back pi loses one.
		OnePrompt: true,
	}
	if c.Probes {
		speech.Probe = []byte(`{"type":"get_state"}`)
	}
	return agent.NewTalk(speech, run)
}

// phrase makes pi's line of a command.
func (c Commands) phrase(s *protocol.State, r *agent.Request) (agent.Phrase, error) {
	switch r.Verb {
	case "":
		return c.raw(r.Value)
	case "prompt":
		return c.prompt(r.Value)
	case "steer", "follow_up":
		text, err := agent.PromptText(r.Value, c.Name)
		return agent.Phrase{Line: message(r.Verb, text, nil), Type: r.Verb}, err
	case "interrupt":
		return agent.Phrase{Line: []byte(`{"type":"abort"}`), Type: "abort", Aborts: true}, nil
	case "set_model":
		if c.SetModel {
			return setModel(s, r.Value)
		}
	}
	return agent.Phrase{}, agent.Unsupported(r.Verb, c.Name)
}

// message makes a command that says something; images is an array or nil.
func message(kind, text string, images protocol.RawJSON) []byte {
	line := make([]byte, 0, len(text)+len(images)+64)
	line = append(append(append(line, `{"type":"`...), kind...), `","message":`...)
	line = protocol.AppendString(line, text)
	if images != nil {
		line = append(append(line, `,"images":`...), images...)
	}
	return append(line, '}')
}

func (c Commands) prompt(value protocol.RawJSON) (agent.Phrase, error) {
	p, err := protocol.ParseParams(value)
	if err != nil {
		return agent.Phrase{}, err
	}
	text, ok, err := p.String("text")
	if err != nil {
		return agent.Phrase{}, err
	}
	if !ok {
		return agent.Phrase{}, protocol.Required("text")
	}
	var images protocol.RawJSON
	if p.Has("images") {
		if !c.Images {
			return agent.Phrase{}, agent.Unsupported("images", c.Name)
		}
		if images, _ = p.Raw("images"); images[0] != '[' {
			return agent.Phrase{}, protocol.Errorf(protocol.ReasonInvalidParams, "images must be an array")
		}
	}
	line := message("prompt", text, images)
	if c.Queues {
		// Of two clients that prompt at once one comes second: its prompt is next, not refused.
		line = append(line[:len(line)-1], `,"streamingBehavior":"followUp"}`...)
	}
	return agent.Phrase{Line: line, Type: "prompt", Prompt: true}, nil
}

// setModel takes "provider/id", or "id" for another model of the same provider.
func setModel(s *protocol.State, value protocol.RawJSON) (agent.Phrase, error) {
	p, err := protocol.ParseParams(value)
	if err != nil {
		return agent.Phrase{}, err
	}
	name, ok, err := p.String("model")
	if err != nil {
		return agent.Phrase{}, err
	}
	if !ok {
		return agent.Phrase{}, protocol.Required("model")
	}
	provider, id, ok := strings.Cut(name, "/")
	if !ok {
		provider, _, ok = strings.Cut(s.Agent.Model, "/")
		id = name
	}
	if !ok || provider == "" || id == "" {
		return agent.Phrase{}, protocol.Errorf(protocol.ReasonInvalidParams, "model must be provider/id")
	}
	line := protocol.AppendString([]byte(`{"type":"set_model","provider":`), provider)
	line = protocol.AppendString(append(line, `,"modelId":`...), id)
	return agent.Phrase{Line: append(line, '}'), Type: "set_model", Probes: true}, nil
}

// raw lets through what pi takes for a command: a stray null, say, ends it.
func (c Commands) raw(value protocol.RawJSON) (agent.Phrase, error) {
	refuse := func(why string) (agent.Phrase, error) {
		return agent.Phrase{}, protocol.Errorf(protocol.ReasonInvalidParams, "command must be an object with a type for adapter %s: %s", c.Name, why)
	}
	switch {
	case len(value) == 0:
		return agent.Phrase{}, protocol.Required("command")
	case value[0] != '{':
		return refuse("it is no object")
	}
	p, err := protocol.ParseParams(value)
	if err != nil {
		return agent.Phrase{}, err
	}
	kind, ok, err := p.String("type")
	if err != nil || !ok {
		return refuse("type is no string")
	}
	out := agent.Phrase{Line: value, Type: kind, Prompt: kind == "prompt", Aborts: kind == "abort", Probes: changes[kind]}
	if kind != "extension_ui_response" {
		return out, nil
	}
	if out.Dialog, ok, err = p.String("id"); err != nil || !ok || out.Dialog == "" {
		return refuse("id is no string")
	}
	if out.Outcome = answered(p); out.Outcome == "" {
		return refuse("it answers neither with value nor confirmed nor cancelled")
	}
	out.Value, _ = p.Raw("value")
	return out, nil
}

// changes are the commands that change what get_state tells, without an event.
var changes = map[string]bool{
	"set_model": true, "cycle_model": true, "new_session": true, "switch_session": true, "fork": true, "clone": true,
	"set_thinking_level": true, "cycle_thinking_level": true,
}

// answered is what an extension_ui_response says; empty: nothing, or what pi would
// read otherwise than it is written (any cancelled but false, 0 and "" cancels).
func answered(p protocol.Params) string {
	cancelled, _, wrong := p.Bool("cancelled")
	confirmed, confirms, err := p.Bool("confirmed")
	_, answers, err2 := p.String("value")
	switch {
	case wrong != nil || err != nil || err2 != nil:
		return ""
	case cancelled:
		return protocol.RespondCancel
	case confirms && answers:
		return ""
	case confirms && confirmed:
		return protocol.RespondAllow
	case confirms:
		return protocol.RespondDeny
	case answers:
		return protocol.RespondAnswer
	}
	return ""
}

// answer makes the line that answers a dialog.
func answer(i *protocol.Interaction, id, outcome string, value protocol.RawJSON) ([]byte, error) {
	line := protocol.AppendString([]byte(`{"type":"extension_ui_response","id":`), id)
	bad := func(format string, args ...any) ([]byte, error) {
		return nil, protocol.Errorf(protocol.ReasonInvalidParams, format, args...)
	}
	if outcome == protocol.RespondCancel {
		return append(line, `,"cancelled":true}`...), nil
	}
	yesNo := i.Kind == "confirm" || i.Kind == "approval"
	switch outcome {
	case protocol.RespondAllow, protocol.RespondDeny:
		if !yesNo {
			return bad("%s does not answer a question of kind %s", outcome, i.Kind)
		}
		if outcome == protocol.RespondAllow {
			return append(line, `,"confirmed":true}`...), nil
		}
		return append(line, `,"confirmed":false}`...), nil
	case protocol.RespondAnswer:
	default:
		return bad("outcome must be allow, deny, answer or cancel")
	}
	if yesNo {
		if v := string(value); v == "true" || v == "false" {
			return append(append(append(line, `,"confirmed":`...), v...), '}'), nil
		}
		return bad("value must be true or false")
	}
	text, ok := protocol.DecodeString(value)
	if !ok {
		return bad("value must be a string")
	}
	if name, offered := choice(i.Options, text); offered {
		text = name
	} else if len(i.Options) > 0 && i.OptionsOmitted == 0 { // else it may be one that is not at hand: pi knows
		return bad("value is none of the options")
	}
	line = protocol.AppendString(append(line, `,"value":`...), text)
	return append(line, '}'), nil
}

// choice is the option that a client names by id or label, as pi calls it.
func choice(options []protocol.Option, name string) (string, bool) {
	for _, o := range options {
		if o.ID == name {
			return o.Label, true
		}
	}
	for _, o := range options {
		if o.Label == name {
			return o.Label, true
		}
	}
	return "", false
}

// dialog reads a line that asks a question.
func dialog(line []byte) (q agent.Question, ok bool) {
	if !bytes.Contains(line, []byte(`extension_ui_request`)) {
		return q, false
	}
	p, err := protocol.ParseParams(line)
	if err != nil || agent.String(p, "type") != "extension_ui_request" || !asks[agent.String(p, "method")] {
		return q, false
	}
	q.ID, q.Cancel = dialogID(p), []byte(`{"type":"extension_ui_response"`)
	if raw, has := p.Raw("id"); has { // whatever it is: pi looks for the same value
		q.Cancel = append(append(q.Cancel, `,"id":`...), raw...)
	}
	q.Cancel = append(q.Cancel, `,"cancelled":true}`...)
	return q, true
}

// asks are the methods of an extension_ui_request that wait for an answer.
var asks = map[string]bool{"select": true, "confirm": true, "input": true, "editor": true}

// dialogID is the id of a question; empty: none under which an answer could be
// given, because it is no text, has no characters or more bytes than a question's
// name may have, or would not come back from its own text the same.
func dialogID(p protocol.Params) string {
	id := agent.String(p, "id")
	if len(id) > dialogIDBytes || strings.ContainsRune(id, utf8.RuneError) {
		return ""
	}
	return id
}

// reply reads a response.
func reply(line []byte) (r agent.Reply, ok bool) {
	p, err := protocol.ParseParams(line)
	if err != nil {
		return r, false
	}
	if kind, _, _ := p.String("type"); kind != "response" {
		return r, false
	}
	r.OK, _, _ = p.Bool("success")
	r.Type, _, _ = p.String("command")
	r.Error, _, _ = p.String("error")
	r.Result, _ = p.Raw("data")
	r.Unknown = !r.OK && r.Type != "" && r.Error == "Unknown command: "+r.Type
	return r, true
}
