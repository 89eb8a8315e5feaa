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
