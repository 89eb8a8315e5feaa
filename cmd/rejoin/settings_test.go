package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	gatewaytcp "rejoin/gateway-tcp"
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
		{"retention", agent + "retention: {maxAge: 48h, maxBytes: 64MiB, maxEvents: 10}\n", ""},
		{"retention of the past", agent + "retention: {maxAge: -1s}\n", "retention.maxAge"},
		{"unknown retention", agent + "retention: {maxLines: 1}\n", `unknown field "maxLines"`},
		{"zero", "limits: {writeTimeout: 0}\n", ""},
		{"options", "agents: {a: {adapter: rpi, argv: [rpi], options: {noTools: true}}}\n", ""},
		{"environment", "envAllow: [GIT_*]\nagents: {a: {adapter: jsonl, argv: [cat], envAllow: ['*'], home: private, tmp: private}}\n", ""},
		{"bad pattern", agent + "envAllow: ['A*B']\n", `envAllow "A*B"`},
		{"bad pattern of an agent", "agents: {a: {adapter: jsonl, argv: [cat], envAllow: ['*B']}}\n", `envAllow "*B"`},
		{"bad home", "agents: {a: {adapter: jsonl, argv: [cat], home: mine}}\n", `home is "mine"`},
		{"comments", "# nothing\n", ""},
		{"unknown key", agent + "colour: red\n", `unknown field "colour"`},
		{"unknown agent key", "agents: {a: {adapter: jsonl, argv: [cat], colour: red}}\n", `unknown field "colour"`},
		{"key twice", "default: a\ndefault: b\n", "already defined"},
		{"wrong type", "agents: 7\n", "agents"},
		{"bad size", "limits: {maxEventBytes: huge}\n", "is not a size"},
		{"bad time", "limits: {authTimeout: soon}\n", `"soon" must be a duration such as 60s`},
		{"a time of what", "limits: {writeTimeout: 5}\n", `c.yaml: "5" must be a duration such as 60s`},
		{"no adapter", "agents: {a: {argv: [cat]}}\n", `c.yaml: agent "a": adapter is missing, known: demo`},
		{"bad durability", "durability: fast\n", `c.yaml: durability "fast": want always or`},
		{"a port alone", "listen: [1]\n", "c.yaml: listen 1: unknown scheme"},
		{"bad level", "logLevel: loud\n", "c.yaml: logLevel loud: want"},
		{"bad limit", "limits: {maxEventBytes: 1}\n", "c.yaml: maxEventBytes"},
		{"a journal at its least", "journal: {maxBytes: 268435456}\n", ""},
		{"a journal below it", "journal: {maxBytes: 268435455}\n", "journal.maxBytes must be at least"},
		{"rate", "limits: {requestsPerSecond: 50, sessionsKept: 7}\n", ""},
		{"negative rate", "limits: {requestsPerSecond: -1}\n", "requestsPerSecond must be positive"},
		{"negative sessions", "limits: {sessionsKept: -1}\n", "sessionsKept must be positive"},
		{"roles alone", "roles: [gateway]\n", "c.yaml: roles gateway needs --nats"},
		{"no role", "roles: [boss]\n", `c.yaml: roles: "boss" is no role`},
		{"a role twice", "roles: [worker, worker]\n", "worker stands there twice"},
		{"a broker", "roles: [broker]\nnats: {servers: ['tls://a:4222', b], durability: always}\n", ""},
		{"nobody knows", "roles: [broker]\nnats: {servers: [a]}\n", "nobody knows what the NATS servers keep"},
		{"it is accepted", "roles: [broker]\nnats: {servers: [a], acceptDurability: true}\n", ""},
		{"two ways to know", "roles: [broker]\nnats: {servers: [a], durability: 1s, systemCreds: f}\n", "exclude each other"},
		{"no such durability", "roles: [broker]\nnats: {servers: [a], durability: now}\n", `nats.durability "now"`},
		{"a web server", "roles: [broker]\nnats: {servers: ['http://a'], durability: always}\n", `unknown scheme "http"`},
		{"a password", "roles: [broker]\nnats: {servers: ['nats://u:p@a'], durability: always}\n", "can be seen by all"},
		{"half a certificate", "roles: [broker]\nnats: {servers: [a], durability: always, cert: f}\n", "go together"},
		{"replicas", "roles: [broker]\nnats: {servers: [a], durability: always, replicas: 6}\n", "must be 1 to 5"},
		{"durability of two", "roles: [broker]\ndurability: 1s\nnats: {servers: [a], durability: always}\n", "c.yaml: durability is for a journal of its own"},
		{"a gateway's own token", "roles: [gateway]\nnats: {servers: [a], durability: always}\n", "must know the same tokens"},
		{"a gateway", "roles: [gateway]\nnats: {servers: [a], durability: always}\ntokens: /t\nadvertise: ['tls://g:9800']\n", ""},
		{"a gateway nowhere", "roles: [gateway]\nnats: {servers: [a], durability: always}\ntokens: /t\nadvertise: ['http://g']\n", "c.yaml: advertise"},
		{"a worker", "roles: [worker]\nnats: {servers: [a], durability: always}\nworker: {id: w1, labels: {repo: a}}\n", ""},
		{"a worker's name", "roles: [worker]\nnats: {servers: [a], durability: always}\nworker: {id: 'w~1'}\n", `worker.id "w~1"`},
		{"a worker's label", "roles: [worker]\nnats: {servers: [a], durability: always}\nworker: {labels: {repo: 'a b'}}\n", `"repo"="a b"`},
		{"a key of another role", "roles: [broker]\nnats: {servers: [a], durability: always}\nencryption: {keyFile: /k, cipher: aes}\n", ""},
		{"a member", "cluster: {name: c, routes: [a, 'nats-route://b:1'], listen: '127.0.0.1:6222'}\ntokens: /t\ndurability: 20ms\n", ""},
		{"a member with a secret", "cluster: {name: c, routes: [a, b, c], secretFile: /s}\ntokens: /t\nworker: {id: m, labels: {repo: a}}\n", ""},
		{"a member by certificates", "cluster: {name: c, routes: [a, b], ca: a, cert: c, key: k}\ntokens: /t\n", ""},
		{"a member open to all", "cluster: {name: c, routes: [a, b]}\ntokens: /t\n", "c.yaml: cluster.listen 0.0.0.0:6222: everyone who can reach it could join"},
		{"a member of one", "cluster: {name: c, routes: [a], secretFile: /s}\ntokens: /t\n", "want those of both other members"},
		{"a member without a name", "cluster: {routes: [a, b]}\n", "cluster.name (--cluster-name) is missing"},
		{"a member's bad name", "cluster: {name: 'a b', routes: [a, b]}\n", `cluster.name "a b"`},
		{"a member's long name", "cluster: {name: " + strings.Repeat("c", protocol.ClusterNameBytesMax) + ", routes: [a, b], secretFile: /s}\ntokens: /t\n", ""},
		{"a member's longer name", "cluster: {name: " + strings.Repeat("c", protocol.ClusterNameBytesMax+1) + ", routes: [a, b]}\n", "want up to 64 characters"},
		{"a member's bad route", "cluster: {name: c, routes: ['nats://a', b]}\n", `unknown scheme "nats"`},
		{"a member's password", "cluster: {name: c, routes: ['nats-route://u:p@a', b]}\n", "can be seen by all"},
		{"a member's half certificate", "cluster: {name: c, routes: [a, b], cert: c, key: k}\n", "go together"},
		{"a member of others too", "cluster: {name: c, routes: [a, b]}\nnats: {servers: [a]}\n", "they exclude each other"},
		{"a member with one role", "roles: [worker]\ncluster: {name: c, routes: [a, b]}\n", "a member of a cluster has all roles"},
		{"a member with a key", "cluster: {name: c, routes: [a, b]}\nencryption: {keyFile: /k}\n", "is not encrypted"},
		{"a member's own token", "cluster: {name: c, routes: [a, b], secretFile: /s}\n", "must know the same tokens"},
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
			if code != exitUsage || !strings.Contains(errOut, c.says) || strings.Contains(errOut, "strconv") || strings.Contains(errOut, "broker:") {
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
	cmd := &cobra.Command{}
	in := serveFlags(cmd)
	if err := cmd.ParseFlags([]string{"--config", config, "--listen", "tcp://127.0.0.1:2", "--listen", "unix:///tmp/x.sock", "--max-event-bytes", "4MiB"}); err != nil {
		t.Fatal(err)
	}
	got, err := a.serveSettings(cmd, in, []string{"cat", "-u"})
	if err != nil {
		t.Fatal(err)
	}
	if got.Limits.MaxEventBytes != 4<<20 || got.Limits.WriteTimeout != duration(3*time.Second) || got.Limits.MaxRequestBytes != protocol.RequestBytesDefault {
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
		l, err := gatewaytcp.ParseURL(url)
		if err != nil || l.Loopback() != want {
			t.Errorf("%s: loopback %v, %v; want %v", url, l.Loopback(), err, want)
		}
		if got := onThisMachine(url); got != want && !strings.HasPrefix(url, "tcp://:") {
			t.Errorf("%s is on this machine: %v, want %v", url, got, want)
		}
	}
}

