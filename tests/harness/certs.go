package harness

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs certificates; its own is in the file Path.
type Authority struct {
	tb   testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	Path string
}

// NewAuthority makes one for the test, of which the name is in its own certificate.
func NewAuthority(tb testing.TB) *Authority {
	tb.Helper()
	a := &Authority{tb: tb, Path: filepath.Join(tb.TempDir(), "ca.pem")}
	a.key = newKey(tb)
	template := &x509.Certificate{
		SerialNumber: serial(tb), Subject: pkix.Name{CommonName: "CA of " + tb.Name()},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err == nil {
		a.cert, err = x509.ParseCertificate(der)
	}
	if err != nil {
		tb.Fatal(err)
	}
	writePEM(tb, a.Path, "CERTIFICATE", der)
	return a
}

// Files are a certificate and its key.
type Files struct{ Cert, Key string }

// Issue writes a certificate for that name, 127.0.0.1 and both ends of TLS, good for
// an hour.
func (a *Authority) Issue(name string) Files {
	a.tb.Helper()
	return a.IssueUntil(name, time.Now().Add(time.Hour))
}

// IssueUntil is Issue of one that ends then.
func (a *Authority) IssueUntil(name string, ends time.Time) Files {
	a.tb.Helper()
	dir := a.tb.TempDir()
	f := Files{filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")}
	a.write(f, name, ends)
	return f
}

// Reissue replaces the files of f, by a certificate with the serial number that it
// returns.
func (a *Authority) Reissue(f Files, name string) *big.Int {
	a.tb.Helper()
	return a.write(f, name, time.Now().Add(time.Hour))
}

func (a *Authority) write(f Files, name string, ends time.Time) *big.Int {
	a.tb.Helper()
	key := newKey(a.tb)
	template := &x509.Certificate{
		SerialNumber: serial(a.tb), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: ends,
		DNSNames: []string{name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.tb.Fatal(err)
	}
	writePEM(a.tb, f.Cert, "CERTIFICATE", der)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.tb.Fatal(err)
	}
	writePEM(a.tb, f.Key, "PRIVATE KEY", pkcs8)
	return template.SerialNumber
}

// Client is what a client that trusts a dials with, with an own certificate if
// there is one.
func (a *Authority) Client(own *Files) *tls.Config {
	a.tb.Helper()
	c := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	c.RootCAs.AddCert(a.cert)
	if own != nil {
		pair, err := tls.LoadX509KeyPair(own.Cert, own.Key)
		if err != nil {
			a.tb.Fatal(err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c
}

func newKey(tb testing.TB) *ecdsa.PrivateKey {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	return key
}

func serial(tb testing.TB) *big.Int {
	tb.Helper()
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 100))
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

func writePEM(tb testing.TB, path, kind string, der []byte) {
	tb.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		tb.Fatal(err)
	}
}
