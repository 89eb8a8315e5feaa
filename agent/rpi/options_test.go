package rpi_test

import (
	"slices"
	"strings"
	"testing"

	"rejoin/agent/rpi"
	"rejoin/protocol"
)

func TestArguments(t *testing.T) {
	many := `["` + strings.Repeat(`a","`, 128) + `a"]` // 129
	for _, c := range []struct {
		name, options string
		argv          string // behind --mode rpc, joined by spaces
		err           string
	}{
		{"nothing", ``, "", ""},
		{"an empty object", `{}`, "", ""},
		{"no object", `[]`, "", "options must be an object"},
		{
			"all, in the order of the flags",
			`{"approve":true,"promptTemplate":["pt"],"skill":["s1","s2"],"extension":["e"],"extensionsDir":["d"],
			"headless":true,"offline":true,"enablePiPackages":true,"noExtensions":true,"noContextFiles":true,
			"noPromptTemplates":true,"noSkills":true,"noBuiltinTools":true,"noTools":true,"noSession":true,
			"excludeTools":["x","y"],"tools":["a","b"],"appendSystemPrompt":["p1","p2"],"sessionDir":"sd","name":"n",
			"thinking":"high","systemPrompt":"sp","baseUrl":"u","model":"m","provider":"p","rpcMessageUpdates":"snapshot","more":1}`,
			"--provider p --model m --base-url u --system-prompt sp --thinking high --name n --session-dir sd " +
				"--append-system-prompt p1 --append-system-prompt p2 --tools a,b --exclude-tools x,y " +
				"--no-session --no-tools --no-builtin-tools --no-skills --no-prompt-templates --no-context-files " +
				"--no-extensions --enable-pi-packages --offline --headless " +
				"--extensions-dir d --extension e --skill s1 --skill s2 --prompt-template pt --approve --rpc-message-updates snapshot",
			"",
		},
		{"session", `{"session":"s"}`, "--session s", ""},
		{"session id", `{"sessionId":"s"}`, "--session-id s", ""},
		{"null text", `{"model":null}`, "", ""},
		{"blank text", `{"model":" \t"}`, "", "model must not be empty"},
		{"number for text", `{"model":1}`, "", "model must be a string"},
		{"empty list", `{"tools":[]}`, "", ""},
		{"null list", `{"tools":null}`, "", "tools must be an array of strings"},
		{"text for list", `{"skill":"x"}`, "", "skill must be an array of strings"},
		{"number in list", `{"skill":[1]}`, "", "skill must be an array of strings"},
		{"129 values", `{"skill":` + many + `}`, "", "skill contains too many values"},
		{"128 values", `{"tools":["` + strings.Repeat(`a","`, 127) + `a"]}`, "--tools " + strings.Repeat("a,", 127) + "a", ""},
		{"empty value", `{"extension":["a",""]}`, "", "extension must contain non-empty strings"},
		{"switch false", `{"offline":false}`, "", ""},
		{"switch null", `{"offline":null}`, "", ""},
		{"switch text", `{"offline":"yes"}`, "", "offline must be a boolean"},
		{"approve false", `{"approve":false}`, "--no-approve", ""},
		{"approve null", `{"approve":null}`, "", "approve must be a boolean"},
		{"approve text", `{"approve":"true"}`, "", "approve must be a boolean"},
		{"compact deltas", `{"rpcMessageUpdates":"compact-deltas"}`, "--rpc-message-updates compact-deltas", ""},
		{"other updates", `{"rpcMessageUpdates":"full"}`, "", "rpcMessageUpdates must be compact-deltas or snapshot"},
		{"null updates", `{"rpcMessageUpdates":null}`, "", "rpcMessageUpdates must be compact-deltas or snapshot"},
		{"boolean updates", `{"rpcMessageUpdates":true}`, "", "rpcMessageUpdates must be compact-deltas or snapshot"},
		{"no session and session", `{"noSession":true,"session":null}`, "", "noSession cannot be combined with session or sessionId"},
		{"no session and id", `{"noSession":true,"sessionId":"x"}`, "", "noSession cannot be combined with session or sessionId"},
		{"session, and no session false", `{"noSession":false,"session":"x"}`, "--session x", ""},
		{"session and id", `{"session":null,"sessionId":null}`, "", "session and sessionId are mutually exclusive"},
	} {
		t.Run(c.name, func(t *testing.T) {
			argv, err := rpi.Arguments(protocol.RawJSON(c.options))
			if c.err != "" {
				if e, ok := protocol.AsError(err); !ok || e.Reason != protocol.ReasonInvalidParams || e.Message != c.err || argv != nil {
					t.Fatalf("got %q, %v; want %q", argv, err, c.err)
				}
				return
			}
			want := []string{"--mode", "rpc"}
			if c.argv != "" {
				want = append(want, strings.Split(c.argv, " ")...)
			}
			if err != nil || !slices.Equal(argv, want) {
				t.Errorf("got %q, %v\nwant %q", argv, err, want)
			}
		})
	}
}

func TestOptionNames(t *testing.T) {
	names := rpi.OptionNames()
	slices.Sort(names)
	if got := len(slices.Compact(names)); got != 28 {
		t.Errorf("%d names: %q", got, names)
	}
}
