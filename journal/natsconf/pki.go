package natsconf

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// The CA signs the certificates of servers, by which roles and servers know them.
// It outlives every one of them.
const (
	caValid = 20 * 365 * 24 * time.Hour
	backed  = time.Hour // a certificate is valid this long before it is made, for clocks that are behind

	caFile    = "ca.pem"
	caKeyFile = "ca-key.pem"
	certFile  = "cert.pem"
	keyFile   = "key.pem"

	pemCertificate = "CERTIFICATE"
	pemKey         = "PRIVATE KEY"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

// openAuthority reads the CA of a folder, or makes it. One of its two files without
// the other is an error: a new CA would shut everybody out.
func openAuthority(dir, name string, now time.Time) (*authority, error) {
	cert, err := os.ReadFile(filepath.Join(dir, caFile))
	key, kerr := os.ReadFile(filepath.Join(dir, caKeyFile))
	switch {
	case errors.Is(err, fs.ErrNotExist) && errors.Is(kerr, fs.ErrNotExist):
		return makeAuthority(dir, name, now)
	case err != nil || kerr != nil:
		return nil, fmt.Errorf("the CA in %s is not whole: %w", dir, errors.Join(err, kerr))
	}
	a, err := parseAuthority(cert, key)
	if err != nil {
		return nil, fmt.Errorf("the CA in %s: %w", dir, err)
	}
	return a, nil
}

func parseAuthority(cert, key []byte) (*authority, error) {
	c, _ := pem.Decode(cert)
	k, _ := pem.Decode(key)
	if c == nil || k == nil {
		return nil, errors.New("not PEM")
	}
	a := &authority{pem: cert}
	var err error
	if a.cert, err = x509.ParseCertificate(c.Bytes); err != nil {
		return nil, err
	}
	parsed, err := x509.ParsePKCS8PrivateKey(k.Bytes)
	if err != nil {
		return nil, err
	}
	var ok bool
	if a.key, ok = parsed.(*ecdsa.PrivateKey); !ok || !a.key.PublicKey.Equal(a.cert.PublicKey) {
		return nil, errors.New("the key is not the certificate's")
	}
	return a, nil
}

func makeAuthority(dir, name string, now time.Time) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the CA's key: %w", err)
	}
	n, err := serial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: n, Subject: pkix.Name{CommonName: name + " NATS CA"},
		NotBefore: now.Add(-backed), NotAfter: now.Add(caValid),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("make the CA: %w", err)
	}
	a := &authority{key: key, pem: pem.EncodeToMemory(&pem.Block{Type: pemCertificate, Bytes: der})}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, fmt.Errorf("make the CA: %w", err)
	}
	if err := writeKey(filepath.Join(dir, caKeyFile), key); err != nil {
		return nil, err
	}
	return a, writeFile(filepath.Join(dir, caFile), a.pem, 0o644)
}

// issue writes a certificate of a server and its key. It is for both ends: servers
// dial one another.
func (a *authority) issue(dir string, s server, valid time.Duration, now time.Time) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make the key of %s: %w", s.name, err)
	}
	n, err := serial()
	if err != nil {
		return err
	}
	end := now.Add(valid)
	if end.After(a.cert.NotAfter) {
		end = a.cert.NotAfter
	}
	template := &x509.Certificate{
		SerialNumber: n, Subject: pkix.Name{CommonName: s.name}, NotBefore: now.Add(-backed), NotAfter: end,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if ip := net.ParseIP(s.host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{s.host}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return fmt.Errorf("make the certificate of %s: %w", s.name, err)
	}
	if err := writeKey(filepath.Join(dir, keyFile), key); err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, certFile), pem.EncodeToMemory(&pem.Block{Type: pemCertificate, Bytes: der}), 0o644)
}

func serial() (*big.Int, error) {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("make a serial number: %w", err)
	}
	return n, nil
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("encode a key: %w", err)
	}
	return writeFile(path, pem.EncodeToMemory(&pem.Block{Type: pemKey, Bytes: der}), 0o600)
}

// writeFile replaces path atomically.
func writeFile(path string, content []byte, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(f.Name()))
	}
	return nil
}
