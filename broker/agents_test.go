package broker

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"rejoin/journal"
	"rejoin/protocol"
)

func TestAgentSessionID(t *testing.T) {
	shape := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	a, b := agentSessionID(keyA), agentSessionID(keyB)
	if !shape.MatchString(a) || a == b || a != agentSessionID(keyA) {
		t.Errorf("%s, %s", a, b)
	}
	if a == agentSessionID(protocol.Key{Workspace: "other", Session: "a"}) {
		t.Error("the workspace does not count")
	}
}

func TestConfigValidate(t *testing.T) {
	good := func() Config {
		return Config{
			Agents:  map[string]AgentConfig{"a": {Adapter: "jsonl", Argv: []string{"x"}}},
			Default: "a", Adapters: []string{"jsonl"}, Workers: []string{"w"}, DataDir: "d",
		}
	}
	if err := good().Validate(); err != nil {
		t.Fatal(err)
	}
	agent := func(f func(*AgentConfig)) func(*Config) {
		return func(c *Config) {
			a := c.Agents["a"]
			f(&a)
			c.Agents["a"] = a
		}
	}
	tests := []struct {
		name   string
		change func(*Config)
		text   string
	}{
		{"no worker", func(c *Config) { c.Workers = nil }, "Workers"},
		{"no directory", func(c *Config) { c.DataDir = "" }, "DataDir"},
		{"default", func(c *Config) { c.Default = "b" }, `"b"`},
		{"adapter", agent(func(a *AgentConfig) { a.Adapter = "x" }), `"x"`},
		{"argv", agent(func(a *AgentConfig) { a.Argv = nil }), "argv"},
		{"restart", agent(func(a *AgentConfig) { a.Restart = "x" }), "restart"},
		{"stderr", agent(func(a *AgentConfig) { a.Stderr = "x" }), "stderr"},
		{"env of a pattern", agent(func(a *AgentConfig) { a.Env = map[string]string{"A*": ""} }), "env"},
		{"envAllow", agent(func(a *AgentConfig) { a.EnvAllow = []string{"A*B"} }), "envAllow"},
		{"envAllow of rejoin's", agent(func(a *AgentConfig) { a.EnvAllow = []string{"REJOIN_TOKEN"} }), "envAllow"},
		{"home", agent(func(a *AgentConfig) { a.Home = "x" }), "home"},
		{"tmp", agent(func(a *AgentConfig) { a.Tmp = "x" }), "tmp"},
		{"env", agent(func(a *AgentConfig) { a.Env = map[string]string{"A=B": ""} }), "env"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := good()
			tt.change(&c)
			if err := c.Validate(); err == nil || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("got %v, want it to name %s", err, tt.text)
			}
		})
	}
	if c := (Config{Agents: map[string]AgentConfig{"only": {}}}).withDefaults(); c.Default != "only" || c.Logger == nil || c.Now == nil {
		t.Errorf("defaults: %+v", c)
	}
}

func TestOutward(t *testing.T) {
	tests := []struct {
		err       error
		want      protocol.Reason
		retryable bool
	}{
		{errNoAnswer, protocol.ReasonOutcomeUnknown, true},
		{journal.ErrNoOwner, protocol.ReasonSessionUnavailable, true},
		{ErrNotOwner, protocol.ReasonConflict, false},
		{errNotOpen, protocol.ReasonJournalUnavailable, true},
		{journal.ErrClosed, protocol.ReasonJournalUnavailable, true},
		{invalid("x"), protocol.ReasonInvalidParams, false},
		{errors.Join(journal.ErrUnavailable, errors.New("x")), protocol.ReasonJournalUnavailable, true},
	}
	for _, tt := range tests {
		if e, ok := protocol.AsError(outward(tt.err)); !ok || e.Reason != tt.want || e.Retryable != tt.retryable {
			t.Errorf("%v: got %+v, want %s", tt.err, e, tt.want)
		}
	}
	if outward(nil) != nil {
		t.Error("nil is an error")
	}
	damaged := &journal.DamageError{}
	if err := outward(damaged); !errors.Is(err, journal.ErrDamaged) {
		t.Errorf("what is internal stays: %v", err)
	}
}

