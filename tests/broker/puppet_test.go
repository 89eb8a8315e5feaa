package broker_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"

	"rejoin/broker"
	"rejoin/journal"
	"rejoin/protocol"
	"rejoin/snapshot"
)

// puppet is a worker without children: sessions are writers, a child is "live"
// from its start to its stop. What it is asked, and when, is counted.
type puppet struct {
	tb    testing.TB
	id    string
	node  *journal.Node
	reg   *broker.Registry
	folds *snapshot.Reader
	unreg func()

	mu       sync.Mutex
	sessions map[protocol.Key]*live
	asked    map[protocol.WorkerOp]int
	refuse   func(protocol.WorkerRequest) *protocol.WorkerReply // not nil, and its answer not nil: that is the answer
	hold     chan struct{}                                      // not nil: start and resume wait for its end
	wg       sync.WaitGroup
}

type live struct {
	rec    protocol.SessionRecord
	w      *journal.Writer
	ledger *snapshot.Ledger
	status protocol.Status
	title  string
}

func newPuppet(tb testing.TB, id string, node *journal.Node, reg *broker.Registry, folds *snapshot.Reader) *puppet {
	tb.Helper()
	p := &puppet{
		tb: tb, id: id, node: node, reg: reg, folds: folds,
		sessions: make(map[protocol.Key]*live), asked: make(map[protocol.WorkerOp]int),
	}
	stop, err := node.Bus().Serve(protocol.WorkerSubject(id), func(data []byte, reply func([]byte)) {
		p.wg.Go(func() { p.serve(data, reply) })
	})
	if err != nil {
		tb.Fatalf("serve: %v", err)
	}
	p.unreg = sync.OnceFunc(stop)
	return p
}

// die is a kill: nothing is written any more, nobody is told.
func (p *puppet) die() {
	p.unreg()
	p.mu.Lock()
	if p.hold != nil {
		close(p.hold)
		p.hold = nil
	}
	p.mu.Unlock()
	p.wg.Wait()
	for _, s := range p.sessions {
		if err := s.w.Close(p.tb.Context()); err != nil && !errors.Is(err, journal.ErrFenced) && !errors.Is(err, journal.ErrClosed) {
			p.tb.Errorf("close writer: %v", err)
		}
	}
	p.sessions = make(map[protocol.Key]*live)
}

func (p *puppet) count(op protocol.WorkerOp) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked[op]
}

func (p *puppet) setRefuse(f func(protocol.WorkerRequest) *protocol.WorkerReply) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = f
}

func (p *puppet) setHold(hold chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hold = hold
}

func (p *puppet) session(k protocol.Key) *live {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sessions[k]
}

func (p *puppet) serve(data []byte, reply func([]byte)) {
	var req protocol.WorkerRequest
	if err := json.Unmarshal(data, &req); err != nil {
		p.tb.Errorf("request: %v", err)
		return
	}
	p.mu.Lock()
	p.asked[req.Op]++
	refuse, hold := p.refuse, p.hold
	p.mu.Unlock()
	var out *protocol.WorkerReply
	if refuse != nil {
		out = refuse(req)
	}
	if out == nil {
		if hold != nil && (req.Op == protocol.OpStart || req.Op == protocol.OpResume) {
			<-hold
		}
		r := p.do(p.tb.Context(), req)
		out = &r
	}
	answer, err := json.Marshal(out)
	if err != nil {
		p.tb.Errorf("reply: %v", err)
		return
	}
	reply(answer)
}

