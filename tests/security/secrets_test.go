package security

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"rejoin/tests/harness"
)

// secrets are texts that must be nowhere, by what they are.
type secrets map[string][]byte

// has returns what of s stands in b, in clear, in hex or in base64.
func (s secrets) has(b []byte) (found []string) {
	for what, secret := range s {
		for form, text := range map[string][]byte{
			"": secret, "as hex ": []byte(hex.EncodeToString(secret)), "as base64 ": []byte(base64.RawStdEncoding.EncodeToString(secret)),
		} {
			if bytes.Contains(b, text) {
				found = append(found, form+what)
			}
		}
	}
	return found
}

// keyFiles writes a certificate, its key and a key for the journal.
func keyFiles(t *testing.T, known secrets) (cert, key, journal string) {
	t.Helper()
	dir := t.TempDir()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := k.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	known["the TLS key"] = raw
	journalKey := make([]byte, 32)
	if _, err := rand.Read(journalKey); err != nil {
		t.Fatal(err)
	}
	known["the journal's key"] = journalKey
	write := func(name string, b []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write("cert.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		write("key.pem", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})),
		write("journal.key", []byte(hex.EncodeToString(journalKey)+"\n"))
}

// heard is everything that a server said to clients.
type heard struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (h *heard) add(lines ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range lines {
		fmt.Fprintln(&h.b, l)
	}
}

// Secrets, those of tokens and keys, right ones and tried ones, are in no log, no
// event, no answer, no metric, no file but their own, no command line and no child's
// environment, whatever is done with them. Proves I-A1.
func TestSecretsAreNowhere(t *testing.T) {
	t.Run("in clear", func(t *testing.T) { secretsAreNowhere(t, false) })
	t.Run("encrypted", func(t *testing.T) { secretsAreNowhere(t, true) })
}

func secretsAreNowhere(t *testing.T, encrypted bool) {
	known := secrets{}
	random := func(what string) string {
		var b [18]byte
		if _, err := rand.Read(b[:]); err != nil {
			t.Fatal(err)
		}
		text := base64.RawURLEncoding.EncodeToString(b[:])
		known[what] = []byte(text)
		return text
	}
	local, guess := random("the local token"), random("a guess")
	cert, key, journal := keyFiles(t, known)
	tokenFile := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(tokenFile, []byte(local+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := withEcho(t, "tls: {cert: "+cert+", key: "+key+"}\nlimits: {authFailures: 1000}")
	o.Args = append(o.Args, "--log-level", "debug", "--auth-timeout", "1s")
	if encrypted {
		o.Args = append(o.Args, "--encrypt-key-file", journal)
	}
	o.Listen = []string{"tcp://127.0.0.1:0", "tls://127.0.0.1:0"}
	fromEnv := encrypted // the token, once from a file and once from the environment
	if fromEnv {
		o.Env = append(o.Env, "REJOIN_TOKEN="+local)
	} else {
		o.Args = append(o.Args, "--token-file", tokenFile)
		o.Env = append(o.Env, "REJOIN_TOKEN="+random("REJOIN_TOKEN"))
	}
	s := harness.Start(t, o)
	s.Use(local)
	ann, gone := addToken(t, s.Dir, "ann", "operator", "w"), addToken(t, s.Dir, "gone", "observer", "w")
	for what, token := range map[string]string{"ann's token": ann, "a revoked token": gone} {
		known[what] = []byte(token[strings.LastIndexByte(token, '_')+1:])
	}

	var said heard
	misuse(t, s, &said, []string{local, ann, gone, guess, ann + "x", ann[:len(ann)-1]})
	c := as(t, s, ann)
	id := start(t, c).ID
	harness.Do[json.RawMessage](t, c, "send", map[string]any{"sessionId": id, "command": "hello"})
	failures(t, c, id, &said)
	cli(t, s.Dir, "token", "revoke", "gone")
	for _, args := range [][]string{{"ls"}, {"token", "ls"}, {"token", "ls", "--json"}, {"events", id}, {"token", "revoke", "nobody"}} {
		out, _, errOut := tryCLI(t, s.Dir, []string{"REJOIN_TOKEN=" + ann}, args...)
		said.add(out, errOut)
	}
	out, code, errOut := tryCLI(t, s.Dir, []string{"REJOIN_TOKEN=" + guess}, "ls")
	said.add(out, errOut)
	if code != 4 {
		t.Errorf("a guess on the command line: exit status %d", code)
	}
	echoed := harness.Do[json.RawMessage](t, c, "read_events", map[string]any{"sessionId": id, "after": 0})
	said.add(string(echoed))
	if !bytes.Contains(echoed, []byte(`"env":[`)) {
		t.Error("the child's environment is not in its events: nothing was looked at")
	}
	child := harness.Do[session](t, c, "get_session", map[string]any{"sessionId": id}).PID
	for _, pid := range []int{s.PID(), child} {
		for _, name := range []string{"cmdline", "environ"} {
			if name == "environ" && pid == s.PID() {
				continue // what it was given; only its own user may read that
			}
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
			if err != nil || len(b) == 0 {
				t.Fatalf("%s of %d: %v", name, pid, err)
			}
			report(t, known, fmt.Sprintf("/proc/%d/%s", pid, name), b)
		}
	}
	s.Kill9()
	s.Run()
	as(t, s, ann)
	s.Term()

	report(t, known, "what the server said", said.b.Bytes())
	log, err := os.ReadFile(s.LogPath)
	if err != nil || !bytes.Contains(log, []byte("level=DEBUG")) || !bytes.Contains(log, []byte("invalid token")) {
		t.Errorf("the log is not one of everything: %v", err)
	}
	report(t, known, "the log", log)
	files := 0
	err = filepath.WalkDir(s.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		report(t, known, path, b)
		files++
		return err
	})
	if err != nil || files < 10 {
		t.Errorf("%d files, %v", files, err)
	}
}

func report(t *testing.T, known secrets, where string, b []byte) {
	t.Helper()
	for _, what := range known.has(b) {
		t.Errorf("%s holds %s", where, what)
	}
}

// misuse shows tokens where and how they should not be shown.
func misuse(t *testing.T, s *harness.Server, said *heard, tokens []string) {
	t.Helper()
	for _, token := range tokens {
		for _, line := range []string{
			`{"id":1,"method":"authenticate","params":{"token":"` + token + `"`,                           // cut off
			`{"id":1,"method":"authenticate","params":{"token":"` + token + `","token":"` + token + `"}}`, // twice
			`{"id":1,"method":"authenticate","params":{"token":["` + token + `"]}}`,
			`{"id":1,"method":"authenticate","params":"` + token + `"}`,
			`{"id":1,"method":"authenticate","params":{"` + token + `":1}}`,
			`{"id":1,"method":"` + token + `"}`,
			`{"id":1,"method":"list_sessions","params":{"token":"` + token + `"}}`,
			"AUTH " + token,
			token,
			"GET /?token=" + token + " HTTP/1.1\r\nAuthorization: Bearer " + token + "\r\n\r",
		} {
			w := harness.DialWire(t, s)
			if err := w.TrySend(line + "\n"); err != nil {
				t.Fatal(err)
			}
			w.CloseWrite()
			said.add(w.Closed()...)
		}
		shake(t, s, said, token)
	}
	long := harness.DialWire(t, s)
	if err := long.TrySend(strings.Repeat(tokens[0], 2<<20/len(tokens[0])) + "\n"); err == nil {
		said.add(long.Closed()...)
	}
	silent := harness.DialWire(t, s) // until the time for authentication is over
	said.add(silent.Closed()...)
}

// shake sends a token where a handshake is wanted, and inside one.
func shake(t *testing.T, s *harness.Server, said *heard, token string) {
	t.Helper()
	at, err := url.Parse(s.Ready.Listeners[1].URL)
	if err != nil {
		t.Fatal(err)
	}
	clear, err := net.Dial("tcp", at.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer clear.Close()
	if _, err := fmt.Fprintf(clear, "%s\n", token); err != nil {
		t.Fatal(err)
	}
	c, err := tls.Dial("tcp", at.Host, &tls.Config{InsecureSkipVerify: true, ServerName: "x"}) //nolint:gosec // the server is this test's own
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, `{"id":1,"method":"authenticate","params":{"token":"%s"}}`+"\n", token)
	if err := c.SetReadDeadline(time.Now().Add(harness.Patience)); err != nil {
		t.Fatal(err)
	}
	var b [4096]byte
	n, err := c.Read(b[:])
	if err != nil {
		t.Fatal(err)
	}
	said.add(string(b[:n]))
}

// failures has every method fail once.
func failures(t *testing.T, c *harness.Client, id string, said *heard) {
	t.Helper()
	for name := range least {
		for _, params := range []map[string]any{{}, {"sessionId": 7}, {"sessionId": "nowhere"}, {"sessionId": id, "after": -1}} {
			if slices.Contains([]string{"watch_sessions", "subscribe", "start_session", "start_session with argv", "stop_session", "delete_session"}, name) {
				continue // those that might succeed
			}
			raw, err := c.Call(harness.Context(t), name, params)
			said.add(string(raw), fmt.Sprint(err))
		}
	}
	for _, params := range []map[string]any{
		{"agent": "none"}, {"cwd": "/no/such/dir"}, {"env": map[string]string{"REJOIN_TOKEN": "x"}}, {"args": []string{"x"}}, {"argv": []string{"x"}},
	} {
		raw, err := c.Call(harness.Context(t), "start_session", params)
		said.add(string(raw), fmt.Sprint(err))
	}
}
