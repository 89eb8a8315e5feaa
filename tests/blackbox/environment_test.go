package blackbox

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rejoin/tests/harness"
)

// printed is what a child of adapter lines said up to the line END.
func printed(t *testing.T, st *harness.Stream) map[string]bool {
	t.Helper()
	lines := map[string]bool{}
	type output struct{ Type, Text string }
	for _, e := range until(t, st, "the line END", func(e harness.Event) bool {
		return e.Type() == "output" && body[output](t, e).Text == "END"
	}) {
		if e.Type() == "output" {
			lines[body[output](t, e).Text] = true
		}
	}
	return lines
}

const environmentYAML = `
envAllow: [RJ_ALL]
agents:
  own:
    adapter: lines
    argv: [sh, -c, 'env; ls "$HOME" "$TMPDIR"; touch "$HOME/in-home" "$TMPDIR/in-tmp"; echo END; read x']
    home: private
    tmp: private
    env: {RJ_SET: configured}
    envAllow: [RJ_ONE, "RJ_MANY_*"]
  open:
    adapter: lines
    argv: [sh, -c, 'env; echo END; read x']
    envAllow: ["*"]
default: own
`

// TestEnvironmentOfChildren: an allow-list, and directories of a session's own that
// are kept over a resume and go with the session. Proves I-A1.
func TestEnvironmentOfChildren(t *testing.T) {
	harness.Covers(t, "I-A1")
	config := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(config, []byte(environmentYAML), 0o600); err != nil {
		t.Fatal(err)
	}
	s := harness.Start(t, harness.Options{
		Args: []string{"--config", config},
		Env: []string{
			"RJ_ALL=1", "RJ_ONE=1", "RJ_MANY_A=1", "RJ_SECRET=hush", "ANTHROPIC_API_KEY=hush", "REJOIN_TOKEN=hush-hush-hush", "LC_RJ=1", "HTTPS_PROXY=http://p:1",
			"XDG_CONFIG_HOME=/elsewhere",
		},
	})
	s.Use("hush-hush-hush")
	cl := harness.Dial(t, s)
	for _, c := range []struct {
		name   string
		params map[string]any
		has    []string
		hasNot []string
	}{
		{"of its own", map[string]any{"sessionId": "own"}, []string{
			"RJ_ALL=1", "RJ_ONE=1", "RJ_MANY_A=1", "LC_RJ=1", "HTTPS_PROXY=http://p:1", "RJ_SET=configured",
			"HOME=" + s.Dir + "/sessions/default/own/home", "TMPDIR=" + s.Dir + "/sessions/default/own/tmp",
		}, []string{"RJ_SECRET", "ANTHROPIC_API_KEY", "REJOIN_TOKEN", "XDG_"}},
		{"open", map[string]any{"agent": "open"}, []string{"RJ_ALL=1", "RJ_SECRET=hush", "ANTHROPIC_API_KEY=hush", "XDG_CONFIG_HOME=/elsewhere"}, []string{"REJOIN_TOKEN"}},
		{
			"of an admin's program",
			map[string]any{"argv": []string{"sh", "-c", "env; echo END; read x"}, "adapter": "lines", "env": map[string]string{"RJ_OWN": "2"}},
			[]string{"RJ_ALL=1", "RJ_OWN=2", "PATH=" + os.Getenv("PATH")},
			[]string{"RJ_ONE", "RJ_SECRET", "ANTHROPIC_API_KEY", "REJOIN_TOKEN"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			st := subscribe(t, cl, harness.Do[struct{ SessionID string }](t, cl, "start_session", c.params).SessionID, fromStart)
			lines := printed(t, st)
			for _, want := range c.has {
				if !lines[want] {
					t.Errorf("no %s", want)
				}
			}
			for line := range lines {
				for _, name := range c.hasNot {
					if strings.HasPrefix(line, name) {
						t.Errorf("it has %s", line)
					}
				}
			}
		})
	}
	refuse(t, cl, -32602, "start_session", map[string]any{"agent": "open", "env": map[string]string{"LD_PRELOAD": "x"}})

	must(t, cl, "stop_session", map[string]any{"sessionId": "own"})
	st := subscribe(t, cl, "own", map[string]any{"from": "now"})
	must(t, cl, "resume_session", map[string]any{"sessionId": "own"})
	if lines := printed(t, st); !lines["in-home"] || !lines["in-tmp"] {
		t.Errorf("after a resume the directories are not what they were: %v", lines)
	}
	must(t, cl, "delete_session", map[string]any{"sessionId": "own"})
	if left, err := filepath.Glob(s.Dir + "/sessions/default/*"); err != nil || len(left) != 0 {
		t.Errorf("after the delete: %v, %v", left, err)
	}
}

// TestWorkingDirectoryThatWentAway: a resume says what is missing.
func TestWorkingDirectoryThatWentAway(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	cl := harness.Dial(t, s)
	dir := filepath.Join(t.TempDir(), "work")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	params := map[string]any{"argv": []string{"./prog"}, "cwd": dir, "sessionId": "w"}
	if err := os.WriteFile(dir+"/prog", []byte("#!/bin/sh\necho 1\nread x\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	must(t, cl, "start_session", params)
	must(t, cl, "stop_session", map[string]any{"sessionId": "w"})
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if e := refuse(t, cl, -32602, "resume_session", map[string]any{"sessionId": "w"}); e.Message != "failed to start ./prog: working directory "+dir+": no such file or directory" {
		t.Errorf("message %q", e.Message)
	}
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if e := refuse(t, cl, -32602, "resume_session", map[string]any{"sessionId": "w"}); e.Message != "failed to start ./prog: working directory "+dir+" is not a directory" {
		t.Errorf("message %q", e.Message)
	}
}
