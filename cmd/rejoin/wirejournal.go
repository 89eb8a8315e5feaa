package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"rejoin/journal"
	"rejoin/protocol"
	"rejoin/worker"
)

const (
	// keepsUnknown is what is shown where nobody knows how the NATS servers sync.
	keepsUnknown = "unknown"
	// askPause is between two questions to NATS servers that do not answer.
	askPause = time.Second
	// natsDefault is the level of servers of which nothing is known.
	natsDefault = 2 * time.Minute
)

// openJournal starts the journal of this process, or opens the one that its roles
// share with others.
func (s *server) openJournal(ctx context.Context) (err error) {
	var key []byte
	if s.cfg.Encryption.KeyFile != "" && s.cfg.is(protocol.RoleWorker) {
		if key, err = readKeyFile(s.cfg.Encryption.KeyFile); err != nil {
			return err
		}
		if s.seal, err = worker.NewSeal(key); err != nil {
			return err
		}
	}
	if s.cfg.split() {
		return s.connectJournal(ctx)
	}
	s.keeps = s.cfg.durability.String()
	s.node, err = journal.Start(ctx, journal.Config{
		Dir: s.cfg.dataDir, Durability: s.cfg.durability, MaxBytes: int64(s.cfg.Journal.MaxBytes),
		Key: key, Cipher: s.cfg.Encryption.Cipher, Logger: s.log,
	})
	return err
}

// connectJournal opens the journal of NATS servers.
func (s *server) connectJournal(ctx context.Context) error {
	n := s.cfg.NATS
	secure, err := n.tls()
	if err != nil {
		return err
	}
	if s.cfg.is(protocol.RoleGateway) {
		if s.hold, err = holdDirectory(s.cfg.dataDir); err != nil {
			return err
		}
	}
	if s.cfg.member() {
		return s.joinCluster(ctx)
	}
	level, err := s.askDurability(ctx, secure)
	if err != nil {
		return err
	}
	rc := journal.RemoteConfig{
		URLs: n.Servers, Creds: n.Creds, TLS: secure, Name: "rejoin-" + strings.Join(s.cfg.roleNames(), "+"),
		Create: s.cfg.is(protocol.RoleBroker), Replicas: n.Replicas, MaxBytes: int64(s.cfg.Journal.MaxBytes),
		Durability: level, Logger: s.log,
	}
	if s.cfg.is(protocol.RoleWorker) {
		rc.Dir = s.cfg.dataDir
	}
	s.node, err = journal.Connect(ctx, rc)
	return err
}

// joinCluster opens the journal that this process keeps with its peers.
func (s *server) joinCluster(ctx context.Context) error {
	m, err := s.cfg.memberConfig()
	if err != nil {
		return err
	}
	s.node, err = journal.Connect(ctx, journal.RemoteConfig{
		Member: m, Name: "rejoin-" + m.Name, Dir: s.cfg.dataDir, Create: true, MaxBytes: int64(s.cfg.Journal.MaxBytes),
		Durability: s.cfg.durability, Logger: s.log,
	})
	if err == nil {
		s.keeps = s.node.Durability().String()
	}
	return err
}

// askDurability finds out what the NATS servers keep: they say it to the system
// account, or the configuration says it for them. Unknown, or the two minutes that
// NATS has by itself, is refused unless that was accepted.
func (s *server) askDurability(ctx context.Context, secure *tls.Config) (journal.Durability, error) {
	n := s.cfg.NATS
	switch {
	case n.Durability != "":
		s.keeps = s.cfg.durability.String()
		return s.cfg.durability, nil
	case n.SystemCreds == "":
		s.keeps = keepsUnknown
		s.log.Warn("nobody knows what the NATS servers keep when power fails")
		return journal.Durability{Interval: natsDefault}, nil // resolve has seen that it is accepted
	}
	k, err := s.askServers(ctx, secure)
	switch {
	case err != nil && n.AcceptDurability && ctx.Err() == nil:
		s.keeps = keepsUnknown
		s.log.Warn("nobody knows what the NATS servers keep when power fails", slog.Any(protocol.LogError, err))
		return journal.Durability{Interval: natsDefault}, nil
	case err != nil:
		return journal.Durability{}, err
	case k.Default && !n.AcceptDurability:
		return journal.Durability{}, fmt.Errorf("the NATS servers sync every %v: a loss of power loses what was acknowledged since; "+
			"set sync_interval: always in their jetstream block, or accept it with --accept-durability", k.Level.Interval)
	}
	s.keeps = k.Level.String()
	if k.Servers < k.Of {
		s.log.Warn("not every NATS server has said how it syncs", slog.Int("said", k.Servers), slog.Int("servers", k.Of))
	}
	return k.Level, nil
}

// askServers asks until most servers answer; once, where any answer is accepted.
func (s *server) askServers(ctx context.Context, secure *tls.Config) (journal.Keeps, error) {
	tick := time.NewTicker(askPause)
	defer tick.Stop()
	for told := false; ; told = true {
		k, err := journal.AskServers(ctx, s.cfg.NATS.Servers, s.cfg.NATS.SystemCreds, secure)
		var refused *journal.RefusedError
		if err == nil || s.cfg.NATS.AcceptDurability || errors.As(err, &refused) {
			return k, err
		}
		if !told {
			s.log.Warn("waiting for the NATS servers to say how they sync", slog.Any(protocol.LogError, err))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return k, ctx.Err()
		}
	}
}

// tls is how the servers are known and shown who this is; nil: as their URLs say.
func (n natsSettings) tls() (*tls.Config, error) {
	if n.CA == "" && n.Cert == "" {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if n.CA != "" {
		pem, err := os.ReadFile(n.CA)
		if err != nil {
			return nil, fmt.Errorf("nats: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("nats: %s holds no certificate", n.CA)
		}
	}
	if n.Cert != "" {
		pair, err := tls.LoadX509KeyPair(n.Cert, n.Key)
		if err != nil {
			return nil, fmt.Errorf("nats: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// hold keeps a second gateway out of a data directory, whose audit log and
// server.json are one gateway's. Workers hold theirs through the journal.
type hold struct{ f *os.File }

// holdDirectory makes the directory and takes it, or says who has it.
func holdDirectory(dir string) (*hold, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make data directory %s: %w", dir, cause(err))
	}
	f, err := os.OpenFile(filepath.Join(dir, "gateway.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("another gateway runs with the data directory %s: give each its own --data-dir", dir), f.Close())
	}
	err = f.Truncate(0)
	if err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("write %s: %w", f.Name(), cause(err)), f.Close())
	}
	return &hold{f}, nil
}

// release gives the directory up. A nil hold has none.
func (h *hold) release() error {
	if h == nil {
		return nil
	}
	return h.f.Close()
}
