package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"testing"

	"rejoin/broker"
	"rejoin/journal"
	"rejoin/protocol"
	"rejoin/snapshot"
	"rejoin/tests/harness"
	"rejoin/worker"
)

// patience is for waits in which a worker has to find out that it is cut off.
const patience = protocol.WorkerFreezeAfter + harness.Patience

// fleet is a NATS server that workers meet on, and whoever decides in a broker's
// place.
type fleet struct {
	tb      testing.TB
	servers *harness.NATSServers
	node    *journal.Node
	reg     *shared
	workers *journal.Bucket
}

func newFleet(tb testing.TB) *fleet {
	tb.Helper()
	f := &fleet{tb: tb, servers: harness.NATS(tb, 1)}
	f.node = f.connect(journal.RemoteConfig{URLs: f.servers.URLs(), Name: "broker", Create: true})
	reg, err := broker.OpenRegistry(harness.Context(tb), f.node)
	if err != nil {
		tb.Fatalf("registry: %v", err)
	}
	f.reg = &shared{Registry: reg, tb: tb, bucket: f.bucket("sessions")}
	f.workers = f.bucket(protocol.BucketWorkers)
	return f
}

func (f *fleet) connect(cfg journal.RemoteConfig) *journal.Node {
	f.tb.Helper()
	cfg.MaxBytes = 1 << 30
	cfg.Logger = slog.New(slog.NewTextHandler(f.tb.Output(), nil)).With(slog.String("node", cfg.Name))
	n, err := journal.Connect(harness.Context(f.tb), cfg)
	if err != nil {
		f.tb.Fatalf("connect: %v", err)
	}
	f.tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
		defer cancel()
		if err := n.Close(ctx); err != nil {
			f.tb.Errorf("close the journal: %v", err)
		}
	})
	return n
}

func (f *fleet) bucket(name string) *journal.Bucket {
	f.tb.Helper()
	b, err := f.node.Bucket(harness.Context(f.tb), name)
	if err != nil {
		f.tb.Fatalf("bucket %s: %v", name, err)
	}
	return b
}

// shared is the registry that all share, as a test writes to it.
type shared struct {
	*broker.Registry
	tb     testing.TB
	bucket *journal.Bucket
}

func (r *shared) put(rec protocol.SessionRecord) {
	r.tb.Helper()
	value, err := json.Marshal(rec)
	if err != nil {
		r.tb.Fatal(err)
	}
	key := rec.Workspace + "." + rec.ID
	ctx := harness.Context(r.tb)
	_, err = r.bucket.Create(ctx, key, value)
	if errors.Is(err, journal.ErrExists) {
		var e journal.Entry
		if e, err = r.bucket.Get(ctx, key); err == nil {
			_, err = r.bucket.Update(ctx, key, value, e.Revision)
		}
	}
	if err != nil {
		r.tb.Fatalf("write the record of %s: %v", key, err)
	}
}

func (r *shared) get(k protocol.Key) protocol.SessionRecord {
	r.tb.Helper()
	rec, err := r.Record(harness.Context(r.tb), k)
	if err != nil || rec == nil {
		r.tb.Fatalf("record of %s: %v, %v", k, rec, err)
	}
	return *rec
}

// entry is what the bucket says of a worker.
func (f *fleet) entry(id string) (e protocol.WorkerEntry) {
	f.tb.Helper()
	got, err := f.workers.Get(harness.Context(f.tb), id)
	if err != nil {
		f.tb.Fatalf("entry of %s: %v", id, err)
	}
	if err := json.Unmarshal(got.Value, &e); err != nil {
		f.tb.Fatal(err)
	}
	return e
}

