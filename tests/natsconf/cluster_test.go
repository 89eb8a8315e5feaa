package natsconf_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"rejoin/journal"
	"rejoin/journal/natsconf"
	"rejoin/protocol"
	"rejoin/tests/harness"
)

// cluster is running servers with the files that were written for them.
type cluster struct {
	dir string
	*natsconf.Written
	logs []string
}

// start writes and runs a cluster of so many servers.
func start(t *testing.T, servers int, change func(config string)) *cluster {
	t.Helper()
	dir := t.TempDir()
	cfg := natsconf.Config{Dir: dir, StoreDir: filepath.Join(dir, "store")}
	for range servers {
		cfg.Servers = append(cfg.Servers, fmt.Sprintf("127.0.0.1:%d", freePort(t)))
	}
	w, err := natsconf.Write(cfg)
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{dir: dir, Written: w}
	binary := harness.NATSBinary(t)
	for i, config := range w.Configs {
		if change != nil {
			change(config)
		}
		log := filepath.Join(dir, fmt.Sprintf("server-%d.log", i))
		c.logs = append(c.logs, log)
		run(t, log, binary, "-c", config, "-l", log)
	}
	return c
}

// run starts a server that ends with the test.
func run(t *testing.T, log, binary string, args ...string) {
	t.Helper()
	cmd := exec.Command(binary, args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Errorf("end nats-server: %v", err)
		}
		_ = cmd.Wait() // it was told to end
		if t.Failed() {
			b, err := os.ReadFile(log)
			t.Logf("%s%v", b, err)
		}
	})
}

// freePort returns a port that is free with the one that is 2000 above it.
func freePort(t *testing.T) int {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		above, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port+2000))
		_ = l.Close() // for the server
		if err != nil {
			continue
		}
		_ = above.Close()
		return port
	}
	t.Fatal("no two free ports")
	return 0
}

// secure trusts the cluster's CA.
func (c *cluster) secure(t *testing.T) *tls.Config {
	t.Helper()
	pem, err := os.ReadFile(c.CA)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		t.Fatal("no CA")
	}
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13}
}

// a peer is a connection of a role. What it may not do is in wrong.
type peer struct {
	*nats.Conn
	t     *testing.T
	js    jetstream.JetStream
	wrong chan error
}

// dial connects with a seed.
func (c *cluster) dial(t *testing.T, seed string) *peer {
	t.Helper()
	option, err := nats.NkeyOptionFromSeed(filepath.Join(c.dir, seed+".nk"))
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{t: t, wrong: make(chan error, 64)}
	harness.Eventually(t, "a connection as "+seed, func() bool {
		p.Conn, err = nats.Connect(strings.Join(c.URLs, ","), option, nats.Secure(c.secure(t)),
			nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { p.wrong <- err }))
		return err == nil
	})
	t.Cleanup(p.Close)
	if p.js, err = jetstream.New(p.Conn); err != nil {
		t.Fatal(err)
	}
	return p
}

// refuses publishes and wants it refused.
func (p *peer) refuses(subject string) {
	p.t.Helper()
	if err := p.Publish(subject, []byte("x")); err != nil {
		p.t.Fatal(err)
	}
	p.refused("Publish", subject)
}

// takes publishes and wants no complaint: the next one is about what follows.
func (p *peer) takes(subject string) {
	p.t.Helper()
	if err := p.Publish(subject, []byte("x")); err != nil {
		p.t.Fatal(err)
	}
	p.refuses("nobody.may")
}

// refused waits for the server to complain.
func (p *peer) refused(verb, subject string) {
	p.t.Helper()
	limit := time.NewTimer(harness.Patience)
	defer limit.Stop()
	select {
	case err := <-p.wrong:
		if text := err.Error(); !strings.Contains(text, "ermissions") || !strings.Contains(text, verb) || !strings.Contains(text, subject) {
			p.t.Errorf("%s to %s: %v", verb, subject, err)
		}
	case <-limit.C:
		p.t.Errorf("%s to %s is allowed", verb, subject)
	}
}