func (p *puppet) do(ctx context.Context, req protocol.WorkerRequest) protocol.WorkerReply {
	k := protocol.Key{Workspace: req.Workspace, Session: req.Session}
	if req.Op == protocol.OpStart {
		return p.begin(ctx, req.Record, req.Record.Epoch, protocol.SessionStart{
			Type: protocol.TypeSessionStart, Agent: req.Record.Agent, Adapter: req.Record.Adapter, PID: 1, Run: req.Record.Run, Title: req.Record.Title,
		})
	}
	if req.Op == protocol.OpResume {
		return p.begin(ctx, req.Record, "", protocol.SessionResumed{Type: protocol.TypeSessionResumed, Run: req.Record.Run})
	}
	if req.Op == protocol.OpFiles {
		return protocol.WorkerReply{}
	}
	if req.Op == protocol.OpInfo && req.Session == "" {
		p.mu.Lock()
		defer p.mu.Unlock()
		var out protocol.WorkerReply
		for _, s := range p.sessions {
			out.Infos = append(out.Infos, protocol.LiveInfo{Workspace: s.rec.Workspace, SessionInfo: s.info()})
		}
		return out
	}
	s := p.session(k)
	if s == nil {
		return protocol.WorkerReply{NotOwner: true}
	}
	switch req.Op {
	case protocol.OpInfo:
		return protocol.WorkerReply{Infos: []protocol.LiveInfo{{Workspace: k.Workspace, SessionInfo: s.info()}}}
	case protocol.OpStop:
		if req.Move {
			p.interrupt(ctx, k)
			return protocol.WorkerReply{}
		}
		p.exit(ctx, k, protocol.SessionEnd{Type: protocol.TypeSessionEnd, Reason: protocol.EndStopped})
		return protocol.WorkerReply{}
	case protocol.OpTitle:
		s.title = req.Title
		p.append(ctx, s, protocol.SessionTitle{Type: protocol.TypeSessionTitle, Title: req.Title})
		p.update(ctx, s, func(r *protocol.SessionRecord) { r.Title = req.Title })
		return protocol.WorkerReply{}
	case protocol.OpCommand:
		return p.admit(ctx, s, req.Command)
	case protocol.OpStatus:
		var out protocol.WorkerReply
		for _, id := range req.IDs {
			out.Statuses = append(out.Statuses, s.ledger.Status(id))
		}
		return out
	default:
		p.tb.Errorf("unexpected %s", req.Op)
		return protocol.WorkerReply{NotOwner: true}
	}
}

func (p *puppet) begin(ctx context.Context, rec *protocol.SessionRecord, epoch protocol.Epoch, body any) protocol.WorkerReply {
	s := &live{rec: *rec, ledger: snapshot.NewLedger(), status: protocol.StatusIdle, title: rec.Title}
	w, err := p.node.OpenWriter(ctx, journal.WriterConfig{
		Log: journal.Log{Key: rec.Key(), Shard: rec.Shard}, Run: rec.Run, Epoch: epoch, MinHead: rec.Head,
		First: func(ctx context.Context, t journal.Tail, base protocol.Seq) ([]*protocol.Event, error) {
			if !t.Empty {
				h, err := p.folds.Load(ctx, journal.Log{Key: rec.Key(), Shard: rec.Shard}, t.Head)
				if err != nil {
					return nil, err
				}
				s.ledger = h.Ledger
			}
			return []*protocol.Event{s.event(body)}, nil
		},
		Deleted: func(ctx context.Context) (bool, error) { return p.reg.Deleted(ctx, rec.Key()) },
	})
	if err != nil {
		return protocol.WorkerReply{Error: protocol.Errorf(protocol.ReasonInternal, "%v", err)}
	}
	s.w = w
	p.update(ctx, s, func(r *protocol.SessionRecord) {
		r.Status, r.Head, r.PID, r.Exit, r.Host = protocol.StatusIdle, w.Durable(), 4711, nil, protocol.WorkerOf(p.id)
	})
	p.mu.Lock() // only now: whoever sees the session live may end the test
	p.sessions[rec.Key()] = s
	p.mu.Unlock()
	info := s.info()
	return protocol.WorkerReply{Info: &info}
}

