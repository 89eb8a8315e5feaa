package natsconf

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	nats "github.com/nats-io/nats-server/v2/server"

	"rejoin/journal"
	"rejoin/protocol"
)

// read is a file of the folder.
func read(t *testing.T, name ...string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(name...))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func write(t *testing.T, c Config) *Written {
	t.Helper()
	w, err := Write(c)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// TestWriteAgain: a second run keeps what others hold, and renews the rest.
func TestWriteAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "nats")
	c := Config{Dir: dir, Servers: []string{"a", "b"}}
	write(t, c)
	kept := map[string][]byte{}
	for _, name := range []string{"ca.pem", "ca-key.pem", "broker.nk", "gateway.nk", "worker.nk", "system.nk"} {
		kept[name] = read(t, dir, name)
	}
	cert, conf := read(t, dir, "a", "cert.pem"), read(t, dir, "a", "nats.conf")
	c.Servers = append(c.Servers, "c")
	c.Combine = [][]protocol.ServerRole{{"gateway", "broker"}}
	w := write(t, c)
	for name, b := range kept {
		if !bytes.Equal(b, read(t, dir, name)) {
			t.Errorf("the second run changed %s", name)
		}
	}
	if bytes.Equal(cert, read(t, dir, "a", "cert.pem")) {
		t.Error("the second run did not renew the certificate")
	}
	if again := read(t, dir, "a", "nats.conf"); bytes.Equal(conf, again) || !bytes.Contains(again, []byte("tls://c:6222")) {
		t.Errorf("the second run did not add the server:\n%s", again)
	}
	if got := filepath.Base(w.Seeds[len(w.Seeds)-1]); got != "broker+gateway.nk" {
		t.Errorf("the combination's seed is %s", got)
	}
}

// TestRoutePing: servers look for one another as often as the journal wants it, and
// take the whole file without a warning.
func TestRoutePing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "nats")
	write(t, Config{Dir: dir, Servers: []string{"a", "b", "c"}})
	got, err := nats.ProcessConfigFile(filepath.Join(dir, "a", "nats.conf"))
	if err != nil {
		t.Fatal(err)
	}
	if got.Cluster.PingInterval != journal.RoutePing {
		t.Errorf("a route is pinged every %v", got.Cluster.PingInterval)
	}
}

// TestInstallDir: what a server is started with, and its configuration names, is where
// its folder will be on its machine; without that, where it was written.
func TestInstallDir(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "nats")
	for installed, at := range map[string]string{"": filepath.Join(dir, "b"), "/etc/nats": "/etc/nats"} {
		w := write(t, Config{Dir: dir, Servers: []string{"a", "b"}, InstallDir: installed})
		if got, want := w.Configs[1], filepath.Join(at, "nats.conf"); got != want {
			t.Errorf("installed in %q: the server is started with %s, want %s", installed, got, want)
		}
		if got, want := w.Folders[1], filepath.Join(dir, "b"); got != want {
			t.Errorf("installed in %q: the folder is %s, want %s", installed, got, want)
		}
		if conf := read(t, w.Folders[1], "nats.conf"); !bytes.Contains(conf, []byte(filepath.Join(at, "cert.pem"))) {
			t.Errorf("installed in %q: the configuration names other files:\n%s", installed, conf)
		}
	}
}

// TestKeysAreTheOwners: no key, seed or configuration is readable by others.
func TestKeysAreTheOwners(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "nats")
	write(t, Config{Dir: dir, Servers: []string{"a"}})
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		public := map[string]bool{"ca.pem": true, "cert.pem": true}[d.Name()]
		if mode := info.Mode().Perm(); mode&0o077 != 0 && !public {
			t.Errorf("%s has mode %04o", path, mode)
		}
		if b, err := os.ReadFile(path); err == nil && public && bytes.Contains(b, []byte("PRIVATE")) {
			t.Errorf("%s holds a private key", path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"broker", "gateway", "worker", "system"} {
		seed := bytes.TrimSpace(read(t, dir, name+".nk"))
		if conf := read(t, dir, "a", "nats.conf"); len(seed) == 0 || bytes.Contains(conf, seed) {
			t.Errorf("the seed %s stands in the configuration", name)
		}
	}
}

// TestCertificates: each is the CA's, for its host alone, and ends when it was asked to.
func TestCertificates(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	write(t, Config{Dir: dir, Servers: []string{"nats-a", "127.0.0.1:4223"}, Valid: 2 * time.Hour, Now: now})
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(read(t, dir, "ca.pem")) {
		t.Fatal("the CA is no certificate")
	}
	for folder, host := range map[string]string{"nats-a": "nats-a", "127-0-0-1-4223": "127.0.0.1"} {
		block, _ := pem.Decode(read(t, dir, folder, "cert.pem"))
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		for _, use := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
			if _, err := cert.Verify(x509.VerifyOptions{Roots: pool, DNSName: host, KeyUsages: []x509.ExtKeyUsage{use}, CurrentTime: now}); err != nil {
				t.Errorf("%s: %v", folder, err)
			}
		}
		if err := cert.VerifyHostname("nats-b"); err == nil {
			t.Errorf("%s is good for another host", folder)
		}
		if !cert.NotAfter.Equal(now.Add(2 * time.Hour).Truncate(time.Second).UTC()) {
			t.Errorf("%s ends %v", folder, cert.NotAfter)
		}
	}
}

// TestWriteRefusesHalfACA: a CA of which a part is gone is not made anew.
func TestWriteRefusesHalfACA(t *testing.T) {
	for _, gone := range []string{"ca.pem", "ca-key.pem"} {
		dir := t.TempDir()
		write(t, Config{Dir: dir, Servers: []string{"a"}})
		if err := os.Remove(filepath.Join(dir, gone)); err != nil {
			t.Fatal(err)
		}
		if _, err := Write(Config{Dir: dir, Servers: []string{"a"}}); err == nil || !strings.Contains(err.Error(), "not whole") {
			t.Errorf("without %s: %v", gone, err)
		}
	}
	dir := t.TempDir()
	write(t, Config{Dir: dir, Servers: []string{"a"}})
	if err := os.WriteFile(filepath.Join(dir, "worker.nk"), []byte("SUNO\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Write(Config{Dir: dir, Servers: []string{"a"}}); err == nil || !strings.Contains(err.Error(), "no seed") {
		t.Errorf("over a file that is no seed: %v", err)
	}
}
