package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rejoin/protocol"
)

func TestTarget(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "rejoin")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
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
	explicit, servers := true, ""
	find := func(server, token, env string) target {
		t.Helper()
		a := &app{server: server, token: token, getenv: func(name string) string {
			switch {
			case name == "REJOIN_TOKEN":
				return env
			case name == "REJOIN_SERVER":
				return servers
			case name == "XDG_DATA_HOME" && !explicit:
				return filepath.Dir(dir)
			}
			return ""
		}}
		if explicit {
			a.dataDir = dir
		}
		got, err := a.target()
		var none *noServerError
		if errors.As(err, &none) && none.dir == dir {
			got.url = "none"
		} else if err != nil {
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
	const other = "tcp://127.0.0.1:78"
	listeners := []readyListener{{URL: "tcp://127.0.0.1:77", Dialect: "native"}, {URL: "tcp://0.0.0.0:79", Dialect: "native"}}
	check("no server in the directory", find("", "", ""), "none", "")
	check("nor with a token", find("", "flag", "env"), "none", "flag")
	check("another server on this machine", find(other, "", ""), other, "")
	check("the default one by its address", find(listenDefault, "", ""), listenDefault, "")
	explicit = false
	check("default directory, no server known", find("", "", ""), listenDefault, "local")
	check("the same by its address", find(listenDefault, "", ""), listenDefault, "local")
	check("another server", find(other, "", ""), other, "")
	check("flag", find("", "flag", "env"), listenDefault, "flag")
	check("environment", find("", "", "env"), listenDefault, "env")
	check("a server elsewhere never gets the local token", find("tcp://10.0.0.1:9", "", ""), "tcp://10.0.0.1:9", "")
	for _, explicit = range []bool{true, false} {
		serve(readyData{PID: os.Getpid(), Listeners: listeners, TokenFile: elsewhere})
		check("local server", find("", "", ""), "tcp://127.0.0.1:77", "other")
		check("local server by its address", find("tcp://127.0.0.1:77", "", ""), "tcp://127.0.0.1:77", "other")
		check("local server by its name", find("tcp://localhost:77", "", ""), "tcp://127.0.0.1:77", "other")
		check("its listener for everyone", find("tcp://127.0.0.1:79", "", ""), "tcp://127.0.0.1:79", "other")
		check("with a token", find("", "flag", ""), "tcp://127.0.0.1:77", "flag")
		check("another one on the default address", find(listenDefault, "", ""), listenDefault, "")
		serve(readyData{PID: os.Getpid(), Listeners: listeners})
		check("local server without a token file", find("", "", ""), "tcp://127.0.0.1:77", "")
	}
	serve(readyData{PID: os.Getpid(), Listeners: listeners, TokenFile: elsewhere})
	check("several listeners of the local server", find("tcp://127.0.0.1:77, tcp://127.0.0.1:79", "", ""), "tcp://127.0.0.1:77", "other")
	check("the local server and another one, which must not get its token", find("tcp://127.0.0.1:77,"+other, "", ""), "tcp://127.0.0.1:77", "")
	check("the same the other way round", find(other+",tcp://127.0.0.1:77", "", ""), other, "")
	servers = other + ",tcp://10.0.0.1:9"
	if got := find("", "", ""); got.url != other || !slices.Equal(got.more, []string{"tcp://10.0.0.1:9"}) || got.local {
		t.Errorf("servers of the environment: %+v", got)
	}
	check("a server before those of the environment", find("tcp://127.0.0.1:77", "", ""), "tcp://127.0.0.1:77", "other")
	servers = other
	if got := find("", "", ""); got.url != other || len(got.more) > 0 || !got.local {
		t.Errorf("a server of the environment: %+v", got)
	}
	explicit = true
	check("a data directory before those of the environment", find("", "", ""), "tcp://127.0.0.1:77", "other")
	for _, bad := range []string{"tcp://127.0.0.1:77,", "tcp://127.0.0.1:77,gopher://x", ","} {
		a := &app{server: bad, dataDir: dir, getenv: func(string) string { return "" }}
		var usage *usageError
		if _, err := a.target(); !errors.As(err, &usage) {
			t.Errorf("--server %s: %v, want a usage error", bad, err)
		}
	}
	servers, explicit = "", false
	serve(readyData{PID: 1 << 30, Listeners: listeners})
	check("several servers, one of them the default", find(listenDefault+","+other, "", ""), listenDefault, "")
	check("dead server, default directory", find("", "", ""), listenDefault, "local")
	explicit = true
	check("dead server", find("", "", ""), "none", "")
	check("dead server by its address", find("tcp://127.0.0.1:77", "", ""), "tcp://127.0.0.1:77", "")
}

// A server that was started anew may listen elsewhere, with another token.
func TestLocateReadsAgain(t *testing.T) {
	dir := t.TempDir()
	for i, url := range []string{"tcp://127.0.0.1:1", "tcp://127.0.0.1:2"} {
		token := string(rune('a' + i))
		if err := os.WriteFile(tokenFile(dir), []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := (readyData{PID: os.Getpid(), Listeners: []readyListener{{URL: url}}, TokenFile: tokenFile(dir)}).write(serverFile(dir)); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			t    target
			want string
		}{{target{dir: dir, token: "old"}, token}, {target{dir: dir, token: "mine", given: true}, "mine"}} {
			if at, with, err := c.t.locate(); at != url || with != c.want || err != nil {
				t.Errorf("%+v: %s, %s, %v", c.t, at, with, err)
			}
		}
	}
	if err := retract(dir); err != nil {
		t.Fatal(err)
	}
	var none *noServerError
	if _, _, err := (target{dir: dir}).locate(); !errors.As(err, &none) {
		t.Errorf("without a server: %v", err)
	}
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
