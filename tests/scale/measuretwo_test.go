package main

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"rejoin/tests/harness"
)

const (
	twoRounds    = 5 // of each kind, in turn
	twoObservers = 5 // of each session, at each gateway
	twoCommands  = 2000
)

// load is the load of the machine in the last minute, for the reader of a figure.
func load(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(b), " ")
	return first
}

func median[T float64 | time.Duration](all []T) T {
	all = slices.Sorted(slices.Values(all))
	return all[len(all)/2]
}

// TestMeasureSecondGateway: what a gateway delivers per second of its processor time,
// alone with its clients, and with as many of the same sessions at another gateway
// beside it, in turn. To reach: with the other one at least 0.9 of that without.
func TestMeasureSecondGateway(t *testing.T) {
	measuring(t)
	dir, a, b := cluster(t)
	pid := pidOf(t, filepath.Join(dir, "gateway-a.pid"))
	paced := gather(t, a, pacedSessions, harness.ChildArgv("paced", strconv.Itoa(pacedEvents)))
	heard := make(chan int, 2*pacedSessions*twoObservers)
	attend := func(at address, lines *atomic.Int64) (all []net.Conn) {
		k := crowd{t: t, at: at, lines: lines}
		for _, id := range paced.sessions {
			for range twoObservers {
				all = append(all, k.watcher(id, heard))
			}
		}
		return all
	}
	const lines = pacedSessions * (pacedEvents + 2) * twoObservers // with a command and its outcome
	measure := func(other bool) float64 {
		var got [2]atomic.Int64
		all, want := attend(a, &got[0]), [2]int64{lines, 0}
		if other {
			all, want[1] = append(all, attend(b, &got[1])...), lines
		}
		before := cpu(t, pid)
		paced.prompt(pacedEvents)
		harness.Eventually(t, "every line has come", func() bool { return got[0].Load() >= want[0] && got[1].Load() >= want[1] })
		spent := cpu(t, pid) - before
		for _, c := range all {
			_ = c.Close() // the goroutine behind it ends
		}
		for range all {
			<-heard
		}
		if got[0].Load() != want[0] || got[1].Load() != want[1] {
			t.Fatalf("%d and %d lines came, want %d", got[0].Load(), got[1].Load(), want)
		}
		return lines / spent.Seconds()
	}
	measure(true) // warm
	var alone, beside []float64
	for range twoRounds {
		one := measure(false)
		two := measure(true)
		alone, beside = append(alone, one), append(beside, two)
		t.Logf("deliveries per CPU second of a gateway: alone %.0f, with a second one beside it %.0f, ratio %.3f (load %s)", one, two, two/one, load(t))
	}
	t.Logf("medians: alone %.0f, beside %.0f, ratio %.3f (load %s)", median(alone), median(beside), median(beside)/median(alone), load(t))
}

func pidOf(t *testing.T, path string) int {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// TestMeasureCommands: one command after the other, from a client over gateway,
// worker and a journal of three copies, each synced, to the answer. To reach: p50
// below 3 ms.
func TestMeasureCommands(t *testing.T) {
	measuring(t)
	_, a, b := cluster(t)
	for i, at := range []address{a, b} {
		k := gather(t, at, 1, harness.ChildArgv("paced", "0"))
		var took []time.Duration
		for range twoCommands {
			began := time.Now()
			harness.Do[json.RawMessage](t, k.c, "send", map[string]any{"sessionId": k.sessions[0], "command": 0})
			took = append(took, time.Since(began))
		}
		slices.Sort(took)
		t.Logf("gateway %d, %d commands: p50 %.2f ms, p99 %.2f ms, most %.2f ms (load %s)", i+1, len(took),
			took[len(took)/2].Seconds()*1e3, took[len(took)*99/100].Seconds()*1e3, took[len(took)-1].Seconds()*1e3, load(t))
	}
}
