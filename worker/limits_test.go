package worker

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"rejoin/agent"
	"rejoin/agent/jsonl"
	"rejoin/protocol"
)

// wantLimit wants a refusal that names the limit.
func wantLimit(t *testing.T, got []protocol.WorkerReply, limit, figure string) {
	t.Helper()
	if len(got) != 1 || got[0].Error == nil || got[0].Error.Reason != protocol.ReasonOverloaded ||
		got[0].Error.Limit != limit || !strings.Contains(got[0].Error.Message, figure) {
		t.Errorf("got %+v, want %s", got, limit)
	}
}

// The queue before a child takes so many lines, and so many bytes.
func TestStdinBounds(t *testing.T) {
	s, f, _ := newFakeSession(t, jsonl.Adapter{})
	for i := range protocol.StdinQueueLinesMax {
		got := ask(s, fmt.Sprint("c", i), `1`, nil)
		f.settle(nil)
		if r := got(); len(r) != 1 || r[0].Result == nil {
			t.Fatalf("line %d: %+v", i+1, r)
		}
	}
	wantLimit(t, ask(s, "more", `1`, nil)(), "StdinQueueLinesMax", "1024 lines")

	s, _, _ = newFakeSession(t, jsonl.Adapter{})
	const n = 1000
	s.stdin.bytes = protocol.StdinQueueBytesMax - n
	if limit := s.stdin.short(n); limit != "" {
		t.Errorf("at the limit: %s", limit)
	}
	if limit := s.stdin.short(n + 1); limit != "StdinQueueBytesMax" {
		t.Errorf("over the limit: %q", limit)
	}
	s.stdin.bytes = protocol.StdinQueueBytesMax
	wantLimit(t, ask(s, "c", `1`, nil)(), "StdinQueueBytesMax", "16777216 bytes")
}

func TestWorkerRequestsMax(t *testing.T) {
	s, _, _ := newFakeSession(t, jsonl.Adapter{})
	w := s.w
	for range protocol.WorkerRequestsMax - 1 {
		w.ops <- struct{}{}
	}
	hold, done := make(chan struct{}), make(chan struct{})
	if err := w.spend(func() { <-hold; close(done) }); err != nil {
		t.Fatalf("at the limit: %v", err)
	}
	err := w.spend(func() {})
	wantLimit(t, []protocol.WorkerReply{{Error: w.asError(err, s.key)}}, "WorkerRequestsMax", "2048")
	close(hold)
	<-done
	w.wg.Wait()
}

// Text of stderr events that finds no room is left out, and the next one says how much.
func TestStderrQueued(t *testing.T) {
	s, f, _ := newFakeSession(t, jsonl.Adapter{})
	line := strings.Repeat("e", 1023) + "\n"
	v := stderrEvents{s: s}
	for range protocol.StderrQueuedBytes / 1023 {
		v.take([]byte(line))
	}
	head := f.Head()
	if n := s.w.Stats().Limited["StderrQueuedBytes"]; n != 0 || v.dropped != 0 {
		t.Errorf("below the limit: met %d times, %d bytes dropped", n, v.dropped)
	}
	v.take([]byte(line))
	v.take([]byte(line))
	if n := s.w.Stats().Limited["StderrQueuedBytes"]; n != 1 || v.dropped != 2*1023 || f.Head() != head {
		t.Errorf("above the limit: met %d times, %d bytes dropped, head %d after %d", n, v.dropped, f.Head(), head)
	}
	f.settle(nil)
	v.take([]byte("x\n"))
	if last := f.bodies[len(f.bodies)-1]; f.Head() != head+1 || !strings.Contains(last, "2046") {
		t.Errorf("the next event: %s", last)
	}
}

// What the driver had to do because of a limit is counted.
func TestInteractionsMaxIsCounted(t *testing.T) {
	s, _, _ := newFakeSession(t, jsonl.Adapter{})
	s.mu.Lock()
	s.perform([]agent.Effect{
		{Input: &agent.Input{ID: "rj:1:1", Value: []byte(`1`), Line: []byte(`1`)}},
		{Input: &agent.Input{ID: "rj:1:2", Value: []byte(`1`), Line: []byte(`1`), Limit: "InteractionsMax"}},
	})
	s.mu.Unlock()
	if got := s.w.Stats().Limited; len(got) != 1 || got["InteractionsMax"] != 1 {
		t.Errorf("met %v", got)
	}
}

// Who names no time gives GraceDefault, and nobody gives more than GraceMax.
func TestGrace(t *testing.T) {
	for asked, want := range map[time.Duration]time.Duration{
		0: protocol.GraceDefault, protocol.GraceMax: protocol.GraceMax, protocol.GraceMax + time.Millisecond: protocol.GraceMax,
	} {
		s, _, _ := newFakeSession(t, jsonl.Adapter{})
		w := s.w
		w.sessions[s.key] = s
		over, cancel := context.WithCancel(t.Context())
		cancel() // nobody waits for its end
		w.stop(tenure{life: over, ops: over}, s.key, &protocol.WorkerRequest{GraceMs: asked.Milliseconds()}, func(protocol.WorkerReply) {})
		w.wg.Wait()
		if _, _, termAt, killAt := s.stops.times(); killAt.Sub(termAt) != want-termAfterMax {
			t.Errorf("asked for %v: KILL comes %v after TERM, want %v", asked, killAt.Sub(termAt), want-termAfterMax)
		}
	}
}
