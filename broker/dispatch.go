package broker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"rejoin/journal"
	"rejoin/protocol"
)

// How long an owner may take to answer.
const (
	startTimeout = 30 * time.Second // start, resume: spawn and the first record
	infoTimeout  = 2 * time.Second  // info, title: no child is involved
	stopMargin   = 10 * time.Second // stop: on top of the kill ladder's grace
	abortTimeout = 20 * time.Second // what is tried after a start went wrong: a stop and a few writes
)

// errNoAnswer: the owner may have done what it was asked, or not.
var errNoAnswer = errors.New("broker: the worker did not answer")

// ask sends a request to a worker and returns its reply. Errors: journal.ErrNoOwner
// when no such worker serves, or it is known to be no more: nobody was asked;
// reply.Error; errNoAnswer when nothing is known: in time, or because the worker is found
// to be no more meanwhile.
func (b *Broker) ask(
	ctx context.Context, worker string, timeout time.Duration, req protocol.WorkerRequest,
) (protocol.WorkerReply, error) {
	data, err := encode(req)
	if err != nil {
		return protocol.WorkerReply{}, fmt.Errorf("encode %s request: %w", req.Op, err)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if b.roster != nil {
		defer b.roster.whenGone(worker, cancel)()
		if b.roster.absent(ctx, worker) {
			return protocol.WorkerReply{}, journal.ErrNoOwner
		}
	}
	answer, err := b.node.Bus().Request(ctx, protocol.WorkerSubject(worker), data)
	if errors.Is(err, journal.ErrNoOwner) {
		return protocol.WorkerReply{}, err
	}
	if err != nil {
		return protocol.WorkerReply{}, fmt.Errorf("%s: %w: %w", req.Op, errNoAnswer, err)
	}
	var reply protocol.WorkerReply
	if err := json.Unmarshal(answer, &reply); err != nil {
		return protocol.WorkerReply{}, fmt.Errorf("decode %s reply: %w", req.Op, err)
	}
	if reply.Error != nil {
		return reply, reply.Error
	}
	return reply, nil
}

// askOwner asks the owner of a session. Where others write the registry too, the
// copy in memory may be behind: when nobody has the session there, it is looked up
// in the bucket, and a newer owner is asked. served is false when nobody has it;
// rec is the session as it is known then. I-R2
func (b *Broker) askOwner(
	ctx context.Context, rec *protocol.SessionRecord, timeout time.Duration, req protocol.WorkerRequest,
) (reply protocol.WorkerReply, now *protocol.SessionRecord, served bool, err error) {
	for fresh := !b.cfg.split(); ; fresh = true {
		if owned(rec) {
			reply, err = b.ask(ctx, rec.Owner, timeout, req)
			switch {
			case err == nil && !reply.NotOwner:
				return reply, rec, true, nil
			case err != nil && !errors.Is(err, journal.ErrNoOwner):
				return reply, rec, false, err
			}
		}
		if fresh {
			return reply, rec, false, nil
		}
		newest, rerr := b.registry.Record(ctx, rec.Key())
		switch {
		case rerr != nil:
			return reply, rec, false, rerr
		case newest == nil || newest.Deleting || newest.Deleted:
			return reply, rec, false, protocol.ErrSessionNotFound(rec.ID)
		}
		rec = newest
	}
}

// encode is json.Marshal that leaves <, > and & in a client's bytes alone.
func encode(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// request is a WorkerRequest about one session.
func request(op protocol.WorkerOp, k protocol.Key) protocol.WorkerRequest {
	return protocol.WorkerRequest{Op: op, Workspace: k.Workspace, Session: k.Session}
}

// outward turns an error of this package or of the journal into what a client
// is told; what is nobody's but ours to explain passes unchanged.
func outward(err error) error {
	if err == nil {
		return nil
	}
	if e, ok := protocol.AsError(err); ok {
		return e
	}
	switch {
	case errors.Is(err, errNoAnswer):
		return protocol.Errorf(protocol.ReasonOutcomeUnknown, "the answer was lost on the way; ask again")
	case errors.Is(err, journal.ErrNoOwner):
		return noWorker()
	case errors.Is(err, journal.ErrFenced),
		errors.Is(err, journal.ErrExists), errors.Is(err, journal.ErrRevision):
		return protocol.Errorf(protocol.ReasonConflict, "another request changed the session at the same time")
	case errors.Is(err, journal.ErrUnavailable), errors.Is(err, journal.ErrClosed),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return protocol.Errorf(protocol.ReasonJournalUnavailable, "the journal does not answer; ask again")
	}
	return err
}

// explain is outward, but says why the journal took nothing if it knows.
func (b *Broker) explain(rec *protocol.SessionRecord, err error) error {
	out := outward(err)
	if e, ok := protocol.AsError(out); ok && e.Reason == protocol.ReasonJournalUnavailable {
		if why := b.node.ShardHealth(rec.Shard).Err(); why != nil {
			return why
		}
	}
	return out
}

// noWorker is what a client is told when the worker that is needed does not run.
func noWorker() *protocol.Error { return unavailableNow("no worker is running; ask again") }

// unavailableNow says that something which is not there is likely to come.
func unavailableNow(format string, args ...any) *protocol.Error {
	e := protocol.Errorf(protocol.ReasonSessionUnavailable, format, args...)
	e.Retryable = true
	return e
}
