package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"

	"rejoin/agent/pi"
	"rejoin/agent/rpi"
	"rejoin/broker"
	"rejoin/protocol"
)

const demoAgent = "demo"

// agentSession is what a resumed agent is told of its own session.
const agentSession = "{agentSessionId}"

// knownAgents are offered without configuration where their program is found.
func knownAgents() map[string]broker.AgentConfig {
	argv := func(program string) broker.AgentConfig {
		first := []string{program, "--mode", "rpc"}
		return broker.AgentConfig{Argv: first, ResumeArgv: append(slices.Clone(first), "--session", agentSession)}
	}
	known := map[string]broker.AgentConfig{pi.Name: argv("pi"), rpi.Name: argv("rpi")}
	for name, a := range known {
		a.Adapter = name
		known[name] = a
	}
	return known
}

// resolveAgents completes the agents: the program after --, those of the
// configuration, or else the demo and the known ones that are installed.
func (s *settings) resolveAgents() error {
	if !s.is(protocol.RoleBroker) {
		return nil // brokers know them
	}
	if s.Agents == nil {
		s.Agents = map[string]broker.AgentConfig{}
	}
	if len(s.child) > 0 {
		if _, taken := s.Agents[childAgent]; taken {
			return fmt.Errorf("the program after -- is the agent %q, which the configuration names too", childAgent)
		}
		s.Agents[childAgent] = broker.AgentConfig{Adapter: "jsonl", Argv: s.child}
		s.Default = childAgent
	}
	if len(s.Agents) == 0 {
		s.offerAgents()
	}
	for name, a := range s.Agents {
		if a.Options != nil {
			if err := applyOptions(&a); err != nil {
				return fmt.Errorf("agent %q: %w", name, err)
			}
		}
		if a.EnvAllow == nil {
			a.EnvAllow = envOfAgent(a)
		}
		s.Agents[name] = a
	}
	for _, p := range s.EnvAllow {
		if !broker.ValidEnvPattern(p) {
			return fmt.Errorf("%s %q is neither a variable's name nor a prefix with * after it", s.named("env-allow", "envAllow"), p)
		}
	}
	names := slices.Sorted(maps.Keys(s.Agents))
	if s.Default == "" && len(names) == 1 {
		s.Default = names[0]
	}
	if s.Default == "" {
		return fmt.Errorf("default must name one of the agents %v", names)
	}
	if _, ok := s.Agents[s.Default]; !ok {
		return fmt.Errorf("default names %q, which is none of the agents %v", s.Default, names)
	}
	return s.brokerConfig().Validate()
}

// offerAgents is what a server offers that is told nothing.
func (s *settings) offerAgents() {
	s.Agents[demoAgent] = broker.AgentConfig{Adapter: demoAgent, Argv: []string{thisProgram, "demo-agent"}}
	orDefault(&s.Default, demoAgent)
	look := s.lookPath
	if look == nil {
		look = exec.LookPath
	}
	if !s.is(protocol.RoleWorker) {
		return // what is found here says nothing of where workers run
	}
	for name, a := range knownAgents() {
		if _, err := look(a.Argv[0]); err == nil {
			s.Agents[name] = a
		} else {
			s.missing = append(s.missing, name)
		}
	}
}

// applyOptions makes arguments of rpi's start options. Unless the configuration
// says how a session is resumed, the agent is told its own session then.
func applyOptions(a *broker.AgentConfig) error {
	if a.Adapter != rpi.Name {
		return fmt.Errorf("options are for agents with adapter %s", rpi.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(a.Options)) {
		if known := rpi.OptionNames(); !slices.Contains(known, name) {
			return fmt.Errorf("options: unknown key %q; known: %s", name, strings.Join(slices.Sorted(slices.Values(known)), ", "))
		}
	}
	args, err := arguments(a.Options)
	if err != nil {
		return err
	}
	if len(a.ResumeArgv) == 0 && a.Options["noSession"] != true {
		again := maps.Clone(a.Options)
		for _, chosen := range []string{"session", "sessionId", "noSession"} {
			delete(again, chosen)
		}
		rest, err := arguments(again)
		if err != nil {
			return err
		}
		a.ResumeArgv = append(append(slices.Clone(a.Argv), rest...), "--session", agentSession)
	}
	a.Argv, a.Options = append(slices.Clone(a.Argv), args...), nil
	return nil
}

func arguments(options map[string]any) ([]string, error) {
	raw, err := json.Marshal(options)
	if err != nil {
		return nil, fmt.Errorf("options: %w", err)
	}
	args, err := rpi.Arguments(protocol.RawJSON(raw))
	if e, ok := protocol.AsError(err); ok {
		return nil, errors.New("options: " + e.Message)
	}
	return args, err
}
