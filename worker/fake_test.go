package worker

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"rejoin/agent"
	"rejoin/agent/jsonl"
	"rejoin/agent/lines"
	"rejoin/journal"
	"rejoin/protocol"
	"rejoin/snapshot"
)

const testEpoch = protocol.Epoch("01ARZ3NDEKTSV4RRFFQ69G5FAV")

// fakeLog is a journal whose events become durable when a test says so.
type fakeLog struct {
	mu      sync.Mutex
	head    protocol.Seq
	durable protocol.Seq
	thens   []func(error)
	bodies  []string
	sources []protocol.Source
	groups  int // calls of AppendGroup
	stalled bool
	health  journal.Health // unless stalled
	fail    error          // of the next Append
	full    bool           // WaitRoom waits for its ctx
	discard bool           // benchmarks keep nothing
}

var _ appender = (*fakeLog)(nil)

func (f *fakeLog) Append(e *protocol.Event, then func(error)) (protocol.Seq, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.fail; err != nil {
		f.fail = nil
		return 0, err
	}
	f.head++
	if f.discard {
		return f.head, nil
	}
	f.thens = append(f.thens, then)
	f.bodies = append(f.bodies, string(e.Body))
	f.sources = append(f.sources, e.Source)
	return f.head, nil
}

func (f *fakeLog) AppendGroup(events []*protocol.Event, then func(error)) error {
	for i, e := range events {
		var told func(error)
		if i == len(events)-1 {
			told = then
		}
		if _, err := f.Append(e, told); err != nil {
			return err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.groups++
	return nil
}

// settle makes everything durable, or lost with err.
func (f *fakeLog) settle(err error) {
	f.mu.Lock()
	thens := f.thens
	f.thens = nil
	if err == nil {
		f.durable = f.head
	}
	f.mu.Unlock()
	for _, then := range thens {
		if then != nil {
			then(err)
		}
	}
}

func (f *fakeLog) Epoch() protocol.Epoch { return testEpoch }

func (f *fakeLog) Head() protocol.Seq {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.head
}

func (f *fakeLog) Durable() protocol.Seq {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.durable
}

func (f *fakeLog) WaitRoom(ctx context.Context) error {
	if !f.full {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func (f *fakeLog) Health() journal.Health {
	if f.stalled {
		return journal.Health{State: journal.HealthSick, Reason: "it is stalled"}
	}
	return f.health
}

func (f *fakeLog) Flush(context.Context) error { f.settle(nil); return nil }
func (f *fakeLog) EndRecord(protocol.Seq)      {}

func (f *fakeLog) Await(context.Context, protocol.Seq) error { return nil }
func (f *fakeLog) Close(context.Context) error               { return nil }

type noRegistry struct{}

func (noRegistry) Update(context.Context, protocol.Key, protocol.Run, func(*protocol.SessionRecord)) error {
	return nil
}
func (noRegistry) Confirm(context.Context, protocol.Key, protocol.Run) error { return nil }
func (noRegistry) Deleted(context.Context, protocol.Key) (bool, error)       { return false, nil }

// newFakeSession is a live session without a child: its stdin is a pipe that the
// test may read, or not.
func newFakeSession(tb testing.TB, adapter agent.Adapter) (*session, *fakeLog, *os.File) {
	tb.Helper()
	w, err := newWorker(Config{
		ID: "w", DataDir: tb.TempDir(), Adapters: map[string]agent.Adapter{"jsonl": jsonl.Adapter{}, "lines": lines.Adapter{}},
		Now: func() time.Time { return time.UnixMilli(1764500000000) },
	}, noRegistry{}, places{instance: "i"})
	if err != nil {
		tb.Fatal(err)
	}
	r, wr, err := os.Pipe()
	if err != nil {
		tb.Fatal(err)
	}
	s := w.newSession(&protocol.SessionRecord{Workspace: "default", ID: "s", Run: 1, Epoch: testEpoch}, adapter)
	f := &fakeLog{head: 1, durable: 1}
	s.journal, s.phase = f, phaseLive
	s.firstEvents(&snapshot.History{State: s.state, Ledger: s.ledger}, testEpoch, 1, protocol.SessionStart{Type: protocol.TypeSessionStart, Adapter: adapter.Name()})
	s.stdin = newStdin(wr, s)
	s.stderr = newStderrTail(w.cfg.DataDir, s.key, 1, w.log)
	tb.Cleanup(func() {
		s.stdin.close()
		_ = r.Close()
	})
	return s, f, r
}

// ask admits a command and returns a function that tells its answers so far.
func ask(s *session, id, command string, expect *protocol.Expect) func() []protocol.WorkerReply {
	var mu sync.Mutex
	var got []protocol.WorkerReply
	s.admit(&protocol.CommandInput{ID: id, Command: protocol.RawJSON(command), Expect: expect}, func(r protocol.WorkerReply) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, r)
	})
	return func() []protocol.WorkerReply {
		mu.Lock()
		defer mu.Unlock()
		return got
	}
}

var errTest = journal.ErrUnavailable