func TestFillAndResumeArgv(t *testing.T) {
	own := agentSessionID(keyA)
	tests := []struct {
		name               string
		argv, resume, args []string
		program            bool
		known              string
		start, again       string
	}{
		{name: "no resume argv", argv: []string{"a", "{sessionId}"}, args: []string{"{cwd}"}, start: "a a {cwd}", again: "a a {cwd}"},
		{name: "a program's own", argv: []string{"a", "{agentSessionId}"}, program: true, known: "x", start: "a {agentSessionId}", again: "a {agentSessionId}"},
		{name: "told", argv: []string{"a"}, resume: []string{"a", "-r", "{agentSessionId}"}, known: "x", start: "a", again: "a -r x"},
		{name: "not told", argv: []string{"a"}, resume: []string{"a", "-r", "{agentSessionId}"}, start: "a", again: "a"},
		{name: "not fit to be told", argv: []string{"a"}, resume: []string{"a", "{agentSessionId}"}, known: "x\x00", start: "a", again: "a"},
		{name: "chosen", argv: []string{"a", "-s", "{agentSessionId}"}, resume: []string{"a", "-r={agentSessionId}"}, start: "a -s " + own, again: "a -r=" + own},
		{name: "chosen, told another", argv: []string{"a", "-s", "{agentSessionId}"}, resume: []string{"a", "-r={agentSessionId}"}, known: "x", start: "a -s " + own, again: "a -r=x"},
		{name: "an argument is left alone", argv: []string{"a"}, resume: []string{"b"}, args: []string{"{agentSessionId}"}, known: "x", start: "a {agentSessionId}", again: "b {agentSessionId}"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rec := &protocol.SessionRecord{Workspace: keyA.Workspace, ID: keyA.Session, Cwd: "/d", Argv: tt.argv, ResumeArgv: tt.resume}
			fill(rec, !tt.program, tt.args)
			if got := strings.Join(rec.Argv, " "); got != tt.start {
				t.Errorf("starts %q, want %q", got, tt.start)
			}
			if got := strings.Join(resumeArgv(rec, tt.known), " "); got != tt.again {
				t.Errorf("resumes %q, want %q", got, tt.again)
			}
		})
	}
}

// TestDirectoryOfEachRun: a directory that is the worker's own is each run's anew; what a
// client appends, and an agent's name of its session, are left alone.
func TestDirectoryOfEachRun(t *testing.T) {
	for _, tt := range []struct {
		name         string
		resume       []string
		known        string
		start, again string
	}{
		{"no resume argv", nil, "", "a --in=/d1 {cwd}", "a --in=/d2 {cwd}"},
		{"resume argv", []string{"b", "{cwd}", "{agentSessionId}"}, "x{cwd}", "a --in=/d1 {cwd}", "b /d2 x{cwd} {cwd}"},
		{"nothing to resume", []string{"b", "{agentSessionId}"}, "", "a --in=/d1 {cwd}", "a --in=/d2 {cwd}"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rec := &protocol.SessionRecord{
				Workspace: keyA.Workspace, ID: keyA.Session, Cwd: "/d1", CwdOwn: true, Argv: []string{"a", "--in={cwd}"}, ResumeArgv: tt.resume,
			}
			fill(rec, true, []string{"{cwd}"})
			if got := strings.Join(inDir(rec).Argv, " "); got != tt.start {
				t.Errorf("starts %q, want %q", got, tt.start)
			}
			rec.Cwd = "/d2"
			if got := strings.Join(resumeArgv(inDir(rec), tt.known), " "); got != tt.again {
				t.Errorf("resumes %q, want %q", got, tt.again)
			}
		})
	}
}