func TestKnownAgentsAreOffered(t *testing.T) {
	s := defaultSettings()
	s.dataDir = "/data"
	s.lookPath = func(file string) (string, error) {
		if file == "pi" {
			return "/bin/pi", nil
		}
		return "", exec.ErrNotFound
	}
	if err := s.resolveAgents(); err != nil {
		t.Fatal(err)
	}
	a, ok := s.Agents["pi"]
	if !ok || len(s.Agents) != 2 || s.Default != demoAgent || a.Adapter != "pi" ||
		strings.Join(a.Argv, " ") != "pi --mode rpc" || strings.Join(a.ResumeArgv, " ") != "pi --mode rpc --session {agentSessionId}" {
		t.Errorf("default %s of %+v", s.Default, s.Agents)
	}
	s = defaultSettings()
	s.dataDir, s.child, s.lookPath = "/data", []string{"cat"}, func(string) (string, error) { return "/x", nil }
	if err := s.resolveAgents(); err != nil || len(s.Agents) != 1 {
		t.Errorf("a configured server offers more: %+v, %v", s.Agents, err)
	}
}

func TestAgentOptions(t *testing.T) {
	for _, c := range []struct{ name, agent, start, again, says string }{
		{"all", "adapter: rpi, argv: [rpi], options: {model: m1, noTools: true, skill: [a, b]}", "rpi --mode rpc --model m1 --no-tools --skill a --skill b", "rpi --mode rpc --model m1 --no-tools --skill a --skill b --session {agentSessionId}", ""},
		{"none", "adapter: rpi, argv: [rpi], options: {}", "rpi --mode rpc", "rpi --mode rpc --session {agentSessionId}", ""},
		{"a session", "adapter: rpi, argv: [rpi], options: {sessionId: x, model: m}", "rpi --mode rpc --model m --session-id x", "rpi --mode rpc --model m --session {agentSessionId}", ""},
		{"no session", "adapter: rpi, argv: [rpi], options: {noSession: true}", "rpi --mode rpc --no-session", "", ""},
		{"a way to resume", "adapter: rpi, argv: [rpi], resumeArgv: [rpi, again], options: {model: m}", "rpi --mode rpc --model m", "rpi again", ""},
		{"two sessions", "adapter: rpi, argv: [rpi], options: {session: a, sessionId: b}", "", "", "session and sessionId are mutually exclusive"},
		{"wrong type", "adapter: rpi, argv: [rpi], options: {model: 7}", "", "", "model must be a string"},
		{"unknown", "adapter: rpi, argv: [rpi], options: {xmodel: x}", "", "", `unknown key "xmodel"`},
		{"another adapter", "adapter: jsonl, argv: [x], options: {model: m}", "", "", "options are for agents with adapter rpi"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := defaultSettings()
			s.dataDir = "/data"
			if err := s.load(write(t, "c.yaml", "agents: {a: {"+c.agent+"}}\n")); err != nil {
				t.Fatal(err)
			}
			err := s.resolveAgents()
			if c.says != "" {
				if err == nil || !strings.Contains(err.Error(), c.says) {
					t.Errorf("%v", err)
				}
				return
			}
			a := s.Agents["a"]
			if err != nil || strings.Join(a.Argv, " ") != c.start || strings.Join(a.ResumeArgv, " ") != c.again {
				t.Errorf("%q, resumed %q, %v", a.Argv, a.ResumeArgv, err)
			}
		})
	}
}

