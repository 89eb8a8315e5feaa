package security

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"rejoin/tests/harness"
)

// A token is good as soon as `token add` has printed it.
func TestAddedTokenIsGoodAtOnce(t *testing.T) {
	s := harness.Start(t, withEcho(t, ""))
	for _, name := range []string{"a", "b", "c"} {
		token := addToken(t, s.Dir, name, "operator", "default")
		c := as(t, s, token)
		id := start(t, c).ID
		harness.Do[json.RawMessage](t, c, "send", map[string]any{"sessionId": id, "command": 1})
		if out, code, errOut := tryCLI(t, s.Dir, []string{"REJOIN_TOKEN=" + token}, "ls", "--json"); code != 0 || !strings.Contains(out, id) {
			t.Errorf("ls with the token: %d %s%s", code, out, errOut)
		}
	}
	if st, err := os.Stat(filepath.Join(s.Dir, "tokens.yaml")); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("tokens.yaml: %v, %v", st, err)
	}
}

func TestTokenCommands(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data") // before a server's first start
	ann := addToken(t, dir, "ann", "operator", "team", "--expires", "30d")
	addToken(t, dir, "bob", "observer", "default")
	var all []struct {
		ID, Name, Role, Workspace string
		CreatedAt, Expires        time.Time
	}
	out := cli(t, dir, "token", "ls", "--json")
	if err := json.Unmarshal([]byte(out), &all); err != nil || len(all) != 2 {
		t.Fatalf("%v\n%s", err, out)
	}
	a := all[0]
	if a.Name != "ann" || a.Role != "operator" || a.Workspace != "team" || !strings.HasPrefix(ann, "rj_"+a.ID+"_") {
		t.Errorf("ann is %+v with token %s", a, ann)
	}
	if d := a.Expires.Sub(a.CreatedAt); d < 30*24*time.Hour || d > 30*24*time.Hour+time.Minute {
		t.Errorf("30d are %v", d)
	}
	if table := cli(t, dir, "token", "ls"); !strings.Contains(table, "observer") || !strings.Contains(table, "never") {
		t.Errorf("ls says\n%s", table)
	}
	for _, bad := range [][]string{
		{"token", "add", "eve"},
		{"token", "add", "eve", "--role", "root"},
		{"token", "add", "a b", "--role", "admin"},
		{"token", "add", "admin", "--role", "admin"},
		{"token", "add", "eve", "--role", "admin", "--workspace", "../x"},
		{"token", "add", "eve", "--role", "admin", "--expires", "soon"},
		{"token", "add", "eve", "--role", "admin", "--expires", "2020-01-01T00:00:00Z"},
		{"token", "revoke"},
	} {
		if out, code, errOut := tryCLI(t, dir, nil, bad...); code != 2 || out != "" {
			t.Errorf("%v: exit status %d\n%s%s", bad, code, out, errOut)
		}
	}
	if _, code, errOut := tryCLI(t, dir, nil, "token", "add", "ann", "--role", "admin"); code != 1 || !strings.Contains(errOut, "already") {
		t.Errorf("ann twice: %d %s", code, errOut)
	}
	cli(t, dir, "token", "revoke", a.ID)
	if _, code, errOut := tryCLI(t, dir, nil, "token", "revoke", "ann"); code != 1 || !strings.Contains(errOut, "there is no token") {
		t.Errorf("revoked twice: %d %s", code, errOut)
	}
}

