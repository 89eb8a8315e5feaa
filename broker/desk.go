package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"rejoin/journal"
	"rejoin/protocol"
)

// How long a desk waits for a broker's answer: longer than the broker may be at it.
const (
	deskStart  = 2 * (startTimeout + abortTimeout)
	deskResume = 2*startTimeout + abortTimeout
	deskDelete = protocol.GraceDefault + 2*stopMargin + startTimeout + abortTimeout
	deskTitle  = protocol.DispatchTimeout + startTimeout + abortTimeout
	deskDrain  = 2 * protocol.DispatchTimeout
)

// deskStop is the same for a stop with that grace.
func deskStop(grace time.Duration) time.Duration {
	return 2*(grace+stopMargin) + startTimeout + abortTimeout
}

// forward leaves a request of p to whichever broker takes it. What a broker
// changed is known here when it returns. Errors: retryable while no broker
// runs; outcome_unknown when none answered.
func (b *Broker) forward(ctx context.Context, p Principal, timeout time.Duration, req protocol.BrokerRequest) (protocol.BrokerReply, error) {
	if err := b.await(ctx); err != nil {
		return protocol.BrokerReply{}, err
	}
	req.Caller = protocol.Caller{Name: p.Name, Workspace: p.Workspace, Role: p.Role.String(), Token: p.Token, ExpiresMs: p.ExpiresMs}
	data, err := encode(req)
	if err != nil {
		return protocol.BrokerReply{}, fmt.Errorf("encode %s request: %w", req.Op, err)
	}
	ctx, done := b.work(ctx, timeout)
	defer done()
	answer, err := b.askBrokers(ctx, data)
	switch {
	case errors.Is(err, journal.ErrNoOwner):
		return protocol.BrokerReply{}, unavailableNow("no broker is running; ask again")
	case err != nil:
		return protocol.BrokerReply{}, outward(fmt.Errorf("%s: %w: %w", req.Op, errNoAnswer, err))
	}
	var reply protocol.BrokerReply
	if err := json.Unmarshal(answer, &reply); err != nil {
		return protocol.BrokerReply{}, fmt.Errorf("decode %s reply: %w", req.Op, err)
	}
	if reply.Record != nil {
		b.registry.put(reply.Record.Key(), reply.Record, reply.Revision)
	}
	if reply.Error != nil {
		return reply, reply.Error
	}
	return reply, nil
}

// askBrokers asks one of the brokers that are known to run, and when it falls silent
// gives it up; one that does not serve was not asked. Without any that is known,
// whichever serves is asked.
func (b *Broker) askBrokers(ctx context.Context, data []byte) ([]byte, error) {
	for _, id := range b.roster.singing() {
		answer, err := b.askBroker(ctx, id, data)
		if !errors.Is(err, journal.ErrNoOwner) {
			return answer, err
		}
	}
	return b.node.Bus().Request(ctx, protocol.BrokerSubject, data)
}

// askBroker asks one broker, for as long as its canary is heard.
func (b *Broker) askBroker(ctx context.Context, id string, data []byte) ([]byte, error) {
	ctx, giveUp := context.WithCancel(ctx)
	defer giveUp()
	heard := b.roster.whenSilent(ctx, id, giveUp)
	defer heard()
	return b.node.Bus().Request(ctx, protocol.BrokerSubjectOf(id), data)
}

// forwardInfo is forward for what answers with a session.
func (b *Broker) forwardInfo(ctx context.Context, p Principal, timeout time.Duration, req protocol.BrokerRequest) (protocol.SessionInfo, error) {
	reply, err := b.forward(ctx, p, timeout, req)
	if err == nil && reply.Info == nil {
		err = outward(errNoAnswer)
	}
	if err != nil {
		return protocol.SessionInfo{}, err
	}
	return *reply.Info, nil
}

// forwardDone is forward for what answers with nothing.
func (b *Broker) forwardDone(ctx context.Context, p Principal, timeout time.Duration, req protocol.BrokerRequest) error {
	_, err := b.forward(ctx, p, timeout, req)
	return err
}
