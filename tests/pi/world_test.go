package pi_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"rejoin/tests/harness"
	"rejoin/tests/mockmodel"
	"rejoin/tests/realpi"
)

// world is a server whose agent is pi, and the model behind it.
type world struct {
	t     *testing.T
	pi    realpi.Install
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
	w := &world{t: t, pi: realpi.Find(t), model: mockmodel.Start(t), home: t.TempDir(), dir: t.TempDir()}
	realpi.Settle(t, w.home, w.model.URL())
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

// env is pi's environment: off the network and in its home.
func (w *world) env() map[string]string {
	env := realpi.Quiet()
	env["HOME"], env["TMPDIR"], env["PATH"] = w.home, w.dir, filepath.Dir(w.pi.Node)+":"+os.Getenv("PATH")
	return env
}

// config writes a configuration; JSON is YAML.
func (w *world) config(o options) string {
	argv := []string{w.pi.Node, w.pi.CLI, "--mode", "rpc"}
	if o.extension != "" {
		path, err := filepath.Abs(filepath.Join("testdata", o.extension))
		if err != nil {
			w.t.Fatal(err)
		}
		argv = append(argv, "-e", path)
	}
	path := filepath.Join(w.t.TempDir(), "rejoin.yaml")
	realpi.Write(w.t, path, map[string]any{"agents": map[string]any{"pi": map[string]any{
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
