package broker

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"rejoin/protocol"
)

var aTime = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

// made returns a token and its text.
func made(t *testing.T, name string, r Role, workspace string) (Token, string) {
	t.Helper()
	tok, text, err := NewToken(Token{Name: name, Role: r, Workspace: workspace}, aTime)
	if err != nil {
		t.Fatal(err)
	}
	return tok, text
}

// tokenWorld is a token file and who follows it, with a clock that a test sets.
type tokenWorld struct {
	t    *testing.T
	path string
	log  bytes.Buffer
	mu   sync.Mutex
	now  time.Time
	*tokens
	changes []TokenChange
}

func newTokenWorld(t *testing.T, entries ...Token) *tokenWorld {
	t.Helper()
	w := &tokenWorld{t: t, path: filepath.Join(t.TempDir(), "tokens.yaml"), now: aTime}
	for _, e := range entries {
		if err := AddToken(w.path, e); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	w.tokens, err = newTokens(Config{
		Token: "local", TokenFile: w.path, Logger: slog.New(slog.NewTextHandler(&w.log, nil)),
		Now: func() time.Time {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.now
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.onChange[0] = func(c TokenChange) { w.changes = append(w.changes, c) }
	return w
}

func (w *tokenWorld) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

func (w *tokenWorld) write(text string) {
	w.t.Helper()
	if err := os.WriteFile(w.path, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

func TestTokenRoundTrip(t *testing.T) {
	tok, text := made(t, "ann@example.org", RoleOperator, "team-a")
	tok.Expires = aTime.Add(1500 * time.Millisecond)
	line, _ := entryOf(tok.appendLine(nil))
	back, err := decodeToken(line)
	if err != nil || back != tok {
		t.Fatalf("%v\n got %+v\nwant %+v", err, back, tok)
	}
	if strings.Contains(string(line), text) || strings.Contains(string(line), text[len(tokenPrefix)+9:]) {
		t.Errorf("the secret stands in %s", line)
	}
	if id, _, _ := strings.Cut(strings.TrimPrefix(text, tokenPrefix), "_"); id != tok.ID {
		t.Errorf("%s does not begin with its id %s", text, tok.ID)
	}
}

// What is wrong with a token file is said with its line.
func TestTokenFileErrors(t *testing.T) {
	good, _ := made(t, "ann", RoleAdmin, "default")
	other, _ := made(t, "bob", RoleAdmin, "default")
	line := string(good.appendLine(nil))
	edit := func(old, new string) string { return strings.Replace(line, old, new, 1) }
	same := other
	same.hash = good.hash
	named := other
	named.Name = good.ID
	for name, c := range map[string]struct{ line, says string }{
		"no JSON":          {"- {\"id\":}\n", "line 4"},
		"block style":      {"- name: ann\n", "line 4"},
		"no object":        {"- [1]\n", "an entry is one line"},
		"unknown key":      {edit(`"name"`, `"nick"`), `unknown key "nick"`},
		"key twice":        {edit(`"name":"ann"`, `"name":"x","name":"ann"`), "name is repeated"},
		"no string":        {edit(`"ann"`, `7`), "name must be a string"},
		"missing":          {edit(`"name":"ann",`, ``), "name is missing"},
		"role":             {edit(`"admin"`, `"root"`), "want admin, operator or observer"},
		"name":             {edit(`"ann"`, `"a b"`), "name must match"},
		"empty name":       {edit(`"ann"`, `""`), "name must match"},
		"name admin":       {edit(`"ann"`, `"admin"`), "the server's own"},
		"name rejoin":      {edit(`"ann"`, `"rejoin"`), "the server's own"},
		"workspace":        {edit(`"default"`, `"a.b"`), "workspace must match"},
		"workspace path":   {edit(`"default"`, `"../x"`), "workspace must match"},
		"id":               {edit(good.ID, "UPPER234"), "id must be"},
		"expires":          {edit(`"createdAt"`, `"expires":"soon","createdAt"`), "expires must be a time"},
		"createdAt":        {edit(`2026-01-31T12:00:00Z`, `31.1.2026`), "createdAt must be a time"},
		"hash kind":        {edit("sha256:", "md5:"), "hash must be"},
		"hash short":       {edit(`sha256:`, `sha256:ab","hash":"`), "is repeated"},
		"hash long":        {edit(`sha256:`, `sha256:00`), "hash must be"},
		"duplicate name":   {edit(good.ID, other.ID), "name ann is used by line 2 already"},
		"duplicate id":     {edit(`"ann"`, `"eve"`), "id " + good.ID + " is used by line 2"},
		"duplicate hash":   {string(same.appendLine(nil)), "hash is used by line 2"},
		"name that is one": {string(named.appendLine(nil)), "name " + good.ID + " is used by line 2"},
		"not UTF-8":        {edit(`"ann"`, "\"\xff\""), "line 4"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseTokens([]byte("# tokens\n" + line + "\r\n" + c.line))
			if err == nil || err.Line != 4 || !strings.Contains((&TokenFileError{"f", err.Line, err.Err}).Error(), c.says) {
				t.Errorf("error %v, want one of line 4 that says %q", err, c.says)
			}
		})
	}
	all, err := parseTokens([]byte("\ufeff"))
	if err == nil {
		t.Errorf("a byte order mark alone is read as %v", all)
	}
}

func TestTokensMax(t *testing.T) {
	var b []byte
	for i := range protocol.TokensMax + 1 {
		tok, _ := made(t, fmt.Sprint("n", i), RoleObserver, "default")
		b = tok.appendLine(b)
	}
	if len(b) > protocol.TokenFileBytesMax {
		t.Errorf("%d tokens are %d bytes", protocol.TokensMax, len(b))
	}
	if _, err := parseTokens(b); err == nil || err.Line != protocol.TokensMax+1 {
		t.Errorf("%d tokens: %v", protocol.TokensMax+1, err)
	}
	if _, err := parseTokens(b[:bytes.LastIndexByte(b[:len(b)-1], '\n')+1]); err != nil {
		t.Error(err)
	}
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, bytes.Repeat([]byte("# comment\n"), protocol.TokenFileBytesMax/10+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ListTokens(path); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("a file above the limit: %v", err)
	}
}

func TestTokenFileMode(t *testing.T) {
	tok, _ := made(t, "ann", RoleAdmin, "default")
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	if err := AddToken(path, tok); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("made with mode %v, %v", st.Mode(), err)
	}
	for _, mode := range []os.FileMode{0o640, 0o604, 0o620, 0o644} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := newTokens(Config{TokenFile: path, Now: time.Now}.withDefaults()); err == nil || !strings.Contains(err.Error(), "chmod 600") {
			t.Errorf("mode %o: %v", mode, err)
		}
	}
}

// Only what is added or revoked changes: comments and the other lines stay.
func TestTokenFileEdits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	if err := os.WriteFile(path, []byte("# ours\n\n# the end, without LF"), 0o600); err != nil {
		t.Fatal(err)
	}
	ann, _ := made(t, "ann", RoleAdmin, "default")
	bob, _ := made(t, "bob", RoleObserver, "w")
	for _, tok := range []Token{ann, bob} {
		if err := AddToken(path, tok); err != nil {
			t.Fatal(err)
		}
	}
	if err := AddToken(path, Token{Name: "bob"}); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("the same name: %v", err)
	}
	if gone, err := RevokeToken(path, ann.ID); err != nil || gone != ann {
		t.Errorf("revoked %+v, %v", gone, err)
	}
	if _, err := RevokeToken(path, "ann"); !errors.Is(err, ErrNoToken) {
		t.Errorf("revoked twice: %v", err)
	}
	b, err := os.ReadFile(path)
	if want := "# ours\n\n# the end, without LF\n" + string(bob.appendLine(nil)); err != nil || string(b) != want {
		t.Errorf("%v\n got %q\nwant %q", err, b, want)
	}
}

// Many editors at a time lose nothing.
func TestTokenFileConcurrentEdits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	var wg sync.WaitGroup
	for i := range 20 {
		tok, _ := made(t, fmt.Sprint("n", i), RoleObserver, "default")
		wg.Go(func() {
			if err := AddToken(path, tok); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if all, err := ListTokens(path); err != nil || len(all) != 20 {
		t.Errorf("%d tokens, %v", len(all), err)
	}
}

func TestTokensFollowTheFile(t *testing.T) {
	ann, annText := made(t, "ann", RoleOperator, "a")
	bob, bobText := made(t, "bob", RoleObserver, "b")
	w := newTokenWorld(t, ann)
	if p, ok := w.authenticate(annText); !ok || p.Name != "ann" || p.Role != RoleOperator || p.Workspace != "a" || p.Token != ann.ID || !w.valid(p) {
		t.Errorf("ann is %+v, %v", p, ok)
	}
	if p, ok := w.authenticate("local"); !ok || p != Local() || !w.valid(p) {
		t.Errorf("the local admin is %+v, %v", p, ok)
	}
	for _, wrong := range []string{"", "rj_", bobText, annText[:len(annText)-1], annText + "a", strings.ToUpper(annText), ann.ID} {
		if p, ok := w.authenticate(wrong); ok || p != (Principal{}) {
			t.Errorf("%q is %+v", wrong, p)
		}
	}
	// Good at once, without waiting for a look at the file.
	if err := AddToken(w.path, bob); err != nil {
		t.Fatal(err)
	}
	bobs, ok := w.authenticate(bobText)
	if !ok {
		t.Error("a token that was just added is refused")
	}
	was, _ := w.authenticate(annText)
	if _, err := RevokeToken(w.path, "ann"); err != nil {
		t.Fatal(err)
	}
	w.look()
	if w.valid(was) || !w.valid(bobs) {
		t.Error("the revocation hit the wrong one, or nobody")
	}
	if _, ok := w.authenticate(annText); ok {
		t.Error("a revoked token is good")
	}
	// Another role is another principal.
	b, err := os.ReadFile(w.path)
	if err != nil {
		t.Fatal(err)
	}
	w.write(strings.Replace(string(b), "observer", "admin", 1))
	w.look()
	if w.valid(bobs) {
		t.Error("one whose role changed may go on with the old one")
	}
	if p, ok := w.authenticate(bobText); !ok || p.Role != RoleAdmin {
		t.Errorf("bob is %+v, %v", p, ok)
	}
	var told []string
	for _, c := range w.changes {
		for _, p := range c.Removed {
			told = append(told, "-"+p.Name)
		}
		for _, p := range c.Added {
			told = append(told, "+"+p.Name)
		}
	}
	if want := []string{"+bob", "-ann", "-bob", "+bob"}; !slices.Equal(told, want) {
		t.Errorf("told %v, want %v", told, want)
	}
}

// A file that cannot be read leaves what was read before, and is complained of once.
func TestBrokenTokenFile(t *testing.T) {
	ann, text := made(t, "ann", RoleAdmin, "default")
	w := newTokenWorld(t, ann)
	good, err := os.ReadFile(w.path)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		breaks func() error
		says   string
	}{
		"broken":     {func() error { return os.WriteFile(w.path, []byte("- {\"id\":\"secretive\"}\n"), 0o600) }, "line 1"},
		"half":       {func() error { return os.WriteFile(w.path, good[:len(good)/2], 0o600) }, "line 1"},
		"for others": {func() error { return os.Chmod(w.path, 0o644) }, "chmod 600"},
		"removed":    {func() error { return os.Remove(w.path) }, "no such file"},
		"directory":  {func() error { return errors.Join(os.Remove(w.path), os.Mkdir(w.path, 0o700)) }, "is no file"},
	} {
		t.Run(name, func(t *testing.T) {
			w.log.Reset()
			if err := c.breaks(); err != nil {
				t.Fatal(err)
			}
			w.look()
			w.look()
			if n := strings.Count(w.log.String(), c.says); n != 1 || strings.Contains(w.log.String(), "secretive") {
				t.Errorf("complained %d times of %q:\n%s", n, c.says, &w.log)
			}
			if _, ok := w.authenticate(text); !ok {
				t.Error("the tokens that were read before are forgotten")
			}
			if err := w.check(true); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("a reload that is asked for says %v", err)
			}
			if err := errors.Join(os.RemoveAll(w.path), os.WriteFile(w.path, good, 0o600)); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if err := w.check(true); err != nil {
					t.Error(err)
				}
			}
			if n := strings.Count(w.log.String(), "it is in force"); n != 1 {
				t.Errorf("told %d times that it is in force:\n%s", n, &w.log)
			}
		})
	}
}

