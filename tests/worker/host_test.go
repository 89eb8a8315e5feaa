package worker_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"rejoin/agent"
	"rejoin/agent/jsonl"
	"rejoin/agent/lines"
	"rejoin/agent/pi"
	"rejoin/journal"
	"rejoin/protocol"
	"rejoin/snapshot"
	"rejoin/tests/harness"
	"rejoin/worker"
)

// registry is the least that a worker needs of one.
type registry struct {
	mu      sync.Mutex
	records map[protocol.Key]protocol.SessionRecord
	refuse  error // what Update answers instead
}

func (r *registry) Update(_ context.Context, k protocol.Key, run protocol.Run, change func(*protocol.SessionRecord)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refuse != nil {
		return r.refuse
	}
	rec, ok := r.records[k]
	if !ok || rec.Run != run {
		return worker.ErrNotOwner
	}
	change(&rec)
	r.records[k] = rec
	return nil
}

func (r *registry) Confirm(ctx context.Context, k protocol.Key, run protocol.Run) error {
	return r.Update(ctx, k, run, func(*protocol.SessionRecord) {})
}

func (r *registry) Deleted(context.Context, protocol.Key) (bool, error) { return false, nil }

func (r *registry) put(rec protocol.SessionRecord) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.records[rec.Key()] = rec
}

func (r *registry) get(k protocol.Key) protocol.SessionRecord {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.records[k]
}

func (r *registry) setRefuse(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refuse = err
}

// records is a registry that a test may write to.
type records interface {
	worker.Registry
	put(rec protocol.SessionRecord)
	get(k protocol.Key) protocol.SessionRecord
}

// host is a worker with what it needs.
type host struct {
	tb    testing.TB
	dir   string
	owner string // the worker's bus address
	node  *journal.Node
	reg   records
	own   *registry // reg, of a worker on a journal of its own
	w     *worker.Worker
	stop  func() // ends the worker; idempotent
}

var adapters = map[string]agent.Adapter{"jsonl": jsonl.Adapter{}, "lines": lines.Adapter{}, "pi": pi.Adapter{}}

type hostConfig struct {
	maxBytes      int64
	eventBytesMax int
	sessionsMax   int
}

func newHost(tb testing.TB, c hostConfig) *host {
	tb.Helper()
	if c.maxBytes == 0 {
		c.maxBytes = 256 << 20
	}
	log := slog.New(slog.NewTextHandler(tb.Output(), nil))
	h := &host{tb: tb, dir: tb.TempDir(), owner: "w1", own: &registry{records: make(map[protocol.Key]protocol.SessionRecord)}}
	h.reg = h.own
	node, err := journal.Start(harness.Context(tb), journal.Config{
		Dir: h.dir, Durability: journal.Durability{Interval: 500 * time.Millisecond}, MaxBytes: c.maxBytes, Logger: log,
	})
	if err != nil {
		tb.Fatalf("journal: %v", err)
	}
	h.node = node
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
		defer cancel()
		if err := node.Close(ctx); err != nil {
			tb.Errorf("close the journal: %v", err)
		}
	})
	w, err := worker.New(worker.Config{
		ID: "w1", DataDir: h.dir, Adapters: adapters,
		EventBytesMax: c.eventBytesMax, SessionsMax: c.sessionsMax, Logger: log,
	}, node, h.reg, snapshot.NewReader(node, adapters, 0))
	if err != nil {
		tb.Fatalf("worker: %v", err)
	}
	h.w = w
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	h.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			tb.Errorf("Run: %v", err)
		}
	})
	tb.Cleanup(h.stop)
	h.awaitServing()
	return h
}

func (h *host) awaitServing() {
	h.tb.Helper()
	harness.Eventually(h.tb, "the worker serves", func() bool {
		_, err := h.try(protocol.WorkerRequest{Op: protocol.OpInfo})
		return err == nil
	})
}

