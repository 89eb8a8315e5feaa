package member_test

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"testing"
	"time"

	"rejoin/tests/harness"
)

// TestMutualTLS: three members show each other certificates of one CA. Who shows
// another, one that has expired, or none, is not let in; the logs of both say why.
func TestMutualTLS(t *testing.T) {
	ca, stranger := harness.NewAuthority(t), harness.NewAuthority(t)
	later := time.Now().Add(time.Hour)
	s := newTrioBy(t, func() []string { return shows(ca, ca, later) })
	s.run(0, 1, 2)
	c := s.dial(0)
	of := s.start(c, 1)
	s.talk(c, of, 20)
	for i := range s.members {
		s.kept(s.dial(i), of)
	}
	const bad, unknown, noTLS = "tls: bad certificate", "certificate signed by unknown authority", "first record does not look like a TLS handshake"
	for _, d := range []struct {
		name         string
		flags        []string
		hears, tells string // what it says itself, and what a member says
	}{
		{"a certificate of another CA", shows(stranger, ca, later), bad, unknown},
		{"members of another CA", shows(ca, stranger, later), unknown, bad},
		{"an expired certificate", shows(ca, ca, time.Now().Add(-time.Hour)), bad, "certificate has expired"},
		{"no TLS", []string{"--cluster-ca", "", "--cluster-cert", "", "--cluster-key", ""}, "authentication error", noTLS},
	} {
		t.Run(d.name, func(t *testing.T) {
			s.t = t
			s.members[2].Term()
			had := []int64{s.logged(0), s.logged(1), s.logged(2)}
			s.members[2].Begin(d.flags...)
			harness.Eventually(t, "a member says why", func() bool { return s.saidSince(0, had[0], d.tells) || s.saidSince(1, had[1], d.tells) })
			harness.Eventually(t, "who is refused says why", func() bool { return s.saidSince(2, had[2], d.hears) })
			s.talk(c, of, 5) // the two go on
			if s.saidSince(2, had[2], "to begin") {
				t.Errorf("who is refused is ready\n%s", s.members[2].LogTail())
			}
			s.members[2].Kill9()
			s.run(2)
			s.kept(s.dial(2), of)
		})
	}
	s.t = t
	t.Run("TLS without a certificate", func(t *testing.T) {
		had := s.logged(0)
		trusting := ca.Client(nil)
		trusting.ServerName = "127.0.0.1"
		secure := tls.Client(s.route(t, 0), trusting)
		if got, err := io.ReadAll(secure); err == nil || len(got) > 0 {
			t.Errorf("it gets %q, %v", got, err)
		}
		harness.Eventually(t, "the member says why", func() bool { return s.saidSince(0, had, "client didn't provide a certificate") })
	})
	t.Run("plaintext", func(t *testing.T) {
		had, conn := s.logged(0), s.route(t, 0)
		if _, err := io.WriteString(conn, "CONNECT {\"verbose\":false,\"name\":\"m9\",\"cluster\":\"trio\"}\r\nPING\r\n"); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(conn); bytes.Contains(got, []byte("PONG")) || bytes.Contains(got, []byte("INFO")) {
			t.Errorf("it gets %q, %v", got, err)
		}
		harness.Eventually(t, "the member says why", func() bool { return s.saidSince(0, had, noTLS) })
	})
}

// route connects to where peers reach member i.
func (s *trio) route(t *testing.T, i int) net.Conn {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(harness.Context(t), "tcp", s.at[i])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // it is to be refused
	return conn
}
