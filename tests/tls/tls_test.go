package tls_test

import (
	"crypto/tls"
	"errors"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"rejoin/client"
	"rejoin/protocol"
	"rejoin/tests/harness"
)

// A command and a client go through TLS; who does not know the CA does not.
func TestTLS(t *testing.T) {
	ca := harness.NewAuthority(t)
	s := serve(t, ca.Issue("rejoin.test"))
	if !strings.HasPrefix(s.Ready.Listeners[0].URL, "tls://127.0.0.1:") {
		t.Fatalf("the ready file lists %+v", s.Ready.Listeners)
	}
	with := func(args ...string) []string {
		return append(args, "--server", s.URL(), "--token", s.Token(), "--data-dir", t.TempDir())
	}
	code, out, errOut := cli(t, append(with("start", "--no-wait", "--adapter", "lines", "--tls-ca", ca.Path), "--", "sh", "-c", "seq 1 20000; cat")...)
	if code != 0 {
		t.Fatalf("start: %d %s", code, errOut)
	}
	sid := strings.TrimSpace(out)
	c := connect(t, s, ca.Client(nil))
	sub, err := c.Subscribe(harness.Context(t), sid, client.SubscribeOptions{From: "start"})
	if err != nil {
		t.Fatal(err)
	}
	for {
		m, err := sub.Next(harness.Context(t))
		if err != nil {
			t.Fatal(err)
		}
		if m.Kind == client.KindEvent && strings.Contains(string(m.Event.Body), `"20000"`) {
			break
		}
	}
	if code, _, errOut := cli(t, with("ls")...); code != 3 || !strings.Contains(errOut, "--tls-ca names the CA") {
		t.Errorf("without the CA: exit code %d: %s", code, errOut)
	}
	if code, _, errOut := cli(t, with("ls", "--tls-ca", ca.Path, "--tls-server-name", "other.test")...); code != 3 || !strings.Contains(errOut, "--tls-server-name says") {
		t.Errorf("another name: exit code %d: %s", code, errOut)
	}
	if code, _, errOut := cli(t, with("ls", "--tls-ca", ca.Path, "--tls-server-name", "rejoin.test")...); code != 0 {
		t.Errorf("its name: exit code %d: %s", code, errOut)
	}
	if code, _, errOut := cli(t, "ls", "--server", s.URL(), "--token", "wrong", "--tls-ca", ca.Path, "--data-dir", t.TempDir()); code != 4 {
		t.Errorf("a wrong token: exit code %d: %s", code, errOut)
	}
}

func TestOldVersionsAreRefused(t *testing.T) {
	ca := harness.NewAuthority(t)
	s := serve(t, ca.Issue("rejoin.test"))
	for _, c := range []struct {
		version uint16
		ok      bool
	}{{tls.VersionTLS11, false}, {tls.VersionTLS12, true}, {tls.VersionTLS13, true}} {
		cfg := ca.Client(nil)
		cfg.MinVersion, cfg.MaxVersion = tls.VersionTLS10, c.version
		d := tls.Dialer{Config: cfg}
		_, address := s.Addr()
		conn, err := d.DialContext(harness.Context(t), "tcp", address)
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", tls.VersionName(c.version), err)
		}
		if err == nil {
			_ = conn.Close() // it was only looked at
		}
	}
}

// With a client CA a certificate is needed, and is not enough.
func TestMutualTLS(t *testing.T) {
	ca, clients := harness.NewAuthority(t), harness.NewAuthority(t)
	s := serve(t, ca.Issue("rejoin.test"), "--tls-client-ca", clients.Path)
	own := clients.Issue("client")
	c := connect(t, s, ca.Client(&own))
	ask(t, c, "list_sessions", nil, nil)

	stranger := ca.Issue("client") // of the wrong CA
	for name, cert := range map[string]*harness.Files{"none": nil, "of another CA": &stranger} {
		_, err := dial(t, s, ca.Client(cert))
		var op *net.OpError
		if !errors.As(err, &op) || op.Op != "remote error" {
			t.Errorf("a client with certificate %s: %v", name, err)
		}
	}
	_, err := client.Dial(harness.Context(t), client.Options{URL: s.URL(), Token: "wrong", TLS: ca.Client(&own)})
	var rpc *client.RPCError
	if !errors.As(err, &rpc) || rpc.Code != protocol.CodeAuth {
		t.Errorf("a certificate and a wrong token: %v", err)
	}
	code, _, errOut := cli(t, "ls", "--server", s.URL(), "--token", s.Token(), "--tls-ca", ca.Path, "--data-dir", t.TempDir())
	if code != 3 || !strings.Contains(errOut, "--tls-cert and --tls-key give one") {
		t.Errorf("the command without a certificate: %d %s", code, errOut)
	}
	code, _, errOut = cli(t, "ls", "--server", s.URL(), "--token", s.Token(), "--tls-ca", ca.Path, "--tls-cert", own.Cert, "--tls-key", own.Key, "--data-dir", t.TempDir())
	if code != 0 {
		t.Errorf("the command with a certificate: %d %s", code, errOut)
	}
}

