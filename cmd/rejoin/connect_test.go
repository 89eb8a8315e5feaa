package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rejoin/protocol"
)

func TestTarget(t *testing.T) {
	dir := t.TempDir()
	elsewhere := filepath.Join(t.TempDir(), "other-token")
	for path, text := range map[string]string{tokenFile(dir): "local\n", elsewhere: "other\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	serve := func(r readyData) {
		t.Helper()
		if err := r.write(serverFile(dir)); err != nil {
			t.Fatal(err)
		}
	}
	find := func(server, token, env string) target {
		t.Helper()
		a := &app{server: server, token: token, dataDir: dir, getenv: func(string) string { return env }}
		got, err := a.target()
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	check := func(what string, got target, url, token string) {
		t.Helper()
		if got.url != url || got.token != token {
			t.Errorf("%s: %+v, want %s with token %q", what, got, url, token)
		}
	}
	check("no server known", find("", "", ""), listenDefault, "local")
	check("flag", find("", "flag", "env"), listenDefault, "flag")
	check("environment", find("", "", "env"), listenDefault, "env")
	check("a server elsewhere never gets the local token", find("tcp://10.0.0.1:9", "", ""), "tcp://10.0.0.1:9", "")
	listeners := []readyListener{{URL: "tcp://127.0.0.1:77", Dialect: "native"}}
	serve(readyData{PID: os.Getpid(), Listeners: listeners, TokenFile: elsewhere})
	check("local server", find("", "", ""), "tcp://127.0.0.1:77", "other")
	serve(readyData{PID: os.Getpid(), Listeners: listeners})
	check("local server without a token file", find("", "", ""), "tcp://127.0.0.1:77", "")
	serve(readyData{PID: 1 << 30, Listeners: listeners})
	check("dead server", find("", "", ""), listenDefault, "local")
}

func TestPick(t *testing.T) {
	all := []protocol.SessionInfo{{ID: "abc"}, {ID: "abd"}, {ID: "b"}, {ID: "c1"}, {ID: "c2"}, {ID: "c3"}, {ID: "c4"}, {ID: "c5"}, {ID: "c6"}}
	for _, c := range []struct{ prefix, id, says string }{
		{"abc", "abc", ""},
		{"b", "b", ""},
		{"ab", "", `"ab" is ambiguous: abc, abd`},
		{"c", "", "c5, … 6 in all"},
		{"x", "", `no session begins with "x"`},
	} {
		got, err := pick(all, c.prefix)
		if got.ID != c.id || (err == nil) != (c.says == "") {
			t.Errorf("%s: %q, %v", c.prefix, got.ID, err)
		}
		if err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", c.prefix, err, c.says)
		}
	}
}

func TestTokenIsMadeOnce(t *testing.T) {
	dir := t.TempDir()
	first, err := ensureToken(dir)
	if err != nil || len(first) != 32 {
		t.Fatalf("token %q, %v", first, err)
	}
	if again, err := ensureToken(dir); again != first || err != nil {
		t.Errorf("second start: %q, %v", again, err)
	}
	if fi, err := os.Stat(tokenFile(dir)); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("token file: %v, %v", fi.Mode(), err)
	}
	if err := os.WriteFile(tokenFile(dir), []byte(" \n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ensureToken(dir); err == nil {
		t.Error("an empty token file is accepted")
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestReadyFileIsReplacedWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ready.json")
	for range 2 {
		r := readyData{PID: 7, Listeners: []readyListener{{"tcp://127.0.0.1:1", "native"}}, TokenFile: "/t", DataDir: "/d"}
		if err := r.write(path); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(path)
	want := `{"pid":7,"listeners":[{"url":"tcp://127.0.0.1:1","dialect":"native"}],"tokenFile":"/t","dataDir":"/d"}` + "\n"
	if err != nil || string(b) != want {
		t.Errorf("%s, %v", b, err)
	}
	if err := (readyData{}).write("/nowhere/ready.json"); err == nil || !strings.Contains(err.Error(), "write /nowhere/ready.json: no such file") {
		t.Errorf("into a directory that is not there: %v", err)
	}
	if err := removeReady(path); err != nil {
		t.Error(err)
	}
	if err := removeReady(path); err != nil {
		t.Errorf("removed twice: %v", err)
	}
}
