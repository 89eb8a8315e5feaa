package cluster_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"testing"

	"rejoin/journal"
	"rejoin/protocol"
	"rejoin/tests/harness"
	"rejoin/tests/logs"
)

// TestAway: while the only server is away, nothing ends: it is said, requests fail
// as unavailable, and everything goes on when it is back. What was acknowledged is
// there, after kill -9 too.
func TestAway(t *testing.T) {
	s := harness.NATS(t, 1)
	a, b := connect(t, config(t, s, "a")), connect(t, config(t, s, "b"))
	l := begin(t, a, b)
	l.goesOn(t, 20)
	if h := a.Health(); h.State != journal.HealthOK {
		t.Errorf("health %v", h)
	}
	sessions := bucket(t, a, "sessions")
	s.Kill9(0)
	logs.Eventually(t, "it is said that the servers are away", func() bool {
		return a.Health().State == journal.HealthSick && b.ShardHealth(0).Err() != nil
	})
	if _, err := a.Tail(logs.Context(t), l.logs[0]); !errors.Is(err, journal.ErrUnavailable) {
		t.Errorf("Tail: %v, want ErrUnavailable", err)
	}
	if _, err := sessions.Get(logs.Context(t), "default/beat"); !errors.Is(err, journal.ErrUnavailable) {
		t.Errorf("Get: %v, want ErrUnavailable", err)
	}
	s.Start(0)
	s.AwaitReady()
	logs.Eventually(t, "all is well", func() bool {
		return a.Health().State == journal.HealthOK && b.Health().State == journal.HealthOK
	})
	l.goesOn(t, 20)
	l.judge(t, b)
}

// TestShardFull: a stream at its limit refuses by name; the writer waits and goes on
// when there is room.
func TestShardFull(t *testing.T) {
	s := harness.NATS(t, 1)
	cfg := config(t, s, "a")
	cfg.Shards, cfg.MaxBytes = 1, 4<<20
	a := connect(t, cfg)
	b := connect(t, cfg)
	big, small := logs.Of(a, "big"), logs.Of(a, "small")
	wb, ws := logs.Open(t, a, logs.Begin(big, 1, logs.Epoch(1))), logs.Open(t, a, logs.Begin(small, 1, logs.Epoch(2)))
	for range 58 { // of 64 KiB each, which do not compress: past 85 % of the quota
		noise := make([]byte, 32<<10)
		if _, err := rand.Read(noise); err != nil {
			t.Fatal(err)
		}
		e := &protocol.Event{Source: protocol.SourceChild, Body: fmt.Appendf(nil, `"%x"`, noise)}
		if _, err := wb.Append(e, nil); err != nil {
			t.Fatal(err)
		}
		if err := wb.Flush(logs.Context(t)); err != nil {
			t.Fatal(err)
		}
	}
	logs.Eventually(t, "the other process sees it too", func() bool { return b.ShardHealth(0).Holds() })
	write(t, ws, 10) // what is small still fits
	if err := a.Purge(logs.Context(t), big); err != nil {
		t.Fatal(err)
	}
	logs.Eventually(t, "there is room again", func() bool {
		return a.Health().State == journal.HealthOK && b.Health().State == journal.HealthOK
	})
}