func (p *puppet) admit(ctx context.Context, s *live, in *protocol.CommandInput) protocol.WorkerReply {
	if known, ok := s.ledger.Lookup(in.ID); ok {
		return protocol.WorkerReply{Result: &protocol.SendResult{SessionID: s.rec.ID, Status: "sent", CommandID: in.ID, Seq: known.Seq, Duplicate: true}}
	}
	e := p.append(ctx, s, protocol.CommandEvent{Type: protocol.TypeCommand, CommandID: in.ID, Client: in.Client, Command: in.Command})
	s.ledger.Apply(e)
	return protocol.WorkerReply{Result: &protocol.SendResult{SessionID: s.rec.ID, Status: "sent", CommandID: in.ID, Seq: e.Seq}}
}

// print appends a line of the child.
func (p *puppet) print(ctx context.Context, k protocol.Key, line string) {
	p.tb.Helper()
	s := p.session(k)
	e := &protocol.Event{Run: s.rec.Run, Source: protocol.SourceChild, Body: []byte(line)}
	if _, err := s.w.Append(e, nil); err != nil {
		p.tb.Fatalf("append: %v", err)
	}
	if err := s.w.Flush(ctx); err != nil {
		p.tb.Fatalf("flush: %v", err)
	}
}

// exit ends a session as its owner does.
func (p *puppet) exit(ctx context.Context, k protocol.Key, end protocol.SessionEnd) {
	p.end(ctx, k, end, func(r *protocol.SessionRecord) {
		r.Status = protocol.StatusEnded
		r.Exit = &protocol.Exit{Code: end.ExitCode, Signal: end.Signal, Reason: end.Reason}
	})
}

// interrupt ends a run as a worker's own end does, where the policy brings it back.
func (p *puppet) interrupt(ctx context.Context, k protocol.Key) {
	last := protocol.SessionInterrupted{Type: protocol.TypeSessionInterrupted, Reason: protocol.InterruptedStop}
	p.end(ctx, k, last, func(r *protocol.SessionRecord) { r.Status = protocol.StatusInterrupted })
}

func (p *puppet) end(ctx context.Context, k protocol.Key, last any, change func(*protocol.SessionRecord)) {
	s := p.session(k)
	p.append(ctx, s, last)
	p.mu.Lock()
	delete(p.sessions, k)
	p.mu.Unlock()
	if err := s.w.Close(ctx); err != nil {
		p.tb.Errorf("close: %v", err)
	}
	p.update(ctx, s, func(r *protocol.SessionRecord) {
		r.Owner, r.PID, r.Head = "", 0, s.w.Head()
		change(r)
	})
}

// lose forgets a session without a word to anybody.
func (p *puppet) lose(k protocol.Key) {
	p.mu.Lock()
	s := p.sessions[k]
	delete(p.sessions, k)
	p.mu.Unlock()
	if err := s.w.Close(p.tb.Context()); err != nil {
		p.tb.Errorf("close writer: %v", err)
	}
}

func (p *puppet) append(ctx context.Context, s *live, body any) *protocol.Event {
	e := s.event(body)
	seq, err := s.w.Append(e, nil)
	if err == nil {
		err = s.w.Flush(ctx)
	}
	if err != nil {
		p.tb.Errorf("append: %v", err)
	}
	e.Seq = seq
	return e
}

func (p *puppet) update(ctx context.Context, s *live, f func(*protocol.SessionRecord)) {
	if err := p.reg.Update(ctx, s.rec.Key(), s.rec.Run, f); err != nil {
		p.tb.Errorf("update: %v", err)
	}
}

func (s *live) event(body any) *protocol.Event {
	b, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	return &protocol.Event{Run: s.rec.Run, Source: protocol.SourceBroker, Body: b}
}

func (s *live) info() protocol.SessionInfo {
	r := s.rec
	r.Status, r.Title, r.Head, r.Epoch, r.PID = s.status, s.title, s.w.Durable(), s.w.Epoch(), 4711
	return r.Info()
}