// Revoking ends what is live, and only that: the subscription with its reason, then
// the connection; a client that reads nothing is cut as well. Proves I-A1.
func TestRevokeEndsLiveConnections(t *testing.T) {
	s := harness.Start(t, withEcho(t, ""))
	gone, stays := addToken(t, s.Dir, "gone", "operator", "default"), addToken(t, s.Dir, "stays", "operator", "default")
	c, other := as(t, s, gone), as(t, s, stays)
	id := start(t, c).ID
	ctx := harness.Context(t)
	sub, err := c.Subscribe(ctx, id, map[string]any{"after": 0})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sub.Synced(ctx); err != nil {
		t.Fatal(err)
	}
	theirs, err := other.Subscribe(ctx, id, map[string]any{"after": 0})
	if err != nil {
		t.Fatal(err)
	}
	watch := as(t, s, gone)
	harness.Do[json.RawMessage](t, watch, "server_status", nil)
	deaf := harness.DialWire(t, s)
	deaf.Authenticate(gone)
	following := followCLI(t, s, gone, id)

	cli(t, s.Dir, "token", "revoke", "gone")
	end, err := sub.End(ctx)
	if err != nil || end.Reason != "forbidden" {
		t.Errorf("the subscription ended with %+v, %v", end, err)
	}
	ended(t, c)
	ended(t, watch)
	if lines := deaf.Closed(); len(lines) != 0 {
		t.Errorf("a connection without subscription was told %q", lines)
	}
	if code := <-following; code != 4 {
		t.Errorf("rejoin events --follow ended with status %d", code)
	}
	_, err = tryAs(t, s, gone)
	var rpc *harness.RPCError
	if !errors.As(err, &rpc) || rpc.Code != -32001 || rpc.Data.Reason != "auth_failed" || rpc.Message != "invalid token" {
		t.Errorf("the revoked token again: %v", err)
	}
	// Nothing of the other token, nor of the session, was touched.
	harness.Do[json.RawMessage](t, other, "send", map[string]any{"sessionId": id, "command": "still here"})
	if _, err := theirs.Until(ctx, func(e harness.Event) bool { return strings.Contains(string(e.Body), "still here") }); err != nil {
		t.Error(err)
	}
}

// followCLI runs `rejoin events --follow` with a token and returns its exit status.
func followCLI(t *testing.T, s *harness.Server, token, id string) <-chan int {
	t.Helper()
	code := make(chan int, 1)
	started := make(chan struct{})
	go func() {
		close(started)
		_, c, _ := tryCLI(t, s.Dir, []string{"REJOIN_TOKEN=" + token}, "events", "--follow", id)
		code <- c
	}()
	<-started
	admin := harness.Dial(t, s)
	harness.Eventually(t, "the follower has subscribed", func() bool {
		return harness.Do[struct{ Subscriptions int }](t, admin, "server_status", nil).Subscriptions >= 3
	})
	return code
}