// TestSeedsAreKeptApart: each role can write what it owns and nothing else.
func TestSeedsAreKeptApart(t *testing.T) {
	c := start(t, 3, nil)
	broker, gateway, worker := c.dial(t, "broker"), c.dial(t, "gateway"), c.dial(t, "worker")
	c.makeStreams(t, broker)
	for subject, may := range map[string][]*peer{
		"j.3.default.s1":                        {broker, worker},
		"snap.default.s1.5":                     {broker, worker},
		"$KV.sessions.default/1":                {broker, worker},
		"$KV.starts.default/1":                  {broker},
		"$KV.cluster.format":                    {broker},
		"$KV.workers.canary.b1":                 {broker},
		"$KV.workers.w1":                        {broker, worker},
		"$KV.gateways.g1":                       {gateway},
		"worker.w1~1":                           {broker, gateway},
		protocol.BrokerSubject:                  {gateway},
		protocol.BrokerSubjectOf("b1"):          {gateway},
		"changes.default.s1":                    {worker},
		"live.3.default.s1":                     {},
		"$JS.API.STREAM.DELETE.J3":              {},
		"$JS.API.STREAM.UPDATE.J3":              {},
		"$JS.API.STREAM.MSG.DELETE.J3":          {},
		"$JS.API.STREAM.CREATE.J3":              {broker},
		"$JS.API.STREAM.PURGE.J3":               {broker, worker},
		"$JS.API.STREAM.PURGE.KV_sessions":      {},
		"$JS.API.CONSUMER.CREATE.KV_sessions.x": {}, "$JS.API.CONSUMER.CREATE.J3.x.j.>": {},
		"$JS.API.STREAM.RESTORE.J3": {},
		"$SYS.REQ.SERVER.PING.JSZ":  {},
		"_INBOX.whoever.it.is":      {},
	} {
		for _, p := range []*peer{broker, gateway, worker} {
			if slices.Contains(may, p) {
				p.takes(subject)
			} else {
				p.refuses(subject)
			}
		}
	}
}

// makeStreams makes a shard and a bucket, as a broker does.
func (c *cluster) makeStreams(t *testing.T, broker *peer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(harness.Context(t), harness.Patience)
	defer cancel()
	var err error
	if !harness.Within(harness.Patience, func() bool {
		try, cancel := context.WithTimeout(ctx, 2*time.Second) // nobody answers before there is a leader
		defer cancel()
		_, err = broker.js.CreateStream(try, jetstream.StreamConfig{Name: "J3", Subjects: []string{"j.3.>"}, Replicas: 3})
		return err == nil
	}) {
		t.Fatalf("a stream of three replicas: %v", err)
	}
	if _, err := broker.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "sessions", History: 1, Replicas: 3}); err != nil {
		t.Fatal(err)
	}
}

// TestRolesWork: nodes that connect with the seeds do all that roles do, and no
// server complains of any of it.
func TestRolesWork(t *testing.T) {
	c := start(t, 3, nil)
	broker := c.connect(t, protocol.RoleBroker)
	gateway, worker := c.connect(t, protocol.RoleGateway), c.connect(t, protocol.RoleWorker)
	c.talk(t, broker, gateway, worker)
	c.keepBuckets(t, broker, gateway, worker)
	c.keepLog(t, gateway, worker)
	c.noViolations(t)
}

// connect opens the journal as a role.
func (c *cluster) connect(t *testing.T, role protocol.ServerRole) *journal.Node {
	t.Helper()
	ctx, cancel := context.WithTimeout(harness.Context(t), 2*harness.Patience)
	defer cancel()
	n, err := journal.Connect(ctx, journal.RemoteConfig{
		URLs: c.URLs, Creds: filepath.Join(c.dir, string(role)+".nk"), TLS: c.secure(t), Name: string(role),
		Create: role == protocol.RoleBroker, MaxBytes: 1 << 30, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatalf("connect as %s: %v", role, err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), harness.Patience)
		defer cancel()
		if err := n.Close(ctx); err != nil {
			t.Errorf("close as %s: %v", role, err)
		}
	})
	return n
}

