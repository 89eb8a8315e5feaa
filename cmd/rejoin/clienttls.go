package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"

	"github.com/spf13/cobra"
)

// clientTLS are the flags that say how a command talks to a tls:// server.
type clientTLS struct {
	ca         string
	cert, key  string
	serverName string
}

func (c *clientTLS) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&c.ca, "tls-ca", "", "CA that signed the certificate of a tls:// server, PEM (default: the system's)")
	f.StringVar(&c.cert, "tls-cert", "", "own certificate for a tls:// server that asks for one, PEM")
	f.StringVar(&c.key, "tls-key", "", "private key of --tls-cert, PEM")
	f.StringVar(&c.serverName, "tls-server-name", "", "name that the server's certificate must have (default: the host of --server)")
}

// config reads the files; nil when nothing was given.
func (c *clientTLS) config() (*tls.Config, error) {
	if *c == (clientTLS{}) {
		return nil, nil //nolint:nilnil // the client has a default of its own
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.serverName}
	if c.ca != "" {
		pem, err := os.ReadFile(c.ca)
		if err != nil {
			return nil, usagef("--tls-ca %s: %w", c.ca, cause(err))
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, usagef("--tls-ca %s holds no certificate", c.ca)
		}
	}
	if (c.cert == "") != (c.key == "") {
		return nil, usagef("--tls-cert and --tls-key go together")
	}
	if c.cert != "" {
		pair, err := tls.LoadX509KeyPair(c.cert, c.key)
		if err != nil {
			return nil, usagef("--tls-cert %s with --tls-key %s: %w", c.cert, c.key, cause(err))
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}

// tlsHint is what to do about a connection that TLS refused, or nothing.
func tlsHint(err error) string {
	var (
		authority x509.UnknownAuthorityError
		host      x509.HostnameError
		alert     *net.OpError
	)
	switch {
	case errors.As(err, &authority):
		return "--tls-ca names the CA that signed the server's certificate."
	case errors.As(err, &host):
		return "--tls-server-name says which name the server's certificate has."
	case errors.As(err, &alert) && alert.Op == "remote error": // crypto/tls calls an alert so
		return "The server refused this client's TLS; does it want a certificate? --tls-cert and --tls-key give one."
	}
	return ""
}