func (h *host) try(req protocol.WorkerRequest) (protocol.WorkerReply, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(req); err != nil {
		return protocol.WorkerReply{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	defer cancel()
	b, err := h.node.Bus().Request(ctx, protocol.WorkerSubject(h.owner), buf.Bytes())
	if err != nil {
		return protocol.WorkerReply{}, err
	}
	var r protocol.WorkerReply
	return r, json.Unmarshal(b, &r)
}

func (h *host) ask(req protocol.WorkerRequest) protocol.WorkerReply {
	h.tb.Helper()
	r, err := h.try(req)
	if err != nil {
		h.tb.Fatalf("%s: %v", req.Op, err)
	}
	return r
}

// sess is a session under test.
type sess struct {
	h   *host
	key protocol.Key
	log journal.Log
}

// record makes a record of a new session and registers it.
func (h *host) record(id, adapter string, argv []string) protocol.SessionRecord {
	k := protocol.Key{Workspace: protocol.DefaultWorkspace, Session: id}
	rec := protocol.SessionRecord{
		Workspace: k.Workspace, ID: id, Shard: h.node.ShardOf(k), Epoch: protocol.NewEpoch(time.Now()), Run: 1,
		Owner: h.owner, Status: protocol.StatusStarting, Agent: "test", Adapter: adapter, Argv: argv, Cwd: h.dir, Floor: 1,
	}
	h.reg.put(rec)
	return rec
}

func (h *host) launch(op protocol.WorkerOp, rec protocol.SessionRecord) (*sess, protocol.WorkerReply) {
	h.tb.Helper()
	s := &sess{h: h, key: rec.Key(), log: journal.Log{Key: rec.Key(), Shard: rec.Shard}}
	return s, h.ask(protocol.WorkerRequest{Op: op, Workspace: rec.Workspace, Session: rec.ID, Record: &rec})
}

// start starts a session; argv names a child of this test binary.
func (h *host) start(id, adapter, child string, args ...string) *sess {
	h.tb.Helper()
	s, r := h.launch(protocol.OpStart, h.record(id, adapter, harness.ChildArgv(child, args...)))
	if r.Info == nil {
		h.tb.Fatalf("start: %+v", r)
	}
	return s
}

func (s *sess) req(op protocol.WorkerOp) protocol.WorkerRequest {
	return protocol.WorkerRequest{Op: op, Workspace: s.key.Workspace, Session: s.key.Session}
}

func (s *sess) send(id string, command string, expect *protocol.Expect) protocol.WorkerReply {
	s.h.tb.Helper()
	req := s.req(protocol.OpCommand)
	req.Command = &protocol.CommandInput{
		ID: id, Command: protocol.RawJSON(command), Client: protocol.CommandClient{Name: "t", Connection: 1}, Expect: expect,
	}
	return s.h.ask(req)
}

func (s *sess) stop(grace time.Duration) protocol.WorkerReply {
	s.h.tb.Helper()
	req := s.req(protocol.OpStop)
	req.GraceMs = grace.Milliseconds()
	return s.h.ask(req)
}

func (s *sess) outcome(id string) protocol.CommandStatus {
	s.h.tb.Helper()
	req := s.req(protocol.OpStatus)
	req.IDs = []string{id}
	r := s.h.ask(req)
	if len(r.Statuses) != 1 {
		s.h.tb.Fatalf("status of %s: %+v", id, r)
	}
	return r.Statuses[0]
}

// events reads the whole log and checks that it is dense.
func (s *sess) events() []protocol.Event {
	s.h.tb.Helper()
	ctx := harness.Context(s.h.tb)
	tail, err := s.h.node.Tail(ctx, s.log)
	if err != nil {
		s.h.tb.Fatalf("tail: %v", err)
	}
	var out []protocol.Event
	for protocol.Seq(len(out)) < tail.Head {
		recs, err := s.h.node.Read(ctx, s.log, protocol.Seq(len(out)), 1<<20)
		if err != nil {
			s.h.tb.Fatalf("read: %v", err)
		}
		for _, r := range recs {
			for i := range r.Len() {
				e, err := protocol.ParseEventLine(r.Line(i))
				if err != nil {
					s.h.tb.Fatalf("parse: %v", err)
				}
				if e.Seq <= protocol.Seq(len(out)) {
					continue
				}
				if e.Seq != protocol.Seq(len(out))+1 {
					s.h.tb.Fatalf("event %d follows %d", e.Seq, len(out))
				}
				out = append(out, e)
			}
		}
	}
	return out
}

// typeOf is the type of a broker event, or "child".
func typeOf(e protocol.Event) string {
	if e.Source == protocol.SourceChild {
		return "child"
	}
	var b struct{ Type string }
	if json.Unmarshal(e.Body, &b) != nil {
		return "?"
	}
	return b.Type
}

// awaitEvent waits for an event that ok accepts.
func (s *sess) awaitEvent(what string, ok func(protocol.Event) bool) (found protocol.Event) {
	s.h.tb.Helper()
	harness.Eventually(s.h.tb, what, func() bool {
		events := s.events()
		i := slices.IndexFunc(events, ok)
		if i >= 0 {
			found = events[i]
		}
		return i >= 0
	})
	return found
}

func (s *sess) awaitChild(body string) {
	s.h.tb.Helper()
	s.awaitEvent("the child prints "+body, func(e protocol.Event) bool {
		return e.Source == protocol.SourceChild && string(e.Body) == body
	})
}

// awaitEnd waits until the session has left the worker and returns its last event.
func (s *sess) awaitEnd() protocol.SessionEnd {
	s.h.tb.Helper()
	harness.Eventually(s.h.tb, "the session leaves", func() bool { return s.h.ask(s.req(protocol.OpInfo)).NotOwner })
	events := s.events()
	last := events[len(events)-1]
	var end protocol.SessionEnd
	if err := json.Unmarshal(last.Body, &end); err != nil || end.Type != protocol.TypeSessionEnd {
		s.h.tb.Fatalf("last event is %s", last.Body)
	}
	return end
}

func (s *sess) record() protocol.SessionRecord { return s.h.reg.get(s.key) }

func types(events []protocol.Event) []string {
	var out []string
	for _, e := range events {
		out = append(out, typeOf(e))
	}
	return out
}

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

func reasonOf(r protocol.WorkerReply) protocol.Reason {
	if r.Error == nil {
		return ""
	}
	return r.Error.Reason
}

func describe(end protocol.SessionEnd) string {
	code, sig := "null", "null"
	if end.ExitCode != nil {
		code = strconv.Itoa(*end.ExitCode)
	}
	if end.Signal != nil {
		sig = *end.Signal
	}
	return fmt.Sprintf("%s %s %s", end.Reason, code, sig)
}

var errAway = errors.New("registry is away")