func TestTokenExpiry(t *testing.T) {
	ann, text := made(t, "ann", RoleAdmin, "default")
	ann.Expires = aTime.Add(time.Hour)
	w := newTokenWorld(t, ann)
	p, ok := w.authenticate(text)
	if !ok || !w.valid(p) {
		t.Fatal("refused before its time")
	}
	w.pass(time.Hour - time.Millisecond)
	w.look()
	if !w.valid(p) || len(w.changes) != 0 {
		t.Error("over before its time")
	}
	w.pass(time.Millisecond)
	if w.valid(p) {
		t.Error("good after its time")
	}
	if q, ok := w.authenticate(text); ok || q.Name != "ann" {
		t.Errorf("after its time it is %+v, %v", q, ok)
	}
	w.look()
	w.look()
	if len(w.changes) != 1 || len(w.changes[0].Removed) != 1 || w.changes[0].Removed[0] != p {
		t.Errorf("told %+v", w.changes)
	}
}

// The server's own token is not the empty one where there is none.
func TestTokenFileAlone(t *testing.T) {
	ann, text := made(t, "ann", RoleAdmin, "default")
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	if err := AddToken(path, ann); err != nil {
		t.Fatal(err)
	}
	only, err := newTokens(Config{TokenFile: path}.withDefaults())
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := only.authenticate(""); ok || !only.required() {
		t.Error("the empty token is good")
	}
	if _, ok := only.authenticate(text); !ok {
		t.Error("ann is refused")
	}
}

