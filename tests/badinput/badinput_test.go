package badinput

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	crand "crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"rejoin/tests/harness"
	"rejoin/tests/model"
)

const (
	perClass = 100
	growth   = 192 << 20 // that the server may grow by over everything
)

// TestBadInput: see the package.
func TestBadInput(t *testing.T) {
	dir := t.TempDir()
	cert, key := certificate(t, dir)
	s := harness.Start(t, harness.Options{
		Listen: []string{"tcp://127.0.0.1:0", "unix://" + filepath.Join(dir, "s"), "tls://127.0.0.1:0"},
		Args:   []string{"--tls-cert", cert, "--tls-key", key},
	})
	c := newCanary(t, s, dir)
	before, err := harness.RSS(s.PID())
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("%-9s %8s %8s %8s %8s %8s\n", "class", "listener", "inputs", "errors", "closed", "codes")
	for _, k := range classes {
		for _, l := range s.Ready.Listeners {
			inputs := distinct(k.make(rand.New(rand.NewPCG(1, 2)), c.session))
			if len(inputs) < perClass {
				t.Errorf("%s has only %d distinct inputs", k.name, len(inputs))
			}
			n := counts{codes: map[int]int{}}
			for _, in := range inputs {
				n.add(t, s, k.name, l.URL, in)
			}
			c.sings()
			fmt.Printf("%-9s %8s %8d %8d %8d   %v\n", k.name, l.URL[:strings.Index(l.URL, ":")], len(inputs), n.errors, n.closed, n.codes)
		}
	}
	after, err := harness.RSS(s.PID())
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("server RSS: %d MiB before, %d MiB after\n", before>>20, after>>20)
	if after-before > growth {
		t.Errorf("the server grew by %d MiB", (after-before)>>20)
	}
	s.Hides("panic", "goroutine ")
}

func distinct(all []input) []input {
	seen := map[string]bool{}
	return slices.DeleteFunc(all, func(in input) bool {
		k := fmt.Sprint(in.before, in.text)
		was := seen[k]
		seen[k] = true
		return was
	})
}

// canary is another connection, with a subscription to a session that prints.
type canary struct {
	t       *testing.T
	c       *harness.Client
	st      *harness.Stream
	session string
}

func newCanary(t *testing.T, s *harness.Server, dir string) *canary {
	t.Helper()
	c := &canary{t: t, c: harness.Dial(t, s)}
	var r struct {
		SessionID string `json:"sessionId"`
	}
	raw, err := c.c.Call(harness.Context(t), "start_session", map[string]any{"argv": harness.ChildArgv("model", dir, "nosync"), "adapter": "jsonl"})
	if err == nil {
		err = json.Unmarshal(raw, &r)
	}
	if err != nil {
		t.Fatal(err)
	}
	c.session = r.SessionID
	if c.st, err = c.c.SubscribeFunc(harness.Context(t), c.session, map[string]any{"after": 0}, func(harness.Event) {}); err != nil {
		t.Fatal(err)
	}
	order, err := json.Marshal(model.Order{Type: "steady", K: "steady", N: 1 << 30, B: 1})
	if err != nil {
		t.Fatal(err)
	}
	if a, err := model.Send(harness.Context(t), c.c, c.session, "steady", order); err != nil || a.Seq == 0 {
		t.Fatalf("%+v, %v", a, err)
	}
	return c
}

// sings checks that events go on coming and nothing went wrong on the connection.
func (c *canary) sings() {
	c.t.Helper()
	_, at := c.st.Cursor()
	harness.Eventually(c.t, "the canary's subscription goes on", func() bool {
		select {
		case <-c.c.Done():
			c.t.Fatalf("the canary's connection ended: %v", c.c.Breach())
		default:
		}
		_, now := c.st.Cursor()
		return now > at+5
	})
}

// counts of what came back.
type counts struct {
	errors, closed int
	codes          map[int]int
}

