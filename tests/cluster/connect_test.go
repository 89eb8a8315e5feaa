package cluster_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"rejoin/journal"
	"rejoin/protocol"
	"rejoin/tests/harness"
	"rejoin/tests/logs"
)

// TestConnect: two brokers that start at once make one journal; what one process
// writes, another reads and watches.
func TestConnect(t *testing.T) {
	servers(t, func(t *testing.T, s *harness.NATSServers) {
		nodes := make([]*journal.Node, 4)
		var starting sync.WaitGroup
		for i := range nodes {
			starting.Go(func() {
				cfg := config(t, s, "n")
				cfg.Create = i < 3
				n, err := journal.Connect(logs.Context(t), cfg)
				if err != nil {
					t.Errorf("Connect: %v", err)
					return
				}
				nodes[i] = n
			})
		}
		starting.Wait()
		for _, n := range nodes {
			if n != nil {
				t.Cleanup(func() { logs.Close(t, n) })
			}
		}
		if t.Failed() {
			return
		}
		a, b := nodes[0], nodes[3]
		for _, n := range nodes {
			if n.Cluster() != a.Cluster() || n.Cluster() == "" || !n.Remote() || n.Instance() != "" {
				t.Errorf("cluster %q, want %q; remote %v, instance %q", n.Cluster(), a.Cluster(), n.Remote(), n.Instance())
			}
		}
		if got, err := a.Replicas(logs.Context(t)); err != nil || got != len(s.URLs()) {
			t.Errorf("%d replicas, %v", got, err)
		}
		l := logs.Of(a, "shared")
		w := logs.Open(t, a, logs.Begin(l, 1, logs.Epoch(1)))
		r := follow(t, b, l)
		write(t, w, 200)
		logs.Eventually(t, "the other process sees everything", func() bool { return r.seq(t) == 201 })
		if got := readAll(t, b, l); got != 201 {
			t.Errorf("read %d events, want 201", got)
		}
		// The next run is another process's, and fences the first.
		w2 := logs.Open(t, b, logs.Begin(l, 2, ""))
		write(t, w2, 1)
		if _, err := w.Append(logs.Event(202), nil); err != nil {
			t.Fatal(err)
		}
		if err := w.Flush(logs.Context(t)); !errors.Is(err, journal.ErrFenced) {
			t.Errorf("the former owner: %v, want ErrFenced", err)
		}
		logs.Eventually(t, "the watch goes on", func() bool { return r.seq(t) == 203 })
	})
}

// TestSecondConnect: a later process finds the journal as it is, whatever it is
// configured with, and the directory of a process is its own.
func TestSecondConnect(t *testing.T) {
	s := harness.NATS(t, 1)
	cfg := config(t, s, "first")
	cfg.Shards, cfg.Dir = 3, filepath.Join(t.TempDir(), "w1")
	a := connect(t, cfg)
	cfg2 := config(t, s, "second")
	cfg2.Shards, cfg2.MaxBytes, cfg2.Dir = 5, 2<<30, filepath.Join(t.TempDir(), "w2")
	b := connect(t, cfg2)
	if a.Cluster() != b.Cluster() || a.Instance() == b.Instance() || a.Instance() == "" {
		t.Errorf("clusters %q and %q, instances %q and %q", a.Cluster(), b.Cluster(), a.Instance(), b.Instance())
	}
	if used := b.Usage(); len(used.Shards) != 3 || used.Quota > 1<<30 {
		t.Errorf("%d shards, quota %d: want those of the first", len(used.Shards), used.Quota)
	}
	cfg2.Dir = cfg.Dir
	var locked *journal.LockedError
	if _, err := journal.Connect(logs.Context(t), cfg2); !errors.As(err, &locked) {
		t.Errorf("a directory in use: %v, want *LockedError", err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "format"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg2.Dir = dir
	var format *journal.FormatError
	if _, err := journal.Connect(logs.Context(t), cfg2); !errors.As(err, &format) {
		t.Errorf("the directory of a journal: %v, want *FormatError", err)
	}
}

// TestConnectWaits: a process that may not make the journal waits for one that may,
// and for the servers themselves.
func TestConnectWaits(t *testing.T) {
	s := harness.NATS(t, 1)
	s.Stop(0)
	cfg := config(t, s, "waits")
	cfg.Create = false
	got := make(chan *journal.Node, 1)
	ctx := logs.Context(t)
	go func() {
		n, err := journal.Connect(ctx, cfg)
		if err != nil {
			t.Errorf("Connect: %v", err)
		}
		got <- n
	}()
	s.Start(0)
	s.AwaitReady()
	short, cancel := context.WithTimeout(t.Context(), harness.Patience/30)
	defer cancel()
	if _, err := journal.Connect(short, cfg); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("nobody has made the journal: %v, want a deadline", err)
	}
	a := connect(t, config(t, s, "makes"))
	n := <-got
	if n == nil {
		return
	}
	defer logs.Close(t, n)
	if n.Cluster() != a.Cluster() {
		t.Errorf("cluster %q, want %q", n.Cluster(), a.Cluster())
	}
}

// TestBusQueue: each request goes to one of those who serve in a group.
func TestBusQueue(t *testing.T) {
	servers(t, func(t *testing.T, s *harness.NATSServers) {
		a, b := connect(t, config(t, s, "a")), connect(t, config(t, s, "b"))
		ask := connect(t, config(t, s, "ask"))
		if _, err := ask.Bus().Request(logs.Context(t), protocol.BrokerSubject, nil); !errors.Is(err, journal.ErrNoOwner) {
			t.Errorf("nobody serves: %v, want ErrNoOwner", err)
		}
		var mu sync.Mutex
		count := map[string]int{}
		for name, n := range map[string]*journal.Node{"a": a, "b": b} {
			stop, err := n.Bus().ServeQueue(protocol.BrokerSubject, "brokers", func(data []byte, reply func([]byte)) {
				mu.Lock()
				defer mu.Unlock()
				count[name]++
				reply(data)
			})
			if err != nil {
				t.Fatal(err)
			}
			defer stop()
		}
		asked := 0
		logs.Eventually(t, "both answer", func() bool {
			if _, err := ask.Bus().Request(logs.Context(t), protocol.BrokerSubject, []byte("x")); err == nil {
				asked++
			} else if !errors.Is(err, journal.ErrNoOwner) { // the servers have not told each other yet
				t.Fatal(err)
			}
			mu.Lock()
			defer mu.Unlock()
			return count["a"] > 0 && count["b"] > 0
		})
		mu.Lock()
		defer mu.Unlock()
		if got := count["a"] + count["b"]; got != asked {
			t.Errorf("%d requests were answered %d times", asked, got)
		}
	})
}
