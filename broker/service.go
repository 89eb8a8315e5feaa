package broker

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"rejoin/protocol"
)

// serviceQueue is the group in which brokers share the requests of gateways.
const serviceQueue = "brokers"

// serviceStopMax is how long the requests in work may take when a broker stops; then
// they are cut, and whoever asked does not know the outcome.
const serviceStopMax = 5 * time.Second

// serve answers what gateways without a broker of their own ask, until stop. At most
// protocol.BrokerRequestsMax are in work; further ones are refused, overloaded. Stop
// takes no more, other brokers do, and waits for those in work.
func (b *Broker) serve(ctx context.Context) (stop func(), err error) {
	var work sync.WaitGroup
	room := make(chan struct{}, protocol.BrokerRequestsMax)
	handle := func(data []byte, reply func([]byte)) {
		select {
		case room <- struct{}{}:
		default:
			reply(b.encodeReply(&protocol.BrokerReply{
				Error: protocol.Errorf(protocol.ReasonOverloaded, "more than %d requests are in work", protocol.BrokerRequestsMax).Met("BrokerRequestsMax"),
			}))
			return
		}
		work.Go(func() {
			defer func() { <-room }()
			r := b.answer(ctx, data)
			reply(b.encodeReply(&r))
		})
	}
	deaf, err := b.node.Bus().ServeQueue(protocol.BrokerSubject, serviceQueue, handle)
	if err != nil {
		return nil, err
	}
	deafHere, err := b.node.Bus().Serve(protocol.BrokerSubjectOf(b.cfg.ID), handle)
	if err != nil {
		deaf()
		return nil, err
	}
	return func() {
		deaf()
		deafHere()
		limit := time.AfterFunc(serviceStopMax, b.end)
		work.Wait()
		limit.Stop()
	}, nil
}

func (b *Broker) encodeReply(r *protocol.BrokerReply) []byte {
	out, err := encode(r)
	if err != nil {
		b.log.Error("encode reply", slog.Any(protocol.LogError, err))
		return []byte(`{"error":{"reason":"internal","message":"internal error","retryable":false}}`)
	}
	return out
}

// answer carries out one request of a gateway.
func (b *Broker) answer(ctx context.Context, data []byte) protocol.BrokerReply {
	var req protocol.BrokerRequest
	var p Principal
	err := json.Unmarshal(data, &req)
	if err == nil {
		p, err = principalOf(req.Caller)
	}
	if err != nil {
		return protocol.BrokerReply{Error: b.asError(err)}
	}
	var out protocol.BrokerReply
	session := req.Session
	switch req.Op {
	case protocol.AskStart:
		if req.Start == nil {
			err = invalid("the request has no parameters")
			break
		}
		out.Info, err = some(b.Start(ctx, p, *req.Start))
		if out.Info != nil {
			session = out.Info.ID
		}
	case protocol.AskResume:
		out.Info, err = some(b.Resume(ctx, p, req.Session, req.CommandID, req.Expect))
	case protocol.AskStop:
		err = b.Stop(ctx, p, req.Session, time.Duration(req.GraceMs)*time.Millisecond)
	case protocol.AskDelete:
		err = b.Delete(ctx, p, req.Session)
	case protocol.AskTitle:
		err = b.SetTitle(ctx, p, req.Session, req.Title)
	case protocol.AskDrain:
		out.Worker, err = some(b.DrainWorker(ctx, p, req.Worker, req.Drain))
	default:
		err = protocol.Errorf(protocol.ReasonUnsupported, "broker does not know %q", req.Op)
	}
	if err != nil {
		out.Error = b.asError(err)
	}
	if session != "" {
		b.tell(ctx, protocol.Key{Workspace: p.Workspace, Session: session}, &out)
	}
	return out
}

// some is a pointer to v unless there is an error.
func some[T any](v T, err error) (*T, error) {
	if err != nil {
		return nil, err
	}
	return &v, nil
}

// tell adds the session as the registry has it now. Without it whoever asked hears
// from its own watch, a moment later.
func (b *Broker) tell(ctx context.Context, k protocol.Key, out *protocol.BrokerReply) {
	ctx, cancel := context.WithTimeout(ctx, infoTimeout)
	defer cancel()
	e, err := b.registry.fetch(ctx, k)
	if err != nil {
		b.log.Debug("answered without the session's record", slog.String(protocol.LogSession, k.String()), slog.Any(protocol.LogError, err))
		return
	}
	out.Record, out.Revision = e.rec, e.rev
}

// principalOf is who a gateway says that it asks for; it has seen the token.
func principalOf(c protocol.Caller) (Principal, error) {
	role, err := ParseRole(c.Role)
	if err == nil && !protocol.ValidSessionID(c.Workspace) { // it becomes a part of keys and subjects
		err = invalid("%q is no workspace", c.Workspace)
	}
	return Principal{Name: c.Name, Workspace: c.Workspace, Role: role, Token: c.Token, ExpiresMs: c.ExpiresMs}, err
}

// asError makes a protocol.Error of whatever a request failed with; a cause that
// clients must not see goes to the log under a correlation id.
func (b *Broker) asError(err error) *protocol.Error {
	if e, ok := protocol.AsError(outward(err)); ok {
		return e
	}
	e := protocol.Errorf(protocol.ReasonInternal, "internal error")
	e.ID = string(protocol.NewEpoch(b.cfg.Now()))
	b.log.Error("request failed", slog.String("id", e.ID), slog.Any(protocol.LogError, err))
	return e
}
