package rpi

import (
	"strings"

	"rejoin/protocol"
)

// optionValuesMax bounds the values of one option that takes many.
const optionValuesMax = 128

// An option is a start option and the flag that it becomes.
type option struct{ key, flag string }

// The start options, in the order of their flags.
var (
	texts = []option{
		{"provider", "--provider"},
		{"model", "--model"},
		{"baseUrl", "--base-url"},
		{"systemPrompt", "--system-prompt"},
		{"thinking", "--thinking"},
		{"name", "--name"},
		{"session", "--session"},
		{"sessionId", "--session-id"},
		{"sessionDir", "--session-dir"},
	}
	appended = []option{{"appendSystemPrompt", "--append-system-prompt"}}
	joined   = []option{{"tools", "--tools"}, {"excludeTools", "--exclude-tools"}}
	switches = []option{
		{"noSession", "--no-session"},
		{"noTools", "--no-tools"},
		{"noBuiltinTools", "--no-builtin-tools"},
		{"noSkills", "--no-skills"},
		{"noPromptTemplates", "--no-prompt-templates"},
		{"noContextFiles", "--no-context-files"},
		{"noExtensions", "--no-extensions"},
		{"enablePiPackages", "--enable-pi-packages"},
		{"offline", "--offline"},
		{"headless", "--headless"},
	}
	repeated = []option{
		{"extensionsDir", "--extensions-dir"},
		{"extension", "--extension"},
		{"skill", "--skill"},
		{"promptTemplate", "--prompt-template"},
	}
)

// OptionNames returns the names of all start options.
func OptionNames() []string {
	names := []string{"approve", "rpcMessageUpdates"}
	for _, list := range [][]option{texts, appended, joined, switches, repeated} {
		for _, o := range list {
			names = append(names, o.key)
		}
	}
	return names
}

// Arguments returns the arguments of rpi for start options: a JSON object whose
// other members are ignored. Errors are *protocol.Error: invalid_params.
func Arguments(options protocol.RawJSON) ([]string, error) {
	p, err := protocol.ParseParams(options)
	if err != nil {
		return nil, invalid("options must be an object")
	}
	a := arguments{p: p, argv: []string{"--mode", "rpc"}}
	a.conflicts()
	a.each(texts, a.text)
	a.each(appended, a.list)
	a.each(joined, a.joined)
	a.each(switches, a.flag)
	a.each(repeated, a.list)
	a.approve()
	a.updates()
	if a.err != nil {
		return nil, a.err
	}
	return a.argv, nil
}

// arguments grows an argv until the first error.
type arguments struct {
	p    protocol.Params
	argv []string
	err  error
}

func invalid(format string, args ...any) error {
	return protocol.Errorf(protocol.ReasonInvalidParams, format, args...)
}

func (a *arguments) fail(format string, args ...any) {
	if a.err == nil {
		a.err = invalid(format, args...)
	}
}

func (a *arguments) each(options []option, add func(o option, value protocol.RawJSON)) {
	for _, o := range options {
		if value, there := a.p.Raw(o.key); there {
			add(o, value)
		}
	}
}

// conflicts refuses options that exclude each other; of the sessions it is their
// being there that counts, even as null.
func (a *arguments) conflicts() {
	_, session := a.p.Raw("session")
	_, id := a.p.Raw("sessionId")
	none, _ := a.p.Raw("noSession")
	switch {
	case string(none) == "true" && (session || id):
		a.fail("noSession cannot be combined with session or sessionId")
	case session && id:
		a.fail("session and sessionId are mutually exclusive")
	}
}

func (a *arguments) text(o option, value protocol.RawJSON) {
	if string(value) == "null" {
		return
	}
	text, ok := protocol.DecodeString(value)
	switch {
	case !ok:
		a.fail("%s must be a string", o.key)
	case strings.TrimSpace(text) == "":
		a.fail("%s must not be empty", o.key)
	default:
		a.argv = append(a.argv, o.flag, text)
	}
}

// values reads an array of strings.
func (a *arguments) values(o option, value protocol.RawJSON) (list []string) {
	if value[0] != '[' {
		a.fail("%s must be an array of strings", o.key)
	}
	for e := range protocol.Elements(value) {
		text, ok := protocol.DecodeString(e)
		switch {
		case !ok:
			a.fail("%s must be an array of strings", o.key)
		case len(list) == optionValuesMax:
			a.fail("%s contains too many values", o.key)
		case strings.TrimSpace(text) == "":
			a.fail("%s must contain non-empty strings", o.key)
		}
		if a.err != nil {
			return nil
		}
		list = append(list, text)
	}
	return list
}

func (a *arguments) list(o option, value protocol.RawJSON) {
	for _, v := range a.values(o, value) {
		a.argv = append(a.argv, o.flag, v)
	}
}

func (a *arguments) joined(o option, value protocol.RawJSON) {
	if list := a.values(o, value); len(list) > 0 {
		a.argv = append(a.argv, o.flag, strings.Join(list, ","))
	}
}

func (a *arguments) flag(o option, value protocol.RawJSON) {
	switch string(value) {
	case "true":
		a.argv = append(a.argv, o.flag)
	case "false", "null":
	default:
		a.fail("%s must be a boolean", o.key)
	}
}

// approve has three values: yes, no, and not there.
func (a *arguments) approve() {
	switch value, there := a.p.Raw("approve"); {
	case !there:
	case string(value) == "true":
		a.argv = append(a.argv, "--approve")
	case string(value) == "false":
		a.argv = append(a.argv, "--no-approve")
	default:
		a.fail("approve must be a boolean")
	}
}

// updates chooses what a message_update carries.
func (a *arguments) updates() {
	value, there := a.p.Raw("rpcMessageUpdates")
	if !there {
		return
	}
	mode, _ := protocol.DecodeString(value)
	if mode != "compact-deltas" && mode != "snapshot" {
		a.fail("rpcMessageUpdates must be compact-deltas or snapshot")
		return
	}
	a.argv = append(a.argv, "--rpc-message-updates", mode)
}
