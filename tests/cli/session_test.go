package cli_test

import (
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"rejoin/tests/harness"
)

// The main job, with nothing configured.
func TestOneSession(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	if r := run(t, s.Dir, "ls"); r.code != 0 || r.out != "" || !strings.Contains(r.err, "There are no sessions") {
		t.Errorf("ls of nothing: %+v", r)
	}
	sid := start(t, s.Dir)
	attached := runOn(t, s.Dir, "attach", sid)
	attached.out.shows(t, "-- demo started")
	if out := want(t, s.Dir, "send", sid, "count 3"); !strings.HasPrefix(out, "sent: event ") {
		t.Errorf("send says %q", out)
	}
	attached.out.shows(t, "> count 3\n")
	attached.out.shows(t, "1 2 3")

	short := sid[:len(sid)-2]
	harness.Eventually(t, "the turn ends", func() bool {
		return strings.Contains(want(t, s.Dir, "events", short), `{"type":"agent_end"`)
	})
	if out := want(t, s.Dir, "send", sid, "--json", `{"type":"get_state"}`, "--command-id", "c1"); !strings.HasSuffix(out, "command c1\n") {
		t.Errorf("send says %q", out)
	}
	if out := want(t, s.Dir, "send", sid, "--json", `{"type":"get_state"}`, "--command-id", "c1"); !strings.HasPrefix(out, "sent already: event ") {
		t.Errorf("second send says %q", out)
	}
	refused(t, s.Dir, 1, "", "send", sid, "other", "--command-id", "c1")
	checkEvents(t, s.Dir, sid)

	var infos []struct{ ID, State, Cwd string }
	if err := json.Unmarshal([]byte(want(t, s.Dir, "ls", "--json")), &infos); err != nil || len(infos) != 1 || infos[0].State != "running" {
		t.Errorf("ls --json: %+v, %v", infos, err)
	}
	if out := want(t, s.Dir, "ls"); !strings.Contains(out, sid) || !strings.Contains(out, "demo") {
		t.Errorf("ls: %s", out)
	}
	want(t, s.Dir, "stop", sid)
	attached.err.shows(t, "was stopped; `rejoin resume")
	if code := attached.wait(t); code != 0 {
		t.Errorf("attach ends with %d", code)
	}
	want(t, s.Dir, "resume", sid)
	follow := runOn(t, s.Dir, "events", sid, "--follow", "--json")
	follow.out.shows(t, `"type":"session_resumed"`)
	want(t, s.Dir, "delete", sid)
	follow.out.shows(t, `"type":"session_deleted"`)
	follow.err.shows(t, "session "+sid+" is deleted\n")
	if code := follow.wait(t); code != 0 {
		t.Errorf("events --follow of a deleted session ends with %d", code)
	}
	refused(t, s.Dir, 1, "no session begins with", "events", sid)
}

// checkEvents reads the events in every way there is.
func checkEvents(t *testing.T, dir, sid string) {
	t.Helper()
	var all []string
	harness.Eventually(t, "nothing more comes", func() bool {
		before := len(all)
		all = strings.Split(strings.TrimSpace(want(t, dir, "events", sid, "--json")), "\n")
		return before == len(all)
	})
	for i, line := range all {
		var e struct{ Seq int }
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.Seq != i+1 {
			t.Fatalf("line %d: %v: %s", i, err, line)
		}
	}
	last := strconv.Itoa(len(all) - 1)
	if out := want(t, dir, "events", sid, "--json", "--after", last); strings.TrimSpace(out) != all[len(all)-1] {
		t.Errorf("events --after %s: %s", last, out)
	}
	if out := want(t, dir, "events", sid, "--after", strconv.Itoa(len(all))); out != "" {
		t.Errorf("events after the last: %s", out)
	}
	follow := runOn(t, dir, "events", sid, "--follow", "--json")
	follow.out.shows(t, all[len(all)-1])
	if code := follow.interrupt(t); code != 0 {
		t.Errorf("events --follow, interrupted, ends with %d", code)
	}
	if got := follow.out.String(); got != strings.Join(all, "\n")+"\n" {
		t.Errorf("events --follow shows something else")
	}
}

