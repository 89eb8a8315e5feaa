package tls_test

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"os/exec"
	"testing"

	"rejoin/client"
	"rejoin/tests/harness"
)

func TestMain(m *testing.M) { harness.Main(m, nil) }

// serve starts a server with one tls:// listener.
func serve(t *testing.T, f harness.Files, args ...string) *harness.Server {
	t.Helper()
	return harness.Start(t, harness.Options{
		Listen: []string{"tls://127.0.0.1:0"},
		Args:   append([]string{"--tls-cert", f.Cert, "--tls-key", f.Key}, args...),
	})
}

// dial connects a client of the product.
func dial(t *testing.T, s *harness.Server, cfg *tls.Config) (*client.Client, error) {
	t.Helper()
	c, err := client.Dial(harness.Context(t), client.Options{URL: s.URL(), Token: s.Token(), TLS: cfg})
	if err == nil {
		t.Cleanup(func() { _ = c.Close() }) // it says nothing of interest
	}
	return c, err
}

// connect is dial for a client that must be let in.
func connect(t *testing.T, s *harness.Server, cfg *tls.Config) *client.Client {
	t.Helper()
	c, err := dial(t, s, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func ask(t *testing.T, c *client.Client, method string, params, result any) {
	t.Helper()
	raw, err := c.Call(harness.Context(t), method, params)
	if err == nil && result != nil {
		err = json.Unmarshal(raw, result)
	}
	if err != nil {
		t.Fatalf("%s: %v", method, err)
	}
}

// cli runs a command.
func cli(t *testing.T, args ...string) (code int, out, errOut string) {
	t.Helper()
	cmd := exec.CommandContext(harness.Context(t), harness.Binary(t), args...)
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), o.String(), e.String()
}

// serialOf is the serial number of the certificate that a server shows.
func serialOf(t *testing.T, s *harness.Server, cfg *tls.Config) string {
	t.Helper()
	_, address := s.Addr()
	d := tls.Dialer{Config: cfg}
	conn, err := d.DialContext(harness.Context(t), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.String()
}