func TestEnvOfKnownAgents(t *testing.T) {
	for _, c := range []struct{ name, agent, has, hasNot string }{
		{"by adapter", "adapter: pi, argv: [/opt/my-pi]", "ANTHROPIC_*", "*"},
		{"by program", "adapter: jsonl, argv: [/usr/bin/claude, -p]", "ANTHROPIC_*", "OPENAI_*"},
		{"another program", "adapter: jsonl, argv: [codex]", "OPENAI_*", "ANTHROPIC_*"},
		{"configured", "adapter: pi, argv: [pi], envAllow: [X]", "X", "ANTHROPIC_*"},
		{"configured to nothing", "adapter: pi, argv: [pi], envAllow: []", "", "ANTHROPIC_*"},
		{"unknown", "adapter: jsonl, argv: [cat]", "", "ANTHROPIC_*"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := defaultSettings()
			s.dataDir = "/data"
			if err := s.load(write(t, "c.yaml", "agents: {a: {"+c.agent+"}}\n")); err != nil {
				t.Fatal(err)
			}
			if err := s.resolveAgents(); err != nil {
				t.Fatal(err)
			}
			got := s.Agents["a"].EnvAllow
			if c.has != "" && !slices.Contains(got, c.has) || slices.Contains(got, c.hasNot) {
				t.Errorf("got %q", got)
			}
		})
	}
}
