package deploy_test

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"rejoin/tests/harness"
)

// proxied is a configuration of deploy/proxy that runs, with addresses of this
// machine instead of those that stand there.
type proxied struct {
	tcp, web string // where clients connect
	a, b     string // the gateways' tcp listeners
	log      string
}

// run starts the program with the file, each key of put replaced by its value.
func run(t *testing.T, program, file string, args func(config string) []string, put map[string]string) (log string) {
	t.Helper()
	exe, err := exec.LookPath(program)
	if err != nil {
		if os.Getenv("REJOIN_REQUIRE_DEPLOY") == "1" {
			t.Fatalf("%s must be installed: %v", program, err)
		}
		t.Skipf("%s is not installed (.ci/deploy does it)", program)
	}
	text := texts(t)["deploy/proxy/"+file]
	for old, now := range put {
		if !strings.Contains(text, old) {
			t.Fatalf("deploy/proxy/%s has no %q", file, old)
		}
		text = strings.ReplaceAll(text, old, now)
	}
	dir := t.TempDir()
	config := filepath.Join(dir, file)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	log = filepath.Join(dir, "log")
	out, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, args(config)...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended by itself
		_ = cmd.Wait()                          // the same
		_ = out.Close()
		if said, err := os.ReadFile(log); err == nil && t.Failed() {
			t.Logf("%s says:\n%s", program, said[max(0, len(said)-2000):])
		}
	})
	return log
}

func port(t *testing.T) string {
	t.Helper()
	return strings.TrimPrefix(harness.FixedPort(t), "tcp://")
}

