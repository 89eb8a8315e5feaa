package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"rejoin/cmd/rejoin/internal/audit"
	"rejoin/gateway"
	gatewaytcp "rejoin/gateway-tcp"
	"rejoin/protocol"
)

// makeGateway makes the gateway and opens its listeners.
func (s *server) makeGateway(ctx context.Context) (err error) {
	if !s.cfg.is(protocol.RoleGateway) {
		return nil
	}
	l := s.cfg.Limits
	gc := gateway.Config{
		RequestBytesMax: int(l.MaxRequestBytes), AuthTimeout: time.Duration(l.AuthTimeout),
		WriteTimeout: time.Duration(l.WriteTimeout), ConnectionsMax: l.MaxConnections,
		ConnectionsPerToken: l.ConnectionsPerToken, AuthFailures: l.AuthFailures,
		RequestsPerSecond: l.RequestsPerSecond,
		ServerID:          s.node.Instance(), Version: version(), Durability: s.keeps, Logger: s.log,
	}
	if s.worker != nil {
		gc.Containment = s.containment.Status
	}
	if path := s.cfg.auditFile(); path != "" {
		if s.audit, err = audit.Open(audit.Config{Path: path, Logger: s.log}); err != nil {
			return err
		}
		gc.Audit = s.audit.Record
	}
	if err := s.listen(); err != nil {
		return err
	}
	if s.cfg.split() {
		if err := s.joinGateways(ctx, &gc); err != nil {
			return err
		}
	}
	s.gateway, err = gateway.New(gc, s.broker, s.node.Hub(), s.node, s.folds)
	return err
}

// joinGateways makes the gateway one of several.
func (s *server) joinGateways(ctx context.Context, gc *gateway.Config) error {
	gc.ServerID = string(protocol.NewEpoch(time.Now())) // a ULID: this life of the gateway
	bucket, err := s.node.Bucket(ctx, protocol.BucketGateways)
	if err != nil {
		return fmt.Errorf("open the bucket of gateways: %w", err)
	}
	copies, err := s.node.Replicas(ctx)
	if err != nil {
		return fmt.Errorf("ask how many copies the journal has: %w", err)
	}
	urls := make([]string, 0, len(s.listeners))
	for _, l := range s.listeners {
		urls = append(urls, l.URL())
	}
	s.presence, err = gateway.NewPresence(gateway.PresenceConfig{
		ID: gc.ServerID, URLs: s.cfg.advertised(urls), Version: version(), Logger: s.log,
	}, bucket)
	if err != nil {
		return err
	}
	gc.Elsewhere = s.presence.Elsewhere
	gc.Cluster = func() protocol.ClusterStatus {
		brokers, workers := s.broker.Census()
		return protocol.ClusterStatus{
			Roles: s.cfg.roles, Brokers: brokers, Workers: workers, Gateways: 1 + len(s.presence.Others()), Replicas: copies,
		}
	}
	return nil
}

// loadCertificates reads what tls:// listeners serve with.
func (s *server) loadCertificates() (err error) {
	if !slices.ContainsFunc(s.cfg.listeners, func(e gatewaytcp.Endpoint) bool { return e.Scheme == gatewaytcp.SchemeTLS }) {
		return nil
	}
	if s.certs, err = gatewaytcp.LoadCertificates(gatewaytcp.TLSFiles(s.cfg.TLS)); err != nil {
		return fmt.Errorf("tls: %w", err)
	}
	s.again.add("certificates", s.certs.Reload)
	return nil
}

// secret is the token that clients must give; empty for none.
func (s *server) secret() (string, error) {
	switch {
	case s.cfg.noAuth:
		return "", nil
	case s.cfg.token != "":
		return s.cfg.token, nil
	case s.cfg.tokenFile != "":
		s.tokenFile = s.cfg.tokenFile
		return readToken(s.cfg.tokenFile)
	}
	s.tokenFile = tokenFile(s.cfg.dataDir)
	return ensureToken(s.cfg.dataDir)
}

// listen opens every listener; those that are open when one fails are closed by
// unbuild.
func (s *server) listen() error {
	limits := gatewaytcp.Limits{
		RequestBytesMax: int(s.cfg.Limits.MaxRequestBytes), Certificates: s.certs,
		HandshakeTimeout: time.Duration(s.cfg.Limits.AuthTimeout), Logger: s.log,
	}
	for _, e := range s.cfg.listeners {
		ln, err := gatewaytcp.Listen(e.URL, limits)
		if err != nil {
			return fmt.Errorf("listen on %s: %w", e.URL, err)
		}
		s.listeners = append(s.listeners, ln)
		if err := s.cfg.keptPromise(e, ln); err != nil {
			return err
		}
	}
	return nil
}

// keptPromise refuses a name of this machine that leads elsewhere: nothing has
// been accepted yet.
func (s *settings) keptPromise(e gatewaytcp.Endpoint, at interface{ Loopback() bool }) error {
	if !e.Loopback() || at.Loopback() {
		return nil
	}
	e.Address = "" // no promise any more
	if err := s.mayListen(e); err != nil {
		return fmt.Errorf("listen on %w (the name does not lead to this machine alone)", err)
	}
	return nil
}

// stopAccepting closes the listeners; connections go on.
func (s *server) stopAccepting() error {
	var errs []error
	for _, l := range s.listeners {
		if err := l.Close(); !errors.Is(err, net.ErrClosed) { // a listener that failed is closed already
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
