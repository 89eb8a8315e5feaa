package security

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rejoin/tests/harness"
)

// entry is a line of the audit log.
type entry struct {
	TS         string `json:"ts"`
	Name       string `json:"name"`
	Role       string `json:"role"`
	Workspace  string `json:"workspace"`
	Token      string `json:"token"`
	Connection uint64 `json:"connection"`
	Remote     string `json:"remote"`
	Method     string `json:"method"`
	SessionID  string `json:"sessionId"`
	CommandID  string `json:"commandId"`
	Outcome    string `json:"outcome"`
	Code       int    `json:"code"`
	Reason     string `json:"reason"`
}

func (e *entry) short() string {
	s := e.Name + " " + e.Method + " " + e.Outcome
	if e.Reason != "" {
		s += " " + e.Reason
	}
	return s
}

// audited reads the audit log of a data directory.
func audited(t *testing.T, dir string) []entry {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "audit.log"))
	if err != nil {
		t.Fatal(err)
	}
	var all []entry
	for line := range strings.Lines(string(b)) {
		d := json.NewDecoder(strings.NewReader(line))
		d.DisallowUnknownFields() // nothing else is in it
		var e entry
		if err := d.Decode(&e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		all = append(all, e)
	}
	return all
}

// The audit log has every authentication, every request that changes something,
// done or refused, and the end of a token; it has no payload; and it is complete
// when the server has stopped.
func TestAuditLog(t *testing.T) {
	s := harness.Start(t, withEcho(t, ""))
	ann, eve := addToken(t, s.Dir, "ann", "operator", "w"), addToken(t, s.Dir, "eve", "observer", "w")
	c, watcher := as(t, s, ann), as(t, s, eve)
	if _, err := tryAs(t, s, "rj_wrong"); err == nil {
		t.Fatal("a wrong token is good")
	}
	id := start(t, c, "title", "payload").ID
	sent := harness.Do[struct{ CommandID string }](t, c, "send", map[string]any{"sessionId": id, "command": "payload"})
	harness.Do[json.RawMessage](t, c, "send", map[string]any{"sessionId": id, "command": "payload", "commandId": "mine"})
	refused(t, c, -32006, "send", map[string]any{"sessionId": id, "command": "other payload", "commandId": "mine"})
	refused(t, c, -32602, "send", map[string]any{"sessionId": "../../payload", "command": 1, "commandId": "pay\nload"})
	refused(t, c, -32009, "prompt", map[string]any{"sessionId": id, "text": "payload"})
	refused(t, c, -32003, "start_session", map[string]any{"argv": []string{"payload"}})
	refused(t, watcher, -32003, "stop_session", map[string]any{"sessionId": id})
	refused(t, watcher, -32003, "read_stderr", map[string]any{"sessionId": id})
	harness.Do[json.RawMessage](t, watcher, "list_sessions", nil) // reading is not audited
	harness.Do[json.RawMessage](t, c, "set_title", map[string]any{"sessionId": id, "title": "payload"})
	harness.Do[json.RawMessage](t, c, "stop_session", map[string]any{"sessionId": id})
	harness.Do[json.RawMessage](t, c, "resume_session", map[string]any{"sessionId": id})
	harness.Do[json.RawMessage](t, c, "delete_session", map[string]any{"sessionId": id})
	refused(t, c, -32000, "stop_session", map[string]any{"sessionId": "unheard-of"})
	cli(t, s.Dir, "token", "revoke", "eve")
	ended(t, watcher)
	s.Term()

	all := audited(t, s.Dir)
	var got []string
	for _, e := range all {
		got = append(got, e.short())
		if e.TS == "" || e.Method != "token_added" && e.Method != "token_removed" && (e.Connection == 0 || !strings.HasPrefix(e.Remote, "tcp 127.0.0.1:")) {
			t.Errorf("incomplete: %+v", e)
		}
		if e.Name == "ann" && (e.Role != "operator" || e.Workspace != "w" || len(e.Token) != 8) {
			t.Errorf("ann is %+v", e)
		}
	}
	want := []string{
		"ann token_added ok", "eve token_added ok", "ann authenticate ok", "eve authenticate ok", " authenticate refused auth_failed",
		"ann start_session ok", "ann send ok", "ann send ok", "ann send refused conflict", "ann send refused invalid_params",
		"ann prompt refused unsupported", "ann start_session refused forbidden", "eve stop_session refused forbidden", "eve read_stderr refused forbidden",
		"ann set_title ok", "ann stop_session ok", "ann resume_session ok", "ann delete_session ok", "ann stop_session refused session_not_found",
	}
	last := []string{"eve disconnect refused auth_failed", "eve token_removed ok"} // at the same time
	if !slices.Equal(got[:min(len(got), len(want))], want) || len(got) != len(want)+2 || !slices.Contains(got, last[0]) || !slices.Contains(got, last[1]) {
		t.Errorf("the audit log has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(append(want, last...), "\n"))
	}
	if all[5].SessionID != id || all[6].CommandID != sent.CommandID || all[7].CommandID != "mine" || all[8].Code != -32006 {
		t.Errorf("ids: %+v", all[5:9])
	}
	b, err := os.ReadFile(filepath.Join(s.Dir, "audit.log"))
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"payload", "pay\\nload", ann, eve, "rj_wrong", s.Token()} {
		if strings.Contains(string(b), secret) {
			t.Errorf("the audit log holds %q", secret)
		}
	}
	if st, err := os.Stat(filepath.Join(s.Dir, "audit.log")); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
}

// The file may be elsewhere, or not be.
func TestAuditSetting(t *testing.T) {
	path := filepath.Join(t.TempDir(), "who.log")
	s := harness.Start(t, withEcho(t, "audit: "+path))
	harness.Dial(t, s)
	s.Term()
	if b, err := os.ReadFile(path); err != nil || !strings.Contains(string(b), `"name":"admin"`) {
		t.Errorf("%v %s", err, b)
	}
	for _, more := range []string{"audit: off", `audit: "off"`} {
		s = harness.Start(t, withEcho(t, more))
		harness.Dial(t, s)
		s.Term()
		if _, err := os.Stat(filepath.Join(s.Dir, "audit.log")); err == nil {
			t.Errorf("%s: there is an audit log", more)
		}
	}
	s = harness.New(t, withEcho(t, "audit: who.log"))
	if err := s.TryRun(); err == nil || !strings.Contains(s.LogTail(), "audit must be an absolute path, or off") {
		t.Errorf("a relative path: %v", err)
	}
	s = harness.New(t, withEcho(t, "audit: "+t.TempDir()))
	if err := s.TryRun(); err == nil || !strings.Contains(s.LogTail(), "audit log") {
		t.Errorf("a directory: %v", err)
	}
}
