package worker

import (
	"bytes"
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"rejoin/agent/jsonl"
	"rejoin/journal"
	"rejoin/protocol"
)

// newFakeStdout is a session whose child's stdout is w.
func newFakeStdout(tb testing.TB) (s *session, f *fakeLog, w *os.File) {
	tb.Helper()
	s, f, _ = newFakeSession(tb, jsonl.Adapter{})
	r, w, err := os.Pipe()
	if err != nil {
		tb.Fatal(err)
	}
	s.child = &child{stdout: r}
	tb.Cleanup(func() {
		_ = r.Close()
		_ = w.Close()
	})
	return s, f, w
}

func TestStdoutBatches(t *testing.T) {
	s, f, w := newFakeStdout(t)
	s.w.cfg.EventBytesMax = 100
	out := s.newStdout(t.Context())
	done := inBackground(out.run)
	long := strings.Repeat("x", 101)
	if _, err := w.WriteString("1\n\n[2]\r\n" + long + "\nnope\n3"); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	<-done
	want := []string{
		`1`, `[2]`, `{"type":"error","error":"line exceeds limit","bytes":101,"preview":"` + long + `"}`,
		`{"type":"error","error":"invalid json: unexpected character at offset 0","text":"nope"}`, `3`,
	}
	got := slices.Clone(f.bodies)
	if len(got) == len(want) { // the wording of the reason is protocol's
		if i := strings.Index(got[3], `,"text":"nope"}`); i > 0 && strings.HasPrefix(got[3], `{"type":"error","error":"invalid json: `) {
			got[3] = want[3]
		}
	}
	if !slices.Equal(got, want) || out.truncated {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if n := s.w.Stats().Limited["EventBytesDefault"]; n != 1 {
		t.Errorf("a line over the limit is counted %d times", n)
	}
	if !slices.Equal(f.sources, []protocol.Source{0, 0, 1, 1, 0}) {
		t.Errorf("sources: %v", f.sources)
	}
}

func TestStdoutEventTooLargeForTheJournal(t *testing.T) {
	s, f, w := newFakeStdout(t)
	f.fail = journal.ErrEventTooLarge
	out := s.newStdout(t.Context())
	done := inBackground(out.run)
	_, _ = w.WriteString("\"large\"\n2\n")
	_ = w.Close()
	<-done
	want := []string{`{"type":"error","error":"line exceeds limit","bytes":7,"preview":"\"large\""}`, `2`}
	if !slices.Equal(f.bodies, want) {
		t.Errorf("got %q", f.bodies)
	}
	if s.state.Seq != f.head {
		t.Errorf("state at %d, head %d", s.state.Seq, f.head)
	}
}

// While the journal is away nothing is appended; once the child is gone what is
// in the pipe is, without waiting.
func TestStdoutBackPressure(t *testing.T) {
	s, f, w := newFakeStdout(t)
	f.full = true
	out := s.newStdout(t.Context())
	done := inBackground(out.run)
	_, _ = w.WriteString("1\n2\n")
	_ = w.Close()
	select {
	case <-done:
		t.Fatal("read to the end without room")
	default:
	}
	if len(f.bodies) != 0 {
		t.Fatalf("appended without room: %q", f.bodies)
	}
	out.noWait()
	<-done
	if !slices.Equal(f.bodies, []string{"1", "2"}) || out.truncated {
		t.Errorf("got %q, truncated %v", f.bodies, out.truncated)
	}
}

func TestStdoutCut(t *testing.T) {
	s, _, w := newFakeStdout(t)
	out := s.newStdout(t.Context())
	done := inBackground(out.run)
	_, _ = w.WriteString("1\nunfinished")
	out.cut()
	<-done
	if !out.truncated {
		t.Error("not truncated")
	}
}

func TestStdoutBoundAfterTheEnd(t *testing.T) {
	s, f, w := newFakeStdout(t)
	f.discard = true
	out := s.newStdout(t.Context())
	out.left = 1000
	out.noWait()
	done := inBackground(out.run)
	closed := inBackground(func() {
		<-done
		_ = s.child.stdout.Close() // nobody reads any more: ends a write that waits
	})
	line := append(bytes.Repeat([]byte("7"), 100), '\n')
	if _, err := w.Write(bytes.Repeat(line, 600)); err != nil { // less than a pipe holds
		t.Fatal(err)
	}
	_ = w.Close()
	<-closed
	if !out.truncated {
		t.Error("60 kB were taken where 1 kB was allowed")
	}
}

func BenchmarkStdout(b *testing.B) {
	s, f, w := newFakeStdout(b)
	f.discard = true
	out := s.newStdout(context.Background())
	done := inBackground(out.run)
	line := []byte(`{"type":"message_update","delta":"` + strings.Repeat("d", 200) + "\"}\n")
	chunk := bytes.Repeat(line, 100)
	b.SetBytes(int64(len(chunk)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := w.Write(chunk); err != nil {
			b.Fatal(err)
		}
	}
	_ = w.Close()
	<-done
	b.ReportMetric(float64(f.head)/b.Elapsed().Seconds(), "events/s")
}

// Proves I-W2 at a run's end: lines that wait for the journal when the child is
// gone still come before session_end.
func TestEndComesAfterTheLastLine(t *testing.T) {
	s, f, w := newFakeStdout(t)
	f.full = true
	out := s.newStdout(t.Context())
	done := inBackground(out.run)
	_, _ = w.WriteString(strings.Repeat("1\n", 20000)) // more than a batch, less than a pipe
	_ = w.Close()
	s.drain(out, done, ending{gone: true, drainUntil: time.Now().Add(drainExited)})
	s.record(ending{why: endExited}, out.truncated)
	if n := len(f.bodies); n != 20001 || !strings.HasPrefix(f.bodies[n-1], `{"type":"session_end"`) {
		t.Errorf("%d events, the last is %s", n, f.bodies[n-1])
	}
}