// SIGHUP replaces certificates for new connections and touches no old one; files
// that do not read leave the old ones in force.
func TestReload(t *testing.T) {
	ca := harness.NewAuthority(t)
	f := ca.Issue("rejoin.test")
	s := serve(t, f)
	var links []client.Link
	c, err := client.Dial(harness.Context(t), client.Options{
		URL: s.URL(), Token: s.Token(), TLS: ca.Client(nil), OnLink: func(l client.Link) { links = append(links, l) },
	})
	if err != nil {
		t.Fatal(err)
	}
	var started struct {
		SessionID string `json:"sessionId"`
	}
	ask(t, c, "start_session", map[string]any{"argv": []string{"cat"}, "adapter": "lines"}, &started)
	first := serialOf(t, s, ca.Client(nil))

	hup := func() {
		t.Helper()
		if err := syscall.Kill(s.PID(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	good, err := os.ReadFile(f.Cert)
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"no certificate", ""} {
		if err := os.WriteFile(f.Cert, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		before := strings.Count(s.LogTail(), "not reloaded")
		hup()
		harness.Eventually(t, "it says that it is not reloaded", func() bool { return strings.Count(s.LogTail(), "not reloaded") > before })
		if now := serialOf(t, s, ca.Client(nil)); now != first {
			t.Fatalf("a bad file changed the certificate from %s to %s", first, now)
		}
	}
	if err := os.WriteFile(f.Cert, good, 0o600); err != nil {
		t.Fatal(err)
	}
	second := ca.Reissue(f, "rejoin.test").String()
	hup()
	harness.Eventually(t, "new connections get the new certificate", func() bool { return serialOf(t, s, ca.Client(nil)) == second })

	var sent struct {
		Seq uint64 `json:"seq"`
	}
	ask(t, c, "send", map[string]any{"sessionId": started.SessionID, "command": "still here"}, &sent)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		if l.State == client.LinkLost {
			t.Errorf("the link was lost: %v", l.Err)
		}
	}
}

// Each side says what is wrong when only one of them speaks TLS.
func TestOneSideSpeaksTLS(t *testing.T) {
	ca := harness.NewAuthority(t)
	f := ca.Issue("rejoin.test")
	s := harness.Start(t, harness.Options{
		Listen: []string{"tls://127.0.0.1:0", "tcp://127.0.0.1:0"}, Args: []string{"--tls-cert", f.Cert, "--tls-key", f.Key},
	})
	secured, clear := s.Ready.Listeners[0].URL, s.Ready.Listeners[1].URL
	_, err := client.Dial(harness.Context(t), client.Options{URL: strings.Replace(secured, "tls:", "tcp:", 1), Token: s.Token()})
	if err == nil || !strings.Contains(err.Error(), "this listener speaks TLS: connect with tls://") {
		t.Errorf("in clear to TLS: %v", err)
	}
	s.Says("the client does not speak TLS")
	_, err = client.Dial(harness.Context(t), client.Options{URL: strings.Replace(clear, "tcp:", "tls:", 1), Token: s.Token(), TLS: ca.Client(nil)})
	if err == nil || !strings.Contains(err.Error(), "the server does not speak TLS there; use tcp://") {
		t.Errorf("TLS to clear: %v", err)
	}
	for url, says := range map[string]string{
		strings.Replace(secured, "tls:", "tcp:", 1): "this listener speaks TLS: connect with tls://",
		strings.Replace(clear, "tcp:", "tls:", 1):   "the server does not speak TLS there; use tcp://",
	} {
		code, _, errOut := cli(t, "ls", "--server", url, "--token", s.Token(), "--tls-ca", ca.Path)
		if code != 3 || errOut != "rejoin: cannot connect to "+url+": "+says+"\n" {
			t.Errorf("ls --server %s: exit code %d, %s", url, code, errOut)
		}
	}
	code, _, errOut := cli(t, "ls", "--data-dir", s.Dir) // finds the listener that needs no certificate
	if code != 0 {
		t.Errorf("ls of the local server: %d %s", code, errOut)
	}
}

// Strangers who open connections and say nothing keep nobody out, cost bounded
// memory, and go when the time to authenticate is over.
func TestHandshakeFlood(t *testing.T) {
	ca := harness.NewAuthority(t)
	s := serve(t, ca.Issue("rejoin.test"), "--auth-timeout", "3s")
	ask(t, connect(t, s, ca.Client(nil)), "ping", nil, nil)
	before, err := harness.RSS(s.PID())
	if err != nil {
		t.Fatal(err)
	}
	_, address := s.Addr()
	const strangers = 3 * protocol.HandshakesMax
	conns := make([]net.Conn, 0, strangers)
	for range strangers {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conns = append(conns, conn)
	}
	ask(t, connect(t, s, ca.Client(nil)), "ping", nil, nil)
	after, err := harness.RSS(s.PID())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d silent connections: resident memory grew by %d KiB", strangers, (after-before)>>10)
	if grown := after - before; grown > 64<<20 {
		t.Errorf("resident memory grew by %d MiB", grown>>20)
	}
	var one [1]byte
	if err := conns[0].SetReadDeadline(time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := conns[0].Read(one[:]); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the oldest still has its place: %v", err)
	}
	last := conns[len(conns)-1] // it has had room all the time
	if err := last.SetReadDeadline(time.Now().Add(harness.Patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := last.Read(one[:]); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the newest is not cut in time: %v", err)
	}
}