// add sends one input on a connection of its own and judges the answer: a named
// error, or an error line and a close.
func (n *counts) add(t *testing.T, s *harness.Server, class, listener string, in input) {
	t.Helper()
	lines, closed, err := exchange(s, listener, in)
	if err != nil {
		t.Fatalf("%s over %s, %.200q: %v", class, listener, in.text, err)
	}
	if closed {
		n.closed++
	}
	code, err := judge(lines)
	if err != nil {
		t.Errorf("%s over %s, %.300q: %v; lines %.500q, closed %v", class, listener, in.text, err, lines, closed)
		return
	}
	if len(in.codes) > 0 && !slices.Contains(in.codes, code) {
		t.Errorf("%s over %s, %.300q: error %d, want one of %v", class, listener, in.text, code, in.codes)
	}
	n.errors++
	n.codes[code]++
}

// judge returns the code of the first error among lines.
func judge(lines []string) (int, error) {
	for _, line := range lines {
		var one struct {
			Error *harness.RPCError `json:"error"`
		}
		if strings.HasPrefix(line, "[") { // of a batch, the first answer
			var all []json.RawMessage
			if err := json.Unmarshal([]byte(line), &all); err != nil || len(all) == 0 {
				return 0, fmt.Errorf("a line that is no batch: %w", err)
			}
			line = string(all[0])
		}
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			return 0, fmt.Errorf("a line that is no JSON object: %w", err)
		}
		if one.Error == nil {
			continue
		}
		if one.Error.Code == 0 || one.Error.Message == "" || one.Error.Data.Reason == "" || one.Error.Code == -32603 {
			return 0, fmt.Errorf("an error without a name: %s", line)
		}
		return one.Error.Code, nil
	}
	return 0, errors.New("no error came")
}

const mark = `{"jsonrpc":"2.0","id":"mark","method":"ping"}`

// exchange sends an input and then a ping, whose answer may overtake the input's,
// and returns the lines that came besides it until both had their answer, or the
// connection ended.
func exchange(s *harness.Server, listener string, in input) (lines []string, closed bool, err error) {
	conn, err := dial(listener)
	if err != nil {
		return nil, false, err
	}
	defer func() { _ = conn.Close() }() // it may be closed already
	if err := conn.SetDeadline(time.Now().Add(harness.Patience)); err != nil {
		return nil, false, err
	}
	r := bufio.NewReaderSize(conn, 64<<10)
	if !in.before {
		if _, err := fmt.Fprintf(conn, `{"jsonrpc":"2.0","id":0,"method":"authenticate","params":{"token":%q}}`+"\n", s.Token()); err != nil {
			return nil, false, err
		}
		if line, err := r.ReadString('\n'); err != nil || !strings.Contains(line, `"authenticated":true`) {
			return nil, false, fmt.Errorf("authenticate answered %q, %w", line, err)
		}
	}
	text := in.text
	if !in.last {
		text += "\n" + mark + "\n"
	}
	_, werr := io.WriteString(conn, text) // the server may close while it comes
	if half, ok := conn.(interface{ CloseWrite() error }); ok && in.last {
		werr = errors.Join(werr, half.CloseWrite())
	}
	for marked := false; !marked || len(lines) == 0; {
		line, err := r.ReadString('\n')
		var slow net.Error
		switch {
		case errors.As(err, &slow) && slow.Timeout():
			return lines, false, fmt.Errorf("neither an answer nor a close (%w)", errors.Join(werr, err))
		case err != nil:
			return lines, true, nil
		case strings.Contains(line, `"id":"mark"`):
			marked = true
			continue
		}
		lines = append(lines, strings.TrimSuffix(line, "\n"))
	}
	return lines, false, nil
}

func dial(listener string) (net.Conn, error) {
	u, err := url.Parse(listener)
	if err != nil {
		return nil, err
	}
	// Each from an address of its own, or the wrong tokens among the inputs keep
	// the others of their address out.
	n := dials.Add(1)
	d := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 1, byte(n>>8), byte(n))}}
	switch u.Scheme {
	case "unix":
		return net.Dial("unix", u.Path)
	case "tls":
		return tls.DialWithDialer(d, "tcp", u.Host, &tls.Config{InsecureSkipVerify: true}) // made a moment ago, for this test
	}
	return d.Dial("tcp", u.Host)
}

// dials counts the connections so far.
var dials atomic.Uint32

// certificate makes one for 127.0.0.1.
func certificate(t *testing.T, dir string) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), crand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	of := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(crand.Reader, of, of, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}