// certificate writes one with its key into a file, as the proxies want it.
func certificate(t *testing.T) (dir string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"rejoin.example"}, NotAfter: time.Now().Add(time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	both := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})...)
	if err := os.WriteFile(filepath.Join(dir, "web.pem"), both, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// proxies run the configuration files with two gateways and one web server behind.
var proxies = map[string]func(t *testing.T, web string) proxied{
	"haproxy": func(t *testing.T, web string) proxied {
		p := proxied{tcp: port(t), web: port(t), a: port(t), b: port(t)}
		p.log = run(t, "haproxy", "haproxy.cfg", func(c string) []string { return []string{"-db", "-f", c} }, map[string]string{
			"bind *:9800": "bind " + p.tcp, "bind *:443": "bind " + p.web, "crt-base /etc/rejoin/tls": "crt-base " + certificate(t),
			"10.0.0.11:9800": p.a, "10.0.0.12:9800": p.b, "10.0.0.11:9801": web, "10.0.0.12:9801": web,
			"/run/haproxy/admin.sock": filepath.Join(t.TempDir(), "admin.sock"), "maxconn 40000": "maxconn 200",
		})
		return p
	},
	"nginx": func(t *testing.T, web string) proxied {
		p := proxied{tcp: port(t), web: port(t), a: port(t), b: port(t)}
		dir := t.TempDir()
		p.log = run(t, "nginx", "nginx.conf", func(c string) []string { return []string{"-c", c, "-g", "daemon off;"} }, map[string]string{
			"listen 9800": "listen " + p.tcp, "listen 443": "listen " + p.web, "/etc/rejoin/tls": certificate(t),
			"10.0.0.11:9800": p.a, "10.0.0.12:9800": p.b, "10.0.0.11:9801": web, "10.0.0.12:9801": web,
			"/run/nginx.pid": filepath.Join(dir, "pid"), "worker_connections 40000": "worker_connections 200", "worker_rlimit_nofile 100000": "worker_rlimit_nofile 1000",
		})
		return p
	},
}

// line is a connection through a proxy.
type line struct {
	t *testing.T
	*net.TCPConn
	r *bufio.Reader
}

// reach connects through the proxy and authenticates; false while no gateway is
// reached.
func reach(t *testing.T, address, token string) (*line, bool) {
	conn, err := net.DialTimeout("tcp", address, harness.Patience)
	if err != nil {
		return nil, false
	}
	l := &line{t, conn.(*net.TCPConn), bufio.NewReader(conn)}
	fmt.Fprintf(l, `{"id":1,"method":"authenticate","params":{"token":%q}}`+"\n", token)
	said, err := l.next()
	if err != nil || !strings.Contains(said, `"authenticated":true`) {
		_ = conn.Close() // it leads nowhere
		return nil, false
	}
	t.Cleanup(func() { _ = conn.Close() }) // the test may have closed it
	return l, true
}

func (l *line) next() (string, error) {
	if err := l.SetReadDeadline(time.Now().Add(harness.Patience)); err != nil {
		return "", err
	}
	return l.r.ReadString('\n')
}

// until reads lines up to one that contains text.
func (l *line) until(text string) {
	l.t.Helper()
	for {
		said, err := l.next()
		if err != nil {
			l.t.Fatalf("no line with %q came: %v", text, err)
		}
		if strings.Contains(said, text) {
			return
		}
	}
}

// TestProxies runs each configuration with servers behind it. A gateway that is not
// there is left out; a client that has closed its sending side still gets every
// event; when its gateway stops, the next connection reaches the other.
func TestProxies(t *testing.T) {
	const token = "a-token-of-this-test-only"
	for name, start := range proxies {
		t.Run(name, func(t *testing.T) {
			p := start(t, "127.0.0.1:1")
			a := harness.Start(t, harness.Options{Listen: []string{"tcp://" + p.a}, Args: []string{"--token", token}})
			var half *line
			harness.Eventually(t, "a gateway is reached", func() bool {
				l, ok := reach(t, p.tcp, token)
				half = l
				return ok
			})
			direct, ok := reach(t, p.a, token)
			if !ok {
				t.Fatal("the gateway itself is not reached")
			}
			fmt.Fprintln(direct, `{"id":2,"method":"start_session","params":{"sessionId":"s","argv":["cat"]}}`)
			direct.until(`"sessionId":"s"`)
			fmt.Fprintln(half, `{"id":3,"method":"subscribe","params":{"sessionId":"s","after":0}}`)
			half.until(`"synced"`)
			if err := half.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			for n := range 20 { // one at a time: each must leave at once
				fmt.Fprintf(direct, `{"id":4,"method":"send","params":{"sessionId":"s","command":{"n":"echo-%d"}}}`+"\n", n)
				half.until(fmt.Sprintf(`"source":"child","event":{"n":"echo-%d"}`, n))
			}
			b := harness.Start(t, harness.Options{Listen: []string{"tcp://" + p.b}, Args: []string{"--token", token}})
			a.Term()
			half.until(`"session_end"`)
			harness.Eventually(t, "the other gateway is reached", func() bool {
				_, ok := reach(t, p.tcp, token)
				return ok
			})
			b.Term()
		})
	}
}

// TestProxiesCarryUpgrades: what follows an upgrade passes both ways at once, byte
// by byte, through the part for WebSocket.
func TestProxiesCarryUpgrades(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			return // a health check
		}
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
			"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"); err != nil {
			t.Error(err)
			return
		}
		if _, err := io.Copy(conn, rw); err != nil {
			t.Errorf("echo: %v", err)
		}
	}))
	defer web.Close()
	for name, start := range proxies {
		t.Run(name, func(t *testing.T) {
			p := start(t, strings.TrimPrefix(web.URL, "http://"))
			harness.Eventually(t, "an upgrade goes through", func() bool { return upgraded(t, p.web) })
		})
	}
}

// upgraded opens a connection, upgrades it, and has single bytes echoed.
func upgraded(t *testing.T, address string) bool {
	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // the test's own proxy
	conn, err := dialer.DialContext(harness.Context(t), "tcp", address)
	if err != nil {
		return false // not up yet
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(harness.Patience)); err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(conn, "GET /v1/ws HTTP/1.1\r\nHost: rejoin.example\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusSwitchingProtocols {
		return false // no server is known to be there yet
	}
	for n := range byte(50) {
		if _, err := conn.Write([]byte{n}); err != nil {
			t.Fatal(err)
		}
		if got, err := r.ReadByte(); err != nil || got != n {
			t.Fatalf("byte %d came back as %d, %v", n, got, err)
		}
	}
	return true
}