// A client that takes no byte is cut, too.
func TestRevokeCutsAStalledReader(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	token := addToken(t, s.Dir, "gone", "operator", "default")
	admin := harness.Dial(t, s)
	id := start(t, admin).ID
	ctx := harness.Context(t)
	network, address := s.Addr()
	stalled, err := harness.ConnectBuffer(ctx, network, address, token, 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer stalled.Close()
	if _, err := stalled.Subscribe(ctx, id, map[string]any{"after": 0}); err != nil {
		t.Fatal(err)
	}
	stalled.Pause()
	harness.Do[json.RawMessage](t, admin, "prompt", map[string]any{"sessionId": id, "text": "flood 60000"})
	harness.Eventually(t, "the flood is in the journal", func() bool {
		return harness.Do[struct{ Head int }](t, admin, "get_session", map[string]any{"sessionId": id}).Head > 60000
	})
	count := func() int { return harness.Do[struct{ Connections int }](t, admin, "server_status", nil).Connections }
	if n := count(); n != 2 {
		t.Fatalf("%d connections", n)
	}
	cli(t, s.Dir, "token", "revoke", "gone")
	harness.Eventually(t, "the stalled connection is gone", func() bool { return count() == 1 })
	stalled.Resume()
	ended(t, stalled)
}

// A token that expires ends its connections at that time.
func TestExpiryEndsLiveConnections(t *testing.T) {
	s := harness.Start(t, withEcho(t, ""))
	token := addToken(t, s.Dir, "brief", "operator", "default", "--expires", "4s")
	c := as(t, s, token)
	ctx := harness.Context(t)
	sub, err := c.Subscribe(ctx, start(t, c).ID, nil)
	if err != nil {
		t.Fatal(err)
	}
	if end, err := sub.End(ctx); err != nil || end.Reason != "forbidden" {
		t.Errorf("the subscription ended with %+v, %v", end, err)
	}
	ended(t, c)
	if _, err := tryAs(t, s, token); err == nil {
		t.Error("an expired token is good")
	}
	if out := cli(t, s.Dir, "token", "ls"); !strings.Contains(out, "expired") {
		t.Errorf("ls says\n%s", out)
	}
}

// A broken token file is refused at the start, with its line, and at a reload
// leaves what was read before.
func TestBrokenTokenFile(t *testing.T) {
	s := harness.Start(t, withEcho(t, ""))
	path := filepath.Join(s.Dir, "tokens.yaml")
	token := addToken(t, s.Dir, "ann", "operator", "default")
	c := as(t, s, token)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	says := func(text string) func() bool {
		return func() bool { return strings.Contains(s.LogTail(), text) }
	}
	if err := os.WriteFile(path, append(slices.Clone(good), "- {\"id\":1}\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the log names the line", says("line 2"))
	harness.Do[json.RawMessage](t, c, "list_sessions", nil)
	as(t, s, token)
	if err := syscall.Kill(s.PID(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the reload says so, too", says("not reloaded"))
	s.Term()
	if err := s.TryRun(); err == nil || !strings.Contains(s.LogTail(), "tokens.yaml: line 2: id must be a string") {
		t.Errorf("a start with a broken file: %v\n%s", err, s.LogTail())
	}
	if err := errors.Join(os.WriteFile(path, good, 0o600), os.Chmod(path, 0o644)); err != nil {
		t.Fatal(err)
	}
	if err := s.TryRun(); err == nil || !strings.Contains(s.LogTail(), "chmod 600 it") {
		t.Errorf("a start with a file for all: %v\n%s", err, s.LogTail())
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	s.Run()
	as(t, s, token)
}

// --tokens names another file, which must be there.
func TestTokensFlag(t *testing.T) {
	path := filepath.Join(t.TempDir(), "who.yaml")
	s := harness.New(t, withEcho(t, ""))
	if err := s.TryRun("--tokens", path); err == nil || !strings.Contains(s.LogTail(), "rejoin token add --tokens") {
		t.Errorf("without the file: %v\n%s", err, s.LogTail())
	}
	if err := s.TryRun("--tokens", path, "--no-auth"); err == nil || !strings.Contains(s.LogTail(), "exclude each other") {
		t.Errorf("with --no-auth: %v\n%s", err, s.LogTail())
	}
	before := addToken(t, s.Dir, "before", "observer", "default", "--tokens", path)
	s.Run("--tokens", path)
	as(t, s, before)
	as(t, s, addToken(t, s.Dir, "after", "observer", "default")) // the command finds the server's file
	if _, err := os.Stat(filepath.Join(s.Dir, "tokens.yaml")); err == nil {
		t.Error("two token files")
	}
}

// The connection of a token stays that token's while it is in use.
func TestAuthenticateAgain(t *testing.T) {
	s := harness.Start(t, withEcho(t, ""))
	mine, theirs := addToken(t, s.Dir, "mine", "operator", "a"), addToken(t, s.Dir, "theirs", "observer", "b")
	c := as(t, s, mine)
	harness.Do[json.RawMessage](t, c, "authenticate", map[string]any{"token": mine})
	harness.Do[json.RawMessage](t, c, "authenticate", map[string]any{"token": theirs}) // nothing is open
	refused(t, c, -32003, "start_session", nil)
	harness.Do[json.RawMessage](t, c, "authenticate", map[string]any{"token": mine})
	sub, err := c.Subscribe(harness.Context(t), start(t, c).ID, nil)
	if err != nil {
		t.Fatal(err)
	}
	refused(t, c, -32003, "authenticate", map[string]any{"token": theirs})
	harness.Do[json.RawMessage](t, c, "unsubscribe", map[string]any{"subscriptionId": sub.ID()})
	harness.Do[json.RawMessage](t, c, "authenticate", map[string]any{"token": theirs})
}