func TestStartWatchesTheProgram(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	r := run(t, s.Dir, "start", "--", "sh", "-c", "echo boom >&2; exit 3")
	if r.code != 1 || !strings.Contains(r.err, "boom\n") || !strings.Contains(r.err, "exited with code 3") || len(r.out) < 10 {
		t.Errorf("a program that dies: %+v", r)
	}
	if logs := want(t, s.Dir, "logs", strings.TrimSpace(r.out)); logs != "boom\n" {
		t.Errorf("logs: %q", logs)
	}
	refused(t, s.Dir, 1, "failed to start nosuchprogram", "start", "--", "nosuchprogram")
	refused(t, s.Dir, 1, "", "start", "--agent", "nobody")

	dir := t.TempDir()
	cmd := command(harness.Context(t), t, s.Dir, "start", "--adapter", "lines", "--session-id", "here", "--title", "a title", "--", "sh", "-c", "pwd; cat")
	cmd.Dir = dir
	if out, err := cmd.Output(); err != nil || string(out) != "here\n" {
		t.Fatalf("start: %q, %v", out, err)
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	if out := want(t, s.Dir, "events", "here", "--json"); !strings.Contains(out, `"text":"`+real+`"`) && !strings.Contains(out, `"text":"`+dir+`"`) {
		t.Errorf("the program does not run where start did: %s", out)
	}
	want(t, s.Dir, "send", "here", "a line")
	harness.Eventually(t, "cat answers", func() bool {
		return strings.Contains(want(t, s.Dir, "events", "here"), `{"type":"output","text":"a line"}`)
	})
	if out := want(t, s.Dir, "ls"); !strings.Contains(out, "a title") {
		t.Errorf("ls: %s", out)
	}
	refused(t, s.Dir, 1, "", "start", "--session-id", "here", "--", "cat")
	start(t, s.Dir, "--session-id", "hers", "--", "cat")
	refused(t, s.Dir, 1, `"he" is ambiguous: `, "events", "he")
}

// Proves I-J2, I-J4 and I-W3 as a user sees them.
func TestAttachRejoinsAfterKill(t *testing.T) {
	harness.Covers(t, "I-J2", "I-J4")
	s := harness.New(t, harness.Options{Listen: []string{harness.FixedPort(t)}})
	s.Run()
	sid := start(t, s.Dir)
	attached := runOn(t, s.Dir, "attach", sid, "--json", "--after", "0")
	want(t, s.Dir, "send", sid, "count 5")
	attached.out.shows(t, `"type":"agent_end"`)
	before := want(t, s.Dir, "events", sid, "--json")

	s.Kill9()
	attached.err.shows(t, "link lost: ")
	refused(t, s.Dir, 3, "no server runs in "+s.Dir, "ls")
	s.Run()
	attached.err.shows(t, "reconnecting\nrejoined at seq ")
	attached.out.shows(t, `"reason":"server_restart"`)
	after := want(t, s.Dir, "events", sid, "--json")
	if !strings.HasPrefix(after, before) {
		t.Errorf("the events before the kill are not there any more\nbefore:\n%s\nafter:\n%s", before, after)
	}
	want(t, s.Dir, "resume", sid)
	want(t, s.Dir, "send", sid, "count 2")
	harness.Eventually(t, "the second turn ends", func() bool {
		return strings.Count(attached.out.String(), `"type":"agent_end"`) == 2
	})
	if code := attached.interrupt(t); code != 0 {
		t.Errorf("attach, interrupted, ends with %d", code)
	}
	if all := want(t, s.Dir, "events", sid, "--json"); !strings.HasPrefix(all, attached.out.String()) {
		t.Errorf("attach showed something else than what happened\nattach:\n%s\nevents:\n%s", &attached.out, all)
	}
}

func TestPromptFromStandardInput(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	sid := start(t, s.Dir)
	cmd := command(harness.Context(t), t, s.Dir, "send", sid, "-")
	cmd.Stdin = strings.NewReader("count 2\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	plain := start(t, s.Dir, "--adapter", "lines", "--", "cat")
	cmd = command(harness.Context(t), t, s.Dir, "send", plain, "-")
	cmd.Stdin = strings.NewReader("hi\r\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("a line for an agent of lines: %v: %s", err, out)
	}
	harness.Eventually(t, "the prompt arrives", func() bool {
		return strings.Contains(want(t, s.Dir, "events", sid), `"params":{"text":"count 2"}`)
	})
}

func TestDemoAgent(t *testing.T) {
	cmd := exec.CommandContext(harness.Context(t), harness.Binary(t), "demo-agent", "--pace", "0s")
	cmd.Stdin = strings.NewReader(`{"id":"1","type":"prompt","message":"exit 7"}` + "\n")
	out, err := cmd.Output()
	if code := cmd.ProcessState.ExitCode(); code != 7 || !strings.Contains(string(out), `"success":true`) {
		t.Errorf("demo-agent: %v, exit code %d, %s", err, code, out)
	}
}

// An agent that takes no prompts is told JSON.
func TestSendHint(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	sid := start(t, s.Dir, "--", "cat")
	refused(t, s.Dir, 1, "adapter jsonl\nThis session's agent takes JSON: `rejoin send "+sid+" --json '…'`.", "send", sid, "hello")
}

// Where a session runs: --cwd, else the agent's directory, else the caller's.
func TestWorkingDirectory(t *testing.T) {
	config := filepath.Join(t.TempDir(), "c.yaml")
	yaml := "agents: {home: {adapter: jsonl, argv: [cat], cwd: /}, lost: {adapter: jsonl, argv: [cat], cwd: /nonexistent}, any: {adapter: jsonl, argv: [cat]}}\ndefault: any\n"
	if err := os.WriteFile(config, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	s := harness.Start(t, harness.Options{Args: []string{"--config", config}})
	refused(t, s.Dir, 1, "agent lost is configured with a directory it cannot have: cwd /nonexistent does not exist", "start", "--agent", "lost")
	for _, args := range [][]string{{"--agent", "home"}, {}, {"--cwd", "/tmp"}} {
		cmd := command(harness.Context(t), t, s.Dir, append([]string{"start", "--no-wait"}, args...)...)
		there := map[string]string{"--agent": "/", "": cmd.Dir, "--cwd": "/tmp"}[strings.Join(args[:min(1, len(args))], "")]
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		var infos []struct{ ID, Cwd string }
		if err := json.Unmarshal([]byte(want(t, s.Dir, "ls", "--json")), &infos); err != nil {
			t.Fatal(err)
		}
		if infos[0].ID != strings.TrimSpace(string(out)) || infos[0].Cwd != there {
			t.Errorf("%v: %+v, want %s", args, infos[0], there)
		}
	}
}

// A program that crashes and is started again by its policy: attach stays, send
// says what it waits for and gives up in time.
func TestCrashLoop(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	sid := start(t, s.Dir, "--restart", "resume", "--adapter", "lines", "--", "sh", "-c", "read x && exit 3")
	attached := runOn(t, s.Dir, "attach", sid)
	attached.out.shows(t, "started (pid")
	want(t, s.Dir, "send", sid, "a")
	attached.err.shows(t, "exited with code 3; it restarts soon\n")
	attached.out.shows(t, "-- resumed (run 2)")
	want(t, s.Dir, "send", sid, "b") // the next restart is 5 s away
	harness.Eventually(t, "it is down", func() bool { return strings.Contains(want(t, s.Dir, "ls", "--json"), `"restarting":true`) })
	r := run(t, s.Dir, "send", sid, "c", "--wait", "2500ms")
	if r.code != 1 || !strings.Contains(r.err, "session is down, waiting for its restart\nrejoin: gave up after 2.5s") {
		t.Errorf("send to a session that is down: %+v", r)
	}
	attached.out.shows(t, "-- resumed (run 3)")
	want(t, s.Dir, "stop", sid)
	attached.err.shows(t, "was stopped; `rejoin resume")
	if code := attached.wait(t); code != 0 {
		t.Errorf("attach ends with %d", code)
	}
}

// attach finds a server again that listens elsewhere after its restart.
func TestAttachFindsTheServerAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	serve := func() *background {
		b := runOn(t, dir, "serve", "--listen", "tcp://127.0.0.1:0")
		b.err.shows(t, "to begin")
		return b
	}
	address := func() string {
		var r harness.Ready
		b, err := os.ReadFile(filepath.Join(dir, "server.json"))
		if err == nil {
			err = json.Unmarshal(b, &r)
		}
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimPrefix(r.Listeners[0].URL, "tcp://")
	}
	first := serve()
	before := address()
	sid := start(t, dir)
	attached := runOn(t, dir, "attach", sid)
	attached.out.shows(t, "demo started")
	if err := first.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	first.wait(t)
	attached.err.shows(t, "link lost: ")
	held, err := net.Listen("tcp", before) // so that it cannot be the same
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	second := serve()
	attached.err.shows(t, "rejoined at seq ")
	if code := attached.interrupt(t); code != 0 {
		t.Errorf("attach, interrupted, ends with %d", code)
	}
	if code := second.interrupt(t); code != 0 {
		t.Errorf("the server ends with %d", code)
	}
}