// FuzzTokenFile: whatever stands in a token file, it is read or refused with a
// line, and what was read is what is written again.
func FuzzTokenFile(f *testing.F) {
	for _, seed := range []string{
		"", "# comment\n\n", "- {}\n", "{}", "- \n", "-", "---\n", "\x00", "- {\"id\":\"aaaaaaaa\"}",
		`- {"id":"abcdefgh","name":"ann","role":"admin","workspace":"default","expires":"2027-01-31T12:00:00Z","createdAt":"2026-01-31T12:00:00Z","hash":"sha256:` + strings.Repeat("0f", 32) + `"}` + "\n",
		`{"hash":"sha256:` + strings.Repeat("aB", 32) + `","createdAt":"2026-01-31T12:00:00+01:00","role":"observer","name":"a\u0062","id":"22222222"}` + "\r\n# x",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		all, err := parseTokens(b)
		if err != nil {
			if lines := bytes.Count(b, []byte("\n")) + 1; err.Line < 1 || err.Line > lines {
				t.Fatalf("line %d of %d", err.Line, lines)
			}
			return
		}
		var again []byte
		for i := range all {
			again = all[i].appendLine(again)
		}
		back, err := parseTokens(again)
		if err != nil || len(back) != len(all) {
			t.Fatalf("%v: %q", err, again)
		}
		for i := range all {
			if back[i].principal() != all[i].principal() {
				t.Fatalf("%+v became %+v", all[i], back[i])
			}
		}
	})
}
