package journal

import (
	"context"
	"testing"
	"time"

	"rejoin/protocol"
)

// Every state begins at its threshold and ends some way on the other side of it.
func TestDiskHealth(t *testing.T) {
	const gib = 1 << 30
	small := func(free int64) space { return space{free: free, size: 100_000_000} } // tight below 10 MB, full below 5 MB
	for _, c := range []struct {
		name string
		was  HealthState
		at   space
		want HealthState
	}{
		{"room", HealthOK, space{free: 2 * gib, size: 100 * gib}, HealthOK},
		{"below the bytes", HealthOK, space{free: gib - 1, size: 100 * gib}, HealthTight},
		{"far below", HealthOK, space{free: gib/4 - 1, size: 100 * gib}, HealthFull},
		{"small: room", HealthOK, small(10_000_000), HealthOK},
		{"small: tight", HealthOK, small(9_999_999), HealthTight},
		{"small: full", HealthTight, small(4_999_999), HealthFull},
		{"tight stays", HealthTight, small(12_499_999), HealthTight},
		{"tight ends", HealthTight, small(12_500_000), HealthOK},
		{"full stays", HealthFull, small(6_249_999), HealthFull},
		{"full becomes tight", HealthFull, small(6_250_000), HealthTight},
		{"full ends", HealthFull, small(12_500_000), HealthOK},
		{"sick ends where there is room", HealthSick, small(50_000_000), HealthOK},
		{"sick stays full", HealthSick, small(1_000_000), HealthFull},
	} {
		if got := diskHealth(c.was, c.at); got.State != c.want || (got.Reason == "") != (c.want == HealthOK) {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestShardHealth(t *testing.T) {
	for _, c := range []struct {
		was  HealthState
		used int64
		want HealthState
	}{
		{HealthOK, 849, HealthOK},
		{HealthOK, 850, HealthTight},
		{HealthTight, 800, HealthTight},
		{HealthTight, 799, HealthOK},
		{HealthTight, 949, HealthTight},
		{HealthTight, 950, HealthFull},
		{HealthOK, 2000, HealthFull},
		{HealthFull, 900, HealthFull},
		{HealthFull, 899, HealthTight},
		{HealthFull, 799, HealthOK},
	} {
		if got := shardHealth(c.was, c.used, 1000).State; got != c.want {
			t.Errorf("%v with %d of 1000: %v, want %v", c.was, c.used, got, c.want)
		}
	}
}

// A gate closes by what is counted, opens by what is measured, and lets nobody
// wait who has nothing to wait for.
func TestGate(t *testing.T) {
	looks := 0
	g := &gate{disk: newDiskGate(), quota: 1 << 20, soon: func() { looks++ }}
	ended := make(chan struct{})
	passed := func() chan error {
		got := make(chan error, 1)
		go func() { got <- g.awaitRoom(t.Context(), ended) }()
		return got
	}
	if err := <-passed(); err != nil {
		t.Fatal(err)
	}
	g.stored(900 << 10)
	if h := g.Health(); h.State != HealthTight || looks != 1 {
		t.Fatalf("%v after %d looks", h, looks)
	}
	waits := passed()
	select {
	case err := <-waits:
		t.Fatalf("a closed gate let output pass: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	if !g.begin() {
		t.Error("nothing to measure")
	}
	g.measured(100 << 10)
	if err := <-waits; err != nil {
		t.Error(err)
	}
	if g.begin() {
		t.Error("measured again though nothing was stored")
	}
	g.removed()
	if !g.begin() {
		t.Error("nothing to measure after a removal")
	}

	g.disk.set(Health{HealthFull, reasonDiskFull})
	if h := g.Health(); !h.Refuses() || h.Err() == nil {
		t.Errorf("%v on a full disk", h)
	}
	waits = passed()
	g.disk.set(Health{})
	if err := <-waits; err != nil {
		t.Error(err)
	}

	g.refused(&apiError{ErrCode: apiMaxBytes})
	if h := g.Health(); h.State != HealthFull {
		t.Errorf("%v after the server refused", h)
	}
	waits = passed()
	close(ended) // the writer has failed
	if err := <-waits; err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	g.disk.set(Health{HealthSick, reasonWrite})
	if err := g.awaitServer(ctx); err == nil {
		t.Error("a sick server is asked")
	}
}

// Restarts become rarer and rarer, and a server that was well for long begins anew.
func TestPace(t *testing.T) {
	var p pace
	now := time.Unix(1_000_000, 0)
	if !p.due(now) {
		t.Fatal("the first restart has to wait")
	}
	for i, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 32 * time.Second, time.Minute, time.Minute} {
		p.tried(now)
		if p.due(now.Add(want-1)) || !p.due(now.Add(want)) {
			t.Errorf("restart %d: the next one is not due after %v", i+1, want)
		}
		now = now.Add(want)
	}
	now = now.Add(restartForget)
	p.tried(now)
	if !p.due(now.Add(restartPauseMin)) {
		t.Error("an old restart counts")
	}
}

// What a full disk and a full shard refuse says why, and is counted by its limit.
func TestRefusalsNameTheirLimit(t *testing.T) {
	const quota = 1000
	for _, tt := range []struct {
		name  string
		h     Health
		limit string
	}{
		{"shard below", shardHealth(HealthOK, quota*protocol.ShardFullPercent/100-1, quota), ""},
		{"shard at", shardHealth(HealthOK, quota*protocol.ShardFullPercent/100, quota), "ShardFullPercent"},
		{"disk at", diskHealth(HealthOK, space{free: protocol.DiskFullBytes, size: 1 << 40}), ""},
		{"disk below", diskHealth(HealthOK, space{free: protocol.DiskFullBytes - 1, size: 1 << 40}), "DiskFullBytes"},
	} {
		e, refused := protocol.AsError(tt.h.Err())
		if refused != (tt.limit != "") {
			t.Errorf("%s: %v", tt.name, tt.h.Err())
			continue
		}
		if refused && (e.Limit != tt.limit || e.Reason != protocol.ReasonJournalUnavailable || !e.Retryable) {
			t.Errorf("%s: %+v", tt.name, e)
		}
	}
}
