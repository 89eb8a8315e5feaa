package pi_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"rejoin/tests/harness"
	"rejoin/tests/mockmodel"
)

// install is where pi is, and the Node.js that runs it.
type install struct{ dir, node, cli string }

// installed finds pi or ends the test.
func installed(t *testing.T) install {
	t.Helper()
	dir := os.Getenv("REJOIN_PI_DIR")
	if dir == "" {
		if cache, err := os.UserCacheDir(); err == nil {
			dir = filepath.Join(cache, "rejoin-test", "pi")
		}
	}
	modules := filepath.Join(dir, "node_modules")
	in := install{
		dir:  dir,
		node: filepath.Join(modules, ".bin", "node"),
		cli:  filepath.Join(modules, "@earendil-works", "pi-coding-agent", "dist", "bundle", "cli.js"),
	}
	for _, file := range []string{in.node, in.cli, filepath.Join(dir, "installed")} {
		if _, err := os.Stat(file); err != nil {
			miss := fmt.Sprintf("pi is not installed in %s (tests/pi/install.sh does that): %v", dir, err)
			if os.Getenv("REJOIN_REQUIRE_PI") == "1" {
				t.Fatal(miss)
			}
			t.Skip(miss)
		}
	}
	return in
}

// world is a server whose agent is pi, and the model behind it.
type world struct {
	t     *testing.T
	pi    install
	model *mockmodel.Server
	srv   *harness.Server
	home  string // of pi
	dir   string // pi's working directory
}

// options of a world.
type options struct {
	extension string // under testdata
	restart   string
	known     bool // no configuration: pi is found on PATH
}

func newWorld(t *testing.T, o options) *world {
	t.Helper()
	w := &world{t: t, pi: installed(t), model: mockmodel.Start(t), home: t.TempDir(), dir: t.TempDir()}
	w.settings()
	so := harness.Options{Listen: []string{harness.FixedPort(t)}}
	if o.known {
		for name, value := range w.env() {
			so.Env = append(so.Env, name+"="+value)
		}
	} else {
		so.Args = []string{"--config", w.config(o)}
	}
	w.srv = harness.Start(t, so)
	return w
}

// settings writes pi's own: the model, and retries that do not wait.
func (w *world) settings() {
	w.t.Helper()
	dir := filepath.Join(w.home, ".pi", "agent")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		w.t.Fatal(err)
	}
	type object = map[string]any
	w.write(filepath.Join(dir, "models.json"), object{"providers": object{"mock": object{
		"baseUrl": w.model.URL(), "apiKey": "none", "api": "openai-completions",
		"models": []object{{"id": "mock-chat", "reasoning": true}, {"id": "mock-other"}},
	}}})
	w.write(filepath.Join(dir, "settings.json"), object{
		"defaultProvider": "mock", "defaultModel": "mock-chat", "retry": object{"baseDelayMs": 10},
	})
}

func (w *world) write(path string, v any) {
	w.t.Helper()
	b, err := json.Marshal(v)
	if err == nil {
		err = os.WriteFile(path, b, 0o600)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// env is the part of pi's environment that keeps it off the network and in its home.
func (w *world) env() map[string]string {
	return map[string]string{
		"HOME": w.home, "TMPDIR": w.dir, "PATH": filepath.Dir(w.pi.node) + ":" + os.Getenv("PATH"),
		"PI_OFFLINE": "1", "PI_TELEMETRY": "0", "PI_SKIP_VERSION_CHECK": "1", "PI_CODING_AGENT_DIR": "",
	}
}

// config writes a configuration; JSON is YAML.
func (w *world) config(o options) string {
	argv := []string{w.pi.node, w.pi.cli, "--mode", "rpc"}
	if o.extension != "" {
		path, err := filepath.Abs(filepath.Join("testdata", o.extension))
		if err != nil {
			w.t.Fatal(err)
		}
		argv = append(argv, "-e", path)
	}
	path := filepath.Join(w.t.TempDir(), "rejoin.yaml")
	w.write(path, map[string]any{"agents": map[string]any{"pi": map[string]any{
		"adapter": "pi", "argv": argv, "resumeArgv": append(argv[:len(argv):len(argv)], "--session", "{agentSessionId}"),
		"env": w.env(), "restart": o.restart,
	}}})
	return path
}

// start starts a session and returns a client that watches it from its start.
func (w *world) start() *client {
	w.t.Helper()
	c := harness.Dial(w.t, w.srv)
	result, err := c.Call(harness.Context(w.t), "start_session", map[string]any{"agent": "pi", "cwd": w.dir})
	if err != nil {
		w.t.Fatalf("start pi: %v\n%s", err, w.srv.LogTail())
	}
	var r struct{ SessionID string }
	decode(w.t, result, &r)
	return w.watch(c, r.SessionID, map[string]any{"after": 0})
}

// join returns one more client of a session.
func (w *world) join(session string, params map[string]any) *client {
	w.t.Helper()
	return w.watch(harness.Dial(w.t, w.srv), session, params)
}

func (w *world) watch(c *harness.Client, session string, params map[string]any) *client {
	w.t.Helper()
	s, err := c.Subscribe(harness.Context(w.t), session, params)
	if err != nil {
		w.t.Fatalf("subscribe: %v", err)
	}
	return &client{t: w.t, Client: c, stream: s, session: session}
}

// lines returns the lines of a file in pi's working directory.
func (w *world) lines(name string) []string {
	w.t.Helper()
	b, err := os.ReadFile(filepath.Join(w.dir, name))
	if err != nil && !os.IsNotExist(err) {
		w.t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
}

func decode(t *testing.T, b []byte, v any) {
	t.Helper()
	if err := json.Unmarshal(b, v); err != nil {
		t.Fatalf("%s: %v", b, err)
	}
}

func quote(s string) string { return strconv.Quote(s) }
