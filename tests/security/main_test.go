package security

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"rejoin/tests/harness"
)

func TestMain(m *testing.M) {
	harness.Main(m, harness.Children{"echo": echoChild})
}

// echoChild tells its environment and working directory, then repeats every line
// of its stdin, on stdout and on stderr.
func echoChild([]string) int {
	out := json.NewEncoder(os.Stdout)
	if err := out.Encode(map[string]any{"env": os.Environ()}); err != nil {
		return 1
	}
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		if _, err := fmt.Println(in.Text()); err != nil {
			return 1
		}
		fmt.Fprintln(os.Stderr, in.Text())
	}
	return 0
}

// cli runs the command line and returns its output; it must succeed.
func cli(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, code, errOut := tryCLI(t, dir, nil, args...)
	if code != 0 {
		t.Fatalf("rejoin %s: exit status %d\n%s%s", strings.Join(args, " "), code, out, errOut)
	}
	return out
}

func tryCLI(t *testing.T, dir string, env []string, args ...string) (out string, code int, errOut string) {
	t.Helper()
	cmd := exec.CommandContext(harness.Context(t), harness.Binary(t), append([]string{"--data-dir", dir}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	var o, e strings.Builder
	cmd.Stdout, cmd.Stderr = &o, &e
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return o.String(), cmd.ProcessState.ExitCode(), e.String()
}

// addToken makes a token and returns it.
func addToken(t *testing.T, dir, name, role, workspace string, more ...string) string {
	t.Helper()
	return strings.TrimSpace(cli(t, dir, append([]string{"token", "add", name, "--role", role, "--workspace", workspace}, more...)...))
}

// as connects with a token.
func as(t *testing.T, s *harness.Server, token string) *harness.Client {
	t.Helper()
	c, err := tryAs(t, s, token)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	return c
}

func tryAs(t *testing.T, s *harness.Server, token string) (*harness.Client, error) {
	t.Helper()
	network, address := s.Addr()
	c, err := harness.Connect(harness.Context(t), network, address, token)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("the server broke the protocol: %v", err)
		}
	})
	return c, nil
}

// refused makes a request that must fail with the code.
func refused(t *testing.T, c *harness.Client, code int, method string, params map[string]any) harness.RPCError {
	t.Helper()
	raw, err := c.Call(harness.Context(t), method, params)
	var e *harness.RPCError
	if !errors.As(err, &e) || e.Code != code {
		t.Fatalf("%s %v answered %.300s, %v; want error %d", method, params, raw, err, code)
	}
	return *e
}

// session is SessionInfo as far as tests look at it.
type session struct {
	ID     string `json:"id"`
	State  string `json:"state"`
	Status string `json:"status"`
	PID    int    `json:"pid"`
	Title  string `json:"title"`
}

// start starts an echo under the configured agent of withEcho.
func start(t *testing.T, c *harness.Client, more ...any) session {
	t.Helper()
	params := map[string]any{}
	for i := 0; i < len(more); i += 2 {
		params[more[i].(string)] = more[i+1]
	}
	return harness.Do[struct {
		Session session `json:"session"`
	}](t, c, "start_session", params).Session
}

// withEcho is the configuration of a server whose default agent is echoChild.
func withEcho(t *testing.T, more string) harness.Options {
	t.Helper()
	argv, err := json.Marshal(harness.ChildArgv("echo"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "rejoin.yaml")
	text := fmt.Sprintf("agents: {echo: {adapter: jsonl, argv: %s, home: private, tmp: private}}\n%s\n", argv, more)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return harness.Options{Args: []string{"--config", path, "--durability", "500ms"}}
}

// ended waits until the server has closed the connection.
func ended(t *testing.T, c *harness.Client) {
	t.Helper()
	harness.Eventually(t, "the server closes the connection", func() bool {
		select {
		case <-c.Done():
			return true
		default:
			return false
		}
	})
}

// ask makes a request on a wire of its own and returns the error it is answered
// with, if any; notifications are passed over.
func ask(t *testing.T, s *harness.Server, token, method string, params map[string]any) *harness.RPCError {
	t.Helper()
	w := harness.DialWire(t, s)
	w.Authenticate(token)
	line, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
	if err != nil {
		t.Fatal(err)
	}
	w.Send(string(line) + "\n")
	for {
		var m struct {
			ID     *int
			Result json.RawMessage
			Error  *harness.RPCError
		}
		text := w.Line()
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		if m.ID != nil {
			if err := w.Conn.Close(); err != nil {
				t.Fatal(err)
			}
			return m.Error
		}
	}
}
