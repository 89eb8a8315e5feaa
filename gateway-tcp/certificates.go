package gatewaytcp

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync/atomic"
	"time"
)

// TLSFiles name what a TLS listener serves with, PEM each.
type TLSFiles struct {
	Cert     string // the certificate, and after it those between it and the root
	Key      string // its private key
	ClientCA string // who signs client certificates; empty: none is asked for
}

// Certificates are what TLS listeners serve with at the moment. Reload replaces
// them for handshakes to come; connections that are open go on. Safe for
// concurrent use.
type Certificates struct {
	files TLSFiles
	now   atomic.Pointer[tls.Config]
}

// LoadCertificates reads the files. Its errors name the file.
func LoadCertificates(files TLSFiles) (*Certificates, error) {
	c := &Certificates{files: files}
	return c, c.Reload()
}

// Reload reads the files again. After an error everything stays as it was.
func (c *Certificates) Reload() error {
	cfg, err := c.files.load()
	if err != nil {
		return err
	}
	c.now.Store(cfg)
	return nil
}

// load makes the configuration of one listener generation.
//
// There are no session tickets: a resumed session would let in a client whose
// certificate or CA has gone from the files, and a handshake of an ECDSA key
// costs less than a millisecond. Records have full size from the first on: what
// the core writes is up to 64 KiB of events, and small first records would cost
// a system call for each 1.4 KB of it.
func (f TLSFiles) load() (*tls.Config, error) {
	pair, err := f.pair()
	if err != nil {
		return nil, err
	}
	cfg := &tls.Config{
		Certificates:                []tls.Certificate{pair},
		MinVersion:                  tls.VersionTLS12,
		SessionTicketsDisabled:      true,
		DynamicRecordSizingDisabled: true,
	}
	if f.ClientCA == "" {
		return cfg, nil
	}
	pem, err := os.ReadFile(f.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("client CA %s: %w", f.ClientCA, pathless(err))
	}
	cfg.ClientAuth, cfg.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
	if !cfg.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("client CA %s holds no certificate", f.ClientCA)
	}
	return cfg, nil
}

func (f TLSFiles) pair() (tls.Certificate, error) {
	cert, err := os.ReadFile(f.Cert)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("certificate %s: %w", f.Cert, pathless(err))
	}
	key, err := os.ReadFile(f.Key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("key %s: %w", f.Key, pathless(err))
	}
	pair, err := tls.X509KeyPair(cert, key) // its errors show nothing of the key
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("certificate %s with key %s: %w", f.Cert, f.Key, err)
	}
	return pair, nil
}

// Expiry is when the certificate in force expires.
func (c *Certificates) Expiry() time.Time { return c.now.Load().Certificates[0].Leaf.NotAfter }

// config is what a listener gives to crypto/tls: each handshake gets the files of
// its moment.
func (c *Certificates) config() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.now.Load(), nil },
	}
}

// pathless drops the path that a message names already.
func pathless(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}
