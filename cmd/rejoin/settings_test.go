package main

import (
	"strings"
	"testing"
	"time"

	"rejoin/protocol"
)

func TestParseSize(t *testing.T) {
	for _, c := range []struct {
		in   string
		want size
	}{
		{"1", 1},
		{"1048576", 1 << 20},
		{"17B", 17},
		{"64KiB", 64 << 10},
		{"8 MiB", 8 << 20},
		{"1GiB", 1 << 30},
		{"", 0},
		{"0", 0},
		{"-1", 0},
		{"1.5MiB", 0},
		{"MiB", 0},
		{"8MB", 0},
		{"8mib", 0},
		{"9223372036854775807GiB", 0},
		{"99999999999999999999", 0},
		{"1 2", 0},
	} {
		got, err := parseSize(c.in)
		if got != c.want || (err == nil) != (c.want > 0) {
			t.Errorf("parseSize(%q) = %d, %v; want %d", c.in, got, err, c.want)
		}
		if err == nil {
			if again, err := parseSize(got.String()); again != got || err != nil {
				t.Errorf("%q is written as %q, which reads as %d, %v", c.in, got, again, err)
			}
		}
	}
}

func TestConfigIsStrict(t *testing.T) {
	const agent = "agents: {a: {adapter: jsonl, argv: [cat]}}\n"
	for _, c := range []struct{ name, yaml, says string }{
		{"good", agent + "default: a\nlisten: ['unix:///run/x.sock']\nlimits: {maxEventBytes: 2MiB, authTimeout: 3s, maxRequestBytes: 2048}\n", ""},
		{"empty", "", ""},
		{"comments", "# nothing\n", ""},
		{"unknown key", agent + "colour: red\n", `unknown field "colour"`},
		{"unknown agent key", "agents: {a: {adapter: jsonl, argv: [cat], colour: red}}\n", `unknown field "colour"`},
		{"key twice", "default: a\ndefault: b\n", "already defined"},
		{"wrong type", "agents: 7\n", "agents"},
		{"bad size", "limits: {maxEventBytes: huge}\n", "is not a size"},
		{"bad time", "limits: {authTimeout: soon}\n", "invalid duration"},
		{"no argv", "agents: {a: {adapter: jsonl}}\n", "argv"},
		{"unknown adapter", "agents: {a: {adapter: telepathy, argv: [x]}}\n", "telepathy"},
		{"unknown default", agent + "default: b\n", `default names "b"`},
		{"no default", "agents: {a: {adapter: jsonl, argv: [x]}, b: {adapter: jsonl, argv: [y]}}\n", "default must name one of"},
		{"not yaml", "agents: [", "--config"},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, out, errOut := runApp(t, nil, "serve", "--print-config", "--config", write(t, "c.yaml", c.yaml))
			if c.says == "" {
				if code != exitOK || errOut != "" {
					t.Fatalf("exit code %d: %s", code, errOut)
				}
				again, out2, errOut := runApp(t, nil, "serve", "--print-config", "--config", write(t, "again.yaml", out))
				if again != exitOK || out2 != out {
					t.Errorf("what it prints is not what it reads: exit code %d %s\n%s\n%s", again, errOut, out, out2)
				}
				return
			}
			if code != exitUsage || !strings.Contains(errOut, c.says) {
				t.Errorf("exit code %d, stderr %q, want %q", code, errOut, c.says)
			}
		})
	}
}

func TestFlagsWinOverTheFile(t *testing.T) {
	config := write(t, "c.yaml", "agents: {a: {adapter: jsonl, argv: [cat]}}\nlisten: ['tcp://127.0.0.1:1']\ndurability: 20ms\n"+
		"limits: {maxEventBytes: 2MiB, writeTimeout: 3s}\nallowArgv: true\n")
	var got *settings
	a := &app{getenv: func(name string) string {
		return map[string]string{"HOME": "/home/x", "REJOIN_TOKEN": "from-env"}[name]
	}}
	cmd := a.serveCommand()
	flags := defaultSettings()
	flags.Listen = []string{"tcp://127.0.0.1:2", "unix:///tmp/x.sock"}
	flags.Limits.MaxEventBytes = 4 << 20
	for name, value := range map[string]string{"listen": "tcp://127.0.0.1:2", "max-event-bytes": "4MiB"} {
		if err := cmd.Flags().Set(name, value); err != nil {
			t.Fatal(err)
		}
	}
	got, err := a.serveSettings(cmd, &flags, config, []string{"cat", "-u"})
	if err != nil {
		t.Fatal(err)
	}
	if got.Limits.MaxEventBytes != 4<<20 || got.Limits.WriteTimeout != 3*time.Second || got.Limits.MaxRequestBytes != protocol.RequestBytesDefault {
		t.Errorf("limits are %+v", got.Limits)
	}
	if got.durability.Interval != 20*time.Millisecond || !got.AllowArgv || len(got.listeners) != 2 {
		t.Errorf("settings are %+v", got)
	}
	if got.Default != childAgent || got.Agents[childAgent].Argv[1] != "-u" || len(got.Agents) != 2 {
		t.Errorf("agents are %+v, default %s", got.Agents, got.Default)
	}
	if got.token != "from-env" || got.dataDir != "/home/x/.local/share/rejoin" {
		t.Errorf("token %q, data in %q", got.token, got.dataDir)
	}
}

func TestDemoAgentIsTheDefault(t *testing.T) {
	s := defaultSettings()
	if err := s.resolveAgents(); err == nil {
		t.Error("a data directory is not required") // brokerConfig is checked with it
	}
	s.dataDir = "/data"
	if err := s.resolveAgents(); err != nil {
		t.Fatal(err)
	}
	if a := s.Agents[s.Default]; s.Default != demoAgent || a.Adapter != demoAgent || a.Argv[0] != "/proc/self/exe" || a.Argv[1] != "demo-agent" {
		t.Errorf("default %s: %+v", s.Default, a)
	}
}

func TestSecretsAreNotPrinted(t *testing.T) {
	code, out, errOut := runApp(t, map[string]string{"HOME": "/h"}, "serve", "--print-config", "--token", "hush-hush")
	if code != exitOK || strings.Contains(out+errOut, "hush-hush") {
		t.Errorf("exit code %d:\n%s%s", code, out, errOut)
	}
}

func TestLoopback(t *testing.T) {
	for url, want := range map[string]bool{
		"tcp://127.0.0.1:1": true, "tcp://127.9.9.9:1": true, "tcp://[::1]:1": true, "tcp://localhost:1": true, "unix:///x": true,
		"tcp://0.0.0.0:1": false, "tcp://[::]:1": false, "tcp://:1": false, "tcp://10.0.0.1:1": false, "tcp://localhost.example.org:1": false,
	} {
		l, err := parseListen(url)
		if err != nil || l.loopback() != want {
			t.Errorf("%s: loopback %v, %v; want %v", url, l.loopback(), err, want)
		}
		if got := onThisMachine(url); got != want && !strings.HasPrefix(url, "tcp://:") {
			t.Errorf("%s is on this machine: %v, want %v", url, got, want)
		}
	}
}