// talk: requests are answered, also late; announcements arrive.
func (c *cluster) talk(t *testing.T, broker, gateway, worker *journal.Node) {
	t.Helper()
	ctx := harness.Context(t)
	owner := protocol.WorkerSubject("w1~1")
	var late sync.WaitGroup
	defer late.Wait()
	answer := func(_ []byte, reply func([]byte)) { late.Go(func() { reply([]byte("yes")) }) }
	for _, s := range []struct {
		by      *journal.Node
		subject string
		askers  []*journal.Node
	}{{worker, owner, []*journal.Node{broker, gateway}}, {broker, protocol.BrokerSubject, []*journal.Node{gateway}}} {
		stop, err := s.by.Bus().Serve(s.subject, answer)
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		for _, n := range s.askers {
			harness.Eventually(t, "an answer on "+s.subject, func() bool {
				within, cancel := context.WithTimeout(ctx, 2*time.Second)
				defer cancel()
				got, err := n.Bus().Request(within, s.subject, []byte("?"))
				return err == nil && string(got) == "yes"
			})
		}
	}
	for _, n := range []*journal.Node{broker, gateway} {
		heard := make(chan struct{}, 1)
		stop, err := n.Bus().Subscribe(protocol.ChangesAll, func([]byte) {
			select {
			case heard <- struct{}{}:
			default:
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		harness.Eventually(t, "an announcement", func() bool {
			if err := worker.Bus().Publish(protocol.ChangesSubject(protocol.Key{Workspace: "default", Session: "s"}), nil); err != nil {
				t.Error(err)
			}
			select {
			case <-heard:
				return true
			default:
				return false
			}
		})
		stop()
	}
}

// keepBuckets: each role writes the keys that are its own, and all watchers see them.
func (c *cluster) keepBuckets(t *testing.T, broker, gateway, worker *journal.Node) {
	t.Helper()
	ctx := harness.Context(t)
	for _, w := range []struct {
		by          *journal.Node
		bucket, key string
		watchers    []*journal.Node
	}{
		{broker, "sessions", "default/b", []*journal.Node{broker, gateway, worker}},
		{worker, "sessions", "default/w", []*journal.Node{broker, gateway, worker}},
		{broker, "starts", "default/x", []*journal.Node{broker}},
		{broker, protocol.BucketWorkers, "canary.b1", []*journal.Node{broker, gateway}},
		{worker, protocol.BucketWorkers, "w1", []*journal.Node{broker, gateway}},
		{gateway, protocol.BucketGateways, "g1", []*journal.Node{gateway}},
	} {
		b, err := w.by.Bucket(ctx, w.bucket)
		if err != nil {
			t.Fatal(err)
		}
		rev, err := b.Create(ctx, w.key, []byte("1"))
		if err == nil {
			rev, err = b.Update(ctx, w.key, []byte("2"), rev)
		}
		if err != nil {
			t.Fatalf("%s in %s: %v", w.key, w.bucket, err)
		}
		for _, n := range w.watchers {
			b, err := n.Bucket(ctx, w.bucket)
			if err != nil {
				t.Fatal(err)
			}
			watch, stop := context.WithCancel(ctx)
			err = b.Watch(watch, func(e journal.Entry) {
				if e.Key == w.key && e.Revision >= rev {
					stop()
				}
			})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("watch %s: %v", w.bucket, err)
			}
		}
		if err := b.Delete(ctx, w.key); err != nil {
			t.Errorf("delete %s in %s: %v", w.key, w.bucket, err)
		}
	}
}

// keepLog: the worker appends, keeps a checkpoint and trims; the gateway reads live
// and from the start, and the checkpoint.
func (c *cluster) keepLog(t *testing.T, gateway, worker *journal.Node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(harness.Context(t), 2*harness.Patience)
	defer cancel()
	k := protocol.Key{Workspace: protocol.DefaultWorkspace, Session: "s1"}
	l := journal.Log{Key: k, Shard: worker.ShardOf(k)}
	first := func(context.Context, journal.Tail, protocol.Seq) ([]*protocol.Event, error) {
		return []*protocol.Event{{Source: protocol.SourceBroker, Body: []byte(`{"first":true}`)}}, nil
	}
	w, err := worker.OpenWriter(ctx, journal.WriterConfig{
		Log: l, Run: 1, Epoch: protocol.NewEpoch(time.Now()), First: first,
		Deleted: func(context.Context) (bool, error) { return false, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	watch, err := gateway.Hub().Watch(ctx, l)
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Release()
	const events = 50
	for seq := protocol.Seq(2); seq <= events; seq++ {
		if _, err := w.Append(&protocol.Event{Source: protocol.SourceChild, Body: []byte(`{"n":1}`)}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Flush(ctx), w.Close(ctx)); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the gateway has the last event", func() bool { return watch.Position().Head == events })
	if recs, err := gateway.Read(ctx, l, 0, 1<<20); err != nil || len(recs) == 0 {
		t.Errorf("the gateway reads the log: %d, %v", len(recs), err)
	}
	if err := worker.Snaps().Put(ctx, l, "20", []byte("state")); err != nil {
		t.Errorf("the worker keeps a checkpoint: %v", err)
	}
	if b, err := gateway.Snaps().Get(ctx, l, "20"); err != nil || string(b) != "state" {
		t.Errorf("the gateway reads a checkpoint: %q, %v", b, err)
	}
	if names, err := gateway.Snaps().List(ctx, l); err != nil || len(names) != 1 {
		t.Errorf("the gateway lists checkpoints: %q, %v", names, err)
	}
	if _, err := worker.Trim(ctx, l, events); err != nil {
		t.Errorf("the worker trims: %v", err)
	}
	if err := worker.Snaps().Delete(ctx, l, "20"); err != nil {
		t.Errorf("the worker removes a checkpoint: %v", err)
	}
	if logs, err := gateway.Logs(ctx); err != nil || len(logs) != 1 {
		t.Errorf("the gateway lists logs: %v, %v", logs, err)
	}
}

// noViolations looks through what the servers logged.
func (c *cluster) noViolations(t *testing.T) {
	t.Helper()
	for _, path := range c.logs {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(b) {
			if bytes.Contains(line, []byte("Violation")) {
				t.Errorf("%s", line)
			}
		}
	}
}

// TestStrangers: without a seed, without TLS or with another CA nobody is let in,
// a role or a server.
func TestStrangers(t *testing.T) {
	c := start(t, 1, nil)
	c.dial(t, "worker") // it is up
	for name, options := range map[string][]nats.Option{
		"no seed":    {nats.Secure(c.secure(t))},
		"another CA": {nats.Secure(&tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS13})},
		"password":   {nats.Secure(c.secure(t)), nats.UserInfo("worker", "worker")},
	} {
		if nc, err := nats.Connect(c.URLs[0], options...); err == nil {
			nc.Close()
			t.Errorf("%s: let in", name)
		}
	}
}

// TestServersSayHowTheySync: the system account's seed reads it from all of them, and
// no other seed does.
func TestServersSayHowTheySync(t *testing.T) {
	c := start(t, 3, nil)
	c.dial(t, "worker")
	ctx := harness.Context(t)
	var k journal.Keeps
	var err error
	if !harness.Within(harness.Patience, func() bool {
		k, err = journal.AskServers(ctx, c.URLs, c.System, c.secure(t))
		return err == nil && k.Servers == 3
	}) {
		t.Fatalf("%+v, %v", k, err)
	}
	if k.Of != 3 || k.Default || k.Level != (journal.Durability{}) {
		t.Errorf("servers that sync always say %+v", k)
	}
	if k, err := journal.AskServers(ctx, c.URLs, filepath.Join(c.dir, "worker.nk"), c.secure(t)); err == nil {
		t.Errorf("a worker's seed reads %+v", k)
	}
}

// TestDefaultSyncIsSeen: a server that was not told an interval has NATS's own, two
// minutes; the weakest of several counts.
func TestDefaultSyncIsSeen(t *testing.T) {
	for interval, want := range map[string]journal.Keeps{
		"":      {Servers: 1, Of: 1, Default: true, Level: journal.Durability{Interval: 2 * time.Minute}},
		"500ms": {Servers: 1, Of: 1, Level: journal.Durability{Interval: 500 * time.Millisecond}},
	} {
		c := start(t, 1, func(config string) { replace(t, config, ", sync_interval: always", interval) })
		c.dial(t, "worker")
		k, err := journal.AskServers(harness.Context(t), c.URLs, c.System, c.secure(t))
		if err != nil || k != want {
			t.Errorf("%q: %+v, %v; want %+v", interval, k, err, want)
		}
	}
}

// replace gives a configuration another sync interval, or none.
func replace(t *testing.T, config, old, interval string) {
	t.Helper()
	b, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	if interval != "" {
		interval = ", sync_interval: " + interval
	}
	now := strings.Replace(string(b), old, interval, 1)
	if now == string(b) {
		t.Fatalf("there is no %q in\n%s", old, b)
	}
	if err := os.WriteFile(config, []byte(now), 0o600); err != nil {
		t.Fatal(err)
	}
}