// giveUp calls a worker lost, as a broker does.
func (f *fleet) giveUp(id string) {
	f.tb.Helper()
	ctx := harness.Context(f.tb)
	for {
		got, err := f.workers.Get(ctx, id)
		if err != nil {
			f.tb.Fatalf("entry of %s: %v", id, err)
		}
		var e protocol.WorkerEntry
		if err := json.Unmarshal(got.Value, &e); err != nil {
			f.tb.Fatal(err)
		}
		e.Lost = true
		value, err := json.Marshal(e)
		if err != nil {
			f.tb.Fatal(err)
		}
		_, err = f.workers.Update(ctx, id, value, got.Revision)
		if err == nil {
			return
		}
		if !errors.Is(err, journal.ErrRevision) {
			f.tb.Fatalf("call %s lost: %v", id, err)
		}
	}
}

// grant gives the session a newer run, as a broker does that takes it over.
func (f *fleet) grant(k protocol.Key) {
	rec := f.reg.get(k)
	rec.Run++
	rec.Owner = ""
	f.reg.put(rec)
}

// member is one of the fleet's workers, behind a link that can break. Its host's
// node is the broker's: requests come from there.
type member struct {
	*host
	id    string
	link  *harness.Proxy
	stats func() worker.Stats
	ended chan error // what Run returned, once
}

// join starts a worker with a data directory of its own. Of the workers of one process
// one may have children at a time: it takes what is below the process for its own.
func (f *fleet) join(id string, more func(*worker.Config)) *member {
	f.tb.Helper()
	m := &member{id: id, link: harness.NewProxy(f.tb, f.servers.Addr(0)), ended: make(chan error, 1)}
	m.host = &host{tb: f.tb, dir: f.tb.TempDir(), node: f.node, reg: f.reg}
	node := f.connect(journal.RemoteConfig{URLs: []string{"nats://" + m.link.Addr()}, Name: id, Dir: m.dir})
	reg, err := broker.OpenRegistry(harness.Context(f.tb), node)
	if err != nil {
		f.tb.Fatalf("registry: %v", err)
	}
	cfg := worker.Config{
		ID: id, Presence: &worker.Presence{Labels: map[string]string{"repo": "a"}, Version: "test"}, DataDir: m.dir, Adapters: adapters,
		SessionsMax: 10, Logger: node.Logger(),
	}
	if more != nil {
		more(&cfg)
	}
	w, err := worker.New(cfg, node, reg, snapshot.NewReader(node, adapters, 0))
	if err != nil {
		f.tb.Fatalf("worker: %v", err)
	}
	m.owner, m.stats = w.Owner(), w.Stats
	ctx, cancel := context.WithCancel(context.Background())
	go func() { m.ended <- w.Run(ctx) }()
	m.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-m.ended; err != nil {
			f.tb.Errorf("Run: %v", err)
		}
	})
	f.tb.Cleanup(func() {
		m.link.Flow()
		m.stop()
	})
	m.awaitServing()
	harness.Eventually(f.tb, "the worker's entry", func() bool {
		got, err := f.workers.Get(harness.Context(f.tb), id)
		var e protocol.WorkerEntry
		return err == nil && json.Unmarshal(got.Value, &e) == nil && e.Owner == m.owner
	})
	return m
}

// begin starts a session with that policy; argv names a child of this test binary.
func (m *member) begin(id, restart string, argv ...string) *sess {
	m.tb.Helper()
	rec := m.record(id, "jsonl", argv)
	rec.Restart = restart
	m.reg.put(rec)
	s, r := m.launch(protocol.OpStart, rec)
	if r.Info == nil {
		m.tb.Fatalf("start: %+v", r)
	}
	return s
}

// cut takes the worker's link away, until mend.
func (m *member) cut() { m.link.Stall() }

// mute takes only that connection of the worker away which leads to the buckets:
// heartbeats do not go through, records and commands do.
func (m *member) mute() { <-m.link.StallLinks("HPUB $KV.", `"name":"`+m.id+`-kv"`) }

// mend gives the link back: what was on its way arrives first.
func (m *member) mend() { m.link.Flow() }

func eventually(tb testing.TB, what string, cond func() bool) {
	tb.Helper()
	if !harness.Within(patience, cond) {
		tb.Fatalf("not within %v: %s", patience, what)
	}
}
